package node_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A distant store takes some time for each call.
type distant struct {
	*memstore.Store
	delay time.Duration
	calls atomic.Int64
}

func (s *distant) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.calls.Add(1)
	<-time.After(s.delay)
	return s.Store.Apply(ctx, batches, replies)
}

// BenchmarkHot has callers add to one cell of a store that takes 1 ms for each
// call.
func BenchmarkHot(b *testing.B) {
	for _, callers := range []int{1, 100, 10_000} {
		for _, want := range []bool{false, true} {
			b.Run(fmt.Sprintf("callers=%d/want=%v", callers, want), func(b *testing.B) {
				s := &distant{Store: memstore.New(memstore.Options{}), delay: time.Millisecond}
				n := node.New(b.Context(), s, node.Options{})
				batch := store.Batch{Deltas: []store.Delta{{Cell: cell("hot"), Op: store.OpAdd, N: 1, Want: want}}}
				s.calls.Store(0)
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
				b.ReportMetric(1000*float64(s.calls.Load())/float64(b.N), "calls/1000")
				if err := n.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func cell(key string) store.Cell { return store.Cell{Namespace: "n", Key: key} }
