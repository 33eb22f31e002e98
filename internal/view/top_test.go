package view_test

import (
	"slices"
	"testing"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// Each list has a sketch of all time and one for each window. Lists by key are beside lanes,
// and each asks for its own of what the event asks.
func TestTop(t *testing.T) {
	d := definition.Definition{
		Windows: []definition.Window{window("1m", "", hour), window("1h", "", day)}, Unique: definition.Unique{Of: definition.Who},
		Tops: []definition.Top{{Name: "first", By: definition.ByKey}, {Name: "terms", By: "term"}},
	}
	v := viewsOf(t, d).InLane(5)
	type merge struct {
		kind  store.PartKind
		which int64
	}
	f := func(at int64, want ...merge) {
		t.Helper()
		p, err := v.Plan(at, noon, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []merge
		for i := range p.Event.Len() {
			r := p.Event.Rider(i)
			if r.Op != store.OpMerge {
				continue
			}
			got = append(got, merge{r.Part.Kind(), r.N})
			if f, _ := r.Part.Fields(); f.Kind.Shared() != (f.Name == "5") {
				t.Errorf("part %+v", f)
			}
		}
		if !slices.Equal(got, want) || p.Late != (len(want) < 9) || !p.Event.Plan.Sums() {
			t.Errorf("at %d: %x, late %t; want %x", noon-at, got, p.Late, want)
		}
	}
	ever, windowed, shared, sharedWindow := store.PartSketch, store.PartWindowSketch, store.PartShared, store.PartWindowShared
	f(noon, merge{ever, 1}, merge{windowed, 1}, merge{windowed, 1}, merge{shared, 2}, merge{sharedWindow, 2}, merge{sharedWindow, 2},
		merge{ever, 3}, merge{windowed, 3}, merge{windowed, 3})
	f(noon-2*day, merge{ever, 1}, merge{shared, 2}, merge{ever, 3})
	if n := d.Sketches(); n != 9 {
		t.Errorf("%d sketches", n)
	}
	p, err := v.Unite(noon, noon, nil) // takes users in, and lists nothing
	if err != nil || len(merges(p.Event)) != 2 {
		t.Errorf("%x, %v", merges(p.Event), err)
	}
	for i := range p.Event.Len() {
		if r := p.Event.Rider(i); r.Op == store.OpMerge && r.N != 0 {
			t.Errorf("rider %+v of an event that asks one thing", r)
		}
	}
	if s, ok := v.UniqueOf(-1); !ok || s.Top != 0 {
		t.Errorf("users are in %+v", s)
	}
	if s := v.TopOf(0); s.Kind != shared || s.Top != 1 {
		t.Errorf("list 0 is in %+v", s)
	}
	if s := v.TopOf(1); s.Kind != ever || s.Top != 2 {
		t.Errorf("list 1 is in %+v", s)
	}
	names, err := v.Names(nil, []call.Dimension{{Name: "term", Value: "x"}})
	if err != nil || len(names) != 0 || v.Declares(definition.ByKey) || !v.Declares("term") {
		t.Errorf("names %q, %v", names, err)
	}
	if _, err := v.Names(nil, []call.Dimension{{Name: "key", Value: "x"}}); err == nil {
		t.Error("an event brings a key")
	}
	if _, err := v.Names(nil, []call.Dimension{{Name: "term", Value: string(make([]byte, 256))}}); err == nil {
		t.Error("a value is too long")
	}
}
