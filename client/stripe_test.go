package client

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// local returns a Writer that ships nothing.
func local() *Writer {
	return &Writer{
		o:       WriterOptions{Mode: Flush, Keys: 1 << 20, KeysMax: 1 << 20},
		stripes: new([1 << stripeBits]stripe),
		open:    newBatch(), room: make(chan struct{}), kick: make(chan struct{}, 1),
	}
}

// Whatever is added, in whatever order and with takes in between, comes out: the
// same sums, and each key that was touched.
func TestStripesAgainstMap(t *testing.T) {
	var keys []string
	for i := range 40 {
		// Alike at both ends, of all lengths, and more than there are cells in a place.
		keys = append(keys, strings.Repeat("k", i), fmt.Sprintf("prefix-%d", i), fmt.Sprintf("the-same-%d-beginning-and-end", i))
	}
	keys = keys[1:] // "" is none
	rapid.Check(t, func(t *rapid.T) {
		w := local()
		want := map[string]*big.Int{} // since the last take
		take := func(last bool) {
			b := w.take(last)
			got := map[string]*big.Int{}
			for i, key := range b.keys {
				sum(got, key, b.deltas[i])
			}
			if len(got) != len(want) {
				t.Fatalf("%d keys came out, of %d", len(got), len(want))
			}
			for key, n := range want {
				if got[key] == nil || got[key].Cmp(n) != 0 {
					t.Fatalf("%q is %v, want %v", key, got[key], n)
				}
			}
			if n := w.pending.Load(); n != 0 {
				t.Fatalf("%d pending after a take", n)
			}
			clear(want)
		}
		some := rapid.SampledFrom(keys[:rapid.IntRange(1, len(keys)).Draw(t, "keys")])
		deltas := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64Range(-smallMax-1, smallMax+1), rapid.Int64())
		for range rapid.IntRange(1, 300).Draw(t, "adds") {
			key, delta := some.Draw(t, "key"), deltas.Draw(t, "delta")
			for range rapid.IntRange(1, 3).Draw(t, "times") {
				if err := w.Add(t.Context(), key, delta); err != nil {
					t.Fatal(err)
				}
				sum(want, key, delta)
			}
			if rapid.IntRange(0, 20).Draw(t, "take") == 0 {
				take(false)
			}
		}
		take(true)
	})
}

func sum(sums map[string]*big.Int, key string, delta int64) {
	if sums[key] == nil {
		sums[key] = new(big.Int)
	}
	sums[key].Add(sums[key], big.NewInt(delta))
}

// A cell that nears its limit is emptied in time.
func TestCellNearItsLimit(t *testing.T) {
	for _, sign := range []int64{1, -1} {
		w := local()
		add := func(delta int64) {
			t.Helper()
			if err := w.Add(t.Context(), "key of a cell", delta); err != nil {
				t.Fatal(err)
			}
		}
		var c *cell
		for range 100 { // A stack that grows has another stripe.
			add(sign)
			if c = here(w.stripes).find("key of a cell"); c != nil {
				break
			}
		}
		if c == nil {
			t.Fatal("the key has no cell")
		}
		w.take(false)
		c.n.Store(sign * (cellMax - smallMax))
		had := big.NewInt(sign * (cellMax - smallMax) / 2)
		for range 3 {
			add(sign * smallMax)
			had.Add(had, big.NewInt(sign*smallMax))
			if n := c.n.Load(); n > cellMax || n < -cellMax {
				t.Fatalf("the cell holds %d", n)
			}
		}
		got := map[string]*big.Int{}
		b := w.take(false)
		for i, key := range b.keys {
			sum(got, key, b.deltas[i])
		}
		if got["key of a cell"].Cmp(had) != 0 {
			t.Errorf("%v came out, %v went in", got, had)
		}
	}
}

// Sums that would leave int64 get another entry.
func TestSumsThatLeaveInt64(t *testing.T) {
	var s sums
	for _, delta := range []int64{math.MaxInt64, 1, -5, math.MinInt64, math.MinInt64, 0, 3} {
		s.add("a", delta)
	}
	total := new(big.Int)
	for _, d := range s.deltas {
		total.Add(total, big.NewInt(d))
	}
	want := new(big.Int).Sub(big.NewInt(math.MinInt64), big.NewInt(2))
	if len(s.keys) < 3 || total.Cmp(want) != 0 {
		t.Errorf("entries %v sum up to %v, want %v", s.deltas, total, want)
	}
}

// An add to a key that has a cell allocates nothing.
func TestAddAllocatesNothing(t *testing.T) {
	w := local()
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if err := w.Add(ctx, "key", 1); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestPlaces counts the places of keys as people number them: as many as chance
// would give, or nearly.
func TestPlaces(t *testing.T) {
	for _, format := range []string{
		"key:%012d", "page:%d:views", "counter:video:%08d", "%d", "u%d", "%08x", "views/2026-11-15/%04d", "a:%d:aaaaaaaaaaaaaaaa",
	} {
		for _, n := range []int{8, 64, 256} {
			seen := map[uint]bool{}
			for i := range n {
				seen[endsOf(fmt.Sprintf(format, i)).place()%cellsMax] = true
			}
			// Of n balls thrown into m bins about m(1-exp(-n/m)) bins have one.
			want := cellsMax * (1 - math.Exp(-float64(n)/cellsMax))
			if float64(len(seen)) < 0.7*want {
				t.Errorf("%d keys like %s have %d places, want about %.0f", n, format, len(seen), want)
			}
		}
	}
}
