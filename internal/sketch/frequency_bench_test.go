package sketch_test

import (
	"fmt"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// frequencyOf counts a stream in the shape of an error of 0.2%, wrong once in a hundred.
func frequencyOf(b *testing.B, conservative bool) (f *sketch.Frequency, hashes []uint64) {
	b.Helper()
	f = newFrequency(b, sketch.FrequencyShape{Width: 1000, Depth: 7, Conservative: conservative})
	for _, item := range stream(1, 1<<16) {
		h := sketch.Hash(item)
		f.Add(h, 1)
		hashes = append(hashes, h)
	}
	return f, hashes
}

func BenchmarkFrequencyAdd(b *testing.B) {
	for _, conservative := range []bool{false, true} {
		b.Run(fmt.Sprintf("conservative=%v", conservative), func(b *testing.B) {
			f, hashes := frequencyOf(b, conservative)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				f.Add(hashes[i&(1<<16-1)], 1)
				i++
			}
		})
	}
}

func BenchmarkFrequencyQuery(b *testing.B) {
	f, hashes := frequencyOf(b, false)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_ = f.Count(hashes[i&(1<<16-1)])
		i++
	}
}

func BenchmarkFrequencyMerge(b *testing.B) {
	f, _ := frequencyOf(b, false)
	o, _ := frequencyOf(b, false)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Merge(o, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFrequencyDecide takes one item into a state, as stores do.
func BenchmarkFrequencyDecide(b *testing.B) {
	f, _ := frequencyOf(b, false)
	s := string(f.Append(nil))
	asks := frequencyAsks(b, f.Shape(), sketch.HashAmount{Hash: 7, N: 1})
	dst := make([]byte, 0, sketch.StateBytesMax)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, ok := sketch.Decide(dst[:0], s, asks); !ok {
			b.Fatal("refused")
		}
	}
}
