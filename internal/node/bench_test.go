package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// BenchmarkHot has callers add to one cell of a store that takes 1 ms for each
// call.
func BenchmarkHot(b *testing.B) {
	for _, callers := range []int{1, 100, 10_000} {
		for _, want := range []bool{false, true} {
			b.Run(fmt.Sprintf("callers=%d/want=%v", callers, want), func(b *testing.B) {
				h := new(storetest.Hooks)
				h.On(storetest.OnApply, storetest.Delay(time.Millisecond, store.KindOther))
				n := node.New(b.Context(), storetest.Wrap(memstore.New(memstore.Options{}), h), node.Options{})
				batch := store.Batch{Deltas: []store.Delta{{Cell: cell("hot"), Op: store.OpAdd, N: 1, Want: want}}}
				before := h.Calls(storetest.OnApply)
				b.SetParallelism(callers)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					batches, replies := []store.Batch{batch}, make([]store.Reply, 1)
					for pb.Next() {
						if err := n.Apply(b.Context(), batches, replies); err != nil || replies[0].Err != nil {
							b.Error(err, replies[0].Err)
							return
						}
					}
				})
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "adds/s")
				b.ReportMetric(1000*float64(h.Calls(storetest.OnApply)-before)/float64(b.N), "calls/1000")
				if err := n.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func cell(key string) store.Cell { return store.Cell{Namespace: "n", Key: key} }
