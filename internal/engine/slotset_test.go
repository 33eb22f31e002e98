package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSlotSetAgainstMap walks over sets in parts of any size, from any slot on.
func TestSlotSetAgainstMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var set slotSet
		in := map[uint32]bool{}
		span := uint32(1) << (1 + rng.IntN(20))
		for range rng.IntN(2000) {
			id := rng.Uint32N(span)
			set.add(id)
			in[id] = true
		}
		if set.count != len(in) {
			t.Fatalf("seed %d: it counts %d, want %d", seed, set.count, len(in))
		}
		want := slices.Sorted(maps.Keys(in))
		first := rng.Uint32N(span)
		want = slices.DeleteFunc(want, func(id uint32) bool { return id < first })
		room := make([]uint32, 1+rng.IntN(100))
		var got []uint32
		for from := first; ; {
			some := set.some(from, room)
			if len(some) == 0 {
				break
			}
			got = append(got, some...)
			from = some[len(some)-1] + 1
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: from %d on it has %v, want %v", seed, first, got, want)
		}
	}
}
