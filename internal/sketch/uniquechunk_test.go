package sketch_test

import (
	"errors"
	"math"
	"math/bits"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// TestUniqueChunks puts items into the chunks of a sketch, and merges those into all
// that has fewer: it must be as if the items had come there in the first place.
func TestUniqueChunks(t *testing.T) {
	rnd := random(t)
	for range 60 {
		high := sketch.PrecisionPlain + 1 + rnd.IntN(sketch.PrecisionMax-sketch.PrecisionPlain)
		middle := sketch.PrecisionPlain + rnd.IntN(high-sketch.PrecisionPlain)
		low := sketch.PrecisionMin + rnd.IntN(sketch.PrecisionPlain-sketch.PrecisionMin+1)
		// Few chunks have items, so that some become registers.
		bases := make([]uint64, 1+rnd.IntN(4))
		for i := range bases {
			bases[i] = rnd.Uint64()
		}
		n := []int{rnd.IntN(50), rnd.IntN(30_000)}[rnd.IntN(2)]
		fine, between, plain := map[int]*sketch.Unique{}, map[int]*sketch.Unique{}, sketch.NewUnique(low)
		into := func(chunks map[int]*sketch.Unique, i int) *sketch.Unique {
			if chunks[i] == nil {
				chunks[i] = sketch.NewUnique(sketch.PrecisionPlain)
			}
			return chunks[i]
		}
		for range n {
			// Long rows of zeros, to the end too, are where chunks differ.
			hash := bases[rnd.IntN(len(bases))]&^(1<<52-1) | rnd.Uint64()>>12
			hash &^= 1<<rnd.IntN(53) - 1
			i, within := sketch.Chunk(high, hash)
			if i >= sketch.Chunks(high) {
				t.Fatalf("chunk %d of %d", i, sketch.Chunks(high))
			}
			into(fine, i).Add(within)
			i, within = sketch.Chunk(middle, hash)
			into(between, i).Add(within)
			plain.Add(hash)
		}
		gotPlain, gotBetween := sketch.NewUnique(low), map[int]*sketch.Unique{}
		per := sketch.Chunks(high) / sketch.Chunks(middle)
		for i, u := range fine {
			state := string(u.Append(nil))
			if err := gotPlain.MergeChunk(state, i, sketch.Chunks(high)); err != nil {
				t.Fatal(err)
			}
			if err := into(gotBetween, i/per).MergeChunk(state, i%per, per); err != nil {
				t.Fatal(err)
			}
		}
		f := func(what string, got, want *sketch.Unique) {
			t.Helper()
			if string(got.Append(nil)) != string(want.Append(nil)) {
				t.Fatalf("%d items of precision %d in one of %s differ from those that came there", n, high, what)
			}
		}
		f("a plain one", gotPlain, plain)
		for i, want := range between {
			f("fewer chunks", gotBetween[i], want)
		}
	}
}

func TestUniqueBadChunk(t *testing.T) {
	u := sketch.NewUnique(5)
	u.Add(1)
	before := string(u.Append(nil))
	f := func(state string, chunk, chunks int) {
		t.Helper()
		if err := u.MergeChunk(state, chunk, chunks); !errors.Is(err, sketch.ErrBad) {
			t.Errorf("chunk %d of %d: %v", chunk, chunks, err)
		}
		if after := string(u.Append(nil)); after != before {
			t.Errorf("chunk %d of %d is refused, and changed the sketch", chunk, chunks)
		}
	}
	f("", 0, 1)
	f(before, 0, 0)
	f(before, 1, 1)
	f(before, -1, 2)
	f(before, 2, 3)
	f(before, 0, 1<<12)
	top := append([]byte{1, 1, 3, 1}, 0, 255, 0, 0, 0, 0, 0, 0)
	f(string(top), 0, 2)
	top[5] -= 4
	if err := u.MergeChunk(string(top), 0, 2); err != nil {
		t.Error(err)
	}
}

// TestEstimatePlus adds up chunks of which some are exact.
func TestEstimatePlus(t *testing.T) {
	const precision, n = 17, 30_000
	chunks := make([]*sketch.Unique, sketch.Chunks(precision))
	for i := range chunks {
		chunks[i] = sketch.NewUnique(sketch.PrecisionPlain)
	}
	rnd := random(t)
	hashes := map[uint64]bool{}
	for len(hashes) < n {
		hashes[rnd.Uint64()>>min(1, rnd.IntN(20))] = true
	}
	var total, listed float64
	counts := make([]float64, len(chunks))
	for hash := range hashes {
		i, within := sketch.Chunk(precision, hash)
		chunks[i].Add(within)
		counts[i]++
	}
	var sum sketch.Estimate
	var variance float64
	for i, u := range chunks {
		e := u.Estimate()
		if e.Exact {
			listed += counts[i]
		}
		total += counts[i]
		variance += e.Error * e.Error
		if i == 0 {
			sum = e
		} else {
			sum = sum.Plus(e)
		}
	}
	if listed == 0 || listed == total {
		t.Fatalf("%v of %v items are listed: the test is about some", listed, total)
	}
	if sum.Exact || math.Abs(sum.Value-total) > 5*sum.Error || math.Abs(sum.Error-math.Sqrt(variance)) > 1e-6 ||
		sum.Lower >= sum.Value || sum.Upper <= sum.Value || bits.Len(uint(sum.Value)) < 14 {
		t.Errorf("%v items, %v of them listed: %+v", total, listed, sum)
	}
}
