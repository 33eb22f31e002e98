package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSortSaved compares the sort with a plain one, for keys that are alike for
// long, that end in zeros, and that are prefixes of each other.
func TestSortSaved(t *testing.T) {
	for name, key := range map[string]func(rng *rand.Rand, i int) string{
		"numbered": func(_ *rand.Rand, i int) string { return fmt.Sprintf("counter:video:%08d", i*7919%10_007) },
		"random": func(rng *rand.Rand, i int) string {
			b := make([]byte, rng.IntN(40))
			for j := range b {
				b[j] = byte(rng.IntN(3)) * byte(rng.IntN(128))
			}
			return string(b) + fmt.Sprint(i)
		},
		"prefixes": func(_ *rand.Rand, i int) string {
			return strings.Repeat("a", i%300) + strings.Repeat("\x00", i/300)
		},
		"ended": func(_ *rand.Rand, i int) string { return "12345678"[:i%9] + strings.Repeat("\x00", i/9) },
		"one":   func(_ *rand.Rand, i int) string { return strings.Repeat("same ", 20) + fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for _, n := range []int{0, 1, 2, fewKeys, fewKeys + 1, 1000, 4000} {
				const skip = 3
				keys := newTable(skip)
				var got []saved
				for i := range n {
					got = append(got, saved{slot: keys.insert(rng.Uint32(), []byte("xyz"), []byte(key(rng, i)))})
				}
				rng.Shuffle(n, func(i, j int) { got[i], got[j] = got[j], got[i] })
				want := slices.Clone(got)
				slices.SortFunc(want, func(a, b saved) int { return bytes.Compare(keys.keyOf(a.slot), keys.keyOf(b.slot)) })
				sortSaved(got, keys, &pace{pressed: func() bool { return true }})
				for i := range got {
					if got[i].slot != want[i].slot && !bytes.Equal(keys.keyOf(got[i].slot), keys.keyOf(want[i].slot)) {
						t.Fatalf("of %d, number %d is %q, want %q", n, i, keys.keyOf(got[i].slot), keys.keyOf(want[i].slot))
					}
				}
			}
		})
	}
}

// counted counts how often a key is looked at.
type counted struct {
	keyed
	looks *int
}

func (c counted) keyOf(id uint32) []byte {
	*c.looks++
	return c.keyed.keyOf(id)
}

// TestSortLooksRarely sorts the keys of members, which have zeros before the user's name: each is
// looked at a few times only.
func TestSortLooksRarely(t *testing.T) {
	const n = 10_000
	keys, looks := newTable(0), 0
	var copies []saved
	for i := range n {
		key := fmt.Appendf(nil, "post:0001\xff\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00user-%08d", i*7919%n)
		copies = append(copies, saved{slot: keys.insert(uint32(i), nil, key)})
	}
	sortSaved(copies, counted{keys, &looks}, &pace{pressed: func() bool { return true }})
	for i := range copies {
		if key, want := keys.keyOf(copies[i].slot), fmt.Sprintf("user-%08d", i); !bytes.HasSuffix(key, []byte(want)) {
			t.Fatalf("copy %d is of %q, want %s", i, key, want)
		}
	}
	if looks > 12*n {
		t.Errorf("%d keys were looked at %d times", n, looks)
	}
}
