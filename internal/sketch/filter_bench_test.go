package sketch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// filterOf has 30,000 items in one part, with an error of 1%.
func filterOf(b *testing.B) (f *sketch.Filter, hashes []uint64) {
	b.Helper()
	f = newFilter(b, sketch.FilterShape{Capacity: 40_000, Strength: 7})
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 30_000 {
		h := rnd.Uint64()
		f.Add(h)
		hashes = append(hashes, h)
	}
	return f, hashes
}

// BenchmarkFilterAdd adds items to a filter that is made anew whenever it is full.
func BenchmarkFilterAdd(b *testing.B) {
	_, hashes := filterOf(b)
	shape := sketch.FilterShape{Capacity: 40_000, Strength: 7}
	f := newFilter(b, shape)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == len(hashes) {
			f, i = newFilter(b, shape), 0
		}
		f.Add(hashes[i])
		i++
	}
}

func BenchmarkFilterQuery(b *testing.B) {
	f, hashes := filterOf(b)
	b.Run("there", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_ = f.Has(hashes[i%len(hashes)])
			i++
		}
	})
	b.Run("not there", func(b *testing.B) {
		b.ReportAllocs()
		i := uint64(0)
		for b.Loop() {
			_ = f.Has(i * 0x9e3779b97f4a7c15)
			i++
		}
	})
}

func BenchmarkFilterMerge(b *testing.B) {
	f, _ := filterOf(b)
	o := newFilter(b, f.Shape())
	o.Add(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Merge(o); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFilterDecide takes one item into a state, as stores do: one that is new, and one
// that is there.
func BenchmarkFilterDecide(b *testing.B) {
	f, hashes := filterOf(b)
	s := string(f.Append(nil))
	dst := make([]byte, 0, sketch.StateBytesMax)
	run := func(name string, hash uint64) {
		b.Run(name, func(b *testing.B) {
			asks := filterAsks(b, f.Shape(), hash)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, ok := sketch.Decide(dst[:0], s, asks); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
	run("new", 12345)
	run("there", hashes[7])
}
