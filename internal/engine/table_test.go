package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

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

// TestFindNext compares looking for keys in groups with looking for each, whatever
// their number, when some are not there, some are there twice, chains are long, and keys
// are added between two groups.
func TestFindNext(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		tab := newTable(0)
		hash := func(key []byte) uint64 {
			if seed%2 == 1 {
				return uint64(len(key)) // long chains of one hash
			}
			return xxh3.Hash(key)
		}
		key := func() []byte {
			return fmt.Appendf(nil, "k%0*d", 1+rng.IntN(60), rng.IntN(500))
		}
		for range 300 {
			if k := key(); tab.find(uint32(hash(k)), k) == 0 {
				tab.insert(uint32(hash(k)), nil, k)
			}
		}
		var ps plans
		for range rng.IntN(6 * groupMax) {
			k := key()
			from := len(ps.keys)
			ps.keys = append(ps.keys, k...)
			ps.all = append(ps.all, plan{hash: hash(k), from: uint32(from), to: uint32(len(ps.keys))})
		}
		for i := 0; i < len(ps.all); i += groupMax {
			for n, p := range tab.findNext(ps.all, i, ps.keys) {
				k := ps.keys[p.from:p.to]
				if want := tab.find(uint32(p.hash), k); p.slot != want {
					t.Fatalf("seed %d: key %d of %d, %q: slot %d, want %d", seed, i+n, len(ps.all), k, p.slot, want)
				}
			}
			for range rng.IntN(groupMax) { // some of which are looked for next
				if k := key(); tab.find(uint32(hash(k)), k) == 0 {
					tab.insert(uint32(hash(k)), nil, k)
				}
			}
		}
	}
}

// TestSlotIsOneLine checks that a slot is in one line of the processor's caches, in
// memory of the Go heap and in that which is not.
func TestSlotIsOneLine(t *testing.T) {
	if n := unsafe.Sizeof(slot{}); n != slotBytes {
		t.Fatalf("a slot is %d bytes, want %d", n, slotBytes)
	}
	tab := newTable(0)
	defer tab.free()
	for i := range (slabRuns + 3) * pageSlots {
		id := tab.insert(uint32(i), nil, fmt.Appendf(nil, "%d", i))
		if at := uintptr(unsafe.Pointer(tab.slot(id))); at%slotBytes != 0 {
			t.Fatalf("slot %d is at %#x", id, at)
		}
	}
}

// TestKeysOfAnyLength finds keys that are in their slot and keys that are not, with and
// without bytes before them, also when a slot is used again.
func TestKeysOfAnyLength(t *testing.T) {
	for _, skip := range []int{0, 3, tokenBytes} {
		tab := newTable(skip)
		prefix := bytes.Repeat([]byte{'p'}, skip)
		for range 2 {
			var ids []uint32
			for n := 1; n < 500; n++ {
				ids = append(ids, tab.insert(uint32(n), prefix, bytes.Repeat([]byte{'k'}, n)))
			}
			for i, id := range ids {
				key := bytes.Repeat([]byte{'k'}, i+1)
				if got := tab.find(uint32(i+1), key); got != id {
					t.Fatalf("skip %d: key of %d bytes is in slot %d, want %d", skip, len(key), got, id)
				}
				if got := tab.keys().entry(id); string(got) != string(prefix)+string(key) {
					t.Fatalf("skip %d: entry of a key of %d bytes is %q", skip, len(key), got)
				}
			}
			for _, id := range ids {
				tab.remove(id)
			}
			if tab.count != 0 || tab.used != 0 {
				t.Fatalf("skip %d: %d entries and %d bytes are left", skip, tab.count, tab.used)
			}
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
