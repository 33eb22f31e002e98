package spread_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A fold that could not begin leaves the counter as it is: its shards take adds, also
// those of the server that wanted to fold it.
func TestFoldFails(t *testing.T) {
	under, c := newShared(8), cell("a")
	s := server(t, under, lazy)
	mustDo(t, s, add(c, 1))
	split(t, s, c, 4)
	under.fails(func([]store.Batch) error { return store.ErrUnavailable }, nil)
	if err := s.Fold(t.Context(), c); err == nil {
		t.Fatal("folded")
	}
	under.fails(nil, nil)
	before := read(t, s, c)
	for range 80 {
		mustDo(t, s, add(c, 1))
	}
	holds(t, s, c, 81, 4)
	if v := read(t, under, c); v.N != before.N {
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

// forgets has home forget that it is split, as a store does that loses its last
// writes.
func forgets(t *testing.T, under store.Store, c store.Cell) {
	t.Helper()
	d := store.Delta{Cell: c, Op: store.OpLayout}
	d.Guard.Laid, d.Guard.Layout = true, read(t, under, c).Layout
	mustDo(t, under, d)
}

// A store that fails over may lose that a counter is split, and not its shards.
// Whoever knows better gives it back, by a read or to ask of it.
func TestReassert(t *testing.T) {
	under, c, n := newShared(8), cell("a"), int64(1)
	s := server(t, under, lazy)
	mustDo(t, s, add(c, 1))
	for range 2 {
		split(t, s, c, 4)
		for range 100 {
			mustDo(t, s, add(c, 1))
			n++
		}
		forgets(t, under, c)
		holds(t, s, c, n, 4)
		forgets(t, under, c)
		if n++; mustDo(t, s, want(add(c, 1))).After != n {
			t.Errorf("it is told less than %d", n)
		}
		holds(t, server(t, under, lazy), c, n, 1)
	}
}

// One split is forgotten, and the next does not know of it: what both have counts.
func TestForgottenTwice(t *testing.T) {
	under, c := newShared(8), cell("a")
	s := server(t, under, lazy)
	mustDo(t, s, add(c, 1))
	split(t, s, c, 3)
	lost := add(store.ShardCell(c, 2), 100)
	lost.Guard.Laid, lost.Guard.Layout = true, read(t, under, lost.Cell).Layout
	mustDo(t, under, lost)
	forgets(t, under, c)
	s = server(t, under, lazy)
	split(t, s, c, 2) // Shard 1 was empty: nothing tells of the other.
	for range 4 {
		mustDo(t, s, add(c, 1))
	}
	for range 2 { // It is folded first, and then the other is found.
		if _, err := s.Split(t.Context(), c, 4); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, s, c, 105, hot.ShardsMax)
}
