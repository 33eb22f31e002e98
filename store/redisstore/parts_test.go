package redisstore_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/redisstore"
)

// Short names for what events are made of.

func window(epoch store.Epoch, start int64) store.Part {
	return store.PartFields{Kind: store.PartWindow, View: 1, Epoch: epoch, Position: start}.Part()
}

func member(name string) store.Part {
	return store.PartFields{Kind: store.PartMember, Name: name}.Part()
}

var (
	held    = store.PartFields{Kind: store.PartHeld}.Part()
	outside = store.PartFields{Kind: store.PartOutside, View: 1}.Part()
	book    = store.PartFields{Kind: store.PartBook}.Part()
	entries = store.PartFields{Kind: store.PartEntries, View: 1, Epoch: 7}.Part()
)

func with(d store.Delta, riders ...store.Rider) store.Delta {
	d.Event = &store.Event{Riders: riders}
	return d
}

// sharing is with, for riders that many events share.
func sharing(t testing.TB, d store.Delta, riders ...store.Rider) store.Delta {
	plan, err := store.NewPlan(riders...)
	if err != nil {
		t.Fatal(err)
	}
	d.Event = &store.Event{Plan: plan}
	return d
}

func led(d store.Delta, p store.Part, riders ...store.Rider) store.Delta {
	d = with(d, riders...)
	d.Event.Part = p
	return d
}

func rides(p store.Part, n int64) store.Rider { return store.Rider{Part: p, Op: store.OpAdd, N: n} }

func applied(p store.Part) store.Rider {
	return store.Rider{Part: p, Op: store.OpAdd, Amount: store.AmountApplied}
}

func line(text string) store.Rider {
	return store.Rider{Part: entries, Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte(text)}
}

// based is what a counter with a view has in every event: its base, and its book.
func based(id int64) []store.Rider {
	return []store.Rider{
		{Part: outside, Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: id}},
		{Part: book, Op: store.OpMax, N: id},
	}
}

func (k kit) part(key string, p store.Part) store.Content {
	k.Helper()
	got := make([]store.Content, 1)
	if err := k.Store.ReadParts(k.Context(), []store.PartCell{{Cell: cell(key), Part: p}}, got); err != nil {
		k.Fatal(err)
	}
	return got[0]
}

func (k kit) rows(r store.Rows, n int) []store.PartEntry {
	k.Helper()
	found, err := k.Store.ScanParts(k.Context(), r, n)
	if err != nil {
		k.Fatal(err)
	}
	return found
}

// A decision on parts is written only if what it looked at is still so, and nothing else
// matters.
func TestPartsBetweenReadingAndWriting(t *testing.T) {
	f := func(name string, written bool, before []store.Batch, b store.Batch, between ...store.Batch) {
		t.Helper()
		s := open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 1})
		k := kit{t, s}
		for _, b := range before {
			k.reply(b)
		}
		wrote, err := s.DecideOnce(t.Context(), b, func() {
			for _, b := range between {
				k.reply(b)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if wrote != written {
			t.Errorf("%s: written is %v, want %v", name, wrote, written)
		}
		k.clean()
	}
	batch := func(ds ...store.Delta) store.Batch { return store.Batch{Deltas: ds} }
	under := func(id int64, ds ...store.Delta) store.Batch {
		return store.Batch{Books: []store.Book{{Namespace: "n", ID: id}}, Deltas: ds}
	}
	one := func(d store.Delta) store.Delta { d.Want = false; return d }
	like := func(who string) store.Delta {
		return led(store.Delta{Cell: cell("a"), Op: store.OpSet, N: 1}, member(who), rides("", 1), rides(held, 1))
	}
	bounded := rides(held, 1)
	bounded.Bound = &store.Bound{High: 100}
	is := rides(held, 1)
	is.Is = store.Met{Kind: store.MetEqual, N: 1}
	get := store.Rider{Part: held, Op: store.OpGet}
	there := []store.Batch{batch(like("eve"))}
	there = append(there, batch(with(one(add("a", 5)), rides(window(7, 0), 5))))
	due := store.Delta{Cell: cell("a"), Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: math.MaxInt64}
	split := store.Delta{Cell: cell("a"), Op: store.OpLayout, N: 3, Guard: store.Guard{Laid: true}}
	del := store.Delta{Cell: cell("a"), Op: store.OpDelete}
	floor := store.Batch{Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 8}}}

	f("another likes it", true, there, batch(like("bob")), batch(like("ann")), batch(one(add("a", 1))))
	f("what is added to changes", true, there, batch(with(add("a", 1), rides(window(7, 0), 1))), batch(with(one(add("b", 1)), rides(window(7, 0), 1))))
	f("another part of the drawer changes", true, there, batch(like("bob")), batch(led(add("b", 1), member("bob"))))
	f("what is only named changes", true, there, batch(led(add("a", 1), member("bob"), get)), batch(like("ann")))
	f("the member changes", false, there, batch(like("eve")), batch(led(add("a", 1), member("eve"))))
	f("the member comes", false, there, batch(like("bob")), batch(like("bob")))
	f("the counter comes", false, nil, batch(like("bob")), batch(like("ann")))
	f("the counter goes", false, there, batch(like("bob")), batch(del))
	f("the counter gets a deadline", false, there, batch(like("bob")), batch(due))
	f("the counter is split", false, there, batch(like("bob")), batch(split))
	f("the counter is near the end of int64", false, there, batch(like("bob")), batch(store.Delta{Cell: cell("a"), Op: store.OpSet, N: math.MaxInt64}))
	f("what is bounded changes", false, there, batch(led(add("a", 1), member("bob"), bounded)), batch(like("ann")))
	f("a condition on a part", false, there, batch(led(add("a", 1), member("bob"), is)), batch(like("ann")))
	f("the value is set", false, there, batch(with(store.Delta{Cell: cell("a"), Op: store.OpSet}, rides(held, 1))), batch(like("ann")))
	f("an entry tells the value", false, there, batch(led(add("a", 1), member("bob"), line("x"))), batch(like("ann")))
	f("the part it adds to is near the end of int64", false, there, batch(like("bob")),
		batch(led(store.Delta{Cell: cell("a"), Op: store.OpSet, N: math.MaxInt64}, held)))
	f("the base looks at the value", false, there, batch(led(add("a", 1), member("bob"), based(3)...)), batch(one(add("a", 1))))
	f("the base is there", true, append(there, batch(with(add("a", 1), based(3)...))),
		batch(led(add("a", 1), member("bob"), based(3)...)), batch(one(add("a", 1))))
	f("the book of the counter rises", false, append(there, batch(with(add("a", 1), based(3)...))),
		batch(led(add("a", 1), member("bob"), based(3)...)), batch(with(add("a", 1), based(4)...)))
	f("the book rises", false, there, under(3, like("bob")), under(4))
	f("the book rises, of which the batch has none", false, there, batch(like("bob")), under(1))
	f("the same book is raised", false, there, under(3, like("bob")), under(3))
	f("a floor rises", false, there, batch(with(add("a", 1), rides(window(7, 0), 1), bounded)), floor)
	f("another floor rises", true, there, batch(like("bob")), floor)
}

// An event in time is written in time, or decided again.
func TestEventInTime(t *testing.T) {
	var ms atomic.Int64
	ms.Store(1 << 40)
	s := open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 1, Now: func() time.Time { return time.UnixMilli(ms.Load()) }})
	f := func(notBefore, notAfter int64, later int64, written bool) {
		t.Helper()
		d, other := with(add("a", 1)), add("b", 1)
		d.Event.NotBefore, d.Event.NotAfter = notBefore, notAfter
		wrote, err := s.DecideOnce(t.Context(), store.Batch{Deltas: []store.Delta{d, other}}, func() { ms.Add(later) })
		if err != nil || wrote != written {
			t.Errorf("not before %d, not after %d, %d ms later: %v, %v", notBefore, notAfter, later, wrote, err)
		}
	}
	now := func() int64 { return ms.Load() * 1000 }
	f(0, now()+1000, 1, true)
	f(0, now()+1000, 2, false)
	f(0, now()+1999, 2, false)
	f(now()+1, 0, 1, false)
	f(now()+2000, 0, 1, true)
	f(now(), math.MaxInt64, 9, true)
}

// Likes of one post by different users do not get into each other's way, and none is lost.
func TestLikesSideBySide(t *testing.T) {
	o := redisstore.Options{Prefix: prefix(), Partitions: 1}
	ks := []kit{{t, open(t, "redis://"+single.Addr, o)}, {t, open(t, "redis://"+single.Addr, o)}}
	ks[0].reply(ks[0].batch(with(add("a", 0), rides(held, 0))))
	const likes = 50
	ks[0].parallel(func(i int) error {
		for n := range likes {
			d := led(store.Delta{Cell: cell("a"), Op: store.OpSet, N: 1}, member(fmt.Sprint(i, ".", n)), rides("", 1), rides(held, 1))
			if _, err := ks[i%2].try(t.Context(), ks[0].batch(d)); err != nil {
				return err
			}
		}
		return nil
	})
	ks[0].holds("a", 4*likes)
	if got := ks[0].part("a", held); got.N != 4*likes {
		t.Errorf("%+v, want %d", got, 4*likes)
	}
	if n := ks[0].meter("quipu_redis_conflicts_total") + ks[1].meter("quipu_redis_conflicts_total"); n != 0 {
		t.Errorf("%v conflicts", n)
	}
	ks[0].clean()
}

// A scan of any range finds what memstore finds, in pieces too.
func TestScanParts(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("QUIPU_SEED"), 10, 64)
	seed = cmp.Or(seed, rand.Uint64())
	r := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("replay with QUIPU_SEED=%d go test ./store/redisstore -run TestScanParts", seed)
		}
	}()
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 4})}
	oracle := kit{t, memstore.New(memstore.Options{Partitions: 4})}
	keys := []string{"a", "ab", "b", "a\x00", "é", "\U0010ffff"}
	kinds := []store.PartKind{store.PartOutside, store.PartMember, store.PartSketch, store.PartWindow, store.PartEntries, store.PartWindowSketch}
	fields := func() store.PartFields {
		f := store.PartFields{
			Kind: kinds[r.IntN(len(kinds))], View: uint16(r.IntN(2) * 0xff), Position: r.Int64N(5) - 2, Name: []string{"", "x", "\xc3\xbf"}[r.IntN(3)],
		}
		if f.Kind&store.PartRetained != 0 {
			f.Epoch = []store.Epoch{0xff, 0x100, store.EpochForever}[r.IntN(3)]
		}
		return f
	}
	some := func() store.Cell { return store.ShardCell(cell(keys[r.IntN(len(keys))]), r.IntN(3)) }
	for range 200 {
		c, f := some(), fields()
		d := store.Delta{Cell: c, Op: store.OpSet, N: r.Int64()}
		if f.Kind.HasBytes() {
			d.Op, d.N = store.OpPut, 0
		}
		if d = led(d, f.Part()); d.Op == store.OpPut {
			d.Event.Bytes = []byte(fmt.Sprint(r.IntN(3)))
		}
		for _, k := range []kit{k, oracle} {
			k.reply(k.batch(d))
		}
	}
	floor := store.Floor{Namespace: "n", Kind: store.PartWindow, View: 0xff, Epoch: 0x100}
	for p := range 4 {
		for _, k := range []kit{k, oracle} {
			k.reply(store.Batch{Partition: p, Floors: []store.Floor{floor}})
		}
	}
	for range 150 {
		var rows store.Rows
		switch r.IntN(4) {
		case 0:
			rows = store.Rows{Namespace: "n"}
		case 1:
			rows = store.RowsUnder("n", fields(), []string{"", "a", "b", "\xc3"}[r.IntN(4)])
		case 2:
			from, to := fields(), fields()
			if r.IntN(2) == 0 {
				to.Kind, to.View, to.Epoch = from.Kind, from.View, from.Epoch
			}
			rows = store.RowsOf(some(), from, to)
		case 3:
			a, b := store.RowsOf(some(), fields(), fields()), store.RowsUnder("n", fields(), "")
			rows = store.Rows{Namespace: "n", From: a.From[:r.IntN(len(a.From)+1)], To: b.To}
		}
		rows.Back = r.IntN(2) == 0
		n := []int{1, 7, store.ScanMax}[r.IntN(3)]
		if got, want := k.rows(rows, n), oracle.rows(rows, n); !slices.Equal(got, want) {
			t.Fatalf("%d from %q to %q, back is %t: %d found, want %d\n%+v\n%+v", n, rows.From, rows.To, rows.Back, len(got), len(want), got, want)
		}
	}
	k.clean()
}

// An epoch that is below its floor goes, with its names, and its tally stays.
func TestEpochsGo(t *testing.T) {
	p := prefix()
	s := open(t, "redis://"+single.Addr, redisstore.Options{Prefix: p, Partitions: 1})
	k := kit{t, s}
	k.reply(k.batch(with(add("a", 5), rides(window(7, 0), 5), rides(window(8, 0), 5))))
	keys := func() []string {
		return strings.Fields(command(t, single, "--raw", "keys", p+":*[po]:8100010000000?:n"))
	}
	if n := len(keys()); n != 4 {
		t.Fatalf("%d keys of two epochs: %q", n, keys())
	}
	k.reply(store.Batch{Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 8}}})
	if err := s.Empty(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := keys(); len(got) != 2 || !strings.HasSuffix(got[0], "8:n") || !strings.HasSuffix(got[1], "8:n") {
		t.Errorf("keys of one epoch: %q", got)
	}
	if got := command(t, single, "zcard", p+":{0}:drawers"); got != "1" {
		t.Errorf("%s drawers", got)
	}
	if got := command(t, single, "hlen", p+":{0}:tally"); got != "2" {
		t.Errorf("%s tallies", got)
	}
	k.clean()
}
