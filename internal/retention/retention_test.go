package retention_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/retention"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hour       = time.Hour
	day        = 24 * time.Hour
	partitions = 3
)

type world struct {
	*testing.T
	now   time.Time
	store store.Store
	hooks *storetest.Hooks
	books *books.Books
	*retention.Worker
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC), hooks: new(storetest.Hooks)}
	w.store = storetest.Wrap(memstore.New(memstore.Options{Partitions: partitions, Now: func() time.Time { return w.now }}), w.hooks)
	w.books = books.New(w.store, false)
	w.Worker = w.worker(w.books)
	return w
}

func (w *world) worker(b *books.Books) *retention.Worker {
	return retention.New(retention.Options{Store: w.store, Books: b, NowMS: func(store.Cell) int64 { return w.now.UnixMilli() }, Logger: slog.New(slog.DiscardHandler)})
}

// define has hours kept for a time, and a ledger for twice that.
func (w *world) define(keep time.Duration, patterns ...string) {
	w.Helper()
	every, err := definition.ParseWidth("1h")
	if err != nil {
		w.Fatal(err)
	}
	var all []definition.Definition
	for _, p := range patterns {
		all = append(all, definition.Definition{
			Pattern: p, Windows: []definition.Window{{Every: every, Keep: definition.Keep(keep)}},
			Dimensions: []definition.Dimension{{By: []string{"country"}}},
			Ledger:     definition.Ledger{Record: definition.All, Keep: definition.Keep(2 * keep)},
		})
	}
	if _, err := w.books.Publish(w.Context(), "ns", books.Proposal{Definitions: all}); err != nil {
		w.Fatal(err)
	}
}

// event returns an add to a counter of each partition, as it would be counted now.
func (w *world) events() (batches []store.Batch) {
	w.Helper()
	known := w.books.Known("ns")
	for p := range partitions {
		c := store.Cell{Namespace: "ns"}
		for i := 0; c.Key == "" || store.PartitionOf(c, partitions) != p; i++ {
			c.Key = fmt.Sprint("k", i)
		}
		v, now := known.Of(c.Key), w.now.UnixMilli()
		plan, err := v.Plan(now, now, []string{"DE"})
		if err != nil {
			w.Fatal(err)
		}
		line, _ := v.Line(now, false)
		rider := store.Rider{Part: line.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte("line")}
		batches = append(batches, store.Batch{Partition: p, Books: known.Fence, Deltas: []store.Delta{
			{Cell: c, Op: store.OpAdd, N: 1, Event: &store.Event{Plan: plan.Event.Plan, Riders: []store.Rider{rider}}},
		}})
	}
	return batches
}

func (w *world) apply(batches []store.Batch) error {
	w.Helper()
	replies := make([]store.Reply, len(batches))
	if err := w.store.Apply(w.Context(), batches, replies); err != nil {
		w.Fatal(err)
	}
	return errors.Join(replies[0].Err, replies[1].Err, replies[2].Err)
}

// has checks how many parts of each kind there are.
func (w *world) has(want map[store.PartKind]int) {
	w.Helper()
	all, err := w.store.ScanParts(w.Context(), store.Rows{Namespace: "ns"}, store.ScanMax)
	if err != nil {
		w.Fatal(err)
	}
	got := map[store.PartKind]int{}
	for _, p := range all {
		got[p.Part.Kind()]++
	}
	for kind, n := range want {
		if got[kind] != n*partitions {
			w.Errorf("%d parts of kind %#x, want %d", got[kind], kind, n*partitions)
		}
	}
}

func (w *world) sweep() {
	w.Helper()
	if err := w.Sweep(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// What is kept stays, what is not goes after an epoch and a window more, and events that
// were made for it are refused.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	w.sweep()
	w.define(8*day, "k*") // in epochs of 16 hours
	old := w.events()
	if err := w.apply(old); err != nil {
		t.Fatal(err)
	}
	one := map[store.PartKind]int{store.PartWindow: 1, store.PartWindowDim: 1, store.PartEntries: 1, store.PartDim: 1}
	w.sweep()
	w.has(one)
	w.now = w.now.Add(8*day + hour) // It is not kept any more, and still there.
	w.sweep()
	w.has(one)
	if err := w.apply(old); err != nil {
		t.Errorf("an event that was made a while ago: %v", err)
	}
	w.now = w.now.Add(2*16*hour + hour)
	w.sweep()
	w.has(map[store.PartKind]int{store.PartWindow: 0, store.PartWindowDim: 0, store.PartEntries: 2, store.PartDim: 1})
	if err := w.apply(old); !errors.Is(err, store.ErrLate) {
		t.Errorf("an event below the floor: %v", err)
	}
	if err := w.apply(w.events()); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(20 * day)
	w.sweep()
	w.has(map[store.PartKind]int{store.PartWindow: 0, store.PartEntries: 0, store.PartDim: 1})
}

// A floor is raised once, however often it is looked at.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	w.define(8*day, "k*")
	w.sweep()
	f := func(writes int) {
		t.Helper()
		before := w.hooks.Calls(storetest.OnApply)
		w.sweep()
		if n := w.hooks.Calls(storetest.OnApply) - before; n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
	}
	f(0)
	w.now = w.now.Add(time.Minute)
	f(0)
	w.now = w.now.Add(16 * hour)
	f(partitions)
	f(0)
	if err := w.worker(books.New(w.store, false)).Sweep(t.Context()); err != nil { // Another server does the same.
		t.Error(err)
	}
	var floors float64
	w.Meters(func(name, _ string, value float64) {
		if name == "quipu_retention_floors_total" {
			floors = value
		}
	})
	if floors != 2*3*partitions {
		t.Errorf("%v floors were raised", floors)
	}
}

// Windows of a view that is not counted any more go at once; its lines are kept.
func TestRetired(t *testing.T) {
	w := newWorld(t)
	w.define(8*day, "k*", "l*")
	if err := w.apply(w.events()); err != nil {
		t.Fatal(err)
	}
	w.define(8*day, "l*")
	w.sweep()
	w.has(map[store.PartKind]int{store.PartWindow: 0, store.PartWindowDim: 0, store.PartEntries: 1, store.PartDim: 1})
	w.now = w.now.Add(18 * day)
	w.sweep()
	w.has(map[store.PartKind]int{store.PartEntries: 0, store.PartDim: 1})
}

// Sketches go with their windows, and all at once with their view.
func TestSketches(t *testing.T) {
	w := newWorld(t)
	every, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	publish := func(all ...definition.Definition) {
		t.Helper()
		if _, err := w.books.Publish(t.Context(), "ns", books.Proposal{Definitions: all}); err != nil {
			t.Fatal(err)
		}
	}
	listed := definition.Definition{
		Pattern: "k*", Windows: []definition.Window{{Every: every, Keep: definition.Keep(8 * day)}},
		Tops: []definition.Top{{Name: "first", By: definition.ByKey}, {Name: "terms", By: "term"}},
	}
	count := func() {
		t.Helper()
		known := w.books.Known("ns")
		plan, err := known.Of("k").Plan(w.now.UnixMilli(), w.now.UnixMilli(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ask, err := sketch.AppendTopRequest(nil, 100, []sketch.Amount{{Item: "x", N: 1}})
		if err != nil {
			t.Fatal(err)
		}
		var batches []store.Batch
		for p := range partitions {
			c := store.Cell{Namespace: "ns"}
			for i := 0; c.Key == "" || store.PartitionOf(c, partitions) != p; i++ {
				c.Key = fmt.Sprint("k", i)
			}
			d := store.Delta{Cell: c, Op: store.OpAdd, N: 1, Event: &store.Event{Plan: plan.Event.Plan, Bytes: store.AppendAsks(nil, nil, ask, ask)}}
			batches = append(batches, store.Batch{Partition: p, Books: known.Fence, Deltas: []store.Delta{d}})
		}
		if err := w.apply(batches); err != nil {
			t.Fatal(err)
		}
	}
	publish(listed)
	count()
	w.has(map[store.PartKind]int{store.PartWindowSketch: 1, store.PartWindowShared: 1, store.PartSketch: 1, store.PartShared: 1})
	w.now = w.now.Add(12 * day)
	w.sweep()
	w.has(map[store.PartKind]int{store.PartWindowSketch: 0, store.PartWindowShared: 0, store.PartSketch: 1, store.PartShared: 1})
	count()
	w.has(map[store.PartKind]int{store.PartWindowSketch: 1, store.PartWindowShared: 1})
	publish(definition.Definition{Pattern: "k*", Windows: listed.Windows})
	w.sweep()
	w.has(map[store.PartKind]int{store.PartWindowSketch: 0, store.PartWindowShared: 0, store.PartSketch: 1, store.PartShared: 1})
}

// A server that has not heard of a book that keeps more removes nothing.
func TestOutdated(t *testing.T) {
	w := newWorld(t)
	w.define(8*day, "k*")
	if err := w.apply(w.events()); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(12 * day)
	other := books.New(w.store, false)
	if _, err := other.Get(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	w.define(30*day, "k*")
	if err := w.worker(other).Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	w.has(map[store.PartKind]int{store.PartWindow: 1, store.PartEntries: 1})
	w.sweep()
	w.has(map[store.PartKind]int{store.PartWindow: 1, store.PartEntries: 1})
}

// The worker goes on after a store could not be reached.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.define(8*day, "k*")
		if err := w.apply(w.events()); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(30 * day)
		w.hooks.On(storetest.OnScan, storetest.Fail(store.ErrUnavailable))
		w.Start()
		defer w.Close()
		<-time.After(retention.Every + time.Second)
		synctest.Wait()
		w.has(map[store.PartKind]int{store.PartWindow: 1})
		w.hooks.On(storetest.OnScan)
		<-time.After(retention.Every)
		synctest.Wait()
		w.has(map[store.PartKind]int{store.PartWindow: 0, store.PartEntries: 0})
	})
}
