package plan_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// TestBoundsAgree has the adds of a cell be decided one by one: all of them are applied as
// they are if and only if the value before them is where the plan says.
func TestBoundsAgree(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	limits := []int64{math.MinInt64, math.MinInt64 + 1, -5, -1, 0, 1, 5, 9, math.MaxInt64 - 1, math.MaxInt64}
	amounts := []int64{-9, -2, -1, 0, 1, 2, 9, math.MaxInt64, math.MinInt64, math.MaxInt64 / 2}
	near := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 + 7, -12, math.MaxInt64 - 7, math.MaxInt64}
	served := 0
	for range 200_000 {
		var b store.Batch
		for range 1 + r.IntN(4) {
			d := store.Delta{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, N: amounts[r.IntN(len(amounts))]}
			if r.IntN(4) > 0 {
				d.Guard.Bound = &store.Bound{
					Low: limits[r.IntN(len(limits))], High: limits[r.IntN(len(limits))], Inward: r.IntN(2) == 0, Saturate: r.IntN(4) == 0,
				}
			}
			b.Deltas = append(b.Deltas, d)
		}
		at := near[r.IntN(len(near))] + int64(r.IntN(24))
		v := store.Value{N: at, Exists: true}
		whole := true
		for i := range b.Deltas {
			before := v.N
			res := decide.Cell(&v, &b.Deltas[i], 0, false)
			whole = whole && res.Outcome == store.Applied && v.N == before+b.Deltas[i].N
		}
		a, ok := plan.Of(&b)
		if !ok {
			if whole && !wraps(b.Deltas) {
				t.Fatalf("seed %d: all of %+v are applied to %d, and there is no plan", seed, b.Deltas, at)
			}
			continue
		}
		c := &a.Cells[0]
		end := at + c.Sum
		inside := (!c.Bounded || at >= c.Least && at <= c.Most) && (end > at) == (c.Sum > 0) &&
			sumIn(at, c.Low) && sumIn(at, c.High)
		if c.Bounded {
			served++
		}
		if inside != whole {
			t.Fatalf("seed %d: %+v to %d: planned %+v, applied %v", seed, b.Deltas, at, c, whole)
		}
	}
	if served < 1000 {
		t.Errorf("only %d were planned", served)
	}
}

// sumIn reports whether a sum is an int64.
func sumIn(a, b int64) bool { return (a+b > a) == (b > 0) }

// wraps reports whether the adds leave int64 by themselves, from 0 on.
func wraps(ds []store.Delta) bool {
	sum := int64(0)
	for i := range ds {
		if !sumIn(sum, ds[i].N) {
			return true
		}
		sum += ds[i].N
	}
	return false
}
