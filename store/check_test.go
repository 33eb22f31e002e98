package store_test

import (
	"math"
	"strings"
	"testing"

	"github.com/quipudb/quipu/store"
)

func partOf(kind store.PartKind) store.Part { return store.PartFields{Kind: kind}.Part() }

// TestCheckEvents changes one thing after the other in an event that may be sent.
func TestCheckEvents(t *testing.T) {
	f := func(want store.Kind, change func(d *store.Delta, e *store.Event, r *store.Rider)) {
		t.Helper()
		e := &store.Event{Riders: []store.Rider{{Part: partOf(store.PartWindow), Op: store.OpAdd}}}
		d := store.Delta{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, N: 1, Event: e}
		change(&d, e, &e.Riders[0])
		b := store.Batch{Deltas: []store.Delta{d}}
		checks(t, store.CheckBatch(&b, 1), want)
		if len(e.Riders) == 1 && (want == 0 || strings.Contains(store.CheckBatch(&b, 1).Error(), "own value, which leads")) {
			if _, err := store.NewPlan(e.Riders...); err != nil {
				t.Errorf("a plan of %+v: %v", e.Riders[0], err)
			}
		}
	}
	const good, invalid, large = store.Kind(0), store.KindInvalid, store.KindTooLarge
	type (
		delta = store.Delta
		event = store.Event
		rider = store.Rider
	)
	entries, held := partOf(store.PartEntries), partOf(store.PartHeld)

	f(good, func(*delta, *event, *rider) {})
	f(good, func(_ *delta, e *event, _ *rider) { e.Riders = nil })
	f(invalid, func(d *delta, _ *event, _ *rider) { d.Cell.Key = "" })

	// The lead.
	for _, op := range []store.Op{store.OpSet, store.OpDelete} {
		f(good, func(d *delta, _ *event, _ *rider) { d.Op = op })
		f(good, func(d *delta, e *event, _ *rider) { d.Op, e.Part = op, held })
	}
	for _, op := range []store.Op{0, store.OpGet, store.OpExpire, store.OpLayout, store.OpSettle, store.OpRetire, store.OpMerge + 1} {
		f(invalid, func(d *delta, _ *event, _ *rider) { d.Op = op })
		f(invalid, func(d *delta, e *event, _ *rider) { d.Op, e.Part = op, held })
	}
	f(invalid, func(d *delta, _ *event, _ *rider) { d.Op = store.OpMax })
	f(good, func(d *delta, e *event, _ *rider) { d.Op, e.Part = store.OpMax, held })
	f(good, func(d *delta, e *event, _ *rider) { d.Op, e.Part, e.Bytes = store.OpPut, entries, []byte("x") })
	f(invalid, func(d *delta, e *event, _ *rider) { d.Op, e.Part, e.Bytes = store.OpPut, held, []byte("x") })
	f(good, func(d *delta, e *event, _ *rider) {
		d.Op, e.Part, e.Bytes = store.OpMerge, partOf(store.PartLimit), []byte("x")
	})
	f(good, func(d *delta, e *event, _ *rider) {
		d.Op, e.Part, e.Bytes = store.OpMerge, partOf(store.PartSketch), []byte("x")
	})
	f(invalid, func(d *delta, e *event, _ *rider) {
		d.Op, e.Part, e.Bytes = store.OpMerge, entries, []byte("x")
	})
	f(good, func(_ *delta, e *event, r *rider) {
		*r, e.Bytes = rider{Part: partOf(store.PartSketch), Op: store.OpMerge}, []byte("x")
	})
	f(good, func(d *delta, e *event, r *rider) {
		d.Op, e.Part = store.OpSet, held
		*r, e.Bytes = rider{Part: partOf(store.PartSketch), Op: store.OpMerge}, []byte("x")
	})
	f(good, func(_ *delta, _ *event, r *rider) { *r = rider{Part: partOf(store.PartSketch), Op: store.OpMerge} })
	f(invalid, func(_ *delta, e *event, r *rider) { // nobody asks what the event does
		*r, e.Bytes = rider{Part: partOf(store.PartSketch), Op: store.OpMerge, Bytes: []byte("y")}, []byte("x")
	})
	f(good, func(_ *delta, _ *event, r *rider) { // the first of what the event asks
		*r = rider{Part: partOf(store.PartSketch), Op: store.OpMerge, N: 1}
	})
	for _, wrong := range []rider{{N: -1}, {N: store.EventRidersMax + 1}, {N: 1, Bytes: []byte("y")}, {N: 1, Amount: store.AmountApplied}} {
		f(invalid, func(_ *delta, _ *event, r *rider) {
			*r = wrong
			r.Part, r.Op = partOf(store.PartSketch), store.OpMerge
		})
	}
	f(invalid, func(d *delta, e *event, _ *rider) { d.Op, e.Part = store.OpMerge, held })
	f(invalid, func(d *delta, _ *event, _ *rider) { d.Op = store.OpMerge })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Part, r.Op = partOf(store.PartLimit), store.OpMerge })
	f(invalid, func(_ *delta, e *event, _ *rider) { e.Part = entries })
	f(invalid, func(_ *delta, e *event, _ *rider) { e.Part = "x" })
	f(invalid, func(_ *delta, e *event, _ *rider) { e.Bytes = []byte("x") })
	f(good, func(_ *delta, e *event, _ *rider) { e.Is = store.Met{Kind: store.MetNot, N: 5} })
	for _, kind := range []store.MetKind{store.MetBook, store.MetBook + 1} {
		f(invalid, func(_ *delta, e *event, _ *rider) { e.Is = store.Met{Kind: kind} })
	}
	f(good, func(_ *delta, e *event, _ *rider) { e.NotBefore, e.NotAfter = 5, math.MaxInt64 })
	f(invalid, func(_ *delta, e *event, _ *rider) { e.NotBefore = -1 })
	f(invalid, func(_ *delta, e *event, _ *rider) { e.NotAfter = -1 })
	f(invalid, func(d *delta, _ *event, _ *rider) { d.Expiry, d.DeadlineMS = store.ExpirySet, 5 })
	f(good, func(d *delta, _ *event, _ *rider) { d.Guard.Match, d.Guard.Laid = true, true })
	f(invalid, func(d *delta, e *event, _ *rider) { d.Guard.Match, e.Part = true, held })
	f(invalid, func(d *delta, e *event, _ *rider) { d.Guard.Laid, e.Part = true, held })
	f(invalid, func(d *delta, e *event, _ *rider) { d.Guard.Exists, e.Part = store.ExistsNot+1, held })
	f(good, func(d *delta, e *event, _ *rider) { d.Guard.Bound, e.Part = &store.Bound{}, held })
	f(invalid, func(d *delta, e *event, _ *rider) { d.Guard.Bound, d.Op, e.Part = &store.Bound{}, store.OpDelete, held })
	f(large, func(d *delta, e *event, _ *rider) {
		d.Guard.Token, e.Part = strings.Repeat("t", store.TokenBytesMax+1), held
	})

	// The rider.
	f(good, func(_ *delta, e *event, r *rider) { e.Part, r.Part = held, "" })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Part = "" })
	f(invalid, func(_ *delta, e *event, r *rider) { e.Part, r.Part, r.Op = held, "", store.OpDelete })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Part = "x" })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Part = entries })
	f(good, func(_ *delta, _ *event, r *rider) { r.Part, r.Op, r.Place = entries, store.OpPut, store.PlaceVersion })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Place = store.PlaceVersion })
	f(good, func(_ *delta, _ *event, r *rider) { r.Place = store.PlaceMet })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Place, r.Is.Kind = store.PlaceMet, store.MetEqual })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Place = store.PlaceMet + 1 })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Amount = store.AmountWas + 1 })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Amount, r.N = store.AmountWas, 1 })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Op, r.N = store.OpGet, 1 })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Op = store.OpSettle })
	f(good, func(_ *delta, _ *event, r *rider) { r.When.Kind = store.MetBook })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.When.Kind = store.MetBook + 1 })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Is.Kind = store.MetBook })
	f(good, func(_ *delta, _ *event, r *rider) { r.Bound = &store.Bound{} })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Bound = &store.Bound{Saturate: true} })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Bound, r.Op = &store.Bound{}, store.OpSet })
	f(invalid, func(_ *delta, _ *event, r *rider) { r.Bytes = []byte("x") })
	f(large, func(_ *delta, _ *event, r *rider) {
		r.Part, r.Op, r.Bytes = entries, store.OpPut, make([]byte, store.PartBytesMax+1)
	})
	f(large, func(_ *delta, e *event, r *rider) {
		for range store.EventRidersMax {
			e.Riders = append(e.Riders, *r)
		}
	})
}

// TestCheckTogether checks what a batch may have of riders and bytes.
func TestCheckTogether(t *testing.T) {
	f := func(want store.Kind, deltas, riders, bytes int) {
		t.Helper()
		rs := make([]store.Rider, riders)
		for i := range rs {
			rs[i] = store.Rider{Part: partOf(store.PartSketch), Op: store.OpPut, Bytes: make([]byte, bytes)}
		}
		plan, err := store.NewPlan(rs...)
		if err != nil {
			t.Fatal(err)
		}
		b := store.Batch{}
		for range deltas {
			b.Deltas = append(b.Deltas, store.Delta{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, Event: &store.Event{Plan: plan}})
		}
		checks(t, store.CheckBatch(&b, 1), want)
	}
	f(0, 2000, 4, 1)
	f(store.KindTooLarge, 2001, 4, 1)
	f(0, 1, 63, 65_536)
	f(store.KindTooLarge, 2, 64, 65_536)
}

// TestEventDigest checks that what follows from definitions is in no digest.
func TestEventDigest(t *testing.T) {
	digest := func(e *store.Event) uint64 {
		b := store.Batch{Writer: 1, Seq: 1, Deltas: []store.Delta{{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpPut, Event: e}}}
		return b.Digest()
	}
	member := func(position int64, name string) *store.Event {
		return &store.Event{Part: store.PartFields{Kind: store.PartMember, Position: position, Name: name}.Part()}
	}
	same := func(a, b *store.Event, want bool) {
		t.Helper()
		if got := digest(a) == digest(b); got != want {
			t.Errorf("%+v and %+v have the same digest: %t", a, b, got)
		}
	}
	same(nil, &store.Event{}, true)
	same(nil, &store.Event{Riders: []store.Rider{{Part: partOf(store.PartHeld), Op: store.OpAdd, N: 1}}}, true)
	same(nil, member(0, "eve"), false)
	same(member(0, "eve"), member(1, "eve"), true)
	same(member(0, "eve"), member(0, "bob"), false)
	same(member(0, ""), &store.Event{Part: partOf(store.PartHold)}, false)
	same(&store.Event{Part: partOf(store.PartEntries), Bytes: []byte("x")}, &store.Event{Part: partOf(store.PartEntries), Bytes: []byte("y")}, false)
}

func TestMet(t *testing.T) {
	f := func(kind store.MetKind, n, value int64, want bool) {
		t.Helper()
		if got := (store.Met{Kind: kind, N: n}).Holds(value); got != want {
			t.Errorf("condition %d of %d on %d: %t", kind, n, value, got)
		}
	}
	f(store.MetAny, 5, 4, true)
	f(store.MetEqual, 5, 5, true)
	f(store.MetEqual, 5, 4, false)
	f(store.MetNot, 5, 5, false)
	f(store.MetNot, 5, 4, true)
	f(store.MetBook, 5, 4, false) // it is not on this value
	f(store.MetBook+1, 5, 5, false)
}
