package node_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// many returns a batch of adds to n cells, two to each, which need not be together.
func (k *kit) many(n int) store.Batch {
	b := store.Batch{Apart: true}
	for i := range 2 * n {
		b.Deltas = append(b.Deltas, want(add("k"+strconv.Itoa(i%n), int64(i))))
	}
	return b
}

// lanes returns in which of four lanes the cells of a flight are.
func lanes(b store.Batch) (found []int) {
	for _, d := range b.Deltas {
		found = append(found, store.PartitionOf(d.Cell, 4))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// The deltas of a batch that need not be together go each to the lane of its cell, so
// that no two lanes wait for one row. The caller is told as if they had gone together.
func TestPieces(t *testing.T) {
	run(t, node.Options{Lanes: 4}, func(k *kit) {
		b := k.many(20)
		results := k.begin(k.ctx, b).results()
		for i, d := range b.Deltas {
			r := store.Result{Outcome: store.Applied, After: d.N, Version: results[i].Version}
			if i >= 20 {
				r.Before, r.After, r.Existed = int64(i-20), d.N+int64(i-20), true
			}
			if results[i] != r {
				t.Errorf("delta %d: %+v, want %+v", i, results[i], r)
			}
		}
		flights := k.flights()
		if len(flights) != 4 {
			t.Errorf("%d flights, want 4", len(flights))
		}
		for _, f := range flights {
			if in := lanes(f); len(in) != 1 {
				t.Errorf("a flight of the lanes %v", in)
			}
		}
	})
}

// A batch stays whole if its deltas are one step, or if it could be told in which order
// they were decided.
func TestWholePieces(t *testing.T) {
	f := func(limits store.Limits, change func(b *store.Batch)) {
		t.Helper()
		runOn(t, memstore.Options{Limits: limits}, node.Options{Lanes: 4}, func(k *kit) {
			b := k.many(20)
			change(&b)
			k.begin(k.ctx, b).results()
			if n := len(k.flights()); n != 1 {
				t.Errorf("%d flights, want 1", n)
			}
		})
	}
	as := func(*store.Batch) {}
	f(store.Limits{}, func(b *store.Batch) { b.Apart = false })
	f(store.Limits{}, func(b *store.Batch) { b.Deltas[7].Cell.Namespace = "other" })
	f(store.Limits{KeysMax: 1000}, as)
	f(store.Limits{TokensMax: 1000}, as)

	run(t, node.Options{Lanes: 4}, func(k *kit) {
		full := storetest.Nth(0, 1, func(c *storetest.Call) error {
			err := c.Pass()
			c.Replies[0].Results[0] = store.Result{Outcome: store.Full}
			return err
		})
		k.onFlights(full)
		k.begin(k.ctx, k.many(1)).results()
		before := len(k.flights())
		k.begin(k.ctx, k.many(20)).results()
		if n := len(k.flights()) - before; n != 1 {
			t.Errorf("%d flights after something was full, want 1", n)
		}
		pass(2 * time.Minute)
		before = len(k.flights())
		k.begin(k.ctx, k.many(20)).results()
		if n := len(k.flights()) - before; n != 4 {
			t.Errorf("%d flights much later, want 4", n)
		}
	})
}

// What became of one piece says nothing of the others.
func TestPieceFails(t *testing.T) {
	f := func(hook storetest.Hook, outcome store.Outcome) {
		t.Helper()
		run(t, node.Options{Lanes: 4}, func(k *kit) {
			k.begin(k.ctx, k.many(20)).results() // all lanes have their writers
			in := func(lane int) func(c *storetest.Call) bool {
				return func(c *storetest.Call) bool { return slices.Contains(lanes(c.Batches[0]), lane) }
			}
			k.onFlights(storetest.If(in(2), hook))
			ctx, cancel := context.WithTimeout(k.ctx, 3*time.Second)
			defer cancel()
			b := k.many(20)
			for i, r := range k.start(ctx, b).results() {
				want := store.Applied
				if store.PartitionOf(b.Deltas[i].Cell, 4) == 2 {
					want = outcome
				}
				if r.Outcome != want {
					t.Errorf("delta %d: %+v, want outcome %d", i, r, want)
				}
			}
			k.back()
			pass(5 * time.Second)
		})
	}
	f(storetest.Fail(store.ErrUnavailable), store.Unavailable)
	f(storetest.Fail(store.ErrUnknown), store.Unknown)
}
