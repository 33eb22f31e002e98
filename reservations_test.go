package quipu_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// verified checks that all adds up.
func (v *viewed) verified() {
	v.Helper()
	a, err := v.Verify(v.Context())
	if err != nil || len(a.Drift) > 0 || len(a.Unproved) > 0 {
		v.Errorf("verify: %+v, %v", a, err)
	}
}

func (v *viewed) reserve(key string, n int64, opts ...quipu.WriteOption) quipu.Reservation {
	v.Helper()
	r, err := v.Reserve(v.Context(), key, n, time.Hour, opts...)
	if err != nil {
		v.Fatal(err)
	}
	return r
}

// ledger has a definition record all events.
func ledgerOfAll(d definition.Definition) definition.Definition {
	d.Ledger.Record = definition.All
	return d
}

// Reservations are outside of every view, and what is committed is counted when it is.
func TestReservationsAndViews(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		before := v.reserve("stock", 1, quipu.Floor(-1)) // before there is any view
		v.define(ledgerOfAll(days("stock*")))
		if _, err := v.Add(ctx, "stock", 20); err != nil {
			t.Fatal(err)
		}
		a, b, c := v.reserve("stock", 5, quipu.Who("eve"), quipu.Token("t")), v.reserve("stock", 4), v.reserve("stock", 3)
		v.verified()
		for _, end := range []func() error{
			func() error { _, err := v.Commit(ctx, a.ID, 3); return err },
			func() error { _, err := v.Commit(ctx, a.ID, 3); return err },
			func() error { _, err := v.Release(ctx, b.ID); return err },
			func() error { _, err := v.Commit(ctx, c.ID, 0); return err },
			func() error { _, err := v.Commit(ctx, before.ID, quipu.All); return err },
		} {
			if err := end(); err != nil {
				t.Fatal(err)
			}
			v.verified()
		}
		s, err := v.Range(ctx, "stock", quipu.RangeOptions{})
		if err != nil || s.Sum != 20-3-1 {
			t.Errorf("the windows have %d, %v", s.Sum, err)
		}
		n, err := v.Read(ctx, "stock")
		if err != nil || n.Value != 20-3-1 {
			t.Errorf("%+v, %v", n, err)
		}
		page, err := v.Ledger(ctx, "stock", quipu.LedgerOptions{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range page.Lines {
			if l.DeltaKnown {
				lines = append(lines, fmt.Sprint(l.Kind, l.Delta, l.Actor))
			}
		}
		want := "commit-1 release1 release3 release4 commit-3eve release5eve reserve-3 reserve-4 reserve-5eve add20"
		if got := strings.Join(lines, " "); got != want {
			t.Errorf("the ledger has\n%s, want\n%s", got, want)
		}
		// A later view begins with what there is.
		d := ledgerOfAll(days("stock*"))
		d.Windows = append(d.Windows, definition.Window{Every: width("1h"), Keep: definition.Keep(48 * time.Hour)})
		open := v.reserve("stock", 7)
		v.define(d)
		v.verified()
		if _, err := v.Commit(ctx, open.ID, 7); err != nil {
			t.Fatal(err)
		}
		v.verified()
		if _, err := v.Undo(ctx, "stock", "end:"+holdName(t, a.ID), quipu.Correction{Reason: "came back", Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
		v.verified()
		v.has("stock", 20-3-1-7+3)
	})
}

func (v *viewed) has(key string, want int64) {
	v.Helper()
	if n, err := v.Read(v.Context(), key); err != nil || n.Value != want {
		v.Errorf("%s is %d, %v; want %d", key, n.Value, err, want)
	}
}

func holdName(t *testing.T, id string) string {
	t.Helper()
	h, err := hold.ParseID("default", id)
	if err != nil {
		t.Fatal(err)
	}
	return h.Name
}

// The value as of a time is exact only if all that was reserved and given back since is
// known.
func TestReservationsAsOf(t *testing.T) {
	f := func(record definition.Record, exact bool) {
		t.Helper()
		now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
		v := &viewed{T: t, store: memstore.New(memstore.Options{Now: func() time.Time { return now }})}
		v.DB = v.other()
		d := days("a")
		d.Ledger.Record = record
		v.define(d)
		now = now.AddDate(0, 0, 2)
		f := func(exact bool) {
			t.Helper()
			c, err := v.Read(t.Context(), "a", quipu.AsOf(now.Truncate(24*time.Hour)))
			if err != nil || c.Exact != exact || exact && c.Value != 0 {
				t.Errorf("record %v: %+v, %v", record, c, err)
			}
		}
		if _, err := v.Add(t.Context(), "a", 9); err != nil {
			t.Fatal(err)
		}
		f(true)
		r := v.reserve("a", 4)
		f(exact)
		if _, err := v.Commit(t.Context(), r.ID, 3); err != nil {
			t.Fatal(err)
		}
		f(exact)
	}
	f(definition.All, true)
	f(definition.Adjustments, false)
}

// TestVerifyReservations spoils each part that reservations have, and has it found.
func TestVerifyReservations(t *testing.T) {
	f := func(want string, spoil func(h hold.Hold, deadline int64) (store.Part, store.Op, int64)) {
		t.Helper()
		v := openViewed(t, 3)
		if _, err := v.Set(t.Context(), "a", 9); err != nil {
			t.Fatal(err)
		}
		r := v.reserve("a", 4, quipu.Who("eve"))
		v.reserve("a", 2)
		v.verified()
		h, err := hold.ParseID("default", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		part, op, n := spoil(h, r.ExpiresAt.UnixMicro())
		c := store.Cell{Namespace: "default", Key: "a"}
		d := store.Delta{Cell: c, Op: op, N: n, Event: &store.Event{Part: part}}
		b := store.Batch{Partition: store.PartitionOf(c, 3), Books: []store.Book{{Namespace: "default", ID: 1}}, Deltas: []store.Delta{d}}
		if err := v.store.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
			t.Fatal(err)
		}
		a, err := v.other().Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, drift := range a.Drift {
			found = append(found, strings.TrimPrefix(drift.What, `counter "a" of namespace "default": `)+" "+drift.Have+"!="+drift.Want)
		}
		if got := strings.Join(found, "; "); got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	f("what is reserved 7!=6", func(hold.Hold, int64) (store.Part, store.Op, int64) { return hold.Sum(""), store.OpAdd, 1 })
	f("how many reservations are open 1!=2", func(hold.Hold, int64) (store.Part, store.Op, int64) { return hold.Number(""), store.OpAdd, -1 })
	f(`what is reserved for "eve" 0!=4`, func(hold.Hold, int64) (store.Part, store.Op, int64) { return hold.Sum("eve"), store.OpDelete, 0 })
	f(`how many reservations are open for "bob" 1!=0`, func(hold.Hold, int64) (store.Part, store.Op, int64) { return hold.Number("bob"), store.OpSet, 1 })
	f("reservations in the order of their deadlines 1!=2", func(h hold.Hold, d int64) (store.Part, store.Op, int64) { return h.Due(d), store.OpDelete, 0 })
	f("reservations in the order of their deadlines 2!=2", func(h hold.Hold, _ int64) (store.Part, store.Op, int64) { return h.Part(), store.OpSet, 5 })
	f(`what is reserved 6!=2; what is reserved for "eve" 4!=0; how many reservations are open 2!=1; how many reservations are open for "eve" 1!=0; reservations in the order of their deadlines 2!=1`,
		func(h hold.Hold, _ int64) (store.Part, store.Op, int64) { return h.Part(), store.OpDelete, 0 })
}

// A look at a reservation is judged by the store's time, whether or not its amount has been
// given back, and nothing that it says is taken back.
func TestReservationLooked(t *testing.T) {
	var passed atomic.Int64
	now := func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC).Add(time.Duration(passed.Load())) }
	hooks := new(storetest.Hooks)
	v := &viewed{T: t, store: storetest.Wrap(memstore.New(memstore.Options{Now: now}), hooks)}
	ctx := t.Context()
	v.DB = v.other()
	if _, err := v.Set(ctx, "a", 9); err != nil {
		t.Fatal(err)
	}
	looks := func(id string, want quipu.HoldState) {
		t.Helper()
		if r, err := v.Reservation(ctx, id); err != nil || r.State != want {
			t.Errorf("%+v, %v: want %v", r, err, want)
		}
	}
	// The sweep can't give anything back.
	hooks.On(storetest.OnScanParts, func(*storetest.Call) error { return store.ErrUnavailable })
	r := v.reserve("a", 2)
	passed.Add(int64(time.Hour))
	looks(r.ID, quipu.HoldOpen)
	passed.Add(int64(time.Millisecond))
	looks(r.ID, quipu.HoldExpired)
	// It is committed after it was read, and its deadline comes before the answer.
	r = v.reserve("a", 3)
	hooks.On(storetest.OnReadParts, func(c *storetest.Call) error {
		err := c.Pass()
		if err != nil || c.Parts[0].Part.Kind() != store.PartHold {
			return err
		}
		hooks.On(storetest.OnReadParts)
		if _, err := v.other().Commit(ctx, r.ID, 3); err != nil {
			t.Error(err)
		}
		passed.Add(int64(time.Hour + time.Millisecond))
		return nil
	})
	looks(r.ID, quipu.HoldCommitted)
}

// What a counter has is said not to be of one moment if it is changed whenever it is read; and
// what can't be read is no step that was made.
func TestStockWhileItChanges(t *testing.T) {
	hooks := new(storetest.Hooks)
	v := &viewed{T: t, store: storetest.Wrap(memstore.New(memstore.Options{}), hooks)}
	ctx := t.Context()
	v.DB = v.other()
	if _, err := v.Set(ctx, "a", 9); err != nil {
		t.Fatal(err)
	}
	r := v.reserve("a", 2)
	changes := 0
	hooks.On(storetest.OnReadParts, func(c *storetest.Call) error {
		if err := c.Pass(); err != nil || changes == 0 || c.Parts[0].Part.Kind() != store.PartHeld {
			return err
		}
		changes--
		_, err := v.Add(ctx, "a", 1)
		return err
	})
	f := func(n int, exact bool) {
		t.Helper()
		changes = n
		if got, err := v.Reservation(ctx, r.ID); err != nil || got.Exact != exact || got.Reserved != 2 || got.Value != got.Available+2 {
			t.Errorf("after %d changes: %+v, %v", n, got, err)
		}
		changes = n
		if got, err := v.Reservations(ctx, "a", quipu.ReservationOptions{}); err != nil || got.Exact != exact {
			t.Errorf("after %d changes: %+v, %v", n, got, err)
		}
	}
	f(0, true)
	f(7, true)
	f(1000, false)
	changes = 0
	hooks.On(storetest.OnReadParts, func(c *storetest.Call) error {
		if c.Parts[0].Part.Kind() == store.PartHeld {
			return store.ErrUnavailable
		}
		return c.Pass()
	})
	if _, err := v.Reservation(ctx, r.ID); !errors.Is(err, quipu.ErrUnavailable) || errors.Is(err, quipu.ErrUnknown) {
		t.Errorf("a look: %v", err)
	}
	if _, err := v.Reserve(ctx, "a", 1, time.Hour, quipu.WantValue()); !errors.Is(err, quipu.ErrUnknown) || !strings.Contains(err.Error(), "the write was applied") {
		t.Errorf("a reservation: %v", err)
	}
}

// A token that was forgotten may name another reservation, also while the end of the first is
// remembered.
func TestReservationTokenAgain(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	hooks := new(storetest.Hooks)
	v := &viewed{T: t, store: storetest.Wrap(memstore.New(memstore.Options{Now: func() time.Time { return now }, Limits: store.Limits{TokenWindow: time.Hour}}), hooks)}
	v.DB = v.other()
	ctx := t.Context()
	reserve := func(key string) (quipu.Reservation, error) {
		return v.Reserve(ctx, key, 4, 3*time.Hour, quipu.Token("t"))
	}
	var first [2]quipu.Reservation
	for i, key := range []string{"a", "b"} {
		if _, err := v.Set(ctx, key, 9); err != nil {
			t.Fatal(err)
		}
		var err error
		if first[i], err = reserve(key); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(150 * time.Minute)
	if _, err := reserve("b"); !errors.Is(err, quipu.ErrExpired) {
		t.Errorf("while the first is open: %v", err)
	}
	if _, err := v.Commit(ctx, first[0].ID, 1); err != nil {
		t.Fatal(err)
	}
	second, err := reserve("a")
	if err != nil || second.Replayed || second.ID != first[0].ID {
		t.Fatalf("%+v, %v", second, err)
	}
	// Somebody else commits it just before this server does without the token.
	hooks.On(storetest.OnApply, storetest.Nth(1, 2, storetest.Before(func() {
		hooks.On(storetest.OnApply)
		if r, err := v.other().Commit(ctx, second.ID, 2); err != nil || r.Replayed || r.Committed != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	})))
	if r, err := v.Commit(ctx, second.ID, 2); !errors.Is(err, quipu.ErrEnded) {
		t.Errorf("%+v, %v", r, err)
	}
	v.has("a", 9-1-2)
	v.verified()
}
