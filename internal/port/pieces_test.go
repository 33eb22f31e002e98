package port_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A server is one whose worker removes pieces when it is told to.
type server struct {
	*testing.T
	db    *quipu.DB
	store store.Store // without layouts
}

func newServer(t *testing.T, s store.Store, o quipu.Options) server {
	db := quipu.New(s, o)
	db.Port().Keeping().Close()
	return server{t, db, s}
}

// do executes a command on the key that it names first.
func (s server) do(command string) (r keyspace.Reply) {
	s.Helper()
	args := strings.Fields(command)
	if err := s.db.Port().Text(s.Context(), args[1:2], nil, func(space *keyspace.Space) error {
		var bytes [][]byte
		for _, a := range args {
			bytes = append(bytes, []byte(a))
		}
		r = space.Do(bytes)
		return nil
	}); err != nil {
		s.Fatalf("%s: %v", command, err)
	}
	return r
}

// large makes a key a filter in pieces, and adds some items.
func (s server) large(key string, items int) {
	s.Helper()
	s.do("BF.RESERVE " + key + " 0.001 400000")
	s.add(key, items)
}

func (s server) add(key string, items int) {
	s.Helper()
	command := "BF.MADD " + key
	for i := range items {
		command += fmt.Sprint(" item", i)
	}
	s.do(command)
}

// has checks that a filter has its items.
func (s server) has(key string, items int) {
	s.Helper()
	for i := range items {
		if r := s.do(fmt.Sprint("BF.EXISTS ", key, " item", i)); r.N != 1 {
			s.Errorf("%s has lost item %d: %+v", key, i, r)
			return
		}
	}
}

// pieces returns how many pieces there are of each key, under how many names.
func (s server) pieces(namespace string) (pieces, names map[string]int) {
	s.Helper()
	found, err := s.store.ScanParts(s.Context(), store.RowsUnder(namespace, store.PartFields{Kind: store.PartSketch}, ""), store.ScanMax)
	if err != nil {
		s.Fatal(err)
	}
	pieces, names = map[string]int{}, map[string]int{}
	seen := map[string]bool{}
	for i := range found {
		f, _ := found[i].Part.Fields()
		if f.View != 0 {
			continue
		}
		pieces[found[i].Cell.Key]++
		if name := found[i].Cell.Key + " " + f.Name; !seen[name] {
			seen[name] = true
			names[found[i].Cell.Key]++
		}
	}
	return pieces, names
}

// sweeps has the worker go through all pieces once.
func (s server) sweeps() {
	s.Helper()
	for done := false; !done; {
		var err error
		if done, err = s.db.Port().Keeping().Pieces(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

func (s server) meter(want string) (value float64) {
	s.db.Port().Meters(func(name, _ string, v float64) {
		if name == want {
			value = v
		}
	})
	return value
}

// visitors is how many users visits has, each from another country.
const visitors = 80

// visits counts users, for all time. Their sketches are parts of the same kind as pieces are.
func (s server) visits() {
	s.Helper()
	if _, err := s.db.Define(s.Context(), []definition.Definition{{
		Pattern: "visits", Dimensions: []definition.Dimension{{By: []string{"country"}}}, Unique: definition.Unique{Of: definition.Who},
	}}, quipu.DefineOptions{}); err != nil {
		s.Fatal(err)
	}
	for i := range visitors {
		if _, err := s.db.Add(s.Context(), "visits", 1, quipu.Who(fmt.Sprint("user", i)), quipu.Dim("country", fmt.Sprint("c", i))); err != nil {
			s.Fatal(err)
		}
	}
}

// Pieces of a sketch go when its key is anything else, and what the key is stays.
func TestPiecesGo(t *testing.T) {
	for _, partitions := range []int{1, 5} {
		now := time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC)
		m := memstore.New(memstore.Options{Partitions: partitions, Now: func() time.Time { return now }})
		s := newServer(t, m, quipu.Options{Policies: []policy.Policy{{Pattern: "split", Shards: 2}}})
		ends := map[string]func(key string){
			"live":    func(string) {},
			"deleted": func(key string) { s.do("DEL " + key) },
			"expired": func(key string) { s.do("EXPIRE " + key + " 10") },
			"text":    func(key string) { s.do("SET " + key + " hello") },
			"timed":   func(key string) { s.do("SET " + key + " hello EX 1000") },
			"count":   func(key string) { s.do("SET " + key + " 5") },
			"lock":    func(key string) { s.do("SET " + key + " 6 EX 1000") },
			"hash":    func(key string) { s.do("DEL " + key); s.do("HSET " + key + " f v") },
			"anew":    func(key string) { s.do("DEL " + key); s.large(key, 3) },
			"split": func(key string) {
				s.do("DEL " + key)
			},
		}
		for _, key := range slices.Sorted(maps.Keys(ends)) {
			s.large(key, 500)
			ends[key](key)
		}
		s.visits()
		now = now.Add(time.Minute)
		pieces, names := s.pieces("default")
		for key := range ends {
			if pieces[key] < 2 || key == "anew" && names[key] != 2 {
				t.Errorf("%s has %d pieces before", key, pieces[key])
			}
		}
		live := pieces["live"]
		layout := store.Value{}
		read := func(key string) store.Value {
			values := make([]store.Value, 1)
			if err := m.Read(t.Context(), []store.Cell{{Namespace: "default", Key: key}}, values); err != nil {
				t.Fatal(err)
			}
			return values[0]
		}
		added := int64(0)
		for ; layout.Layout == 0; added++ {
			if added == 1_000_000 {
				t.Fatal("the counter is never split")
			}
			if _, err := s.db.Add(t.Context(), "split", 1); err != nil {
				t.Fatal(err)
			}
			layout = read("split")
		}
		deadlines := map[string]int64{"timed": read("timed").DeadlineMS, "lock": read("lock").DeadlineMS}
		s.sweeps()
		pieces, names = s.pieces("default")
		if len(pieces) != 2 || pieces["live"] != live || names["anew"] != 1 {
			t.Errorf("there are pieces left: %v", pieces)
		}
		if got := s.meter("quipu_sketch_pieces"); got != float64(live+pieces["anew"]) {
			t.Errorf("the meter says that %v pieces are in use, not %d", got, live+pieces["anew"])
		}
		s.has("live", 500)
		s.has("anew", 3)
		for command, want := range map[string]string{"GET text": "hello", "GET timed": "hello", "HGET hash f": "v", "GET count": "5", "GET lock": "6"} {
			if r := s.do(command); r.Text != want && fmt.Sprint(r.N) != want {
				t.Errorf("%s: %+v", command, r)
			}
		}
		if now := map[string]int64{"timed": read("timed").DeadlineMS, "lock": read("lock").DeadlineMS}; !maps.Equal(now, deadlines) || deadlines["lock"] == 0 {
			t.Errorf("deadlines were %v and are %v", deadlines, now)
		}
		holds(t, s.db, "split", added)
		u, err := s.db.Uniques(t.Context(), "visits", quipu.UniqueOptions{By: "country"})
		if err != nil || u.Count != visitors || len(u.Values) != visitors {
			t.Errorf("there were %+v, %v", u, err)
		}
		for _, key := range []string{"deleted", "expired"} {
			if v := read(key); v.Exists {
				t.Errorf("%s is there again: %+v", key, v)
			}
		}
		removed := s.meter("quipu_sketch_pieces_removed_total")
		if s.sweeps(); s.meter("quipu_sketch_pieces_removed_total") != removed || removed == 0 {
			t.Error("there was more to remove")
		}
		if a, err := s.db.Verify(t.Context()); err != nil || len(a.Drift) > 0 {
			t.Errorf("%+v, %v", a.Drift, err)
		}
	}
}

// Pieces are found in namespaces that have no keys any more, and by servers which do not know that there ever were
// any, also in stores of before there was a list of such namespaces.
func TestPiecesOfEmptyNamespaces(t *testing.T) {
	m := memstore.New(memstore.Options{})
	empty := newServer(t, m, quipu.Options{})
	empty.db = empty.db.In("empty")
	empty.large("a", 100)
	empty.do("DEL a")
	old := newServer(t, m, quipu.Options{})
	old.db = old.db.In("old")
	old.large("a", 100)
	old.do("DEL a")
	old.large("b", 100)
	list := store.Delta{Cell: store.Cell{Key: "pieces"}, Op: store.OpDelete, Event: &store.Event{
		Part: store.PartFields{Kind: store.PartDue, Name: "old"}.Part(),
	}}
	replies := make([]store.Reply, 1)
	if err := m.Apply(t.Context(), []store.Batch{{Deltas: []store.Delta{list}}}, replies); err != nil || replies[0].Err != nil || replies[0].Results[0].Outcome != store.Applied {
		t.Fatal(err, replies)
	}
	other := newServer(t, m, quipu.Options{})
	f := func(want int) {
		t.Helper()
		other.sweeps()
		gone, _ := other.pieces("empty")
		left, _ := other.pieces("old")
		if len(gone) != 0 || len(left) != want {
			t.Errorf("there are pieces of %v and of %v", gone, left)
		}
	}
	f(1)
	old.has("b", 100)
	old.do("DEL b") // It is in the list now.
	f(0)
}

// A key that becomes something else between the moment when it was found not to name some pieces, and when they
// are removed, stays as it is.
func TestPiecesOfChangedKeys(t *testing.T) {
	for _, was := range []string{"DEL a", "SET a hello", "SET a 5", "SET a 5 EX 1000"} {
		for _, becomes := range []string{"SET a 7", "BF.RESERVE"} {
			hooks := new(storetest.Hooks)
			m := memstore.New(memstore.Options{})
			s := newServer(t, storetest.Wrap(m, hooks), quipu.Options{})
			other := newServer(t, m, quipu.Options{})
			s.large("a", 100)
			s.do("DEL a")
			s.do(was)
			hooks.On(storetest.OnApply, storetest.Nth(0, 1, storetest.Before(func() {
				other.do("DEL a")
				if becomes == "BF.RESERVE" {
					other.large("a", 50)
				} else {
					other.do(becomes)
				}
			})))
			s.sweeps()
			want := 0
			if becomes == "BF.RESERVE" {
				s.has("a", 50)
				want = 1
			} else if r := s.do("GET a"); r.Text != "7" {
				t.Errorf("%s, then %s: it is %+v", was, becomes, r)
			}
			if _, names := s.pieces("default"); names["a"] != want {
				t.Errorf("%s, then %s: pieces are under %d names", was, becomes, names["a"])
			}
		}
	}
}

// A server that fails in the middle leaves the rest to others, and they may do it at the same time.
func TestPiecesGoInSteps(t *testing.T) {
	hooks := new(storetest.Hooks)
	m := memstore.New(memstore.Options{})
	s, other := newServer(t, storetest.Wrap(m, hooks), quipu.Options{}), newServer(t, m, quipu.Options{})
	s.do("CMS.INITBYDIM counts 700000 8")
	for i := range 40 {
		command := "CMS.INCRBY counts"
		for j := range 50 {
			command += fmt.Sprint(" item", i*50+j, " 1")
		}
		s.do(command)
	}
	all, _ := s.pieces("default")
	s.do("DEL counts")
	hooks.On(storetest.OnApply, storetest.Nth(2, 3, storetest.Fail(store.ErrUnavailable)))
	if _, err := s.db.Port().Keeping().Pieces(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a failing store: %v", err)
	}
	left, _ := s.pieces("default")
	if left["counts"] == 0 || left["counts"] >= all["counts"] {
		t.Errorf("%d pieces of %d are left", left["counts"], all["counts"])
	}
	hooks.On(storetest.OnApply, storetest.Nth(1, 2, storetest.Before(other.sweeps)))
	s.sweeps()
	if left, _ := s.pieces("default"); len(left) != 0 {
		t.Errorf("%v are left in the end", left)
	}
}

// What a server does not know stays as it is: a later one may.
func TestPiecesOfUnknownSketches(t *testing.T) {
	m := memstore.New(memstore.Options{})
	s := newServer(t, m, quipu.Options{})
	s.large("a", 100)
	before, _ := s.pieces("default")
	put := store.Delta{Cell: store.Cell{Namespace: "default", Key: "a"}, Op: store.OpPut, Event: &store.Event{Part: store.Object, Bytes: []byte("\x05\x09later")}}
	replies := make([]store.Reply, 1)
	if err := m.Apply(t.Context(), []store.Batch{{Deltas: []store.Delta{put}}}, replies); err != nil || replies[0].Results[0].Outcome != store.Applied {
		t.Fatal(err, replies)
	}
	s.sweeps()
	if after, _ := s.pieces("default"); !maps.Equal(before, after) {
		t.Errorf("there were %v, and are %v", before, after)
	}
}
