package node_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
)

// above returns an add to a that wants its value, and keeps a floor.
func above(n, floor int64) store.Delta {
	d := want(add("a", n))
	b := store.Unbounded()
	b.Low = floor
	d.Guard.Bound = &b
	return d
}

// TestBoundedAddsAreOneDelta has many take from one counter at once: the store decides
// once, and each is told what it would have been told alone.
func TestBoundedAddsAreOneDelta(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 100)).results()
		release := k.blocked()
		var calls []*call
		for range 50 {
			calls = append(calls, k.do(above(-2, 0)))
		}
		other := k.do(above(-2, -1)) // another floor
		release()
		ds := k.deltas(2)
		if len(ds) != 2 || ds[0].N != -100 || ds[0].Guard.Bound.Low != 0 || ds[1].N != -2 {
			t.Errorf("the store was given %+v", ds)
		}
		for i, c := range calls {
			c.told(store.Result{Outcome: store.Applied, Before: int64(100 - 2*i), After: int64(98 - 2*i), Existed: true})
		}
		other.told(store.Result{Outcome: store.Bounded, Existed: true})
		k.holds("a", 0)
	})
}

// TestBoundedRunsAreDivided has a run ask for more than there is: those that came first get
// it, one by one, and for a moment nobody waits for a run to be refused.
func TestBoundedRunsAreDivided(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 5)).results()
		several := func(n int64) (flights int) {
			t.Helper()
			before := len(k.flights())
			release := k.blocked()
			var calls []*call
			for range 4 {
				calls = append(calls, k.do(above(-n, 0)))
			}
			release()
			left := k.value("a").N
			for i, c := range calls {
				r := c.results()[0]
				if (r.Outcome == store.Applied) != (r.After == r.Before-n) || r.Outcome != store.Applied && r.Outcome != store.Bounded {
					t.Errorf("call %d: %+v", i, r)
				}
				left = min(left, r.After)
			}
			k.holds("a", left)
			return len(k.flights()) - before
		}
		if n := several(2); n != 3 { // the one that blocks, the run, and its adds
			t.Errorf("%d flights", n)
		}
		k.holds("a", 1)
		if n := several(1); n != 2 {
			t.Errorf("%d flights right after it", n)
		}
		k.holds("a", 0)
		<-time.After(time.Second)
		k.do(add("a", 4)).results()
		if n := several(1); n != 2 || len(k.deltas(len(k.flights())-1)) != 1 {
			t.Errorf("%d flights a second later", n)
		}
		k.holds("a", 0)
	})
}

// TestStrictBoundsStandAlone has adds whose bounds a sum would not keep go side by side.
func TestStrictBoundsStandAlone(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 12)).results()
		release := k.blocked()
		strict := func() store.Delta {
			d := want(add("a", -2))
			d.Guard.Bound = &store.Bound{Low: 0, High: 8}
			return d
		}
		saturate := func() store.Delta {
			d := above(-7, 3)
			d.Guard.Bound.Saturate = true
			return d
		}
		calls := []*call{k.do(strict()), k.do(strict()), k.do(strict()), k.do(saturate()), k.do(saturate())}
		release()
		if ds := k.deltas(2); len(ds) != 5 {
			t.Errorf("the store was given %+v", ds)
		}
		for i, r := range []store.Result{
			{Outcome: store.Bounded, Before: 12, After: 12},
			{Outcome: store.Bounded, Before: 12, After: 12},
			{Outcome: store.Bounded, Before: 12, After: 12},
			{Outcome: store.Applied, Before: 12, After: 5},
			{Outcome: store.Applied, Before: 5, After: 3},
		} {
			r.Existed = true
			calls[i].told(r)
		}
	})
}
