package store_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// Cells are found by their partition for as long as a store lives: these
// values must never change.
func TestPartitionOfIsFixed(t *testing.T) {
	f := func(ns, key string, n, want int) {
		t.Helper()
		if got := store.PartitionOf(store.Cell{Namespace: ns, Key: key}, n); got != want {
			t.Errorf("(%q, %q) of %d is in partition %d, want %d", ns, key, n, got, want)
		}
	}
	f("", "writers", 1, 0)
	f("n", "k", 1, 0)
	f("", "writers", 16, 1)
	f("", "writers", 1024, 961)
	f("", "k", 1024, 987)
	f("n", "k", 2, 1)
	f("n", "k", 3, 1)
	f("n", "k", 256, 161)
	f("n", "k", 16384, 4513)
	f("n", "k\x00", 16384, 3348)
	f("n\x00", "k", 16384, 12298)
	f("default", "page/日本", 1<<20, 772994)
}

func TestPartitionOfSeparatesNamespaceAndKey(t *testing.T) {
	const n = 1 << 30
	seen := make(map[int]store.Cell)
	for _, c := range []store.Cell{
		{Namespace: "a", Key: "bc"},
		{Namespace: "ab", Key: "c"},
		{Namespace: "", Key: "abc"},
	} {
		p := store.PartitionOf(c, n)
		if other, ok := seen[p]; ok {
			t.Errorf("%v and %v share partition %d", c, other, p)
		}
		seen[p] = c
	}
}

func TestPartitionOfSpreads(t *testing.T) {
	const n, keys = 16, 16_000
	var in [n]int
	for i := range keys {
		in[store.PartitionOf(store.Cell{Namespace: "n", Key: fmt.Sprintf("user:%d", i)}, n)]++
	}
	for p, got := range in {
		if got < keys/n*8/10 || got > keys/n*12/10 {
			t.Errorf("partition %d has %d of %d keys", p, got, keys)
		}
	}
}

func fullBatch() store.Batch {
	return store.Batch{
		Partition: 3, Writer: 7, Prev: 10, Seq: 12, Durability: store.Written,
		Deltas: []store.Delta{
			{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, N: -5, Want: true},
			{
				Cell: store.Cell{Namespace: "n", Key: "l"}, Op: store.OpSet, N: math.MaxInt64,
				Guard: store.Guard{Token: "t", Digest: 99, Match: true, Version: 4},
			},
		},
	}
}

// conditionedBatch has everything that fullBatch has not.
func conditionedBatch() store.Batch {
	c := store.Cell{Namespace: "n", Key: "k"}
	return store.Batch{
		Writer: 7, Prev: 10, Seq: 12,
		If: []store.Condition{{Cell: c, Version: 3}, {Cell: store.Cell{Namespace: "n", Key: "l"}}},
		Deltas: []store.Delta{
			{Cell: c, Op: store.OpAdd, N: 1, Guard: store.Guard{Bound: &store.Bound{Low: -1, High: 9}}},
			{Cell: c, Op: store.OpSet, N: 2, Guard: store.Guard{Exists: store.ExistsMust}},
			{Cell: c, Op: store.OpExpire, Expiry: store.ExpirySet | store.ExpiryIfLater, DeadlineMS: 1_800_000_000_000},
		},
	}
}

// Digests are stored with marks: a batch resent after an upgrade must have the
// one it had before.
func TestDigestIsFixed(t *testing.T) {
	f := func(b store.Batch, want uint64) {
		t.Helper()
		if got := b.Digest(); got != want {
			t.Errorf("digest %#x, want %#x", got, want)
		}
	}
	f(store.Batch{}, 0xc685f224d296a296)
	f(fullBatch(), 0xf3f551815e492c09)
	f(conditionedBatch(), 0xa86b1a0deae1ec0c)
}

func TestDigestCoversContent(t *testing.T) {
	first := fullBatch()
	seen := map[uint64]string{first.Digest(): "the batch itself"}
	f := func(what string, change func(b *store.Batch)) {
		t.Helper()
		b := fullBatch()
		change(&b)
		d := b.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	f("another Prev", func(b *store.Batch) { b.Prev = 9 })
	f("another Seq", func(b *store.Batch) { b.Seq = 13 })
	f("no deltas", func(b *store.Batch) { b.Deltas = nil })
	f("a delta less", func(b *store.Batch) { b.Deltas = b.Deltas[:1] })
	f("a delta more", func(b *store.Batch) { b.Deltas = append(b.Deltas, b.Deltas[0]) })
	f("another order", func(b *store.Batch) { b.Deltas[0], b.Deltas[1] = b.Deltas[1], b.Deltas[0] })
	f("another namespace", func(b *store.Batch) { b.Deltas[0].Cell.Namespace = "m" })
	f("another key", func(b *store.Batch) { b.Deltas[0].Cell.Key = "m" })
	f("a byte moved to the key", func(b *store.Batch) { b.Deltas[0].Cell = store.Cell{Key: "nk"} })
	f("another operation", func(b *store.Batch) { b.Deltas[0].Op = store.OpSet })
	f("another number", func(b *store.Batch) { b.Deltas[0].N = 5 })
	f("no want", func(b *store.Batch) { b.Deltas[0].Want = false })
	f("another token", func(b *store.Batch) { b.Deltas[1].Guard.Token = "u" })
	f("no token", func(b *store.Batch) { b.Deltas[1].Guard.Token = "" })
	f("another digest", func(b *store.Batch) { b.Deltas[1].Guard.Digest = 98 })
	f("no match", func(b *store.Batch) { b.Deltas[1].Guard.Match = false })
	f("another version", func(b *store.Batch) { b.Deltas[1].Guard.Version = 5 })
}

func TestDigestCoversConditions(t *testing.T) {
	first := conditionedBatch()
	seen := map[uint64]string{first.Digest(): "the batch itself"}
	f := func(what string, change func(b *store.Batch)) {
		t.Helper()
		b := conditionedBatch()
		change(&b)
		d := b.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	f("no conditions", func(b *store.Batch) { b.If = nil })
	f("a condition less", func(b *store.Batch) { b.If = b.If[:1] })
	f("a condition twice", func(b *store.Batch) { b.If = append(b.If, b.If[1]) })
	f("another version", func(b *store.Batch) { b.If[0].Version = 4 })
	f("another cell", func(b *store.Batch) { b.If[0].Cell.Key = "m" })
	f("another namespace", func(b *store.Batch) { b.If[0].Cell.Namespace = "m" })
	f("no bound", func(b *store.Batch) { b.Deltas[0].Guard.Bound = nil })
	f("a bound on zero", func(b *store.Batch) { *b.Deltas[0].Guard.Bound = store.Bound{} })
	f("another floor", func(b *store.Batch) { b.Deltas[0].Guard.Bound.Low = 0 })
	f("another ceiling", func(b *store.Batch) { b.Deltas[0].Guard.Bound.High = 8 })
	f("saturation", func(b *store.Batch) { b.Deltas[0].Guard.Bound.Saturate = true })
	f("any existence", func(b *store.Batch) { b.Deltas[1].Guard.Exists = store.ExistsAny })
	f("the other existence", func(b *store.Batch) { b.Deltas[1].Guard.Exists = store.ExistsNot })
	f("another expiry", func(b *store.Batch) { b.Deltas[2].Expiry = store.ExpirySet })
	f("a lifetime", func(b *store.Batch) { b.Deltas[2].Expiry |= store.ExpiryAfter })
	f("another deadline", func(b *store.Batch) { b.Deltas[2].DeadlineMS++ })
	f("the expiry of another delta", func(b *store.Batch) {
		b.Deltas[1].Expiry, b.Deltas[1].DeadlineMS = b.Deltas[2].Expiry, b.Deltas[2].DeadlineMS
	})
}

func TestDigestIgnoresDelivery(t *testing.T) {
	first := fullBatch()
	b := fullBatch()
	b.Durability = store.Memory
	if b.Digest() != first.Digest() {
		t.Errorf("a batch resent for another durability has another digest")
	}
}

func TestEnlist(t *testing.T) {
	s := memstore.New(memstore.Options{Partitions: 5})
	for want := store.Writer(1); want < 4; want++ {
		if w, err := store.Issued(t.Context(), s); err != nil || w != want-1 {
			t.Errorf("writers up to %d are issued, %v; want %d", w, err, want-1)
		}
		if w, err := store.Enlist(t.Context(), s); err != nil || w != want {
			t.Errorf("enlisted writer %d, %v; want %d", w, err, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err := store.Enlist(t.Context(), s); !errors.Is(err, store.ErrClosed) || w != 0 {
		t.Errorf("enlisted writer %d, %v of a closed store", w, err)
	}
	if w, err := store.Issued(t.Context(), s); !errors.Is(err, store.ErrClosed) || w != 0 {
		t.Errorf("writers up to %d are issued, %v of a closed store", w, err)
	}
}

func TestEnlistRefused(t *testing.T) {
	f := func(r store.Reply, want error) {
		t.Helper()
		h := new(storetest.Hooks)
		h.On(storetest.OnApply, func(c *storetest.Call) error {
			c.Replies[0] = r
			return nil
		})
		if w, err := store.Enlist(t.Context(), storetest.Wrap(memstore.New(memstore.Options{}), h)); !errors.Is(err, want) || w != 0 {
			t.Errorf("enlisted writer %d, %v; want %v", w, err, want)
		}
	}
	f(store.Reply{Err: store.ErrUnavailable}, store.ErrUnavailable)
	f(store.Reply{Results: []store.Result{{Outcome: store.Overflow}}}, store.ErrOverflow)
}

// Seats of a counter are far from each other: each quarter of the partitions has some.
func TestSeatsAreApart(t *testing.T) {
	for _, n := range []int{64, 256, 16384} {
		for key := range 20 {
			home := store.Cell{Namespace: "n", Key: fmt.Sprint("post:", key)}
			for _, seats := range []int{8, 16, 64} {
				quarters := [4]int{}
				for i := range seats {
					quarters[store.PartitionOf(store.ShardCell(home, store.SplitMax+1+i), n)*4/n]++
				}
				for _, has := range quarters {
					if has < seats/8 {
						t.Fatalf("%d seats of %q in %d partitions, by quarters: %v", seats, home.Key, n, quarters)
					}
				}
			}
		}
	}
	// Where they are is stored.
	c := store.Cell{Namespace: "n", Key: "post"}
	home := store.PartitionOf(c, 256)
	for i, after := range []int{0, 158, 60, 218, 120} {
		if at := store.PartitionOf(store.ShardCell(c, store.SplitMax+1+i), 256); at != (home+after)%256 {
			t.Errorf("seat %d is %d after home, want %d", i, (at-home+256)%256, after)
		}
	}
}
