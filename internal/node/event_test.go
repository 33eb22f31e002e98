package node_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

var (
	window  = store.PartFields{Kind: store.PartWindow, View: 1, Epoch: 7}.Part()
	outside = store.PartFields{Kind: store.PartOutside, View: 1}.Part()
	book    = store.PartFields{Kind: store.PartBook}.Part()
	entries = store.PartFields{Kind: store.PartEntries, View: 2, Epoch: 7}.Part()
)

// viewed returns the plan of a window that came with book 2, under book 3.
func viewed(t testing.TB) *store.Plan {
	t.Helper()
	return plan(t,
		store.Rider{Part: outside, Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: 2}},
		store.Rider{Part: window, Op: store.OpAdd, Amount: store.AmountApplied},
		store.Rider{Part: book, Op: store.OpMax, N: 3},
	)
}

func plan(t testing.TB, riders ...store.Rider) *store.Plan {
	t.Helper()
	p, err := store.NewPlan(riders...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// with makes a delta an event.
func with(d store.Delta, p *store.Plan, riders ...store.Rider) store.Delta {
	d.Event = &store.Event{Plan: p, Riders: riders}
	return d
}

func line(text string) store.Rider {
	return store.Rider{Part: entries, Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte(text)}
}

func (k *kit) part(p store.Part) store.Content {
	k.Helper()
	got := make([]store.Content, 1)
	if err := k.node.ReadParts(k.ctx, []store.PartCell{{Cell: cell("a"), Part: p}}, got); err != nil {
		k.Fatalf("ReadParts: %v", err)
	}
	return got[0]
}

func (k *kit) partHolds(p store.Part, n int64) {
	k.Helper()
	if got := k.part(p); got.N != n {
		k.Errorf("part %x is %+v, want %d", p, got, n)
	}
}

// lines returns what the ledger of the counter has, and where.
func (k *kit) lines() (texts []string, at []int64) {
	k.Helper()
	f, _ := entries.Fields()
	last := f
	last.Position = math.MaxInt64
	found, err := k.node.ScanParts(k.ctx, store.RowsOf(cell("a"), f, last), store.ScanMax)
	if err != nil {
		k.Fatalf("ScanParts: %v", err)
	}
	for _, e := range found {
		_, text, _ := store.CutStamp(e.Content.Bytes)
		f, _ := e.Part.Fields()
		texts, at = append(texts, text), append(at, f.Position)
	}
	return texts, at
}

// Adds that have one plan are one event, whose lines are in the order of their values.
func TestEventsOfARun(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 100)).results()
		p := viewed(t)
		release := k.blocked()
		a := k.do(want(with(add("a", 1), p, line("one,"))))
		b := k.do(with(add("a", 2), p, line("two,")))
		c := k.do(want(with(add("a", 3), p, line("three,"))))
		down := k.do(want(with(add("a", -7), p, line("down"))))
		plain := k.do(add("a", 5))
		release()
		a.told(store.Result{Outcome: store.Applied, Before: 100, After: 101, Existed: true})
		b.told(store.Result{Outcome: store.Applied})
		c.told(store.Result{Outcome: store.Applied, Before: 103, After: 106, Existed: true})
		down.told(store.Result{Outcome: store.Applied, Before: 106, After: 99, Existed: true})
		plain.told(store.Result{Outcome: store.Applied})
		if ds := k.deltas(len(k.flights()) - 1); len(ds) != 3 || ds[0].N != 6 || ds[1].N != -7 || ds[2].N != 5 {
			t.Errorf("the store was given %+v", ds)
		}
		k.holds("a", 104)
		k.partHolds(outside, 100)
		k.partHolds(window, -1)
		k.partHolds(book, 3)
		texts, at := k.lines()
		if !slices.Equal(texts, []string{"one,two,three,", "down"}) {
			t.Errorf("the ledger has %q", texts)
		}
		// The last of a run has the version that its lines are at.
		if at[0] != int64(c.results()[0].Version) || at[1] != int64(down.results()[0].Version) {
			t.Errorf("entries at %d, versions %d and %d", at, c.results()[0].Version, down.results()[0].Version)
		}
		f, _ := entries.Fields()
		to := f
		for _, c := range []struct{ from, to, n int64 }{{0, at[0], 0}, {0, at[0] + 1, 1}, {at[0], at[1], 1}, {at[0] + 1, at[1] + 1, 1}, {at[0] - 1, math.MaxInt64, 2}} {
			f.Position, to.Position = c.from, c.to
			if found, err := k.node.ScanParts(k.ctx, store.RowsOf(cell("a"), f, to), 9); err != nil || int64(len(found)) != c.n {
				t.Errorf("from %d to %d are %d entries, %v; want %d", c.from, c.to, len(found), err, c.n)
			}
		}
	})
}

// Adds that have one plan ask sketches together what each of them asks.
func TestAsksOfARun(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		p := plan(t, store.Rider{Part: window, Op: store.OpAdd, Amount: store.AmountApplied}, store.Rider{Part: unique, Op: store.OpMerge})
		release := k.blocked()
		var calls []*call
		visit := func(n int64, asks []byte) {
			d := want(with(add("a", n), p))
			d.Event.Bytes = asks
			calls = append(calls, k.do(d))
		}
		var all []string
		visit(1, nil)
		for i := range 20 {
			all = append(all, fmt.Sprint(i), fmt.Sprint(i/2))
			visit(1, asking(all[2*i:]...))
		}
		visit(1, nil)
		large := make([]string, 2730)
		for i := range large {
			large[i] = fmt.Sprintf("large %d", i)
		}
		visit(1, asking(large...)) // too long to be combined
		visit(1, asking("last"))
		visit(-1, asking("down"))
		bad := want(with(add("a", 1), p))
		bad.Event.Bytes = []byte("no request")
		refused := k.do(bad)
		visit(1, asking("after"))
		release()
		for i, c := range calls {
			c.results()
			if i < 24 {
				c.told(store.Result{Outcome: store.Applied, Before: int64(i), After: int64(i) + 1, Existed: i > 0})
			}
		}
		refused.told(store.Result{Outcome: store.Unmet, Refused: 2, Before: 23, After: 23, Existed: true})
		if ds := k.deltas(len(k.flights()) - 1); len(ds) != 6 || ds[0].N != 22 {
			t.Errorf("the store was given %d deltas, %+v", len(ds), ds)
		}
		all = append(append(all, large...), "last", "down", "after")
		if got, want := k.part(unique).Bytes, string(asking(all...)); got != want {
			t.Errorf("the sketch is %.40x, want %.40x", got, want)
		}
		k.partHolds(window, 24)
	})
}

// Adds that ask several things ask each of them together.
func TestSeveralAsksOfARun(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		second := store.PartFields{Kind: store.PartSketch, View: 5}.Part()
		p := plan(t, store.Rider{Part: unique, Op: store.OpMerge, N: 1}, store.Rider{Part: second, Op: store.OpMerge, N: 2})
		release := k.blocked()
		visit := func(asks ...[]byte) *call {
			d := with(add("a", 1), p)
			d.Event.Bytes = store.AppendAsks(nil, asks...)
			return k.do(d)
		}
		calls := []*call{visit(asking("a"), nil), visit(nil, asking("b")), visit(asking("c"), asking("d")), visit(nil, nil), visit(asking("e"), nil)}
		release()
		for _, c := range calls {
			c.results()
		}
		if ds := k.deltas(len(k.flights()) - 1); len(ds) != 1 || ds[0].N != 5 {
			t.Errorf("the store was given %d deltas, %+v", len(ds), ds)
		}
		for part, items := range map[store.Part][]string{unique: {"a", "c", "e"}, second: {"b", "d"}} {
			if got, want := k.part(part).Bytes, string(asking(items...)); got != want {
				t.Errorf("the sketch is %x, want %x", got, want)
			}
		}
	})
}

var unique = store.PartFields{Kind: store.PartSketch, View: 4}.Part()

// asking returns the request to take items into a sketch of uniques.
func asking(items ...string) []byte {
	hashes := make([]uint64, len(items))
	for i, item := range items {
		hashes[i] = sketch.Hash(item)
	}
	return sketch.AppendUniqueRequest(nil, 14, hashes)
}

// What does not do the same with the sum, or is not for the same place, is an event of
// its own.
func TestEventsThatDoNotJoin(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		p, other := viewed(t), viewed(t)
		fixed := plan(t, store.Rider{Part: window, Op: store.OpAdd, N: 1})
		elsewhere := line("x")
		elsewhere.Part = store.PartFields{Kind: store.PartEntries, View: 3, Epoch: 7}.Part()
		sometimes := line("x")
		sometimes.When = store.Met{Kind: store.MetBook, N: 1}
		met := with(add("a", 1), p)
		met.Event.Is = store.Met{Kind: store.MetNot, N: 777}
		release := k.blocked()
		var calls []*call
		for _, d := range []store.Delta{
			with(add("a", 1), p), with(add("a", 1), other), with(add("a", 1), p, line("x")), with(add("a", 1), p, sometimes), with(add("a", 1), p, elsewhere),
			with(add("a", 1), fixed), with(add("a", 1), fixed), with(add("a", 1), nil), add("a", 1), once(with(add("a", 1), p), "t"), met,
		} {
			calls = append(calls, k.do(d))
		}
		release()
		for _, c := range calls {
			c.told(store.Result{Outcome: store.Applied, Before: c.results()[0].Before, After: c.results()[0].After, Existed: c.results()[0].Existed})
		}
		if ds := k.deltas(len(k.flights()) - 1); len(ds) != len(calls) {
			t.Errorf("%d deltas of %d calls: %+v", len(ds), len(calls), ds)
		}
		k.holds("a", int64(len(calls)))
	})
}

// A run whose lines are as many as one entry can hold goes on as another.
func TestLongLines(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		text := strings.Repeat("x", store.PartBytesMax/3)
		release := k.blocked()
		var calls []*call
		for range 7 {
			calls = append(calls, k.do(with(add("a", 1), nil, line(text))))
		}
		release()
		for _, c := range calls {
			c.results()
		}
		texts, _ := k.lines()
		var sizes []int
		for _, text := range texts {
			sizes = append(sizes, len(text)/(store.PartBytesMax/3))
		}
		if !slices.Equal(sizes, []int{3, 3, 1}) {
			t.Errorf("entries of %d lines", sizes)
		}
	})
}

// A run that a part refuses is made again event by event.
func TestRefusedRunOfEvents(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		full := with(add("a", 0), nil, store.Rider{Part: window, Op: store.OpSet, N: math.MaxInt64 - 3})
		k.do(full).results()
		p := viewed(t)
		release := k.blocked()
		a, b, c := k.do(want(with(add("a", 2), p, line("a")))), k.do(want(with(add("a", 5), p, line("b")))), k.do(want(with(add("a", 1), p, line("c"))))
		release()
		a.told(store.Result{Outcome: store.Applied, After: 2, Existed: true})
		b.told(store.Result{Outcome: store.Overflow, Refused: 2})
		c.told(store.Result{Outcome: store.Applied, Before: 2, After: 3, Existed: true})
		k.partHolds(window, math.MaxInt64)
		if texts, _ := k.lines(); !slices.Equal(texts, []string{"a", "c"}) {
			t.Errorf("the ledger has %q", texts)
		}
	})
}

// A caller that has left may do with its event what it likes.
func TestFrozenEvents(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		hold := make(chan struct{})
		k.onFlights(storetest.Nth(0, 1, storetest.Hang(hold, store.KindOther)))
		d := with(add("a", 1), nil, line("mine"), store.Rider{Part: window, Op: store.OpAdd, N: 1, Bound: &store.Bound{High: 5}})
		ctx, cancel := context.WithCancel(k.ctx)
		c := k.begin(ctx, k.batch(d))
		cancel()
		c.fails(store.KindUnknown)
		copy(d.Event.Riders[0].Bytes, "what")
		d.Event.Riders[1].Bound.High = 0
		d.Event.Riders[1].N = 7
		d.Event.Plan = viewed(t)
		close(hold)
		synctest.Wait()
		k.partHolds(window, 1)
		k.partHolds(book, 0)
		if texts, _ := k.lines(); !slices.Equal(texts, []string{"mine"}) {
			t.Errorf("the ledger has %q", texts)
		}
	})
}

// Riders count against what a batch may have.
func TestRidersFillFlights(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		var riders []store.Rider
		for i := range store.EventRidersMax {
			riders = append(riders, store.Rider{Part: window.At(int64(i)), Op: store.OpAdd, N: 1})
		}
		release := k.blocked()
		var calls []*call
		for range store.BatchDeltasMax/(store.EventRidersMax+1) + 1 {
			calls = append(calls, k.do(with(add("a", 1), nil, riders...)))
		}
		release()
		for _, c := range calls {
			c.results()
		}
		if n := len(k.flights()); n != 3 {
			t.Errorf("%d flights, want 3", n)
		}
		if n := k.meter("quipu_node_queue_deltas"); n != 0 {
			t.Errorf("%v deltas wait", n)
		}
	})
}

// What a plan says of its sums is true: adds of one sign, one after the other, do to parts
// what their sum does.
func TestPlanSums(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	parts := []store.Part{window, outside, book, unique}
	sums := 0
	for range 10_000 {
		var riders []store.Rider
		for range 1 + r.IntN(3) {
			if r.IntN(4) == 0 {
				x := store.Rider{Part: unique, Op: store.OpMerge}
				if r.IntN(8) == 0 {
					x.When = store.Met{Kind: store.MetNot, N: 40}
				}
				riders = append(riders, x)
				continue
			}
			x := store.Rider{Part: parts[r.IntN(3)], Op: []store.Op{store.OpAdd, store.OpAdd, store.OpMax, store.OpSet}[r.IntN(4)], Amount: store.Amount(r.IntN(3))}
			if x.Amount == store.AmountN {
				x.N = r.Int64N(4)
			}
			if x.When.Kind = []store.MetKind{store.MetAny, store.MetAny, store.MetBook, store.MetEqual}[r.IntN(4)]; x.When.Kind != store.MetAny {
				x.When.N = r.Int64N(4)
			}
			if r.IntN(8) == 0 {
				x.Is = store.Met{Kind: store.MetNot, N: r.Int64N(4)}
			}
			riders = append(riders, x)
		}
		p := plan(t, riders...)
		if !p.Sums() {
			continue
		}
		sums++
		var after [2][]store.Content
		n := []int64{1 + r.Int64N(5), 1 + r.Int64N(5)}
		asks := func(d store.Delta, items ...string) store.Delta {
			if slices.ContainsFunc(riders, func(x store.Rider) bool { return x.Op == store.OpMerge }) {
				d.Event.Bytes = asking(items...)
			}
			return d
		}
		for i, deltas := range [][]store.Delta{
			{asks(with(add("a", n[0]), p), "eve"), asks(with(add("a", n[1]), p), "bob")},
			{asks(with(add("a", n[0]+n[1]), p), "eve", "bob")},
		} {
			s := memstore.New(memstore.Options{})
			replies, err := send(t.Context(), s, store.Batch{Deltas: append([]store.Delta{add("a", 40)}, deltas...)})
			if err != nil || replies[0].Err != nil {
				t.Fatal(err, replies[0].Err)
			}
			after[i] = make([]store.Content, len(parts))
			var cells []store.PartCell
			for _, p := range parts {
				cells = append(cells, store.PartCell{Cell: cell("a"), Part: p})
			}
			if err := s.ReadParts(t.Context(), cells, after[i]); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(after[0], after[1]) {
			t.Fatalf("riders %+v: by %d %+v, by their sum %+v", riders, n, after[0], after[1])
		}
	}
	if sums < 100 {
		t.Errorf("%d plans sum up", sums)
	}
}

// Floors, and batches that have nothing else, pass.
func TestFloorsPass(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(with(add("a", 1), viewed(t))).results()
		b := store.Batch{Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 8}}}
		if c := k.begin(k.ctx, b); c.err != nil || c.replies[0].Err != nil {
			t.Error(c.err, c.replies[0].Err)
		}
		k.partHolds(window, 0)
		b = k.batch(add("a", 1))
		b.Floors = []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 9}}
		k.begin(k.ctx, b).results()
		if n := len(k.flights()); n != 1 {
			t.Errorf("%d flights, want 1", n)
		}
	})
}
