package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// The parts of a counter that has views. All that is added to it is added to the first
// three.
var (
	viewHour  = store.PartFields{Kind: store.PartWindow, View: 1, Epoch: 7, Position: 3_600_000}.Part()
	viewDay   = store.PartFields{Kind: store.PartWindow, View: 2, Epoch: store.EpochForever}.Part()
	viewDE    = store.PartFields{Kind: store.PartDim, View: 3, Name: "DE"}.Part()
	viewBase  = store.PartFields{Kind: store.PartOutside, View: 1}.Part()
	viewBook  = store.PartFields{Kind: store.PartBook}.Part()
	viewLines = store.PartFields{Kind: store.PartEntries, View: 4, Epoch: store.EpochForever}.Part()

	viewParts = []store.Part{viewHour, viewDay, viewDE}
)

// planOf returns a plan as definitions make them: what the counter was goes to what is
// outside of its views, once, and what an event adds goes to some parts.
func planOf(book int64, parts ...store.Part) *store.Plan {
	riders := []store.Rider{
		{Part: viewBase, Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: 1}},
		{Part: viewBook, Op: store.OpMax, N: book},
	}
	for _, p := range parts {
		riders = append(riders, store.Rider{Part: p, Op: store.OpAdd, Amount: store.AmountApplied})
	}
	plan, err := store.NewPlan(riders...)
	if err != nil {
		panic(err)
	}
	return plan
}

// planned makes a delta an event of a plan, with some riders of its own.
func planned(d store.Delta, p *store.Plan, riders ...store.Rider) store.Delta {
	d.Event = &store.Event{Plan: p, Riders: riders}
	return d
}

func line(text string) store.Rider {
	return store.Rider{Part: viewLines, Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte(text)}
}

// contents reads parts of some cells at one moment, cell by cell.
func contents(s store.Store, cells []store.Cell, parts ...store.Part) ([]store.Content, error) {
	var ids []store.PartCell
	for _, c := range cells {
		for _, p := range parts {
			ids = append(ids, store.PartCell{Cell: c, Part: p})
		}
	}
	got := make([]store.Content, len(ids))
	return got, s.ReadParts(bg, ids, got)
}

// sameViews checks that what was added to counters is in all of their views, and
// returns it.
func sameViews(s store.Store, cells []store.Cell) ([]int64, error) {
	got, err := contents(s, cells, viewParts...)
	if err != nil {
		return nil, err
	}
	var sums []int64
	for i := range cells {
		views := got[i*len(viewParts):][:len(viewParts)]
		for _, v := range views {
			if v != views[0] {
				return nil, fmt.Errorf("the views of %q are %+v", cells[i].Key, views)
			}
		}
		sums = append(sums, views[0].N)
	}
	return sums, nil
}

// view adds to counters that have views.
func (w *world) view(rng *rand.Rand) error {
	c, n := cell(fmt.Sprint("view/", rng.IntN(3))), int64(1+rng.IntN(9))
	d := planned(add(c, n), w.plan)
	switch rng.IntN(8) {
	case 0:
		d.Event.Riders = []store.Rider{line("some")}
	case 1:
		d.Event.Is = store.Met{Kind: store.MetNot, N: -1}
	}
	b := batch(d)
	if rng.IntN(4) == 0 {
		b = batch(want(d), add(cell("beside"), 0))
	}
	_, err := w.grow(rng, func() *growing { return w.growing(c) }, n, b)
	return err
}

// viewed returns the counters that have views.
func (w *world) viewed() (cells []store.Cell) {
	w.note(func() {
		for i := range 3 {
			if c := cell(fmt.Sprint("view/", i)); w.grows[c] != nil {
				cells = append(cells, c)
			}
		}
	})
	return cells
}

// checkViews checks that nothing is in a total that is not in its views, when nobody
// writes; otherwise the total is read later, and may be more.
func (w *world) checkViews(quiet bool) error {
	cells := w.viewed()
	sums, err := sameViews(w.e, cells)
	if err != nil {
		return err
	}
	vs := make([]store.Value, len(cells))
	if err := w.e.Read(bg, cells, vs); err != nil {
		return err
	}
	for i, v := range vs {
		if v.N < sums[i] || quiet && v.N != sums[i] {
			return fmt.Errorf("the total of %q is %d, its views have %d", cells[i].Key, v.N, sums[i])
		}
	}
	return nil
}

// TestUpgrade checks that a store is of the first format until it is given what programs
// of that format can't read, and that it says so before.
func TestUpgrade(t *testing.T) {
	const first, second, third = "format 1\n", "format 2\n", "format 3\n"
	is := func(fs *memDisk, want string) {
		t.Helper()
		if text := string(content(t, fs, dir+"/QUIPU")); text[len("quipu store\n"):][:len(want)] != want {
			t.Errorf("%q is not of %q", text, want)
		}
	}
	plan := planOf(1, viewParts...)
	f := func(b store.Batch, want string) {
		t.Helper()
		fs := newMemDisk()
		e := open(t, fs, engine.Options{})
		do(t, e, add(cell("a"), 1))
		checkpoint(t, e)
		mustClose(t, e)
		is(fs, first)
		e = open(t, fs, engine.Options{})
		if e.Start([]store.Batch{b}, make([]store.Reply, 1), func(error) {}) {
			t.Error("the format was raised by one who can't wait")
		}
		is(fs, first)
		doBatch(t, e, b)
		after := cut(fs)
		is(after, want)
		mustClose(t, e)
		is(fs, want)
		e = open(t, after, engine.Options{})
		holds(t, e, cell("a"), 1)
		audited(t, e)
		mustClose(t, e)
	}
	f(batch(planned(add(cell("b"), 1), plan)), second)
	f(store.Batch{Books: []store.Book{{Namespace: "other", ID: 1}}}, second)
	f(store.Batch{Floors: []store.Floor{{Namespace: "other", Kind: store.PartWindow, View: 1, Epoch: 7}}}, second)
	refused := add(cell("b"), 1)
	refused.Guard = store.Guard{Token: "t", Bound: &store.Bound{High: 9}}
	f(batch(refused), second)
	unique := store.Rider{Part: store.PartFields{Kind: store.PartSketch}.Part(), Op: store.OpMerge}
	sketched := add(cell("b"), 1)
	sketched.Event = &store.Event{Riders: []store.Rider{unique}, Bytes: asked(1)}
	f(batch(sketched), third)
	f(batch(planned(add(cell("b"), 1), planOf(1, viewParts...)), sketched), third)
	leads := store.Delta{Cell: cell("b"), Op: store.OpMerge, Event: &store.Event{Part: unique.Part, Bytes: asked(1)}}
	f(batch(leads), third)

	mem := newMemDisk()
	files, fails := failing(mem, writesTo("QUIPU"))
	e := open(t, files, engine.Options{})
	fails.Store(true)
	_, err := try(e, batch(planned(add(cell("a"), 1), plan)))
	wantKind(t, err, store.KindUnavailable)
	if v := value(t, e, cell("a")); v.Exists {
		t.Errorf("%+v was written", v)
	}
	is(cut(mem), first)
	fails.Store(false)
	do(t, e, planned(add(cell("a"), 1), plan))
	is(cut(mem), second)
	mustClose(t, e)
}

// TestMemoryLimitOfViews counts events of many more counters, in windows of three widths,
// than may be in memory.
func TestMemoryLimitOfViews(t *testing.T) {
	const memory, keys, minutes, size = 16 << 20, 40_000, 8, 1000
	e, err := engine.Open(t.TempDir(), engine.Options{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { mustClose(t, e) }()
	window := func(view uint16, start int64) store.Part {
		return store.PartFields{Kind: store.PartWindow, View: view, Epoch: 3, Position: start}.Part()
	}
	key := func(i int) store.Cell { return cell(fmt.Sprintf("counter:video:%07d", i)) }
	most := 0.0
	for minute := range int64(minutes) {
		event := &store.Event{Plan: planOf(1, window(1, minute), window(2, 0), window(3, 0))}
		for from := 0; from < keys; from += size {
			b := store.Batch{Durability: store.Memory, Books: []store.Book{{Namespace: key(0).Namespace, ID: 1}}}
			for i := range size {
				d := add(key(from+i), 1)
				d.Event = event
				b.Deltas = append(b.Deltas, d)
			}
			doBatch(t, e, b)
			e.Meters(func(name, _ string, v float64) {
				if name == "quipu_memory_cell_bytes" {
					most = max(most, v)
				}
			})
		}
	}
	// A batch is let in as a whole, as in TestMemoryLimit.
	if held := e.HeldBytes(); most > memory+size*1000 || held > 2*memory {
		t.Errorf("cells took up to %.0f bytes, and the table holds %d, of a limit of %d", most, held, memory)
	}
	parts, want := []store.PartCell(nil), []int64(nil)
	for i := 0; i < keys; i += 97 {
		parts = append(parts, store.PartCell{Cell: key(i), Part: window(1, 1)}, store.PartCell{Cell: key(i), Part: window(2, 0)}, store.PartCell{Cell: key(i), Part: window(3, 0)})
		want = append(want, 1, minutes, minutes)
	}
	contents := make([]store.Content, len(parts))
	if err := e.ReadParts(bg, parts, contents); err != nil {
		t.Fatal(err)
	}
	for i, c := range contents {
		if c.N != want[i] {
			t.Fatalf("a window of %s has %d, want %d", parts[i].Cell.Key, c.N, want[i])
		}
	}
	if a := audited(t, e); a.Cells != keys {
		t.Errorf("%d cells, want %d", a.Cells, keys)
	}
}
