package spread_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// busy has a server add to a counter, and look at it. Each add is of so many writes.
func busy(t *testing.T, s *spread.Store, c store.Cell, writes func(shards int) int) {
	t.Helper()
	for range 1000 { // one of 16 is looked at
		d := add(c, 1000)
		d.Writes = uint32(writes(s.Shards(c)))
		mustDo(t, s, d)
	}
	if err := s.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// heat keeps a server busy until a counter has so many shards.
func heat(t *testing.T, s *spread.Store, c store.Cell, shards int, writes func(shards int) int) {
	t.Helper()
	for i := 0; s.Shards(c) != shards; i++ {
		if i == 100 {
			t.Fatalf("it has %d shards, want %d", s.Shards(c), shards)
		}
		busy(t, s, c, writes)
	}
}

// helping is if shards help: there are more writes, though the clock runs faster by
// them.
func helping(n int) int { return 100 * n * n * n * n }

// A server has shards on trial when another gives their counter others, and takes
// them away for that. It looks in between: that is no reason to let it rest.
func TestGrownByOthers(t *testing.T) {
	under, c := newShared(8), cell("a")
	a, b := paced(t, under, lazy, 50*time.Microsecond), server(t, under, lazy)
	heat(t, a, c, 2, helping)
	busy(t, a, c, func(int) int { return 100 })
	if err := b.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	hot := func(int) int { return 3000 }
	busy(t, a, c, hot)
	split(t, b, c, 4)
	busy(t, a, c, hot)
	if n := a.Shards(c); n < 4 {
		t.Fatalf("it has %d shards, want 4", n)
	}
	heat(t, a, c, 8, hot)
}

// A hot counter splits by itself, and folds when it is cold.
func TestByItself(t *testing.T) {
	under := newShared(8)
	c := cell("a")
	p := lazy
	p.Max, p.CoolDown = 8, 0
	a := paced(t, under, p, 50*time.Microsecond)
	heat(t, a, c, 8, helping)
	v := read(t, a, c)
	for i := 0; a.Shards(c) > 1; i++ {
		if i == 20_000 { // a second or two
			t.Fatal("it is not folded")
		}
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, a, c, v.N, 1)
	if top := a.Hottest(3); len(top) != 1 || top[0].Cell != c || top[0].Shards != 1 || top[0].Rate < 1000 {
		t.Errorf("the hottest are %+v", top)
	}
}

// A split whose shards do not help is undone.
func TestUndone(t *testing.T) {
	under := newShared(8)
	c := cell("a")
	a := paced(t, under, lazy, 50*time.Microsecond)
	most := 1
	for i := range 600 {
		for range 200 {
			d := add(c, 1000)
			d.Writes = 1000
			mustDo(t, a, d)
		}
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most = max(most, a.Shards(c)); most > 1 && a.Shards(c) == 1 {
			holds(t, a, c, int64(i+1)*200_000, 1)
			return
		}
	}
	t.Errorf("it has %d shards, and had %d", a.Shards(c), most)
}

// A counter that is deleted while it is being split stays so.
func TestSplitOfDeleted(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, c := server(t, under, lazy), cell("a")
		mustDo(t, a, add(c, 5))
		under.fails(func(batches []store.Batch) error {
			if d := &batches[0].Deltas[0]; d.Op != store.OpLayout || d.Cell != c {
				return nil
			}
			gone := store.Batch{Partition: batches[0].Partition, Deltas: []store.Delta{{Cell: c, Op: store.OpDelete}}}
			return under.Store.Apply(t.Context(), []store.Batch{gone}, make([]store.Reply, 1))
		}, nil)
		if ok, err := a.Split(t.Context(), c, 8); ok || err != nil {
			t.Errorf("it is split: %v, %v", ok, err)
		}
		under.fails(nil, nil)
		if v := read(t, a, c); v.Exists {
			t.Errorf("it is back: %+v", v)
		}
		mustDo(t, a, add(c, 2))
		holds(t, a, c, 2, 1)
	})
}

// A policy may want shards from the start, or none at all; and a server finds
// what others have split and left.
func TestPolicies(t *testing.T) {
	under := newShared(8)
	c := cell("a")
	always, single := lazy, lazy
	always.Limits.Shards, single.Max = 4, 1
	a := server(t, under, always)
	for i := 0; a.Shards(c) < 4; i++ {
		if i == 1000 {
			t.Fatal("it is not split")
		}
		mustDo(t, a, add(c, 1))
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	v := read(t, a, c)
	for range 3 {
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, a, c, v.N, 4)
	b := server(t, under, single)
	if err := b.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, under, c, v.N, 1)
	if hot.Word(read(t, under, c).Layout) != 0 {
		t.Error("it is still split")
	}
}

// The slowest shard shows, however fast the others are, and if only one in twenty
// of its writes is slow: the mean over shards is then 13 ms, and over its own writes
// 50 ms.
func TestSlowestShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, c := newShared(1), cell("k")
		s := spread.New(under, spread.Options{Policy: func(store.Cell) spread.Policy { return lazy }, Every: never})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		mustDo(t, s, add(c, 1))
		split(t, s, c, 4)
		slow, writes := store.ShardCell(c, 3), 0
		under.fails(func(batches []store.Batch) error {
			if batches[0].Deltas[0].Cell == slow {
				if writes++; writes%20 == 0 {
					<-time.After(time.Second)
				}
			}
			return nil
		}, nil)
		for range 1000 {
			mustDo(t, s, add(c, 1))
			<-time.After(10 * time.Millisecond) // they move on to another shard
		}
		got := -1.0
		s.Meters(func(name, _ string, value float64) {
			if name == "quipu_shard_seconds_max" {
				got = value
			}
		})
		hottest := s.Hottest(1)
		if len(hottest) != 1 || math.Abs(got-1) > 0.15 || hottest[0].ShardP99.Seconds() != got {
			t.Errorf("the slowest shard takes %v s, and %+v; want some 1 s", got, hottest)
		}
	})
}

// It shows how long the slowest writes to a counter take, which of them only its own
// cell can take, and which ask for its value.
func TestHottestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newShared(1)
		s := spread.New(under, spread.Options{Policy: func(store.Cell) spread.Policy { return lazy }, Every: never})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		slow, asked, less := cell("slow"), cell("asked"), cell("less")
		writes := 0
		under.fails(func(batches []store.Batch) error {
			if batches[0].Deltas[0].Cell == slow {
				if writes++; writes%20 == 0 {
					<-time.After(100 * time.Millisecond)
				}
			}
			<-time.After(time.Millisecond)
			return nil
		}, nil)
		for range 8000 {
			mustDo(t, s, add(slow, 1))
			mustDo(t, s, want(add(asked, 1)))
			mustDo(t, s, add(less, -1))
		}
		found := map[store.Cell]spread.Counter{}
		for _, k := range s.Hottest(3) {
			found[k.Cell] = k
		}
		f := func(c store.Cell, p99, tied, asked float64) {
			t.Helper()
			if k := found[c]; math.Abs(k.P99.Seconds()-p99) > p99/7 || k.Tied != tied || k.Asked != asked {
				t.Errorf("%+v, want %v s, %v tied, %v asked", k, p99, tied, asked)
			}
		}
		f(slow, 0.1, 0, 0)
		f(asked, 0.001, 1, 1)
		f(less, 0.001, 1, 0)
	})
}
