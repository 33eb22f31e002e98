//go:build unix

package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// BenchmarkEvent measures the processor time of an add with its views, with its share of
// the sync, in batches of 256 that are started, and synced 32 at a time: to one counter,
// and to many in no order; the total alone, with 3 windows, and with 3 windows for
// each of 2 dimensions and 2 values for all time.
func BenchmarkEvent(b *testing.B) {
	const size, turn = 256, 32
	for _, keys := range []int{1, 100_000} {
		for _, cells := range []int{1, 4, 12} {
			b.Run(fmt.Sprintf("keys=%d/cells=%d", keys, cells), func(b *testing.B) {
				e, err := engine.Open(b.TempDir(), engine.Options{Memory: 1 << 30})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = e.Close() }()
				plan := benchPlan(cells - 1)
				names := make([]store.Cell, keys)
				for i := range names {
					names[i] = store.Cell{Namespace: "default", Key: fmt.Sprintf("counter:video:%08d", i)}
				}
				batches, replies := []store.Batch{{Deltas: make([]store.Delta, size)}}, make([]store.Reply, 1)
				event := &store.Event{Plan: plan}
				if cells > 1 {
					batches[0].Books = []store.Book{{Namespace: "default", ID: 1}}
				} else {
					event = nil
				}
				fly := func(next func() int) {
					for i := range batches[0].Deltas {
						batches[0].Deltas[i] = store.Delta{Cell: names[next()], Op: store.OpAdd, N: 1, Event: event}
					}
					if !e.Start(batches, replies, func(error) {}) {
						if err := e.Apply(b.Context(), batches, replies); err != nil {
							b.Fatal(err)
						}
					}
				}
				for at := 0; at < keys; {
					fly(func() int { at++; return at % keys })
				}
				before := cpuTime(b)
				for b.Loop() {
					for range turn {
						fly(func() int { return rand.IntN(keys) })
					}
					e.Flush(true)
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/size/turn, "cpu-ns/add")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// benchPlan returns a plan that adds to some parts.
func benchPlan(parts int) *store.Plan {
	var all []store.Part
	for i := range parts {
		f := store.PartFields{Kind: store.PartWindow, View: uint16(i), Epoch: 7, Position: 1_700_000_000_000}
		if i >= 3 {
			f.Kind, f.Name = store.PartWindowDim, fmt.Sprint("value", i)
		}
		if i >= 9 {
			f.Kind, f.Epoch = store.PartDim, 0
		}
		all = append(all, f.Part())
	}
	return planOf(1, all...)
}
