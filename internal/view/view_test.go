package view_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
	day    = 24 * hour
)

// noon is when the tests are.
var noon = time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC).UnixMilli()

func window(every, place string, keep int64) definition.Window {
	w, err := definition.ParseWidth(every)
	if err != nil {
		panic(err)
	}
	return definition.Window{Every: w, Zone: place, Keep: definition.Keep(time.Duration(keep) * time.Millisecond)}
}

var berlin, kolkata = mustZone("Europe/Berlin"), mustZone("Asia/Kolkata")

func mustZone(name string) *calendar.Zone {
	l, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return calendar.NewZone(l)
}

func zone(name string) (*calendar.Zone, error) {
	if name == berlin.Name() {
		return berlin, nil
	}
	return kolkata, nil
}

func viewsOf(t interface{ Fatal(args ...any) }, d definition.Definition) *view.Views {
	d.Pattern = "*"
	b, err := (&book.Book{}).Next(book.Proposal{Definitions: []definition.Definition{d}, Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	return view.New(b, b.Of(""))
}

// parts returns what a plan counts into: one part for each view.
func parts(p *view.Plan) (all []store.PartFields) {
	for i := range p.Event.Len() {
		if r := p.Event.Rider(i); r.Amount == store.AmountApplied {
			f, _ := r.Part.Fields()
			all = append(all, f)
		}
	}
	return all
}

// bases returns the books that brought the views of an event that have a base, by view.
func bases(e *store.Event) map[uint16]int64 {
	all := map[uint16]int64{}
	for i := range e.Len() {
		if r := e.Rider(i); r.Amount == store.AmountWas {
			f, _ := r.Part.Fields()
			all[f.View] = r.When.N
		}
	}
	return all
}

func ExampleViews_Plan() {
	v := viewsOf(new(testing.T), definition.Definition{
		Windows:    []definition.Window{window("1h", "", 30*day), window("1d", "Europe/Berlin", 1800*day)},
		Dimensions: []definition.Dimension{{By: []string{"country"}, Windows: []definition.Width{}}},
	})
	names, _ := v.Names(nil, []call.Dimension{{Name: "country", Value: "DE"}})
	plan, _ := v.Plan(noon-40*day, noon, names) // late for the hours
	for _, p := range parts(plan) {
		fmt.Printf("%02x view %d %s %q\n", uint8(p.Kind), p.View, time.UnixMilli(p.Position).UTC().Format(time.RFC3339), p.Name)
	}
	// Output:
	// 01 view 1 1970-01-01T00:00:00Z ""
	// 81 view 2 2026-09-15T22:00:00Z ""
	// 03 view 3 1970-01-01T00:00:00Z "DE"
}

func TestNames(t *testing.T) {
	v := viewsOf(t, definition.Definition{Dimensions: []definition.Dimension{{By: []string{"country"}}, {By: []string{"platform", "country"}}}})
	f := func(dims []call.Dimension, want ...string) {
		t.Helper()
		if got, err := v.Names(nil, dims); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %q, %v; want %q", dims, got, err, want)
		}
	}
	f(nil, "", "")
	f([]call.Dimension{{Name: "country", Value: "DE"}, {Name: "platform", Value: "iOS"}}, "DE", "iOS\x1fDE")
	f([]call.Dimension{{Name: "country", Value: "other"}}, "other", "\x1fother")
	f([]call.Dimension{{Name: "platform", Value: "iOS"}}, "", "iOS\x1f")
	if got := view.Values("iOS\x1fDE"); !slices.Equal(got, []string{"iOS", "DE"}) {
		t.Errorf("%q", got)
	}

	bad := func(want string, kind error, dims ...call.Dimension) {
		t.Helper()
		if _, err := v.Names(nil, dims); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", dims, err, want)
		}
	}
	bad(`unknown dimension "city": want country or platform`, store.ErrInvalid, call.Dimension{Name: "city", Value: "Cusco"})
	bad("given twice", store.ErrInvalid, call.Dimension{Name: "country"}, call.Dimension{Name: "country", Value: "DE"})
	bad("control characters", store.ErrInvalid, call.Dimension{Name: "country", Value: view.Other})
	bad("control characters", store.ErrInvalid, call.Dimension{Name: "country", Value: "a\x1fb"})
	bad("UTF-8", store.ErrInvalid, call.Dimension{Name: "country", Value: "\xff"})
	bad("256 bytes: at most 255", store.ErrTooLarge, call.Dimension{Name: "country", Value: strings.Repeat("x", 256)})

	if v.Admits(0) != 1 || v.Admits(1) != 2 || v.Limit(1) != 1000 {
		t.Errorf("views %d and %d, limit %d", v.Admits(0), v.Admits(1), v.Limit(1))
	}
}

func TestLedger(t *testing.T) {
	f := func(record definition.Record, adjustment, line bool, n int) {
		t.Helper()
		v := viewsOf(t, definition.Definition{Ledger: definition.Ledger{Record: record}})
		if _, ok := v.Line(noon, adjustment); ok != line || len(bases(v.Touch)) != n {
			t.Errorf("%s: a line: %v, %d bases", record, ok, len(bases(v.Touch)))
		}
	}
	f(definition.Off, true, false, 0)
	f(definition.Adjustments, true, true, 0)
	f(definition.Adjustments, false, false, 0)
	f(definition.All, false, true, 1)
	f(definition.All, true, true, 1)
}

// TestRiders checks what plans have besides what they count into.
func TestRiders(t *testing.T) {
	d := definition.Definition{
		Pattern: "*", Windows: []definition.Window{window("1h", "", day)}, Ledger: definition.Ledger{Record: definition.Adjustments},
		Dimensions: []definition.Dimension{{By: []string{"country"}, Windows: []definition.Width{}}},
	}
	first, err := (&book.Book{}).Next(book.Proposal{Definitions: []definition.Definition{d}})
	if err != nil {
		t.Fatal(err)
	}
	d.Windows = append(d.Windows, window("1d", "", 9*day))
	second, err := first.Next(book.Proposal{Definitions: []definition.Definition{d}, InForce: 1})
	if err != nil {
		t.Fatal(err)
	}
	v := view.New(second, second.Of("a"))
	p, err := v.Plan(noon, noon, []string{"DE"})
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, e *store.Event, applied ...store.PartKind) {
		t.Helper()
		if got, want := bases(e), map[uint16]int64{1: 1, 2: 1, 4: 2}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: bases %v, want %v", name, got, want)
		}
		var kinds []store.PartKind
		book := int64(0)
		for i := range e.Len() {
			switch r := e.Rider(i); {
			case r.Amount == store.AmountApplied:
				kinds = append(kinds, r.Part.Kind())
			case r.Op == store.OpMax && r.Part.Kind() == store.PartBook:
				book = r.N
			}
		}
		if book != 2 || !slices.Equal(kinds, applied) || e.Len() != len(applied)+4 {
			t.Errorf("%s: book %d, %v, %d riders", name, book, kinds, e.Len())
		}
	}
	f("add", p.Event, store.PartWindow, store.PartWindow, store.PartDim)
	f("assign", v.Assign, store.PartOutside, store.PartOutside, store.PartOutside)
	f("touch", v.Touch)
}

func TestTimes(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1h", "", day)}})
	f := func(at int64, want bool) {
		t.Helper()
		if _, err := v.Plan(at, noon, nil); (err == nil) != want {
			t.Errorf("%d: %v", at, err)
		}
	}
	f(0, true)
	f(-1, false)
	f(noon+day, true)
	f(noon+day+1, false)
}

// TestAdmit has events at both sides of the bound.
func TestAdmit(t *testing.T) {
	f := func(l definition.Late, at, moment int64, clamped, refused bool) {
		t.Helper()
		v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1m", "", hour), window("1h", "", day)}, Late: l})
		got, is, err := v.Admit(at, noon)
		if (err != nil) != refused || !refused && (got != moment || is != clamped) {
			t.Errorf("%s at %d: %d, %t, %v", l, noon-at, got, is, err)
		}
	}
	f(definition.Late{}, 0, 0, false, false)
	clamp, refuse := definition.Late{Then: definition.Clamp}, definition.Late{Then: definition.Refuse}
	f(clamp, noon-day, noon-day, false, false)
	f(clamp, noon-day-1, noon-day, true, false)
	f(clamp, noon+day, noon+day, false, false)
	f(clamp, -1, -1, false, false) // which has no plan
	f(refuse, noon-day, noon-day, false, false)
	f(refuse, noon-day-1, 0, false, true)
	clamp.After, refuse.After = definition.Keep(time.Hour), definition.Keep(100*time.Hour)
	f(clamp, noon-day, noon-hour, true, false)
	f(refuse, noon-2*day, noon-2*day, false, false)
}

var some = []definition.Window{
	window("10s", "", hour), window("1m", "", 3*hour), window("7m", "", 9*hour), window("1h", "", day), window("1h", "", 4*day), window("1d", "", 9*day),
	window("1d", "Europe/Berlin", 9*day), window("1d", "Asia/Kolkata", 5*day), window("1w", "Europe/Berlin", 30*day), window("1mo", "", 90*day),
}

// drawViews draws a definition of some windows and a dimension.
func drawViews(t *rapid.T) *view.Views {
	windows := rapid.SliceOfNDistinct(rapid.SampledFrom(some), 0, 4, func(w definition.Window) string { return w.Every.String() + w.Zone }).Draw(t, "windows")
	return viewsOf(t, definition.Definition{Windows: windows, Dimensions: []definition.Dimension{{By: []string{"x"}}}})
}

// TestPlans checks that plans that are remembered are the same as new ones, that each view
// counts an event once, and that no floor is in the way.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawViews(t)
		var plans view.Plans
		for range 50 {
			now := noon + rapid.Int64Range(-2*hour, 2*hour).Draw(t, "now")
			at := now - rapid.SampledFrom([]int64{0, 0, hour, 3 * hour, 4 * hour, day, 9 * day, 30 * day}).Draw(t, "late") - rapid.Int64Range(-90, 90).Draw(t, "s")*1000
			names := []string{rapid.SampledFrom([]string{"", "a", "b", view.Other}).Draw(t, "name")}
			got, err := plans.Of(v, at, now, names)
			want, err2 := v.Plan(at, now, names)
			if err != nil || err2 != nil || !reflect.DeepEqual(got.Event, want.Event) || got.Late != want.Late {
				t.Fatalf("%v, %v; want %v, %v", got, err, want, err2)
			}
			counted := map[uint16]bool{}
			for _, p := range parts(got) {
				if counted[p.View] {
					t.Fatalf("view %d counts twice", p.View)
				}
				counted[p.View] = true
				for _, f := range v.Floors("ns", now+hour) { // an epoch is an hour or longer
					if f.View == p.View && f.Kind == p.Kind && p.Epoch < f.Epoch {
						t.Fatalf("%+v is below the floor %+v", p, f)
					}
				}
			}
			if n := len(bases(got.Event)); len(counted) != n {
				t.Fatalf("%d of %d views count", len(counted), n)
			}
		}
	})
}

// A plan is not used after a window that it names has ended to be kept, nor before.
func TestPlansAge(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1m", "", hour), window("1h", "", day)}})
	var plans view.Plans
	f := func(now int64, want ...store.PartKind) {
		t.Helper()
		p, err := plans.Of(v, noon, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := parts(p); got[0].Kind != want[0] || got[1].Kind != want[1] || p.Late != slices.Contains(want, store.PartOutside) {
			t.Errorf("%v, late %v; want %v", got, p.Late, want)
		}
	}
	f(noon, store.PartWindow, store.PartWindow)
	f(noon+minute+hour-1, store.PartWindow, store.PartWindow)
	f(noon+minute+hour, store.PartOutside, store.PartWindow)
	f(noon+hour+day-1, store.PartOutside, store.PartWindow)
	f(noon+hour+day, store.PartOutside, store.PartOutside)
	f(noon, store.PartWindow, store.PartWindow)
}

// TestRange counts events into cells as plans say, reads ranges of them, and compares with
// the events.
func TestRange(t *testing.T) {
	type event struct{ at, n int64 }
	type cell struct {
		view  uint16
		start int64
	}
	complete, exact := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v := drawViews(t)
		since := map[uint16]int64{}
		for id := uint16(1); int(id) <= len(bases(v.Touch)); id++ {
			since[id] = noon - rapid.SampledFrom([]int64{0, hour, 2 * day, 60 * day, 200 * day}).Draw(t, "since")
		}
		var events []event
		cells := map[cell]int64{}
		total := int64(0)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			now := noon - rapid.Int64Range(0, 3*day).Draw(t, "counted")
			e := event{now - rapid.SampledFrom([]int64{1, minute, hour, day, 40 * day}).Draw(t, "unit")*rapid.Int64Range(0, 3).Draw(t, "late"), rapid.Int64Range(-9, 99).Draw(t, "n")}
			e.at += rapid.Int64Range(0, min(now-e.at, minute)).Draw(t, "ms")
			plan, err := v.Plan(e.at, now, []string{"a"})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts(plan) {
				if p.Kind == store.PartWindow && now >= since[p.View] {
					cells[cell{p.View, p.Position}] += e.n
				}
			}
			events, total = append(events, e), total+e.n
		}
		sources := v.Sources(view.NoDimension, noon, func(b book.View) (int64, bool) { return since[b.ID], since[b.ID] != noon })
		edge := rapid.Custom(func(t *rapid.T) int64 {
			unit := rapid.SampledFrom([]int64{1000, minute, hour, day}).Draw(t, "unit")
			return (noon - rapid.Int64Range(-4, 60).Draw(t, "ago")*unit) / unit * unit
		})
		from, to := edge.Draw(t, "from"), edge.Draw(t, "to")
		from, to = min(from, to), max(from, to)
		var step calendar.Grid
		if every := rapid.SampledFrom([]string{"", "30m", "1h", "6h", "1d"}).Draw(t, "step"); every != "" {
			step.Width = window(every, "", 0).Every
		}
		read := func(from, to int64) *view.Range {
			r, err := view.NewRange(sources, calendar.Span{From: from, To: to}, step)
			if err != nil {
				t.Fatal(err)
			}
			for c, n := range cells {
				r.Count(c.view, c.start, n)
			}
			return r
		}
		counted := func(span calendar.Span) (sum int64) {
			for _, e := range events {
				if e.at >= span.From && e.at < span.To {
					sum += e.n
				}
			}
			return sum
		}
		r := read(from, to)
		for i := range r.Points {
			p := &r.Points[i]
			if i > 0 && r.Points[i-1].To != p.From {
				t.Fatalf("%v and %v are not side by side", r.Points[i-1].Span, p.Span)
			}
			got, err := p.Value()
			if want := counted(p.Span); p.Complete && (got != want || err != nil) {
				t.Fatalf("%v has %d, want %d", p.Span, got, want)
			}
			if p.Complete {
				complete++
			}
			if p.Exact {
				exact++
			}
			if p.Exact && i == 0 && p.From != from {
				t.Fatalf("%v is not exact: the range begins at %d", p.Span, from)
			}
		}
		sum := r.Sum()
		got, _ := sum.Value()
		if sum.Complete && got != counted(sum.Span) || sum.Exact && sum.Span != (calendar.Span{From: from, To: to}) {
			t.Fatalf("the range %d to %d is %v with %d, want %d", from, to, sum, got, counted(sum.Span))
		}
		// What is read is what is counted, and nothing else.
		for c, n := range cells {
			asked := slices.ContainsFunc(r.Runs, func(run view.Run) bool {
				return run.Source.View.ID == c.view && c.start >= run.From && c.start < run.To
			})
			if asked {
				got -= n
			}
		}
		if got != 0 {
			t.Fatalf("the runs %v have %d more than the points", r.Runs, -got)
		}
		// The range after from, taken from the total, leaves what was before.
		after := read(from, max(from, noon+book.Ahead)).Sum()
		if n, _ := after.Value(); after.Exact && after.Complete && total-n != counted(calendar.Span{To: from}) {
			t.Fatalf("at %d it was %d, want %d", from, total-n, counted(calendar.Span{To: from}))
		}
		// Ranges side by side are the range.
		middle := (from + to) / 2
		a, b := read(from, middle).Sum(), read(middle, to).Sum()
		if x, _ := a.Value(); a.Complete && b.Complete && sum.Complete {
			y, _ := b.Value()
			if z, _ := sum.Value(); x+y != z {
				t.Fatalf("%d and %d are not %d", x, y, z)
			}
		}
	})
	if !testing.Short() && (complete < 100 || exact < 100) { // few histories may have few of either
		t.Errorf("%d points were complete, %d exact", complete, exact)
	}
}

func TestRangeEdges(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1m", "", day), window("1h", "", 30*day)}})
	since := func(book.View) (int64, bool) { return noon - 10*day, true }
	f := func(from, to int64, every string, points int, exact, complete bool) {
		t.Helper()
		r, err := view.NewRange(v.Sources(view.NoDimension, noon, since), calendar.Span{From: from, To: to}, calendar.Grid{Width: window(every, "", 0).Every})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Sum(); len(r.Points) != points || s.Exact != exact || s.Complete != complete {
			t.Errorf("%d points, exact %v, complete %v", len(r.Points), s.Exact, s.Complete)
		}
		if points == 0 && r.CompleteFrom() != to {
			t.Errorf("nothing is complete from %d on", r.CompleteFrom())
		}
	}
	f(noon-2*hour, noon, "1h", 2, true, true)
	f(noon-2*hour+minute, noon+minute, "1h", 3, true, true)          // minutes are kept
	f(noon-2*hour+1000, noon, "1h", 2, false, true)                  // seconds are not
	f(noon-3*day+minute, noon-2*day, "1h", 23, false, true)          // an hour is cut
	f(noon-3*day, noon-3*day+hour, "1m", 1, false, true)             // an hour is there, minutes are not
	f(noon-11*day, noon-9*day, "1d", 3, true, false)                 // it began in between
	f(noon-40*day, noon-39*day, "1d", 2, true, false)                // it is not kept
	f(noon, noon, "1d", 0, false, false)                             // nothing
	f(noon-3*day+minute, noon-3*day+2*minute, "1m", 0, false, false) // within an hour

	if _, err := view.NewRange(nil, calendar.Span{To: noon}, calendar.Grid{Width: window("1s", "", 0).Every}); !errors.Is(err, store.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := view.NewRange(nil, calendar.Span{From: 2, To: 1}, calendar.Grid{}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

// Sums may leave int64 and come back.
func TestOverflow(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1h", "", day)}})
	r, err := view.NewRange(v.Sources(view.NoDimension, noon, func(book.View) (int64, bool) { return 0, true }), calendar.Span{From: noon - hour, To: noon}, calendar.Grid{})
	if err != nil {
		t.Fatal(err)
	}
	f := func(n, want int64, kind error) {
		t.Helper()
		r.Count(1, noon-hour, n)
		if got, err := r.Points[0].Value(); got != want || !errors.Is(err, kind) {
			t.Errorf("%d, %v", got, err)
		}
	}
	f(1<<63-1, 1<<63-1, nil)
	f(1, 0, store.ErrOverflow)
	f(-2, 1<<63-2, nil)
	f(-1<<63, -2, nil)
	f(-1<<63, 0, store.ErrOverflow)
	f(2, -1<<63, nil)
}

// TestPlansShared checks that events of one shortest window have one plan, however long it
// is: a store can tell by that what it may add up.
func TestPlansShared(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1mo", "", 900*day), window("1d", "Europe/Berlin", 90*day)}})
	var plans view.Plans
	of := func(at int64) *view.Plan {
		p, err := plans.Of(v, at, noon, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := of(noon)
	if of(noon-hour) != first || of(noon+3*minute) != first || of(noon-day) == first {
		t.Error("plans are of another length than a day")
	}
}

func BenchmarkPlans(b *testing.B) {
	three := []definition.Window{window("1m", "", day), window("1h", "", 30*day), window("1d", "Europe/Berlin", 1800*day)}
	v := viewsOf(b, definition.Definition{Windows: three, Dimensions: []definition.Dimension{{By: []string{"country"}}, {By: []string{"platform"}}}})
	names := []string{"DE", "iOS"}
	b.Run("remembered", func(b *testing.B) {
		var plans view.Plans
		for b.Loop() {
			if p, err := plans.Of(v, noon, noon, names); err != nil || p.Event.Len() != 23 {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Plan(noon, noon, names); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Ranges of other definitions are added if their points are the same. The sum is what both
// are.
func TestMerge(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1h", "", 30*day)}})
	read := func(since, from, n int64) *view.Range {
		r, err := view.NewRange(v.Sources(view.NoDimension, noon, func(book.View) (int64, bool) { return since, true }),
			calendar.Span{From: from, To: noon}, calendar.Grid{Width: window("1h", "", 0).Every})
		if err != nil {
			t.Fatal(err)
		}
		r.Count(1, noon-hour, n)
		return r
	}
	f := func(other *view.Range, want bool, sum int64, exact, complete bool) {
		t.Helper()
		r := read(0, noon-2*hour, 5)
		ok := r.Merge(other)
		s := r.Sum()
		if n, err := s.Value(); ok != want || err != nil || n != sum || s.Exact != exact || s.Complete != complete {
			t.Errorf("%v: %+v, %d, %v", ok, s, n, err)
		}
	}
	f(read(0, noon-2*hour, 2), true, 7, true, true)
	f(read(noon-hour, noon-2*hour, 2), true, 7, true, false)
	f(read(0, noon-3*hour, 2), false, 5, true, true)
	f(read(0, noon-2*hour-minute, 2), true, 7, false, true)
}

// TestRangeOldest asks for a point that no windows have all events of: those that began
// earliest are taken, if they fit.
func TestRangeOldest(t *testing.T) {
	v := viewsOf(t, definition.Definition{Windows: []definition.Window{window("1m", "", day), window("1h", "", day)}})
	since := []int64{0, noon - 50*minute, noon - 55*minute} // by the number of the view
	read := func(from, to int64, step string) *view.Range {
		sources := v.Sources(view.NoDimension, noon, func(b book.View) (int64, bool) { return since[b.ID], true })
		r, err := view.NewRange(sources, calendar.Span{From: from, To: to}, calendar.Grid{Width: window(step, "", 0).Every})
		if err != nil {
			t.Fatal(err)
		}
		for at := since[2]; at < noon; at += minute { // one event in each minute
			if at >= since[1] {
				r.Count(1, at, 1)
			}
			r.Count(2, at/hour*hour, 1)
		}
		return r
	}
	f := func(r *view.Range, want int64, complete bool) {
		t.Helper()
		sum := r.Sum()
		if n, err := sum.Value(); n != want || err != nil || sum.Complete != complete {
			t.Errorf("%d, complete %v, %v; want %d, %v", n, sum.Complete, err, want, complete)
		}
	}
	f(read(noon-hour, noon, "1h"), 55, false)
	f(read(noon-hour, noon, "1m"), 50, false) // the hour fits no minute
	f(read(noon-30*minute, noon, "1h"), 30, true)
}
