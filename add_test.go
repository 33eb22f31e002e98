package quipu_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Stores remember digests, so these must stay as they are for ever: another
// digest would refuse the repeat of a write that an older release applied.
func TestDigest(t *testing.T) {
	s := newStub()
	sent := s.record()
	db := quipu.New(s, quipu.Options{})
	ctx := t.Context()
	f := func(want uint64, write func(token quipu.WriteOption) (quipu.Receipt, error)) {
		t.Helper()
		*sent = nil
		if _, err := write(quipu.Token("t")); err != nil {
			t.Fatal(err)
		}
		if got := (*sent)[0].Deltas[0].Guard.Digest; got != want {
			t.Errorf("digest %#x, want %#x", got, want)
		}
	}
	f(0x626157a1524a940c, func(token quipu.WriteOption) (quipu.Receipt, error) {
		return db.Add(ctx, "a", 1, token)
	})
	f(0x1db56f8053529423, func(token quipu.WriteOption) (quipu.Receipt, error) {
		return db.Add(ctx, "b", -1, token, quipu.WantValue(), quipu.Who("me"), quipu.IfVersion(7))
	})
	f(0xfd2d0118aa773472, func(token quipu.WriteOption) (quipu.Receipt, error) {
		return db.Add(ctx, "b", -1, token, quipu.Floor(-9), quipu.Ceiling(1<<40), quipu.Saturate(), quipu.TTL(time.Minute))
	})
	f(0xc340bd9bcb03453c, func(token quipu.WriteOption) (quipu.Receipt, error) {
		return db.Set(ctx, "a", 1<<40, token)
	})
	f(0x545569bcc3faca6d, func(token quipu.WriteOption) (quipu.Receipt, error) {
		return db.Reset(ctx, "a", token, quipu.IfVersion(0))
	})
	f(0x48df75a10fccaeaa, func(token quipu.WriteOption) (quipu.Receipt, error) {
		return db.Delete(ctx, "a", token)
	})
}

func TestDurability(t *testing.T) {
	s := newStub()
	sent := s.record()
	db := quipu.New(s, quipu.Options{Policies: []quipu.Policy{
		{Pattern: "views:home", Durability: quipu.Written},
		{Pattern: "views:*", Durability: quipu.Memory},
		{Namespace: "fast", Pattern: "*", Durability: quipu.Memory},
		{Pattern: "default:*"},
	}})
	ctx := t.Context()
	f := func(db *quipu.DB, key string, want quipu.Durability) {
		t.Helper()
		*sent = nil
		r, err := db.Add(ctx, key, 1)
		if err != nil || r.Durability != want {
			t.Errorf("Add to %q: %+v, %v, want it %v", key, r, err, want)
		}
		if _, err := db.Settle(ctx, key, "t"); err != nil {
			t.Error(err)
		}
		if asked := (*sent)[0].Durability; asked != want {
			t.Errorf("Add to %q asked for %v, want %v", key, asked, want)
		}
		if asked := (*sent)[1].Durability; asked != quipu.Synced {
			t.Errorf("Settle of %q asked for %v, want it synced", key, asked)
		}
	}
	f(db, "likes", quipu.Synced)
	f(db, "default:1", quipu.Synced)
	f(db, "views", quipu.Synced)
	f(db, "views:", quipu.Memory)
	f(db, "views:1", quipu.Memory)
	f(db, "views:home", quipu.Written)
	f(db, "views:home:2", quipu.Memory)
	f(db.In("fast"), "likes", quipu.Memory)
	f(db.In("fast"), "views:home", quipu.Written)
	f(db.In("slow"), "likes", quipu.Synced)
}

func TestLookupDurability(t *testing.T) {
	s := newStub()
	s.fate = store.Fate{State: store.TokenApplied, Result: store.Result{Outcome: store.Applied, Version: 4}}
	o := quipu.Options{Policies: []quipu.Policy{{Pattern: "m*", Durability: quipu.Memory}}}
	f := func(key string, offered, want quipu.Durability) {
		t.Helper()
		s.traits.Durability = offered
		fate, err := quipu.New(s, o).Lookup(t.Context(), key, "t")
		if err != nil || fate.Receipt.Durability != want || fate.Receipt.Version != 4 {
			t.Errorf("%q: %+v, %v, want it %v", key, fate, err, want)
		}
	}
	f("a", quipu.Synced, quipu.Synced)
	f("a", quipu.Memory, quipu.Memory)
	f("m", quipu.Synced, quipu.Memory)
}

// What one call lends to the store is lent again: nothing of the first is left in it.
func TestCallsAreClean(t *testing.T) {
	s := newStub()
	sent := s.record()
	db := quipu.New(s, quipu.Options{})
	f := func(opts ...quipu.WriteOption) {
		t.Helper()
		for _, opts := range [][]quipu.WriteOption{opts, nil} {
			if _, err := db.Add(t.Context(), "a", 1, opts...); err != nil {
				t.Fatal(err)
			}
		}
		want := store.Delta{Cell: store.Cell{Namespace: "default", Key: "a"}, Op: store.OpAdd, N: 1}
		if got := (*sent)[len(*sent)-1].Deltas; len(got) != 1 || got[0] != want {
			t.Errorf("a plain add after another is %+v", got)
		}
	}
	f(quipu.Who("me"))
	f(quipu.Token("t"))
	f(quipu.WantValue(), quipu.IfVersion(3))
	f(quipu.Floor(0), quipu.TTL(time.Minute))
}

func TestAddBatchGroups(t *testing.T) {
	s := newStub()
	s.traits.Partitions = 5
	sent := s.record()
	db := quipu.New(s, quipu.Options{Policies: []quipu.Policy{{Pattern: "m*", Durability: quipu.Memory}}})
	var events []quipu.Event
	for i := range 300 {
		events = append(events, quipu.Event{Key: fmt.Sprint([]string{"m", "s"}[i%2], i%30), Delta: int64(i)})
	}
	if _, err := db.AddBatch(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if len(*sent) != 2*5 {
		t.Errorf("%d batches, want one for each partition and durability", len(*sent))
	}
	total := 0
	for _, b := range *sent {
		total += len(b.Deltas)
		ns := make([]int64, len(b.Deltas))
		for i, d := range b.Deltas {
			ns[i] = d.N
			if home := store.PartitionOf(d.Cell, 5); home != b.Partition {
				t.Errorf("%q of partition %d is sent to %d", d.Cell.Key, home, b.Partition)
			}
			if memory := strings.HasPrefix(d.Cell.Key, "m"); memory != (b.Durability == quipu.Memory) {
				t.Errorf("%q is in a batch that is %v", d.Cell.Key, b.Durability)
			}
		}
		if !slices.IsSorted(ns) {
			t.Errorf("a batch has the events in the order %v", ns)
		}
	}
	if total != len(events) {
		t.Errorf("%d deltas for %d events", total, len(events))
	}
}

func TestAddBatchLimits(t *testing.T) {
	s := newStub()
	sent := s.record()
	db := quipu.New(s, quipu.Options{})
	f := func(n, batches int, e quipu.Event) {
		t.Helper()
		*sent = nil
		receipts, err := db.AddBatch(t.Context(), slices.Repeat([]quipu.Event{e}, n))
		if err != nil || len(receipts) != n || len(*sent) != batches {
			t.Errorf("%d receipts, %d batches, %v; want %d and %d", len(receipts), len(*sent), err, n, batches)
		}
		for _, b := range *sent {
			if err := store.CheckBatch(&b, 1); err != nil {
				t.Error(err)
			}
		}
	}
	long := strings.Repeat("k", 512)
	token := strings.Repeat("t", 255)
	f(0, 0, quipu.Event{Key: "a"})
	f(10_000, 1, quipu.Event{Key: "a"})
	f(10_001, 2, quipu.Event{Key: "a"})
	f(10_000, 2, quipu.Event{Key: long})
	f(10_000, 2, quipu.Event{Key: long, Token: token})
	f(quipu.EventsMax, 10, quipu.Event{Key: "a"})
}

func TestAddBatchRefused(t *testing.T) {
	s := newStub()
	s.traits.Partitions = 2
	s.refuse = map[int]error{1: store.ErrUnavailable}
	db := quipu.New(s, quipu.Options{})
	var events []quipu.Event
	for i := range 20 {
		events = append(events, quipu.Event{Key: fmt.Sprint("k", i), Delta: 1})
	}
	receipts, err := db.AddBatch(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		home := store.PartitionOf(store.Cell{Namespace: "default", Key: r.Key}, 2)
		if !errors.Is(r.Err, s.refuse[home]) || (r.Err == nil) != (r.Applied == 1) {
			t.Errorf("an event of partition %d has receipt %+v", home, r)
		}
		if _, err := db.Add(t.Context(), r.Key, 1); !errors.Is(err, s.refuse[home]) {
			t.Errorf("an add in partition %d: %v", home, err)
		}
	}
	s.err = store.ErrUnknown
	if receipts, err = db.AddBatch(t.Context(), events); !errors.Is(err, quipu.ErrUnknown) || receipts != nil {
		t.Errorf("AddBatch: %v, %v, want only the error", receipts, err)
	}
}

// A forgetful store can't say what became of a token.
type forgetful struct {
	*stub
	err error
}

func (s forgetful) Lookup(context.Context, store.Cell, string) (store.Fate, error) {
	return store.Fate{}, s.err
}

// A write that counted is never told that nothing changed, be it that its first
// result can't be read any more.
func TestReplayUnread(t *testing.T) {
	for _, err := range []error{store.ErrUnavailable, context.DeadlineExceeded} {
		s := newStub()
		s.result.Replayed = true
		db := quipu.New(forgetful{s, err}, quipu.Options{})
		_, got := db.Add(t.Context(), "k", 0, quipu.Token("t"), quipu.WantValue()) // 0 may be its value, or that it has none
		if !errors.Is(got, quipu.ErrUnknown) {
			t.Errorf("the look-up failed by %v: %v", err, got)
		}
	}
}

// The repeat of a batch asks the store for nothing else: most results tell whether
// the first write had asked for its value.
func TestReplayRead(t *testing.T) {
	f := func(delta int64, first store.Result, value, lookups int64) {
		t.Helper()
		s := &asking{stub: newStub()}
		s.result = first
		s.result.Outcome, s.result.Replayed = store.Applied, true
		r, err := quipu.New(s, quipu.Options{}).Add(t.Context(), "k", delta, quipu.Token("t"), quipu.WantValue())
		if err != nil || r.HasValue != (value >= 0) || r.HasValue && r.Value != value || s.lookups != lookups {
			t.Errorf("add %d, %+v: %+v, %v, and %d look-ups", delta, first, r, err, s.lookups)
		}
	}
	f(3, store.Result{Before: 4, After: 7}, 7, 0)
	f(3, store.Result{Before: -3}, 0, 0)
	f(3, store.Result{}, -1, 0) // it did not ask
	f(0, store.Result{Before: 4, After: 4}, 4, 0)
	f(0, store.Result{}, 0, 1)
}

// asking is a store whose tokens are all of writes that asked for their value.
type asking struct {
	*stub
	lookups int64
}

func (s *asking) Lookup(context.Context, store.Cell, string) (store.Fate, error) {
	s.lookups++
	return store.Fate{State: store.TokenApplied, Want: true}, nil
}

// Whatever way a write comes, one that is refused for want of room is counted.
func TestFullIsCounted(t *testing.T) {
	synctest.Test(t, testFullIsCounted)
}

func testFullIsCounted(t *testing.T) {
	s := memstore.New(memstore.Options{Limits: store.Limits{KeysMax: 1, TokensMax: 1}})
	db := quipu.New(s, quipu.Options{})
	ctx := t.Context()
	want := 0.0
	check := func(what string, more float64) {
		t.Helper()
		want += more
		db.Port().Meters(func(name, _ string, got float64) {
			if name == "quipu_writes_full_total" && got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		})
	}
	if _, err := db.Add(ctx, "a", 1, quipu.Token("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Add(ctx, "a", 1, quipu.IfVersion(1<<40)); !errors.Is(err, quipu.ErrChanged) {
		t.Fatal(err)
	}
	check("room enough", 0)
	if _, err := db.Add(ctx, "b", 1); !errors.Is(err, quipu.ErrFull) {
		t.Error(err)
	}
	check("one key too many", 1)
	if _, err := db.Add(ctx, "a", 1, quipu.Token("two")); !errors.Is(err, quipu.ErrFull) {
		t.Error(err)
	}
	check("one token too many", 1)
	if _, err := db.AddBatch(ctx, []quipu.Event{{Key: "a", Delta: 1}, {Key: "b", Delta: 1}, {Key: "c", Delta: 1}}); err != nil {
		t.Error(err)
	}
	check("a batch", 2)
	deltas := []store.Delta{{Cell: store.Cell{Key: "b"}, Op: store.OpAdd, N: 1}}
	if err := db.Port().Apply(ctx, deltas, make([]store.Result, 1)); err != nil {
		t.Error(err)
	}
	check("deltas", 1)
	synctest.Wait() // until it is known what is split
	ended := make(chan error, 1)
	if !db.Port().Start(deltas, make([]store.Result, 1), func(err error) { ended <- err }) {
		t.Fatal("not started")
	}
	db.Port().Flush(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	check("deltas that were started", 1)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
