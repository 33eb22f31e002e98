package view_test

import (
	"slices"
	"testing"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// merges returns the kinds of the parts that a plan merges something into.
func merges(e *store.Event) (kinds []store.PartKind) {
	for i := range e.Len() {
		if r := e.Rider(i); r.Op == store.OpMerge {
			kinds = append(kinds, r.Part.Kind())
		}
	}
	return kinds
}

// Each view that counts has a sketch beside it, and all time has one. An event that a window
// does not keep any more is left out of its sketch.
func TestUnique(t *testing.T) {
	d := definition.Definition{
		Windows: []definition.Window{window("1m", "", hour), window("1h", "", day)}, Dimensions: []definition.Dimension{{By: []string{"x"}}},
		Unique: definition.Unique{Of: definition.Who}, Ledger: definition.Ledger{Record: definition.All},
	}
	v := viewsOf(t, d)
	ever, windowed := store.PartSketch, store.PartWindowSketch
	f := func(at int64, want ...store.PartKind) {
		t.Helper()
		p, err := v.Plan(at, noon, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if got := merges(p.Event); !slices.Equal(got, want) || p.Late != (len(want) < 6) || !p.Event.Plan.Sums() {
			t.Errorf("at %d: %x, late %t; want %x", noon-at, got, p.Late, want)
		}
	}
	f(noon, ever, windowed, windowed, ever, windowed, windowed)
	f(noon-2*hour, ever, windowed, ever, windowed)
	f(noon-2*day, ever, ever)
	if n := d.Sketches(); n != 6 {
		t.Errorf("%d sketches", n)
	}
	p, err := v.Unite(noon, noon, []string{"a"})
	if err != nil || p.Event.Part.Kind() != ever || len(merges(p.Event)) != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	for i := range p.Event.Len() {
		if r := p.Event.Rider(i); r.Amount == store.AmountApplied || r.Part == p.Event.Part {
			t.Errorf("rider %+v of an event that counts nothing", r)
		}
	}
	if e := merges(v.Assign); e != nil {
		t.Errorf("who sets a counter merges %x", e)
	}
}

func TestUniquePrecision(t *testing.T) {
	f := func(e definition.Percent, want int) {
		t.Helper()
		if got := viewsOf(t, definition.Definition{Unique: definition.Unique{Of: definition.Who, Error: e}}).Unique(); got != want {
			t.Errorf("an error of %s has precision %d, want %d", e, got, want)
		}
	}
	f(0, sketch.PrecisionDefault)
	f(8_500, sketch.PrecisionDefault)
	f(8_000, 14)
	f(definition.UniqueErrorMin, sketch.PrecisionPlain)
	f(definition.UniqueErrorMax, 6)
	if n := viewsOf(t, definition.Definition{}).Unique(); n != 0 {
		t.Errorf("no sketches have precision %d", n)
	}
}
