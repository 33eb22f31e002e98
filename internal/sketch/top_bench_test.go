package sketch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// stream returns n items of a Zipfian stream, always the same.
func stream(s float64, n int) []string {
	next := zipfian(rand.New(rand.NewPCG(1, 2)), s, 1_000_000)
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf("item-%d", next())
	}
	return items
}

func filledTop(b *testing.B, items []string) *sketch.Top {
	b.Helper()
	top := newTop(b, 100)
	for _, item := range items {
		top.Add(item, 1)
	}
	return top
}

// BenchmarkTopAdd adds one item to a list of 100 that is full.
func BenchmarkTopAdd(b *testing.B) {
	for _, s := range []float64{1.0, 1.2} {
		b.Run(fmt.Sprintf("zipf=%v", s), func(b *testing.B) {
			items := stream(s, 1<<20)
			top := filledTop(b, items)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				top.Add(items[i&(1<<20-1)], 1)
				i++
			}
		})
	}
}

// BenchmarkTopExpelling adds one item to a list of 1,000 that is full, and asks which one leaves.
func BenchmarkTopExpelling(b *testing.B) {
	items := stream(1, 1<<20)
	top := newTop(b, 1000)
	for _, item := range items {
		top.Add(item, 1)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_, _ = top.AddExpelling(items[i&(1<<20-1)], 1)
		i++
	}
}

// BenchmarkTopQuery asks for the bounds of one item.
func BenchmarkTopQuery(b *testing.B) {
	items := stream(1, 1<<16)
	top := filledTop(b, items)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_, _ = top.Bounds(items[i&(1<<16-1)])
		i++
	}
}

// BenchmarkTopList lists the first 100.
func BenchmarkTopList(b *testing.B) {
	top := filledTop(b, stream(1, 1<<16))
	b.ReportAllocs()
	for b.Loop() {
		_ = top.List(100)
	}
}

// BenchmarkTopMerge merges one full list into another.
func BenchmarkTopMerge(b *testing.B) {
	items := stream(1, 1<<17)
	x, y := filledTop(b, items[:1<<16]), filledTop(b, items[1<<16:])
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Merge(y); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTopDecide takes one item into the state of a full list, as stores do.
func BenchmarkTopDecide(b *testing.B) {
	s := string(filledTop(b, stream(1, 1<<16)).Append(nil))
	asks := topAdds(b, 100, sketch.Amount{Item: "item-7", N: 1})
	dst := make([]byte, 0, sketch.StateBytesMax)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, ok := sketch.Decide(dst[:0], s, asks); !ok {
			b.Fatal("refused")
		}
	}
}

// TestTopAllocates adds to a full list: nothing is allocated.
func TestTopAllocates(t *testing.T) {
	items := stream(1, 200_000)
	top := newTop(t, 100)
	for _, item := range items {
		top.Add(item, 1)
	}
	i := 0
	if n := testing.AllocsPerRun(100_000, func() { top.Add(items[i], 1); i++ }); n != 0 {
		t.Errorf("%v allocations for each item", n)
	}
}
