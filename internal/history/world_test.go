package history_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/history"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
	day    = 24 * hour

	partitions = 3
	shardsMax  = 2
)

// noon is when the tests begin.
var noon = time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC).UnixMilli()

// An event is what the oracle remembers: what was counted, when it happened, and when it
// was recorded. One that assigns is of no view.
type event struct {
	key     string
	n       int64
	at, ms  int64
	dims    []call.Dimension
	assigns bool
	line    *ledger.Line // that was written down
	counted map[uint16]bool
}

// A world is a store with definitions, and all that was counted in it.
type world struct {
	t      tester
	now    int64
	store  *memstore.Store
	books  *books.Books
	events []event
	totals map[string]int64
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newWorld(t tester) *world {
	w := &world{t: t, now: noon, totals: map[string]int64{}}
	w.store = memstore.New(memstore.Options{Partitions: partitions, Now: func() time.Time { return time.UnixMilli(w.now) }})
	w.books = books.New(w.store, false)
	return w
}

func (w *world) ctx() context.Context { return context.Background() }

func (w *world) define(definitions ...definition.Definition) {
	w.t.Helper()
	if _, err := w.books.Publish(w.ctx(), "ns", books.Proposal{Definitions: definitions}); err != nil {
		w.t.Fatal(err)
	}
}

// summed is a store that sums the shards of counters, as one does that knows layouts.
type summed struct{ *memstore.Store }

func (s summed) Collect(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error {
	for i, c := range cells {
		all, each := []store.Cell{}, make([]store.Value, shardsMax+1)
		for shard := range shardsMax + 1 {
			all = append(all, store.ShardCell(c, shard))
		}
		if err := s.Store.Read(ctx, all, each); err != nil {
			return err
		}
		values[i], versions[i] = store.Value{}, nil
		for _, v := range each {
			values[i].N, values[i].Exists = values[i].N+v.N, values[i].Exists || v.Exists
			versions[i] = append(versions[i], v.Version)
		}
	}
	return nil
}

func (w *world) reader() *history.Reader {
	return &history.Reader{Store: summed{w.store}, Known: w.books.Known("ns"), Now: w.now}
}

func window(every, place string, keep int64) definition.Window {
	return definition.Window{Every: width(every), Zone: place, Keep: definition.Keep(time.Duration(keep) * time.Millisecond)}
}

func width(text string) definition.Width {
	w, err := definition.ParseWidth(text)
	if err != nil {
		panic(err)
	}
	return w
}

// apply applies one event to a shard of a counter.
func (w *world) apply(key string, shard int, d store.Delta) store.Result {
	w.t.Helper()
	home := store.Cell{Namespace: "ns", Key: key}
	d.Cell = store.ShardCell(home, shard)
	if shard > 0 {
		width := store.Rider{Part: store.PartFields{Kind: store.PartWidth}.Part(), Op: store.OpMax, N: int64(shard)}
		w.send(store.Delta{Cell: home, Op: store.OpAdd, Event: &store.Event{Plan: w.views(key).Touch.Plan, Riders: []store.Rider{width}}})
	}
	return w.send(d)
}

func (w *world) send(d store.Delta) store.Result {
	w.t.Helper()
	d.Want = true
	b := store.Batch{Partition: store.PartitionOf(d.Cell, partitions), Deltas: []store.Delta{d}, Books: w.books.Known("ns").Fence}
	var r [1]store.Reply
	if err := w.store.Apply(w.ctx(), []store.Batch{b}, r[:]); err != nil || r[0].Err != nil {
		w.t.Fatalf("%v, %v", err, r[0].Err)
	}
	if r[0].Results[0].Outcome != store.Applied {
		w.t.Fatalf("%+v", r[0].Results[0])
	}
	return r[0].Results[0]
}

func (w *world) views(key string) *view.Views { return w.books.Known("ns").Of(key).Views }

// riders returns those that write a line down, if one is to be.
func (w *world) riders(key string, l ledger.Line) []store.Rider {
	at, ok := w.views(key).Line(w.now, l.Kind != ledger.Add)
	if !ok {
		if l.Kind != ledger.Adjust {
			return nil
		}
		at = store.PartFields{Kind: store.PartEntries, Epoch: store.EpochForever}
	}
	b, err := l.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return []store.Rider{{Part: at.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: b}}
}

// add counts an event in a shard.
func (w *world) add(key string, shard int, l ledger.Line, dims ...call.Dimension) {
	w.t.Helper()
	at := l.AtMS
	if at == 0 {
		at = w.now
	}
	l.Dims = ledger.Sorted(dims)
	v := w.views(key)
	names, err := v.Names(nil, dims)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := v.Plan(at, w.now, names)
	if err != nil {
		w.t.Fatal(err)
	}
	riders := w.riders(key, l)
	w.apply(key, shard, store.Delta{Op: store.OpAdd, N: l.Amount, Event: &store.Event{Plan: plan.Event.Plan, Riders: riders, Bytes: w.asks(key, l.Amount, dims)}})
	e := event{key: key, n: l.Amount, at: at, ms: w.now, dims: dims, counted: map[uint16]bool{}}
	if len(riders) > 0 {
		e.line = &l
	}
	for _, s := range v.All() {
		e.counted[s.View.ID] = true
	}
	w.events = append(w.events, e)
	w.totals[key] += l.Amount
}

// asks returns what an add asks of the top lists of its counter.
func (w *world) asks(key string, n int64, dims []call.Dimension) []byte {
	tops := w.views(key).Tops()
	if n < 1 || len(tops) == 0 {
		return nil
	}
	asks := make([][]byte, 1, 1+len(tops)) // of users there is nothing
	for _, t := range tops {
		var ask []byte
		item := key
		if t.By != definition.ByKey {
			item = ""
			if i := slices.IndexFunc(dims, func(d call.Dimension) bool { return d.Name == t.By }); i >= 0 {
				item = dims[i].Value
			}
		}
		if item != "" {
			var err error
			if ask, err = sketch.AppendTopRequest(nil, t.Items(), []sketch.Amount{{Item: item, N: n}}); err != nil {
				w.t.Fatal(err)
			}
		}
		asks = append(asks, ask)
	}
	return store.AppendAsks(nil, asks...)
}

// set assigns a value to a counter that was never split.
func (w *world) set(key string, l ledger.Line) {
	w.t.Helper()
	riders := w.riders(key, l)
	r := w.apply(key, 0, store.Delta{Op: store.OpSet, N: l.Amount, Event: &store.Event{Plan: w.views(key).Assign.Plan, Riders: riders}})
	e := event{key: key, n: r.After - r.Before, at: w.now, ms: w.now, assigns: true}
	if len(riders) > 0 {
		e.line = &l
	}
	w.events = append(w.events, e)
	w.totals[key] += e.n
}

// beside adds to a counter as a store does that can't tell its views: outside of all that it
// has by its book.
func (w *world) beside(key string, n int64) {
	w.t.Helper()
	home := store.Cell{Namespace: "ns", Key: key}
	book := []store.Content{{}}
	if err := w.store.ReadParts(w.ctx(), []store.PartCell{{Cell: home, Part: store.PartFields{Kind: store.PartBook}.Part()}}, book); err != nil {
		w.t.Fatal(err)
	}
	d := store.Delta{Cell: home, Op: store.OpAdd, N: n}
	if book[0].Exists {
		part := store.PartFields{Kind: store.PartOutside, Position: book[0].N}.Part()
		d.Event = &store.Event{Riders: []store.Rider{{Part: part, Op: store.OpAdd, Amount: store.AmountApplied}}}
	}
	w.send(d)
	w.events = append(w.events, event{key: key, n: n, at: w.now, ms: w.now, assigns: true})
	w.totals[key] += n
}

// sum adds up the events between two times that match.
func (w *world) sum(from, to time.Time, match func(*event) bool) (sum int64) {
	for i := range w.events {
		if e := &w.events[i]; !e.assigns && e.at >= from.UnixMilli() && e.at < to.UnixMilli() && match(e) {
			sum += e.n
		}
	}
	return sum
}

func of(key string) func(*event) bool { return func(e *event) bool { return e.key == key } }

// drawHistory lets some time pass, in which a few counters are written to: by late events,
// to several shards, with dimensions.
func (w *world) drawHistory(t *rapid.T, steps int) {
	for range rapid.IntRange(1, steps).Draw(t, "steps") {
		w.now += rapid.SampledFrom([]int64{0, 1, 1000, minute, hour, day}).Draw(t, "passed") * rapid.Int64Range(0, 3).Draw(t, "times")
		key := fmt.Sprint("k", rapid.IntRange(1, 3).Draw(t, "key"))
		if rapid.IntRange(0, 9).Draw(t, "set") == 0 {
			w.set(key, ledger.Line{Kind: ledger.Set, Amount: rapid.Int64Range(-5, 50).Draw(t, "value")})
			continue
		}
		l := ledger.Line{Kind: ledger.Add, Amount: rapid.Int64Range(-3, 9).Draw(t, "n")}
		if late := rapid.SampledFrom([]int64{0, 0, 0, minute, hour, day}).Draw(t, "late"); late != 0 {
			l.AtMS = w.now - late*rapid.Int64Range(-1, 9).Draw(t, "by")
			l.AtMS = min(l.AtMS, w.now+day)
		}
		var dims []call.Dimension
		if c := rapid.SampledFrom([]string{"", "DE", "PE", view.Other}).Draw(t, "country"); c != "" && c != view.Other {
			dims = append(dims, call.Dimension{Name: "country", Value: c})
		}
		w.add(key, rapid.IntRange(0, shardsMax).Draw(t, "shard"), l, dims...)
	}
}

func contains(dims []call.Dimension, name, value string) bool {
	return slices.Contains(dims, call.Dimension{Name: name, Value: value})
}
