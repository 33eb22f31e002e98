package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// BenchmarkFlight measures what an add costs in numbered batches of 256, without
// the waiting: blind ones to plain cells, to homes of counters that are split, and to
// their shards, which are named with their layout; and decided ones, which want their
// value, or have a bound too.
func BenchmarkFlight(b *testing.B) {
	const deltas, word = 256, 7
	at := func(i int) store.Cell {
		return store.Cell{Namespace: "default", Key: fmt.Sprintf("counter:video:%08d", i)}
	}
	shard := func(i int) store.Cell { return store.ShardCell(at(i), 1) }
	for _, m := range []struct {
		name  string
		cell  func(i int) store.Cell
		laid  bool // the cells have a layout
		named bool // and the adds name it
		want  bool
		bound *store.Bound
	}{
		{name: "plain", cell: at},
		{name: "home", cell: at, laid: true},
		{name: "shard", cell: shard, laid: true, named: true},
		{name: "want", cell: at, want: true},
		{name: "bound", cell: at, want: true, bound: &store.Bound{High: math.MaxInt64}},
	} {
		for _, keys := range []int{1, deltas} {
			b.Run(fmt.Sprintf("%s/keys=%d", m.name, keys), func(b *testing.B) {
				e, err := engine.Open(b.TempDir(), engine.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = e.Close() }()
				w, err := store.Enlist(b.Context(), e)
				if err != nil {
					b.Fatal(err)
				}
				flight := store.Batch{Writer: w, Durability: store.Memory, Apart: true}
				for i := range deltas {
					d := add(m.cell(i%keys), 1)
					if m.laid && i < keys {
						do(b, e, layout(d.Cell, 0, word))
					}
					if m.named {
						d = laid(d, word)
					}
					d.Want, d.Guard.Bound = m.want, m.bound
					flight.Deltas = append(flight.Deltas, d)
				}
				batches, replies := []store.Batch{flight}, make([]store.Reply, 1)
				b.ReportAllocs()
				for b.Loop() {
					batches[0].Prev, batches[0].Seq = batches[0].Seq, batches[0].Seq+deltas
					if err := e.Apply(b.Context(), batches, replies); err != nil || replies[0].Err != nil {
						b.Fatal(err, replies[0].Err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/deltas, "ns/delta")
			})
		}
	}
}

// BenchmarkAlone measures one add at a time, with its value and without, and a
// peek, without the waiting.
func BenchmarkAlone(b *testing.B) {
	hot := store.Cell{Namespace: "default", Key: "counter:video:00000042"}
	e, err := engine.Open(b.TempDir(), engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	do(b, e, set(hot, 1))
	for name, d := range map[string]store.Delta{"add": add(hot, 1), "add and want": want(add(hot, 1))} {
		b.Run(name, func(b *testing.B) {
			batches, replies := []store.Batch{{Durability: store.Memory, Deltas: []store.Delta{d}}}, make([]store.Reply, 1)
			for b.Loop() {
				if err := e.Apply(b.Context(), batches, replies); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("peek", func(b *testing.B) {
		cells, values := []store.Cell{hot}, make([]store.Value, 1)
		for b.Loop() {
			if !e.Peek(cells, values) {
				b.Fatal("it is in memory")
			}
		}
	})
}
