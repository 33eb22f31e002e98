package spread_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

var usual = spread.Policy{Limits: hot.Limits{Max: hot.ShardsMax, CoolDown: 10 * time.Second}}

// clocked is a server whose clock is the test's.
func clocked(t *testing.T, under store.Store, p spread.Policy) (*spread.Store, *atomic.Int64) {
	t.Helper()
	now := &atomic.Int64{}
	s := spread.New(under, spread.Options{
		Policy: func(store.Cell) spread.Policy { return p }, Rules: eager, Every: never,
		Now: func() time.Time { return time.Unix(1_790_000_000, now.Load()) },
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for !s.Loaded() {
		runtime.Gosched()
	}
	return s, now
}

// TestWhenItFolds has servers look at a counter of 64 shards each second: one that
// writes to it, and one that does not. It is hot by its writes, whatever they add.
func TestWhenItFolds(t *testing.T) {
	f := func(name string, stays bool, perSecond, every int, deltas ...store.Delta) {
		t.Run(name, func(t *testing.T) {
			under := newShared(1)
			writer, now := clocked(t, under, usual)
			other, others := clocked(t, under, usual)
			c := cell("a")
			mustDo(t, writer, add(c, 1))
			split(t, writer, c, 64)
			read(t, other, c)
			n := 0
			for second := range 60 {
				for i := range perSecond {
					now.Add(int64(time.Second) / int64(perSecond))
					if others.Store(now.Load()); second%every == 0 && i < perSecond {
						d := deltas[n%len(deltas)]
						d.Cell = c
						mustDo(t, writer, d)
						n++
					}
				}
				for _, s := range []*spread.Store{writer, other} {
					if err := s.Refresh(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if stays && writer.Shards(c) == 1 {
					t.Fatalf("folded after %d s", second+1)
				}
			}
			if n := writer.Shards(c); !stays && n != 1 {
				t.Errorf("it has %d shards", n)
			}
		})
	}
	f("likes", true, 1000, 1, add(store.Cell{}, 1))
	f("likes and unlikes", true, 1000, 1, add(store.Cell{}, 1), add(store.Cell{}, -1))
	f("a like now and then", false, 2, 1, add(store.Cell{}, 1))
	f("bytes, seldom", false, 1, 10, add(store.Cell{}, 50_000))
	f("with tokens", false, 1, 1, store.Delta{Op: store.OpAdd, N: 1000, Guard: store.Guard{Token: "t"}})
}

// A counter that was hot long ago, and gets hot again, is not folded for what it was
// in between.
func TestHotAgain(t *testing.T) {
	s, now := clocked(t, newShared(1), usual)
	c := cell("a")
	mustDo(t, s, add(c, 1))
	split(t, s, c, 8)
	for s.Shards(c) > 1 {
		now.Add(int64(time.Second))
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now.Add(int64(15 * time.Minute))
	split(t, s, c, 8)
	for i := range 1000 {
		now.Add(int64(time.Millisecond))
		mustDo(t, s, add(c, 1))
		if i%200 == 0 {
			if err := s.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s.Shards(c) == 1 {
			t.Fatalf("folded %d ms after it was split", i)
		}
	}
}

// A counter that is written to with tokens is not split: its own cell takes them
// all.
func TestTied(t *testing.T) {
	f := func(split bool, deltas ...store.Delta) {
		t.Helper()
		under := newShared(8)
		s, now := clocked(t, under, usual)
		under.fails(func([]store.Batch) error {
			now.Add(int64(20 * time.Microsecond))
			return nil
		}, nil)
		c := cell("a")
		for i := range 20_000 {
			d := deltas[i%len(deltas)]
			d.Cell = c
			if d.Guard.Token != "" {
				d.Guard.Token += string(rune('a' + i))
			}
			d.Writes = 10
			mustDo(t, s, d)
			if i%1000 == 0 {
				if err := s.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := s.Shards(c); (n > 1) != split {
			t.Errorf("%d shards", n)
		}
	}
	plain, tokened := add(store.Cell{}, 1), store.Delta{Op: store.OpAdd, N: 1, Guard: store.Guard{Token: "t"}}
	f(true, plain)
	f(false, tokened)
	f(false, add(store.Cell{}, -1))
	f(true, plain, plain, tokened)
	f(false, plain, tokened, tokened)
}

// What was acknowledged is not lost because the sum of the shards leaves int64.
func TestSumLeavesInt64(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		one, two := server(t, under, usual), server(t, under, usual)
		c := cell("a")
		mustDo(t, one, add(c, 1))
		split(t, one, c, 8)
		acked := int64(1)
		for range 200 {
			mustDo(t, one, add(c, store.AddMax))
			acked += store.AddMax
		}
		for i, n := range []int64{1 << 62, 1<<62 - 1 - 100*store.AddMax, 100, -store.AddMax - 1} {
			s := []*spread.Store{one, two}[i%2]
			if _, err := do(t.Context(), s, add(c, n)); err == nil {
				acked += n
			} else if !errors.Is(err, store.ErrOverflow) || i != 1 {
				t.Errorf("add %d: %v", n, err)
			}
			if v := read(t, two, c).N; v != acked {
				t.Fatalf("%d, and %d were acknowledged", v, acked)
			}
		}
	})
}

// If it did leave it, the fold would be refused, and change nothing.
func TestFoldLeavesInt64(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		s := server(t, under, lazy)
		c := cell("a")
		mustDo(t, s, add(c, 1))
		split(t, s, c, 8)
		for range 200 {
			mustDo(t, s, add(c, store.AddMax))
		}
		// By none of the ways that there are.
		home := read(t, under, c)
		raw := store.Delta{Cell: c, Op: store.OpAdd, N: math.MaxInt64 - home.N, Guard: store.Guard{Laid: true, Layout: home.Layout}}
		mustDo(t, under, raw)
		if _, err := do(t.Context(), s, want(add(c, 1))); !errors.Is(err, store.ErrOverflow) {
			t.Errorf("fold: %v", err)
		}
		raw = store.Delta{Cell: c, Op: store.OpAdd, N: -raw.N, Guard: store.Guard{Laid: true, Layout: read(t, under, c).Layout}}
		mustDo(t, under, raw)
		if r, err := do(t.Context(), s, want(add(c, 1))); err != nil || r.After != 2+200*store.AddMax {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// What is out of reach does not keep other counters from being folded.
func TestFoldBesideAGap(t *testing.T) {
	const partitions = 16
	under := newShared(partitions)
	s, now := clocked(t, under, usual)
	a, b := cell("a"), cell("b")
	for _, c := range []store.Cell{a, b} {
		mustDo(t, s, add(c, 1))
		split(t, s, c, 2)
	}
	down := store.PartitionOf(store.ShardCell(b, 1), partitions)
	for _, c := range []store.Cell{a, store.ShardCell(a, 1), b} {
		if store.PartitionOf(c, partitions) == down {
			t.Fatal("choose other keys")
		}
	}
	under.cannotRead(func(c store.Cell) bool { return store.PartitionOf(c, partitions) == down })
	for range 30 {
		now.Add(int64(time.Second))
		if err := s.Refresh(t.Context()); err == nil {
			t.Fatal("nobody is told")
		}
		if s.Shards(a) == 1 {
			return
		}
	}
	t.Errorf("it has %d shards", s.Shards(a))
}

// What does not answer does not, either.
func TestFoldBesideAHang(t *testing.T) {
	under := newShared(8)
	s, now := clocked(t, under, usual)
	for _, c := range []store.Cell{cell("good"), cell("bad")} {
		mustDo(t, s, add(c, 1))
		split(t, s, c, 8)
	}
	under.hangs(func(c store.Cell) bool { return strings.HasSuffix(c.Key, "bad") })
	for range 30 {
		now.Add(int64(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := s.Refresh(ctx); err == nil {
			t.Fatal("nobody is told")
		}
		cancel()
		if s.Shards(cell("good")) == 1 {
			return
		}
	}
	t.Errorf("it has %d shards", s.Shards(cell("good")))
}
