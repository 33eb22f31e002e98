package port_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// floorAt publishes a definition of the counters that begin with s.
func floorAt(t *testing.T, db *quipu.DB, floor int64) {
	t.Helper()
	d := definition.Definition{Pattern: "s*", Floor: &floor}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, db *quipu.DB, key string, want int64) {
	t.Helper()
	if c, err := db.Read(t.Context(), key, quipu.Exact()); err != nil || c.Value != want {
		t.Errorf("%s is %d, %v; want %d", key, c.Value, err, want)
	}
}

// TestBoundsOfOutdatedServers has servers that have not heard of a floor write in every way
// there is: none takes a counter below it.
func TestBoundsOfOutdatedServers(t *testing.T) {
	ctx := context.Background()
	one := func(db *quipu.DB, d store.Delta) error {
		results := make([]store.Result, 1)
		return errors.Join(db.Port().Apply(ctx, []store.Delta{d}, results), results[0].Outcome.Err())
	}
	key := store.Cell{Key: "s"}
	ways := map[string]func(db *quipu.DB) error{
		"add": func(db *quipu.DB) error { _, err := db.Add(ctx, "s", -4); return err },
		"set": func(db *quipu.DB) error { _, err := db.Set(ctx, "s", -1); return err },
		"batch": func(db *quipu.DB) error {
			rs, err := db.AddBatch(ctx, []quipu.Event{{Key: "free", Delta: -1}, {Key: "s", Delta: -4}})
			return errors.Join(err, rs[1].Err)
		},
		"adjust": func(db *quipu.DB) error {
			_, err := db.Adjust(ctx, "s", -4, quipu.Correction{Reason: "count"})
			return err
		},
		"undo": func(db *quipu.DB) error {
			_, err := db.Undo(ctx, "s", "correction", quipu.Correction{Reason: "count"})
			return err
		},
		"deltas": func(db *quipu.DB) error { return one(db, store.Delta{Cell: key, Op: store.OpAdd, N: -4}) },
		"strict": func(db *quipu.DB) error {
			return one(db, store.Delta{Cell: key, Op: store.OpAdd, N: -4, Guard: store.Guard{Bound: &store.Bound{Low: -9, High: 9}}})
		},
		"rename": func(db *quipu.DB) error {
			deltas := []store.Delta{{Cell: key, Op: store.OpSet, N: -4}, {Cell: key, Op: store.OpGet}}
			return db.Port().ApplyIf(ctx, nil, deltas, make([]store.Result, 2))
		},
		"writer": func(db *quipu.DB) error {
			w, err := db.Port().Enlist(ctx)
			if err != nil {
				return err
			}
			b := store.Batch{Partition: db.Port().Partition("s"), Writer: w, Seq: 1, Deltas: []store.Delta{{Cell: key, Op: store.OpAdd, N: -4}}}
			var replies [1]store.Reply
			if err := errors.Join(db.Port().WriteBatches(ctx, []store.Batch{b}, replies[:]), replies[0].Err); err != nil {
				return err
			}
			return replies[0].Results[0].Outcome.Err()
		},
	}
	for _, partitions := range []int{1, 7} {
		for name, write := range ways {
			t.Run(fmt.Sprint(name, " in ", partitions), func(t *testing.T) {
				s := memstore.New(memstore.Options{Partitions: partitions})
				db, other := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})
				if _, err := db.Adjust(ctx, "s", 4, quipu.Correction{Reason: "found"}, quipu.Token("correction")); err != nil {
					t.Fatal(err)
				}
				if _, err := other.Add(ctx, "s", -1); err != nil {
					t.Fatal(err)
				}
				floorAt(t, db, 0)
				if err := write(other); !errors.Is(err, quipu.ErrBound) {
					t.Errorf("%v", err)
				}
				holds(t, db, "s", 3)
			})
		}
	}
}

// TestBoundsAreMadeAnew has a floor be lowered after a server has made a write by it: it is
// decided by the new one, and by what the call has brought.
func TestBoundsAreMadeAnew(t *testing.T) {
	for _, partitions := range []int{1, 7} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			s := memstore.New(memstore.Options{Partitions: partitions})
			db, other := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})
			floorAt(t, db, 0)
			if _, err := other.Add(t.Context(), "s", -1); !errors.Is(err, quipu.ErrBound) {
				t.Errorf("%v", err)
			}
			floorAt(t, db, -10)
			if r, err := other.Add(t.Context(), "s", -5, quipu.Floor(-7)); err != nil || r.Applied != -5 {
				t.Errorf("%+v, %v", r, err)
			}
			floorAt(t, db, -20)
			_, err := other.Add(t.Context(), "s", -5, quipu.Floor(-7))
			if e, ok := errors.AsType[*quipu.BoundError](err); !ok || e.Limit != -7 || e.Value != -5 {
				t.Errorf("%v", err)
			}
			floorAt(t, db, -30)
			if r, err := other.Add(t.Context(), "s", -40, quipu.Saturate()); err != nil || r.Applied != -25 {
				t.Errorf("%+v, %v", r, err)
			}
			holds(t, db, "s", -30)
		})
	}
}

// TestStartedBounds starts deltas that definitions bound, also by another floor than the one
// that is known.
func TestStartedBounds(t *testing.T) {
	// One that lays out counters starts nothing before it knows which are split.
	s := storetest.Wrap(memstore.New(memstore.Options{}), &storetest.Hooks{Traits: func(t *store.Traits) { t.Layouts = false }})
	db := quipu.New(s, quipu.Options{})
	floorAt(t, db, 0)
	start := func(n int64) (bool, store.Outcome) {
		deltas, results := []store.Delta{{Cell: store.Cell{Key: "s"}, Op: store.OpAdd, N: n}}, make([]store.Result, 1)
		started := db.Port().Start(deltas, results, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if !started && deltas[0].Guard.Bound != nil {
			t.Error("what was not started has a bound")
		}
		return started, results[0].Outcome
	}
	f := func(n int64, started bool, want store.Outcome) {
		t.Helper()
		if ok, got := start(n); ok != started || got != want {
			t.Errorf("%d: %v, %d; want %v, %d", n, ok, got, started, want)
		}
	}
	f(-1, true, store.Bounded)
	f(2, true, store.Applied)
	floorAt(t, quipu.New(s, quipu.Options{}), -9)
	f(-4, false, 0)
	if _, err := db.Add(t.Context(), "s", -4); err != nil {
		t.Fatal(err)
	}
	f(-8, true, store.Bounded)
	f(-7, true, store.Applied)

	adds := store.Adds{Keys: []byte("sfree"), Each: []store.Add{{N: -1, Size: 1, Times: 1}, {N: -1, Key: 1, Size: 4, Times: 1}}}
	embedded, err := quipu.Open(t.TempDir(), quipu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = embedded.Close() }()
	floorAt(t, embedded, 0)
	done := make(chan error, 1)
	if !embedded.Port().StartAdds(&adds, func(err error) { done <- err }) || !adds.Each[0].Left || adds.Each[1].Left {
		t.Errorf("%+v", adds.Each)
	}
	embedded.Port().Flush(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestBoundedCountersAreWhole has a counter that was split be given a floor: from then on
// one cell decides.
func TestBoundedCountersAreWhole(t *testing.T) {
	ctx := t.Context()
	s := memstore.New(memstore.Options{Partitions: 7})
	o := quipu.Options{Policies: []quipu.Policy{{Pattern: "s*", Shards: 4}}}
	db, other := quipu.New(s, o), quipu.New(s, o)
	for range 500 {
		if _, err := other.Add(ctx, "s", 1); err != nil {
			t.Fatal(err)
		}
	}
	floorAt(t, db, 0)
	rs, err := other.AddBatch(ctx, []quipu.Event{{Key: "s", Delta: -300}, {Key: "s", Delta: -300}, {Key: "s", Delta: -200}})
	if err != nil || rs[0].Err != nil || !errors.Is(rs[1].Err, quipu.ErrBound) || rs[2].Err != nil {
		t.Errorf("%+v, %v", rs, err)
	}
	for range 500 {
		if _, err := other.Add(ctx, "s", 1); err != nil {
			t.Fatal(err)
		}
		if c, err := db.Read(ctx, "s", quipu.Exact()); err != nil || c.Shards > 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	holds(t, db, "s", 500)
}
