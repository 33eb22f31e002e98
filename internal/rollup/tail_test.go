package rollup_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
)

// TestTail adds to a counter of several shards, collects totals that are kept a
// while later, and tells adds a while after they were made: the total and its
// tail are what was collected and what was told since, or say that they can't be.
func TestTail(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	type made struct {
		shard   int
		version uint64
		n       int64
		began   uint64
	}
	type collected struct {
		versions []uint64
		total    int64
		counted  map[made]bool
		asked    uint64
	}
	sure := 0
	for range 60 {
		versions := make([]uint64, 1+rng.IntN(8))
		for i := range versions {
			versions[i] = 1
		}
		now := uint64(0)
		var tail rollup.Tail
		var kept *collected
		var under *collected // on its way to be kept
		var flying []made    // on its way to be told
		done := map[made]bool{}
		told, unsure, sum := map[made]bool{}, now, int64(0)
		seldom := []int{1, 1, 30}[rng.IntN(3)] // is a total collected, and kept: then adds are not known apart
		for range 1000 {
			now++
			switch rng.IntN(12) {
			case 0:
				if under == nil && rng.IntN(seldom) == 0 {
					under = &collected{total: sum, asked: now, counted: map[made]bool{}}
					under.versions = append(under.versions, versions...)
					for m := range done {
						under.counted[m] = true
					}
				}
			case 1:
				if under != nil && rng.IntN(seldom) == 0 {
					kept, under = under, nil
					if !tail.Rebase(kept.versions, kept.asked, now) {
						unsure = now
					}
				}
			case 2, 3, 4, 5:
				if len(flying) > 0 {
					i := rng.IntN(len(flying))
					m := flying[i]
					flying = append(flying[:i], flying[i+1:]...)
					told[m] = true
					if !tail.Note(m.shard, m.version, m.n, m.began, now) {
						unsure = now
					}
				}
			default:
				shard := rng.IntN(len(versions))
				versions[shard] += 1 + rng.Uint64N(3)
				m := made{shard, versions[shard], rng.Int64N(20) - 5, now}
				done[m] = true
				sum += m.n
				flying = append(flying, m)
			}
			if kept == nil || kept.asked < unsure {
				continue
			}
			sure++
			want := kept.total
			for m := range told {
				if !kept.counted[m] {
					want += m.n
				}
			}
			if got, _ := tail.Sum(); kept.total+got != want {
				t.Fatalf("total %d and tail %d, want %d", kept.total, got, want)
			}
		}
	}
	if sure < 5_000 {
		t.Errorf("it was sure only %d times", sure)
	}
}

// TestTailUnsure has a tail be asked for what it can't know. All totals are asked for
// at 5 and known at 7.
func TestTailUnsure(t *testing.T) {
	f := func(name string, want bool, do func(tail *rollup.Tail) bool) {
		t.Helper()
		var tail rollup.Tail
		if got := do(&tail); got != want {
			t.Errorf("%s: sure is %v", name, got)
		}
	}
	f("no total", false, func(tail *rollup.Tail) bool { return tail.Note(0, 1, 1, 8, 9) })
	f("the counter did not exist", true, func(tail *rollup.Tail) bool { return tail.Rebase([]uint64{0}, 5, 7) && tail.Note(0, 1, 1, 8, 9) })
	f("it did not exist, perhaps any more", false, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{0}, 5, 7) && tail.Note(0, 1, 1, 6, 9)
	})
	f("it exists no more", false, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{1}, 5, 7) && tail.Note(0, 2, 1, 8, 11) && tail.Rebase([]uint64{0}, 10, 12)
	})
	f("a shard that was not there", false, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{3, 0}, 5, 7) && tail.Note(1, 7, 1, 8, 9)
	})
	f("a shard that is new", false, func(tail *rollup.Tail) bool { return tail.Rebase([]uint64{3}, 5, 7) && tail.Note(1, 7, 1, 8, 9) })
	f("folded meanwhile", false, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{3, 4}, 5, 7) && tail.Note(1, 7, 1, 8, 9) && tail.Rebase([]uint64{9}, 9, 11)
	})
	f("folded after it was told", true, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{3, 4}, 5, 7) && tail.Note(1, 7, 1, 8, 9) && tail.Rebase([]uint64{9}, 10, 11)
	})
	f("the store has gone back", false, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{30}, 5, 7) && tail.Note(0, 4, 1, 8, 9)
	})
	f("more than fits", false, func(tail *rollup.Tail) bool {
		return tail.Rebase([]uint64{3}, 5, 7) && tail.Note(0, 4, math.MaxInt64, 8, 9) && tail.Note(0, 5, 1, 8, 9)
	})
}

// TestTailStamp changes with each add, and is 0 without any.
func TestTailStamp(t *testing.T) {
	var tail rollup.Tail
	tail.Rebase([]uint64{1, 1}, 5, 7)
	seen := map[uint64]bool{}
	if _, stamp := tail.Sum(); stamp != 0 {
		t.Errorf("no add has stamp %d", stamp)
	}
	for v := range uint64(500) {
		tail.Note(0, 2+v, 0, 8, 9)
		_, a := tail.Sum()
		tail.Note(1, 2+v, 0, 8, 9)
		_, b := tail.Sum()
		if seen[a] || seen[b] || a == b || a == 0 || b == 0 {
			t.Fatalf("stamps %d and %d after %d adds", a, b, v)
		}
		seen[a], seen[b] = true, true
	}
}

// TestTailBounded notes more adds than are known apart: it takes no more room, and
// what it tells is true.
func TestTailBounded(t *testing.T) {
	var tail rollup.Tail
	tail.Rebase([]uint64{1}, 5, 7)
	note := func() {
		for v := range uint64(10_000) {
			if !tail.Note(0, 2+v, 1, 8, 9) {
				t.Fatal("not sure")
			}
		}
	}
	note()
	if sum, _ := tail.Sum(); sum != 10_000 {
		t.Errorf("%d of 10000", sum)
	}
	if n := testing.AllocsPerRun(1, func() { tail.Rebase([]uint64{1}, 10, 7); note() }); n > 500 {
		t.Errorf("%v allocations", n)
	}
	if !tail.Rebase([]uint64{20_000}, 9, 11) {
		t.Error("not sure of what is all in")
	}
	for v := uint64(1); v < 1000; v++ {
		var tail rollup.Tail
		tail.Rebase([]uint64{1}, 5, 7)
		for n := uint64(2); n < 1000; n++ {
			tail.Note(0, n, 1, 8, 9)
		}
		if sure := tail.Rebase([]uint64{v}, 9, 11); sure {
			if sum, _ := tail.Sum(); sum != int64(999-v) {
				t.Fatalf("%d after version %d", sum, v)
			}
		}
	}
}
