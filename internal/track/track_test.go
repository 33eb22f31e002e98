package track_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/track"
	"github.com/quipudb/quipu/store"
)

var seed = flag.Uint64("seed", 0, "seed of the random test; 0 picks one")

// What a client believes to know is what it has read and was not told to forget: the table
// tells at least of every change of that, and of nothing of clients that are gone; and it
// stays within its limits.
func TestRandom(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	for i := range uint64(200) {
		random(t, first+i)
	}
}

func random(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	limit := 1 + r.IntN(30)
	table := track.New(limit)
	values := map[track.Name]store.Value{}
	believed := map[int64]map[track.Name]store.Value{} // of clients that are there
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\nreplay: go test ./internal/track -run TestRandom -args -seed=%d", fmt.Sprintf(format, args...), seed)
	}
	tell := func(id int64, key string, all bool) {
		if believed[id] == nil {
			fail("client %d is gone, and told of %q", id, key)
		}
		for name := range believed[id] {
			if all || name.Key == key {
				delete(believed[id], name)
			}
		}
	}
	pick := func() track.Name { return track.Name{Space: "s", Key: fmt.Sprint(r.IntN(40))} }
	now := int64(0)
	for range 400 {
		now++
		id, name := int64(r.IntN(6)), pick()
		switch r.IntN(12) {
		case 0:
			if believed[id] == nil {
				believed[id] = map[track.Name]store.Value{}
				table.Join(id)
			}
		case 1:
			if r.IntN(4) == 0 {
				table.Leave(id)
				delete(believed, id)
			}
		case 2, 3, 4, 5, 6: // read: first the table, then the value
			if believed[id] == nil {
				continue
			}
			seen := track.Look(values[name])
			if r.IntN(10) == 0 {
				seen = track.Seen{}
			}
			var again bool
			table.Read(id, name, seen, func(to int64, key string, all bool) {
				tell(to, key, all)
				again = again || to == id && (all || key == name.Key)
			})
			if !again {
				believed[id][name] = values[name]
			}
		case 7, 8: // a write that is told
			values[name] = store.Value{N: r.Int64N(3), Exists: true, Version: uint64(now)}
			table.Changed(name, tell)
		case 9: // one that is not, or a deadline
			values[name] = store.Value{N: r.Int64N(3), Exists: true, Version: uint64(now), DeadlineMS: now + r.Int64N(20)}
		case 10:
			for _, n := range table.Next(r.IntN(5), func(track.Name) int64 { return now }) {
				table.Judge(n, track.Look(values[n]), tell)
			}
		case 11:
			switch r.IntN(6) {
			case 0:
				table.Flushed(func(id int64) bool { return id%2 == 0 }, tell)
			case 1:
				limit = 1 + r.IntN(30)
				table.Resize(limit, tell)
			}
		}
		pairs := 0
		for _, knows := range believed {
			pairs += len(knows)
		}
		if table.Items() < pairs {
			fail("%d items, and clients believe %d things", table.Items(), pairs)
		}
		if table.Keys() > limit || table.Items() > 4*limit+1 {
			fail("%d keys, %d items, with a limit of %d", table.Keys(), table.Items(), limit)
		}
	}
	for range 100 { // looks that have seen all of them
		for _, n := range table.Next(10, func(track.Name) int64 { return now + 100 }) {
			table.Judge(n, track.Look(values[n]), tell)
		}
	}
	for id, knows := range believed {
		for name, v := range knows {
			if v != values[name] {
				fail("client %d believes %v, and %v is %v", id, v, name, values[name])
			}
		}
	}
	for id := range believed {
		table.Leave(id)
	}
	for range 10 {
		table.Next(100, func(track.Name) int64 { return 0 })
	}
	if table.Keys() != 0 || table.Items() != 0 {
		fail("%d keys, %d items when all are gone", table.Keys(), table.Items())
	}
}

// A deadline that has passed is looked at before anything else.
func TestDeadlines(t *testing.T) {
	table := track.New(1000)
	table.Join(1)
	nobody := func(int64, string, bool) { t.Error("told") }
	for i := range 100 {
		v := store.Value{Exists: true, N: 1, Version: 1, DeadlineMS: int64(1000 - i)}
		table.Read(1, track.Name{Key: fmt.Sprint(i)}, track.Look(v), nobody)
	}
	next := func(n int, now int64) (keys []string) {
		for _, name := range table.Next(n, func(track.Name) int64 { return now }) {
			keys = append(keys, name.Key)
		}
		return keys
	}
	if got := next(3, 902); !slices.Equal(got, []string{"99", "98", "0"}) {
		t.Errorf("%q", got)
	}
	// Judged as not over yet, it is looked at again.
	table.Judge(track.Name{Key: "99"}, track.Look(store.Value{Exists: true, N: 1, Version: 1, DeadlineMS: 901}), nobody)
	if got := next(1, 902); !slices.Equal(got, []string{"99"}) {
		t.Errorf("%q", got)
	}
}

func TestListen(t *testing.T) {
	table := track.New(10)
	var told []string
	tell := func(id int64, key string, _ bool) { told = append(told, fmt.Sprint(id, key)) }
	f := func(space, key string, want ...string) {
		t.Helper()
		told = nil
		table.Changed(track.Name{Space: space, Key: key}, tell)
		if slices.Sort(told); !slices.Equal(told, want) {
			t.Errorf("%s: told %q, want %q", key, told, want)
		}
	}
	for id := range int64(3) {
		table.Join(id)
	}
	table.Listen(0, "s", []string{""})
	table.Listen(1, "s", []string{"user:", "po"})
	f("s", "user:1", "0user:1", "1user:1")
	f("s", "post", "0post", "1post")
	f("s", "p", "0p")
	f("other", "post")
	table.Move(1, "other")
	f("other", "post", "1post")
	table.Leave(1)
	f("other", "post")
	if table.Prefixes() != 1 {
		t.Errorf("%d prefixes", table.Prefixes())
	}
	var many []string
	for i := range track.PrefixesMax {
		many = append(many, fmt.Sprint(i))
	}
	if table.Listen(2, "s", many) || !table.Listen(2, "s", many[1:]) || table.Prefixes() != track.PrefixesMax {
		t.Errorf("%d prefixes", table.Prefixes())
	}
}

// A client that reads more than its share is told to forget everything, and nobody else
// loses anything to it.
func TestShare(t *testing.T) {
	table := track.New(100)
	table.Join(1)
	table.Join(2)
	all := 0
	tell := func(id int64, key string, everything bool) {
		if id != 2 || !everything {
			t.Errorf("%d told of %q", id, key)
		}
		all++
	}
	table.Read(1, track.Name{Key: "mine"}, track.Look(store.Value{}), tell)
	for i := range 99 { // as many as fit
		table.Read(2, track.Name{Key: fmt.Sprint(i)}, track.Look(store.Value{}), tell)
	}
	if all != 1 || table.Items() != 1+49 || table.Evicted() != 1 {
		t.Errorf("told %d times, %d items are left", all, table.Items())
	}
}
