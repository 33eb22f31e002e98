package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// One server rests while it gives a counter more shards. Others give them to it
// meanwhile, and fold it. It goes on, and must not open a shard of a split that is
// over: who has not heard of the fold would add to it. Who folds it may die before
// the shards are removed.
func TestGrowLate(t *testing.T) {
	f := func(partitions, rest int, dies bool) (ended bool) {
		t.Run(fmt.Sprintf("%d partitions, %d calls, dies %v", partitions, rest, dies), func(t *testing.T) {
			g := newStage(t, partitions)
			b := server(t, g.under, lazy)
			g.splits(2)(b)
			g.adds(b)
			a := newActor(t, g.under, false)
			g.begins(a, g.splits(3))
			if ended = a.step(rest) < rest; ended {
				return
			}
			g.splits(4)(b)
			var stale []*spread.Store
			for range 16 {
				c := server(t, g.under, lazy)
				g.reads(c)
				g.adds(c)
				stale = append(stale, c)
			}
			if dies {
				g.under.fails(func(batches []store.Batch) error {
					for i := range batches {
						for _, d := range batches[i].Deltas {
							if _, _, ok := store.ShardOf(d.Cell); ok && d.Op == store.OpDelete {
								return store.ErrUnavailable
							}
						}
					}
					return nil
				}, nil)
			}
			g.folds(b)
			g.under.fails(nil, nil)
			a.step(all)
			g.check("grown")
			for _, c := range stale {
				g.add(c, 1)
				g.check("added to by who has not heard of the fold")
			}
			g.end("late")
		})
		return ended
	}
	for _, dies := range []bool{false, true} {
		for _, partitions := range []int{1, 8} {
			for rest, ended := 0, false; !ended; rest++ {
				ended = f(partitions, rest, dies)
			}
		}
	}
}

// A server has seen that a counter is near zero, and rests while it splits it. The
// counter is set to nearly as much as there is meanwhile: an add that leaves int64 is
// refused, whatever became of the split.
func TestSplitFar(t *testing.T) {
	f := func(partitions, rest int) (ended bool) {
		t.Run(fmt.Sprintf("%d partitions, %d calls", partitions, rest), func(t *testing.T) {
			g := newStage(t, partitions)
			b, c := server(t, g.under, lazy), server(t, g.under, lazy)
			a := newActor(t, g.under, false)
			g.begins(a, g.splits(3))
			if ended = a.step(rest) < rest; ended {
				return
			}
			mustDo(t, b, store.Delta{Cell: g.c, Op: store.OpSet, N: math.MaxInt64 - 5})
			a.step(all)
			read(t, c, g.c)
			mustDo(t, c, add(g.c, 4))
			if _, err := do(t.Context(), c, add(g.c, 4)); !errors.Is(err, store.ErrOverflow) {
				t.Errorf("8 more than there is room for 5: %v", err)
			}
			if r := mustDo(t, c, want(add(g.c, -1))); r.After != math.MaxInt64-2 {
				t.Errorf("it is %+v", r)
			}
		})
		return ended
	}
	for _, partitions := range []int{1, 8} {
		for rest, ended := 0, false; !ended; rest++ {
			ended = f(partitions, rest)
		}
	}
}

// A fold that could not begin leaves the counter as it is: its shards take adds, also
// those of the server that wanted to fold it.
func TestFoldFails(t *testing.T) {
	g := newStage(t, 8)
	s := server(t, g.under, lazy)
	g.splits(4)(s)
	g.under.fails(func([]store.Batch) error { return store.ErrUnavailable }, nil)
	if err := s.Fold(t.Context(), g.c); err == nil {
		t.Fatal("folded")
	}
	g.under.fails(nil, nil)
	g.reads(s)
	before := read(t, g.under, g.c)
	for range 20 {
		g.adds(s)
	}
	if v := read(t, g.under, g.c); v.N != before.N {
		t.Errorf("home is %+v, was %+v: %d adds went to it, of 80", v, before, v.N-before.N)
	}
}

// A store loses a shard. Adds are not sent there for ever: the counter is folded, and
// can be split again.
func TestShardLost(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		s, c := server(t, under, lazy), cell("a")
		mustDo(t, s, add(c, 1))
		split(t, s, c, 4)
		lost := store.Delta{Cell: store.ShardCell(c, 2), Op: store.OpDelete}
		lost.Guard.Laid, lost.Guard.Layout = true, read(t, under, lost.Cell).Layout
		mustDo(t, under, lost)
		n := int64(1)
		for n < 100 && rerouted(s) == 0 {
			mustDo(t, s, add(c, 1))
			n++
		}
		if err := s.Look(t.Context()); err != nil {
			t.Error(err)
		}
		holds(t, s, c, n, 1)
		split(t, s, c, 4)
		was := rerouted(s)
		for range 100 {
			mustDo(t, s, add(c, 1))
		}
		holds(t, s, c, n+100, 4)
		if now := rerouted(s); was == 0 || now != was {
			t.Errorf("%v adds were sent to what is no shard, and then %v", was, now)
		}
	})
}

// sole is a store that nobody else uses. A test can do something before the next
// read of several cells, and after it.
type sole struct {
	*memstore.Store
	before, after func()
}

func (s *sole) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	var after func()
	if f := s.before; f != nil && len(cells) > 1 {
		s.before, after = nil, s.after
		f()
	}
	err := s.Store.Read(ctx, cells, values)
	if after != nil {
		after()
	}
	return err
}

// A reader has seen a counter between two splits, and comes back after the second.
// That one is known all the same: nobody tells who can't wait for it.
func TestStaleReader(t *testing.T) {
	under := &sole{Store: memstore.New(memstore.Options{})}
	s, c := server(t, under, lazy), cell("a")
	mustDo(t, s, add(c, 1))
	split(t, s, c, 2)
	under.before = func() {
		if err := s.Fold(t.Context(), c); err != nil { // One shard: it does not come here.
			t.Error(err)
		}
	}
	under.after = func() { split(t, s, c, 2) }
	read(t, s, c)
	if n := s.Shards(c); n != 2 {
		t.Errorf("it is known to have %d shards", n)
	}
	batches := []store.Batch{{Deltas: []store.Delta{want(add(c, 1))}}}
	if s.Start(batches, make([]store.Reply, 1), func(error) {}) {
		t.Error("what is split was started")
	}
}

// Two servers have died while they split a counter, and have left shards of two
// layouts that home does not name. They are left alone at first, and no longer than
// that.
func TestAbandoned(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		s, c := server(t, under, lazy), cell("a")
		mustDo(t, s, add(c, 1))
		for i, word := range []int64{1<<20 | 1, 2<<20 | 1} {
			left := store.Delta{Cell: store.ShardCell(c, 1+i), Op: store.OpLayout, N: word}
			left.Guard.Laid = true
			mustDo(t, under, left)
		}
		if ok, err := s.SplitOnce(t.Context(), c, 4); ok || err != nil {
			t.Errorf("%v, %v: others might be splitting it", ok, err)
		}
		if ok, err := s.SplitOnce(t.Context(), c, 4); !ok || err != nil {
			t.Errorf("%v, %v: nobody is", ok, err)
		}
		holds(t, s, c, 1, 4)
	})
}
