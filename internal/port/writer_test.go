package port_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// numbered returns a batch that adds one to each key.
func numbered(w store.Writer, prev, seq uint64, keys ...string) store.Batch {
	b := store.Batch{Writer: w, Prev: prev, Seq: seq}
	for _, key := range keys {
		b.Deltas = append(b.Deltas, store.Delta{Cell: store.Cell{Key: key}, Op: store.OpAdd, N: 1})
	}
	return b
}

// write gives one batch to a DB.
func write(t *testing.T, db *quipu.DB, b store.Batch) (store.Reply, error) {
	t.Helper()
	replies := make([]store.Reply, 1)
	err := db.Port().WriteBatches(t.Context(), []store.Batch{b}, replies)
	return replies[0], errors.Join(err, replies[0].Err)
}

func TestWriteBatches(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	other := db.In("other")
	w, err := other.Port().Enlist(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, replayed := range []bool{false, true} {
		r, err := write(t, other, numbered(w, 0, 1, "a", "b", "a"))
		if err != nil || r.Mark != 1 || r.Replayed != replayed || len(r.Results) != 3 {
			t.Errorf("reply %+v, %v", r, err)
		}
	}
	if r, err := write(t, other, numbered(w, 3, 4, "a")); !errors.Is(err, store.ErrMark) || r.Mark != 1 {
		t.Errorf("a gap: %+v, %v", r, err)
	}
	for _, unknown := range []store.Writer{0, w + 1} {
		if _, err := write(t, other, numbered(unknown, 0, 1, "a")); !errors.Is(err, store.ErrMark) {
			t.Errorf("writer %d: %v", unknown, err)
		}
	}
	if c, err := other.Read(t.Context(), "a"); err != nil || c.Value != 2 {
		t.Errorf("a is %+v, %v", c, err)
	}
	if c, err := db.Read(t.Context(), "a"); err != nil || c.Exists {
		t.Errorf("in another namespace a is %+v, %v", c, err)
	}
	bad := db.In("a/b")
	if _, err := bad.Port().Enlist(t.Context()); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("Enlist: %v", err)
	}
	if _, err := write(t, bad, numbered(w, 1, 2)); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("WriteBatches: %v", err)
	}
}

// What is told together is as durable as the strongest asks.
func TestWriteBatchesDurability(t *testing.T) {
	s := &asked{Store: memstore.New(memstore.Options{})}
	db := quipu.New(s, quipu.Options{Policies: []quipu.Policy{
		{Pattern: "m*", Durability: quipu.Memory}, {Pattern: "w*", Durability: quipu.Written},
	}})
	defer func() { _ = db.Close() }()
	w, err := db.Port().Enlist(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	prev := uint64(0)
	f := func(want quipu.Durability, keys ...string) {
		t.Helper()
		if _, err := write(t, db, numbered(w, prev, prev+1, keys...)); err != nil || s.last.Durability != want {
			t.Errorf("batch of %q asks for %v, %v; want %v", keys, s.last.Durability, err, want)
		}
		prev++
	}
	f(quipu.Memory, "m")
	f(quipu.Memory, "m1", "m2")
	f(quipu.Written, "m1", "w", "m2")
	f(quipu.Synced, "m", "likes", "w")
	f(quipu.Synced)
}

// asked is a store that remembers the last batch.
type asked struct {
	store.Store
	last store.Batch
}

// Apply remembers.
func (s *asked) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.last = batches[len(batches)-1]
	return s.Store.Apply(ctx, batches, replies)
}

// However many writers are issued, there is room for the marks of the next one.
func TestEnlistRetires(t *testing.T) {
	for _, room := range []int{1, 2, 3, 4, 7, 100} {
		db := quipu.New(memstore.New(memstore.Options{Partitions: 2, Limits: quipu.Limits{WritersMax: room}}), quipu.Options{})
		for range 3*room + 10 {
			w, err := db.Port().Enlist(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for p, key := range []string{"", ""} {
				for i := 0; key == ""; i++ {
					if k := string(rune('a' + i)); store.PartitionOf(store.Cell{Namespace: "default", Key: k}, 2) == p {
						key = k
					}
				}
				b := numbered(w, 0, 1, key)
				b.Partition = p
				if _, err := write(t, db, b); err != nil {
					t.Fatalf("room for %d writers: writer %d: %v", room, w, err)
				}
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What is written by deltas alone is counted as well.
func TestDeltasAreCounted(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	meters := func() (refused, replayed float64) {
		return meter(db, "quipu_writes_refused_total"), meter(db, "quipu_writes_replayed_total")
	}
	apply := func(d store.Delta, wantRefused, wantReplayed float64) {
		t.Helper()
		d.Cell.Key = "a"
		if err := db.Port().Apply(t.Context(), []store.Delta{d}, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
		if refused, replayed := meters(); refused != wantRefused || replayed != wantReplayed {
			t.Errorf("%+v: %v refused, %v replayed, want %v and %v", d, refused, replayed, wantRefused, wantReplayed)
		}
	}
	once := store.Delta{Op: store.OpAdd, N: 1, Guard: store.Guard{Token: "t", Digest: 1}}
	other := store.Delta{Op: store.OpAdd, N: 1, Guard: store.Guard{Token: "t", Digest: 2}}
	apply(once, 0, 0)
	apply(once, 0, 1)
	apply(other, 1, 1)
	apply(store.Delta{Op: store.OpAdd, N: 1, Guard: store.Guard{Exists: store.ExistsNot}}, 1, 1) // an answer
	apply(store.Delta{Op: store.OpSettle, Guard: store.Guard{Token: "u"}}, 1, 1)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Conditions alone have a partition too, and what does not fit is told from what
// is apart.
func TestApplyIfPartitions(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{Partitions: 16}), quipu.Options{})
	for i := range 32 {
		c := store.Condition{Cell: store.Cell{Key: fmt.Sprint("k", i)}}
		if err := db.Port().ApplyIf(t.Context(), []store.Condition{c}, nil, nil); err != nil {
			t.Errorf("%q: %v", c.Cell.Key, err)
		}
	}
	many := make([]store.Delta, store.BatchDeltasMax+1)
	for i := range many {
		many[i] = store.Delta{Cell: store.Cell{Key: "a"}, Op: store.OpAdd, N: 1}
	}
	if err := db.Port().ApplyIf(t.Context(), nil, many, make([]store.Result, len(many))); !errors.Is(err, quipu.ErrTooLarge) {
		t.Errorf("too many deltas: %v", err)
	}
	apart := []store.Delta{many[0], {Cell: store.Cell{Key: "c"}, Op: store.OpAdd, N: 1}}
	if store.PartitionOf(store.Cell{Namespace: "default", Key: "a"}, 16) == store.PartitionOf(store.Cell{Namespace: "default", Key: "c"}, 16) {
		t.Fatal("choose another key")
	}
	if err := db.Port().ApplyIf(t.Context(), nil, apart, make([]store.Result, 2)); !errors.Is(err, quipu.ErrUnsupported) {
		t.Errorf("apart: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
