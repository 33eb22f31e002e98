package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// BenchmarkStart measures what a decided add costs in batches of 256, without
// the waiting.
func BenchmarkStart(b *testing.B) {
	for _, keys := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			e, err := engine.Open(b.TempDir(), engine.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprintf("counter:video:%08d", i)
			}
			batch := []store.Batch{{Durability: store.Memory}}
			replies := make([]store.Reply, 1)
			for i := range names {
				batch[0].Deltas = append(batch[0].Deltas, add(store.Cell{Namespace: "default", Key: names[i]}, 1))
				if len(batch[0].Deltas) == store.BatchDeltasMax || i == keys-1 {
					if err := e.Apply(b.Context(), batch, replies); err != nil {
						b.Fatal(err)
					}
					batch[0].Deltas = batch[0].Deltas[:0]
				}
			}
			if err := e.Checkpoint(b.Context()); err != nil {
				b.Fatal(err)
			}
			batch[0].Deltas = make([]store.Delta, 256)
			ds := batch[0].Deltas
			b.ReportAllocs()
			for b.Loop() {
				for i := range ds {
					ds[i] = store.Delta{Cell: store.Cell{Namespace: "default", Key: names[rand.IntN(keys)]}, Op: store.OpAdd, N: 1, Want: true}
				}
				for !e.Start(batch, replies, func(error) {}) {
					if err := e.Apply(b.Context(), batch, replies); err != nil {
						b.Fatal(err)
					}
					break
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/delta")
		})
	}
}
