package decide_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// BenchmarkMerge measures what merging one item into a full sketch of 8 KiB takes, if it is known,
// and if it is new, and how much of that is the number of the state.
func BenchmarkMerge(b *testing.B) {
	full := sketch.NewUnique(sketch.PrecisionDefault)
	for i := range uint64(100_000) {
		full.Add(i * 0x9e3779b97f4a7c15)
	}
	state := string(full.Append(nil))
	ask := func(i uint64) []byte {
		return sketch.AppendUniqueRequest(nil, sketch.PrecisionDefault, []uint64{i * 0x9e3779b97f4a7c15})
	}
	known := ask(1)
	var fresh []byte
	for i := uint64(1 << 20); ; i++ {
		if _, changed, _, _ := sketch.Decide(nil, state, ask(i)); changed {
			fresh = ask(i)
			break
		}
	}
	for _, of := range []struct {
		name string
		asks []byte
	}{{"known", known}, {"new", fresh}} {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sketch.Decide(nil, state, of.asks)
			}
		})
	}
	b.Run("number", func(b *testing.B) {
		raw := []byte(state)
		for b.Loop() {
			store.PartSketch.Number(raw)
		}
	})
}
