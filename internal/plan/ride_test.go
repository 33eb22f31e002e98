package plan_test

import (
	"math"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

var (
	hour    = store.PartFields{Kind: store.PartWindow, View: 1, Epoch: 7}.Part()
	day     = store.PartFields{Kind: store.PartWindow, View: 2, Epoch: 3}.Part()
	dim     = store.PartFields{Kind: store.PartDim, View: 3, Name: "de"}.Part()
	book    = store.PartFields{Kind: store.PartBook}.Part()
	strange = store.PartFields{Kind: store.PartBook, View: 1}.Part()
)

func applied(p store.Part) store.Rider {
	return store.Rider{Part: p, Op: store.OpAdd, Amount: store.AmountApplied}
}

func keeps(p store.Part, id int64) store.Rider { return store.Rider{Part: p, Op: store.OpMax, N: id} }

func planOf(t *testing.T, riders ...store.Rider) *store.Plan {
	t.Helper()
	p, err := store.NewPlan(riders...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func event(key string, n int64, p *store.Plan, riders ...store.Rider) store.Delta {
	return with(add(key, n), func(d *store.Delta) { d.Event = &store.Event{Plan: p, Riders: riders} })
}

// The adds of one cell come to one sum for each of its parts, and to the book that it must
// be at.
func TestWithRiders(t *testing.T) {
	base := store.Rider{Part: dim, Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: 4}}
	one, two := planOf(t, base, applied(hour), applied(day), keeps(book, 5)), planOf(t, applied(day), applied(dim))
	b := store.Batch{Deltas: []store.Delta{
		event("b", 1, one), event("a", 2, one), add("b", 7), event("b", 3, two), event("b", 4, one), event("c", 5, nil),
	}}
	a, ok := plan.WithRiders(&b)
	if !ok || len(a.Cells) != 3 {
		t.Fatalf("%+v, %v", a, ok)
	}
	part := func(cell int, p store.Part, n int64) plan.Part {
		return plan.Part{PartCell: store.PartCell{Cell: a.Cells[cell].Cell, Part: p}, Cell: cell, Sum: n}
	}
	want := []plan.Part{part(0, hour, 2), part(0, day, 2), part(1, dim, 3), part(1, hour, 5), part(1, day, 8)}
	if !slices.Equal(a.Parts, want) {
		t.Errorf("parts %+v, want %+v", a.Parts, want)
	}
	if a.Cells[0].Book != 5 || a.Cells[1].Book != 5 || a.Cells[2].Book != 0 {
		t.Errorf("books of %+v", a.Cells)
	}
	record := decide.PartChange(a.Cells[1].Cell, dim, 3)
	for i, sum := range []uint64{2, 15, 5} {
		record.Merge(decide.Change(a.Cells[i].Cell, sum))
	}
	if record.Deltas = 6; a.Record != record {
		t.Errorf("record %+v, want %+v: epochs have their own", a.Record, record)
	}
}

func TestWithRidersRefuses(t *testing.T) {
	f := func(want bool, ds ...store.Delta) {
		t.Helper()
		if _, ok := plan.WithRiders(&store.Batch{Deltas: ds}); ok != want {
			t.Errorf("%+v is taken: %v", ds, ok)
		}
	}
	windows := planOf(t, applied(hour), applied(day))
	f(true, event("a", 1, windows), event("b", -1, windows))
	f(true, event("a", -1, windows), add("a", -1))
	f(false, event("a", 2, windows), event("a", -1, windows))
	f(false, event("a", 2, windows), event("a", 0, windows))
	f(true, event("a", 0, nil), add("a", 0))
	f(false, event("a", 1, windows, applied(dim)))
	f(false, event("a", 1, planOf(t, keeps(strange, 1))))
	f(false, event("a", 1, planOf(t, store.Rider{Part: hour, Op: store.OpAdd, N: 1})))
	f(false, event("a", math.MaxInt64, planOf(t, applied(hour), applied(hour))))
	b := store.Batch{Deltas: []store.Delta{add("a", 1)}, Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow}}}
	if _, ok := plan.WithRiders(&b); ok {
		t.Error("a batch that raises a floor is taken")
	}
}
