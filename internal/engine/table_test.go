package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"
)

// The table against a map: the fast thing checked against the plain one.
func TestTableAgainstMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tab := newTable(0)
		want := map[string]int64{}
		for range 20_000 {
			key := fmt.Sprintf("k%d", rng.IntN(3000))
			if rng.IntN(20) == 0 {
				key += string(make([]byte, rng.IntN(400)))
			}
			h := uint32(xxh3.HashString(key))
			if seed%2 == 1 {
				h &= 0xf // long chains
			}
			id := tab.find(h, []byte(key))
			if _, ok := want[key]; ok != (id != 0) {
				t.Fatalf("seed %d: find %q = %d, in map %v", seed, key, id, ok)
			}
			switch {
			case id == 0:
				id = tab.insert(h, nil, []byte(key))
				tab.slot(id).value = int64(len(want))
				want[key] = int64(len(want))
			case rng.IntN(3) == 0:
				tab.remove(id)
				delete(want, key)
			default:
				if got := tab.slot(id).value; got != want[key] {
					t.Fatalf("seed %d: %q = %d, want %d", seed, key, got, want[key])
				}
			}
		}
		if tab.count != len(want) {
			t.Fatalf("seed %d: count %d, want %d", seed, tab.count, len(want))
		}
	}
}

func BenchmarkTableFind(b *testing.B) {
	for _, n := range []int{1, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			tab := newTable(0)
			keys := make([][]byte, n)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "counter:video:%08d", i)
				tab.insert(uint32(xxh3.Hash(keys[i])), nil, keys[i])
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				k := keys[rng.IntN(n)]
				tab.slot(tab.find(uint32(xxh3.Hash(k)), k)).value++
			}
			b.ReportMetric(float64(tab.arena.bytes()+int64(len(tab.pages))*pageSlots*slotBytes+int64(len(tab.heads))*headPage*4)/float64(n), "B/key")
		})
	}
}
