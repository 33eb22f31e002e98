package sketch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// hashes returns n hashes, always the same.
func hashes(n int) []uint64 {
	rnd := rand.New(rand.NewPCG(1, 2))
	list := make([]uint64, n)
	for i := range list {
		list[i] = rnd.Uint64()
	}
	return list
}

// full returns a sketch that has items.
func full(items []uint64) *sketch.Unique {
	u := sketch.NewUnique(sketch.PrecisionDefault)
	for _, hash := range items {
		u.Add(hash)
	}
	return u
}

// BenchmarkUniqueAdd adds a million different items, name by name, again and again,
// the list of the first ones included.
func BenchmarkUniqueAdd(b *testing.B) {
	names := make([]string, 1<<20)
	for i := range names {
		names[i] = fmt.Sprintf("visitor-%08d", i)
	}
	u := sketch.NewUnique(sketch.PrecisionDefault)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == len(names) {
			i = 0
			u.Reset()
		}
		u.Add(sketch.Hash(names[i]))
		i++
	}
}

// BenchmarkUniqueList adds to sketches that list their items.
func BenchmarkUniqueList(b *testing.B) {
	items := hashes(1 << 10)
	u := sketch.NewUnique(sketch.PrecisionDefault)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == len(items) {
			i = 0
			u.Reset()
		}
		u.Add(items[i])
		i++
	}
}

// BenchmarkUniqueMerge merges a state of registers into another.
func BenchmarkUniqueMerge(b *testing.B) {
	items := hashes(200_000)
	x, y, into := full(items[:100_000]), full(items[100_000:]), sketch.NewUnique(sketch.PrecisionDefault)
	b.ReportAllocs()
	for b.Loop() {
		into.Reset()
		into.Merge(x)
		into.Merge(y)
	}
}

// BenchmarkUniqueUnion counts the items of 10 states together, checks included.
func BenchmarkUniqueUnion(b *testing.B) {
	items := hashes(1_000_000)
	var states []string
	for i := range 10 {
		states = append(states, string(full(items[i*90_000:i*90_000+100_000]).Append(nil)))
	}
	u := sketch.NewUnique(sketch.PrecisionDefault)
	b.ReportAllocs()
	for b.Loop() {
		u.Reset()
		for _, state := range states {
			if err := u.MergeState(state); err != nil {
				b.Fatal(err)
			}
		}
		u.Estimate()
	}
}

// BenchmarkUniqueEstimate estimates from registers.
func BenchmarkUniqueEstimate(b *testing.B) {
	for _, n := range []int{2_000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			u := full(hashes(n))
			b.ReportAllocs()
			for b.Loop() {
				u.Estimate()
			}
		})
	}
}

// BenchmarkUniqueDecide decides a request of one item: that is there, that changes
// registers, and that is added to a list of 1,000.
func BenchmarkUniqueDecide(b *testing.B) {
	items := hashes(200_000)
	ask := func(hash uint64) []byte {
		return sketch.AppendUniqueRequest(nil, sketch.PrecisionDefault, []uint64{hash})
	}
	f := func(name string, state *sketch.Unique, asks []byte, want bool) {
		b.Run(name, func(b *testing.B) {
			was := string(state.Append(nil))
			dst := make([]byte, 0, sketch.StateBytesMax)
			b.ReportAllocs()
			for b.Loop() {
				if _, changed, _, _ := sketch.Decide(dst, was, asks); changed != want {
					b.Fatal("changed: ", changed)
				}
			}
		})
	}
	registers := full(items)
	f("known", registers, ask(items[17]), false)
	f("new", registers, ask(1), true) // its level is 63
	f("list", full(items[:1000]), ask(items[1000]), true)
}

// BenchmarkUniqueCompare compares two sketches of registers that share a tenth.
func BenchmarkUniqueCompare(b *testing.B) {
	items := hashes(200_000)
	x, y := full(items[:110_000]), full(items[90_000:])
	for b.Loop() {
		sketch.Compare(x, y)
	}
}
