package engine_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

var (
	bundleSeed = flag.Uint64("bundle.seed", 1, "first seed of TestBundles")
	bundleRuns = flag.Uint64("bundle.runs", 0, "number of seeds of TestBundles; 0 is some")
)

// TestBundles plays random histories of events with plans, which share parts, and of all
// that may come between them, on an engine and on memstore, which knows no bundles. Both
// tell and hold the same after each step, also after checkpoints, evictions and crashes.
func TestBundles(t *testing.T) {
	runs := *bundleRuns
	if runs == 0 {
		runs = 60
		if *long {
			runs = 3000
		}
	}
	for seed := *bundleSeed; seed < *bundleSeed+runs; seed++ {
		if err := newTwin(t, seed).run(); err != nil {
			t.Fatalf("%v\nagain: go test ./internal/engine -run TestBundles -bundle.seed=%d -bundle.runs=1", err, seed)
		}
	}
}

// A twin is an engine and the reference, to which the same is done.
type twin struct {
	t      *testing.T
	rng    *rand.Rand
	fs     *memDisk
	e      *engine.Engine
	m      *memstore.Store
	plans  []*store.Plan
	next   func() // what the checkpoint under way does next
	finish func() // all that it has to do
	book   int64
	floor  store.Epoch
}

func newTwin(t *testing.T, seed uint64) *twin {
	now := func() time.Time { return time.UnixMilli(1_700_000_000_000) }
	w := &twin{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: newMemDisk(), m: memstore.New(memstore.Options{Now: now}), next: func() {}, finish: func() {}}
	w.open()
	w.plan()
	return w
}

func (w *twin) open() {
	now := func() time.Time { return time.UnixMilli(1_700_000_000_000) }
	w.e = open(w.t, w.fs, engine.Options{CheckpointEvery: time.Hour, Now: now})
}

// plan makes plans under the present book and floor.
func (w *twin) plan() {
	all := []store.Part{viewHour, viewDay, viewDE, viewBase, store.PartFields{Kind: store.PartWindowDim, View: 5, Epoch: 3, Name: "x"}.Part()}
	for epoch := w.floor; epoch < 4; epoch++ {
		all = append(all, store.PartFields{Kind: store.PartWindow, View: 6, Epoch: epoch}.Part())
	}
	w.plans = nil
	for range 3 {
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		w.plans = append(w.plans, planOf(max(w.book, 1), slices.Clone(all[:1+w.rng.IntN(len(all))])...))
	}
}

func (w *twin) run() error {
	defer func() { w.finish() }() // or nobody could close it
	for step := range 80 {
		what, err := w.step()
		if err == nil {
			err = w.same()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", step, what, err)
		}
	}
	w.finish()
	w.finish = func() {}
	audited(w.t, w.e)
	mustClose(w.t, w.e)
	return nil
}

func (w *twin) cell() store.Cell { return cell(fmt.Sprint("c", w.rng.IntN(3))) }

func (w *twin) event() store.Delta {
	n := int64(w.rng.IntN(9)) - 2
	if w.rng.IntN(60) == 0 {
		n = []int64{math.MaxInt64, math.MinInt64, 1 << 61}[w.rng.IntN(3)]
	}
	d := planned(add(w.cell(), n), w.plans[w.rng.IntN(len(w.plans))])
	d.Want = w.rng.IntN(3) == 0
	if w.rng.IntN(6) == 0 {
		d.Guard.Token, d.Guard.Digest = fmt.Sprint("t", w.rng.IntN(4)), 7
	}
	return d
}

// other is an event that can't be bundled, or a delta that is none.
func (w *twin) other() store.Delta {
	part := []store.Part{viewHour, viewDE, viewBase, viewBook}[w.rng.IntN(4)]
	ops := []store.Op{store.OpAdd, store.OpSet, store.OpDelete, store.OpMax, store.OpGet}
	r := store.Rider{Part: part, Op: ops[w.rng.IntN(len(ops))]}
	if r.Op != store.OpDelete && r.Op != store.OpGet {
		r.N = int64(w.rng.IntN(5))
	}
	if w.rng.IntN(3) == 0 {
		r.Is = store.Met{Kind: store.MetNot, N: int64(w.rng.IntN(3))}
	}
	switch d := planned(add(w.cell(), 1), nil, r); w.rng.IntN(6) {
	case 0:
		return set(w.cell(), 5)
	case 1:
		return del(w.cell())
	case 2:
		d.Op, d.N = store.OpSet, 4
		d.Event = &store.Event{Part: part}
		return d
	case 3:
		return planned(add(w.cell(), 2), w.plans[0], line("a line"))
	case 4:
		return planned(set(w.cell(), 9), nil, store.Rider{Part: viewBase, Op: store.OpAdd, Amount: store.AmountApplied})
	default:
		return d
	}
}

// begin begins a checkpoint, which is written and published later.
func (w *twin) begin() {
	write, publish := w.e.StepCheckpoint()
	steps := []func() error{write, write, publish} // as if the first had failed, and had not
	w.next = func() {
		if len(steps) > 0 {
			if err := steps[0](); err != nil {
				w.t.Fatal(err)
			}
			steps = steps[1:]
		}
	}
	w.finish = func() { w.next(); w.next(); w.next() }
}

func (w *twin) step() (what string, err error) {
	switch n := w.rng.IntN(40); {
	case n == 0:
		w.finish()
		w.finish = func() {}
		mustClose(w.t, w.e)
		w.open()
		return "reopen", nil
	case n == 1:
		w.finish()
		w.finish = func() {}
		doBatch(w.t, w.e, store.Batch{Durability: store.Synced}) // what is weaker may be lost
		w.fs = cut(w.fs)
		w.open()
		return "crash", nil
	case n == 2:
		w.finish()
		w.begin()
		return "begin a checkpoint", nil
	case n == 8:
		w.next()
		return "go on with the checkpoint", nil
	case n < 5:
		w.finish()
		checkpoint(w.t, w.e)
		return "checkpoint", nil
	case n == 5:
		w.e.EvictNow()
		return "evict", nil
	case n == 6:
		w.book++
		w.plan()
		return "book", w.apply(store.Batch{})
	case n == 7 && w.floor < 3:
		w.floor++
		before := w.plans
		w.plan()
		if err := w.apply(store.Batch{Floors: []store.Floor{{Namespace: "test", Kind: store.PartWindow, View: 6, Epoch: w.floor}}}); err != nil {
			return "floor", err
		}
		return "old plans", w.late(before)
	default:
		b := store.Batch{Durability: store.Durability(w.rng.IntN(4))}
		for range 1 + w.rng.IntN(4) {
			if w.rng.IntN(4) == 0 {
				b.Deltas = append(b.Deltas, w.other())
			} else {
				b.Deltas = append(b.Deltas, w.event())
			}
		}
		if w.rng.IntN(2) == 0 {
			return "start", w.start(b)
		}
		return "apply", w.apply(b)
	}
}

func (w *twin) under(b store.Batch) store.Batch {
	if w.book > 0 {
		b.Books = []store.Book{{Namespace: "test", ID: w.book}}
	}
	return b
}

// start is apply by one who does not wait: it may not be durable when it is read.
func (w *twin) start(b store.Batch) error {
	b = w.under(b)
	replies, done := make([]store.Reply, 1), make(chan error, 1)
	if !w.e.Start([]store.Batch{b}, replies, func(err error) { done <- err }) {
		return w.apply(b)
	}
	before := w.same()
	if err := w.compare(b, replies[0]); err != nil {
		return err
	}
	// Nothing of it was seen, or else it is durable by now, and all is.
	if err := w.same(); before != nil && err != nil {
		return fmt.Errorf("half of it was seen: %w; %w", before, err)
	}
	w.e.Flush(true)
	return <-done
}

func (w *twin) apply(b store.Batch) error {
	b = w.under(b)
	r, err := try(w.e, b)
	if err != nil {
		return err
	}
	return w.compare(b, r)
}

// late sends events with plans of before a floor rose: some are late.
func (w *twin) late(plans []*store.Plan) error {
	for _, p := range plans {
		b := w.under(batch(planned(add(cell("c0"), 1), p)))
		_, have := try(w.e, b)
		_, want := try(w.m, b)
		if store.KindOf(have) != store.KindOf(want) {
			return fmt.Errorf("%w, want %w", have, want)
		}
	}
	return nil
}

// compare applies a batch to the reference, and compares what is told.
func (w *twin) compare(b store.Batch, got store.Reply) error {
	r, err := try(w.m, b)
	if err != nil {
		return err
	}
	for i, want := range r.Results {
		have := got.Results[i]
		if (have.Version == 0) != (want.Version == 0) {
			return fmt.Errorf("%+v: %+v, want %+v", b.Deltas[i], have, want)
		}
		have.Version, want.Version = 0, 0
		if have != want {
			return fmt.Errorf("%+v, %+v: %+v, want %+v", b.Deltas[i], b.Deltas[i].Event, have, want)
		}
	}
	return nil
}

// same compares all that both hold. Entries stand where the versions are, which differ.
func (w *twin) same() error {
	for _, back := range []bool{false, true} {
		rows := store.Rows{Namespace: "test", Back: back}
		have, err := w.e.ScanParts(bg, rows, store.ScanMax)
		if err != nil {
			return err
		}
		want, err := w.m.ScanParts(bg, rows, store.ScanMax)
		if err != nil {
			return err
		}
		isLine := func(p store.PartEntry) bool { return p.Part.Kind() == store.PartEntries }
		if a, b := len(have), len(want); a != b {
			return fmt.Errorf("%d parts %+v, want %d %+v", a, have, b, want)
		}
		have, want = slices.DeleteFunc(have, isLine), slices.DeleteFunc(want, isLine)
		for i := range have {
			if have[i] != want[i] {
				return fmt.Errorf("part %x of %q is %+v, want part %x of %q, %+v", have[i].Part, have[i].Cell.Key, have[i].Content, want[i].Part, want[i].Cell.Key, want[i].Content)
			}
		}
	}
	cells := []store.Cell{cell("c0"), cell("c1"), cell("c2")}
	have, want := make([]store.Value, 3), make([]store.Value, 3)
	if err := w.e.Read(bg, cells, have); err != nil {
		return err
	}
	if err := w.m.Read(bg, cells, want); err != nil {
		return err
	}
	for i := range cells {
		if have[i].N != want[i].N || have[i].Exists != want[i].Exists {
			return fmt.Errorf("%q is %+v, want %+v", cells[i].Key, have[i], want[i])
		}
	}
	return nil
}
