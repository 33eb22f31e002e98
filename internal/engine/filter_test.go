package engine

import (
	"math/rand/v2"
	"testing"
)

// TestFilterKnowsItsKeys widens a filter now and then, by any factor: it never forgets
// a key, and knows about how many it has.
func TestFilterKnowsItsKeys(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		f := newFilter(0, 1<<10)
		var keys []uint64
		for range 2000 {
			h := rng.Uint64()
			keys = append(keys, h)
			f.addAll([]uint64{h, keys[rng.IntN(len(keys))]})
			if rng.IntN(400) == 0 {
				f = f.widened(rng.IntN(20_000), 1<<10)
			}
		}
		for i, h := range keys {
			if !f.has(h) {
				t.Fatalf("seed %d: key %d of %d is forgotten, with %d blocks", seed, i, len(keys), len(f.blocks))
			}
		}
		if f.keys > len(keys) || f.keys < len(keys)*9/10 {
			t.Fatalf("seed %d: it counts %d keys of %d", seed, f.keys, len(keys))
		}
	}
}

// TestFilterIsRarelyWrong measures how often a filter takes an unknown key for a known
// one: full at its first size, full after it was widened as often as it ever is, and at its limit.
func TestFilterIsRarelyWrong(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	wrong := func(f *filter) float64 {
		n := 0
		for range 100_000 {
			if f.has(rng.Uint64()) {
				n++
			}
		}
		return float64(n) / 100_000
	}
	add := func(f *filter, perBlock int) {
		for f.keys < len(f.blocks)*perBlock {
			f.add(rng.Uint64())
		}
	}
	check := func(what string, f *filter, most float64) {
		t.Helper()
		got := wrong(f)
		t.Logf("%s, %d blocks, %d keys: wrong in %.2f%%", what, len(f.blocks), f.keys, 100*got)
		if got > most {
			t.Errorf("%s: wrong in %.2f%%, want at most %.2f%%", what, 100*got, 100*most)
		}
	}
	full := newFilter(1<<12*roomKeys, 1<<12)
	add(full, roomKeys)
	check("full", full, 0.002)
	wide := newFilter(1<<10*roomKeys, 1<<10)
	for add(wide, roomKeys); len(wide.blocks) < 1<<12; add(wide, roomKeys) {
		wide = wide.widened(1, 1<<12)
	}
	check("widened", wide, 0.05)
	add(full, blockKeysMax)
	check("at its limit", full, 0.04)
	add(wide, blockKeysMax)
	check("widened, at its limit", wide, 0.2)
}

// BenchmarkFilterAdd adds keys to a filter that is larger than the processor's caches, as
// a checkpoint does, and one after the other.
func BenchmarkFilterAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 6))
	f := func(name string, add func(*filter, []uint64)) {
		b.Run(name, func(b *testing.B) {
			f := newFilter(1<<18*roomKeys, 1<<18)
			var hashes [lockedCells]uint64
			for n := 0; b.Loop(); n++ {
				if n %= len(hashes); n == 0 {
					for i := range hashes {
						hashes[i] = rng.Uint64()
					}
					add(f, hashes[:])
				}
			}
		})
	}
	f("all", (*filter).addAll)
	f("each", func(f *filter, hashes []uint64) {
		for _, h := range hashes {
			f.add(h)
		}
	})
}
