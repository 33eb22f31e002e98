package history_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// ranked returns counters that have lists by country and by key.
func ranked() definition.Definition {
	return definition.Definition{
		Pattern: "k*", Windows: []definition.Window{window("1m", "", day), window("1h", "", 30*day)},
		Dimensions: []definition.Dimension{{By: []string{"country"}}},
		Tops:       []definition.Top{{Name: "lands", By: "country"}, {Name: "keys", By: definition.ByKey, K: 10}},
	}
}

// A lying store says something else of some parts than what they have.
type lying struct {
	summed
	lie func(p *store.PartEntry)
}

func (s lying) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	found, err := s.summed.ScanParts(ctx, r, n)
	for i := range found {
		s.lie(&found[i])
	}
	return found, err
}

// listOf is the state of a list that has n of one item.
func listOf(t *testing.T, k int, n int64) string {
	t.Helper()
	top, err := sketch.NewTop(k)
	if err != nil {
		t.Fatal(err)
	}
	if n > 0 {
		top.Add("DE", n)
	}
	return string(top.Append(nil))
}

// TestVerifyFindsLists spoils one list among others, and looks for it.
func TestVerifyFindsLists(t *testing.T) {
	const lands, keys = "top list lands of 100 by country", "top list keys of 10 by key"
	const single, shared = `counter "k3" of namespace "ns": ` + lands, `namespace "ns": ` + keys
	widths := 2
	f := func(kind store.PartKind, width string, k int, n int64, want ...string) {
		t.Helper()
		w := newWorld(t)
		d := ranked()
		d.Windows = d.Windows[:widths]
		w.define(d)
		for i := range 5 {
			for range 2 {
				w.add(fmt.Sprint("k", i), i%(shardsMax+1), add(int64(i+1)), call.Dimension{Name: "country", Value: "DE"})
				w.now += minute
			}
			w.add(fmt.Sprint("k", i), 0, add(-1))
		}
		w.add("k3", 0, add(7)) // of no country
		if a := w.verify(); len(a.Drift) > 0 || len(a.Unproved) > 0 {
			t.Fatalf("before: %+v", a)
		}
		r := w.reader()
		r.Store = lying{summed{w.store}, func(p *store.PartEntry) {
			f, _ := p.Part.Fields()
			v := w.views("k3").All()
			at := slices.IndexFunc(v, func(s view.Shown) bool { return s.View.ID == f.View && s.Top != 0 })
			home, _, split := store.ShardOf(p.Cell)
			if !split {
				home = p.Cell
			}
			if f.Kind == kind && at >= 0 && (width == "" || v[at].Grid.Width.String() == width) && (kind.Shared() || home.Key == "k3") {
				p.Content.Bytes = listOf(t, k, n)
			}
		}}
		var a store.Audit
		if err := r.Verify(w.ctx(), &a); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range a.Drift {
			got = append(got, fmt.Sprintf("%s: %s, want %s", d.What, d.Have, d.Want))
		}
		slices.Sort(got)
		if len(a.Unproved) > 0 || !slices.Equal(got, want) {
			t.Errorf("%s, unproved %q, want %s", strings.Join(got, "\n"), a.Unproved, strings.Join(want, "\n"))
		}
	}
	const minutes, from = " in windows of 1m", " in the window from 2026-10-26T12:00:00Z: "
	f(store.PartWindowSketch, "1h", 100, 9,
		single+" in windows of 1h together: at most "+lands+": 9, want 8", single+minutes+from+lands+" in windows of 1h: 8, want 9")
	f(store.PartWindowSketch, "1m", 100, 0, single+minutes+from+lands+" in windows of 1h: 0, want 8")
	f(store.PartSketch, "", 100, 7,
		single+" in windows of 1h together: at most "+lands+": 8, want 7", single+minutes+" together: at most "+lands+": 8, want 7")
	f(store.PartWindowShared, "1h", 10, 9, shared+minutes+from+keys+" in windows of 1h: 37, want 18")
	f(store.PartShared, "", 10, 9,
		shared+" in windows of 1h together: at most "+keys+": 37, want 18", shared+minutes+" together: at most "+keys+": 37, want 18")
	widths = 1
	f(store.PartSketch, "", 100, 7, single+minutes+" together: at most "+lands+": 8, want 7")
	f(store.PartShared, "", 10, 9, shared+minutes+" together: at most "+keys+": 37, want 18")
}

// TestVerifyStopped has lists whose numbers have stopped, which prove nothing.
func TestVerifyStopped(t *testing.T) {
	w := newWorld(t)
	w.define(ranked())
	for range 2 {
		w.add("k1", 0, add(math.MaxInt64), call.Dimension{Name: "country", Value: "DE"})
		w.add("k1", 0, add(-math.MaxInt64), call.Dimension{Name: "country", Value: "DE"})
		w.now += minute
	}
	if a := w.verify(); len(a.Drift) > 0 || len(a.Unproved) > 0 {
		t.Errorf("%+v", a)
	}
}

// TestVerifyRestlessLists has lists by key added to whenever parts are read: what was added
// meanwhile is not taken for a difference, nor for proof.
func TestVerifyRestlessLists(t *testing.T) {
	f := func(widths, times, unproved int) {
		t.Helper()
		w := newWorld(t)
		d := ranked()
		d.Tops, d.Windows = d.Tops[1:], d.Windows[:widths]
		w.define(d)
		w.add("k2", 0, add(5))
		r := w.reader()
		r.Store = &restless{summed: summed{w.store}, w: w, times: times}
		var a store.Audit
		if err := r.Verify(w.ctx(), &a); err != nil || len(a.Drift) != 0 || len(a.Unproved) != unproved {
			t.Errorf("after %d writes: %+v, %v", times, a, err)
		}
	}
	f(2, 0, 0)
	f(2, 1, 0)
	f(2, 30, 0)
	f(2, 1_000_000, 2) // and the counter itself
	f(1, 1_000_000, 1) // of one width nothing is written twice: the list of all time is read last
}
