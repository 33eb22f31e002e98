package sketch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// TestFreshUniques checks that a request says of each of its items whether that has changed the sketch: as if they had
// been added one after the other, in the order of the request.
func TestFreshUniques(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		p := 3 + r.IntN(8)
		is := sketch.NewUnique(p)
		for range r.IntN(2 << p) {
			is.Add(r.Uint64())
		}
		state := ""
		if r.IntN(10) > 0 {
			state = string(is.Append(nil))
		}
		hashes := make([]uint64, r.IntN(min(sketch.UniquesToldMost, 1<<p/8)+1))
		for i := range hashes {
			hashes[i] = r.Uint64N(1<<40) << 24
			if i > 0 && r.IntN(4) == 0 {
				hashes[i] = hashes[r.IntN(i)]
			}
		}
		at := make([]uint8, len(hashes))
		asks := sketch.AppendUniqueRequestAt(nil, p, hashes, at)
		next, changed, answer, ok := sketch.Decide(nil, state, asks)
		if !ok {
			t.Fatalf("%x is no request", asks)
		}
		if state == "" {
			is.Reset()
		}
		listed := is.Exact()
		byPlace := make(map[uint8]uint64)
		for i, h := range hashes {
			byPlace[at[i]] = h
		}
		fresh := uint64(0)
		for i := range uint8(len(byPlace)) {
			if is.Add(byPlace[i]) {
				fresh |= 1 << i
			}
		}
		if listed && !is.Exact() { // The list has become registers: what it had not is new all the same.
			fresh = uint64(answer[1]) | fresh
		}
		if uint64(answer[1]) != fresh || changed && string(next) != string(is.Append(nil)) || answer[0] != 0 != changed {
			t.Fatalf("precision %d, %d items: %b, want %b; changed %v, %d", p, len(hashes), answer[1], fresh, changed, answer[0])
		}
	}
}
