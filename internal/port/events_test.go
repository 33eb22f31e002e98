package port_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// define gives the counters v… of a DB windows of an hour, and a country.
func define(t *testing.T, db *quipu.DB, dims ...string) {
	t.Helper()
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	d := definition.Definition{Pattern: "v*", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(48 * time.Hour)}}}
	for _, name := range dims {
		d.Dimensions = append(d.Dimensions, definition.Dimension{By: []string{name}, Windows: []definition.Width{}})
	}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
}

// windows returns what the windows of counter v have.
func windows(t *testing.T, db *quipu.DB) (n int64) {
	t.Helper()
	rows := store.Rows{Namespace: "default", From: "\x81", To: "\x82"}
	found, err := db.Port().Store().ScanParts(t.Context(), rows, store.ScanMax)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		if e.Cell.Key == "v" {
			n += e.Content.N
		}
	}
	return n
}

// TestNumberedEvents has a writer's batches counted in windows, once, whatever becomes of
// the definitions before they are sent again.
func TestNumberedEvents(t *testing.T) {
	s := memstore.New(memstore.Options{})
	db, other := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})
	w, err := db.Port().Enlist(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(db *quipu.DB, prev uint64, facts ...port.Fact) store.Reply {
		t.Helper()
		replies := make([]store.Reply, 1)
		err := db.Port().WriteBatches(t.Context(), []store.Batch{numbered(w, prev, prev+1, "v", "plain")}, replies, facts...)
		if err = errors.Join(err, replies[0].Err); err != nil {
			t.Fatal(err)
		}
		return replies[0]
	}
	define(t, db)
	f := func(r store.Reply, replayed bool, first store.Outcome, want int64) {
		t.Helper()
		if r.Replayed != replayed || r.Results[0].Outcome != first || r.Results[1].Outcome != store.Applied {
			t.Errorf("%+v", r)
		}
		if got := windows(t, db); got != want {
			t.Errorf("windows have %d, want %d", got, want)
		}
	}
	f(send(other, 0), false, store.Applied, 1) // it learns of the book
	f(send(db, 0), true, store.Applied, 1)
	country := []port.Fact{{Dims: []call.Dimension{{Name: "country", Value: "DE"}}}, {}}
	f(send(db, 1, country...), false, store.Barred, 1) // no such dimension
	f(send(db, 1, country...), true, store.Barred, 1)
	define(t, db, "country")
	f(send(other, 2, country...), false, store.Applied, 2)
	define(t, db)
	f(send(other, 2, country...), true, store.Applied, 2) // it was counted, though now it would not be
	f(send(db, 3), false, store.Applied, 3)
}

// TestFacts keeps facts with their deltas, in whichever order those go to the store.
func TestFacts(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{Partitions: 7}), quipu.Options{})
	define(t, db, "key")
	const n = 100
	deltas, facts, results := make([]store.Delta, n), make([]port.Fact, n), make([]store.Result, n)
	for i := range deltas {
		key := fmt.Sprint("v", i%13)
		deltas[i] = store.Delta{Cell: store.Cell{Key: key}, Op: store.OpAdd, N: 1}
		facts[i] = port.Fact{Dims: []call.Dimension{{Name: "key", Value: key}}}
	}
	if err := db.Port().Apply(t.Context(), deltas, results, facts...); err != nil {
		t.Fatal(err)
	}
	found, err := db.Port().Store().ScanParts(t.Context(), store.Rows{Namespace: "default", From: "\x03", To: "\x04"}, store.ScanMax)
	if err != nil || len(found) != 13 {
		t.Fatalf("%d values, %v", len(found), err)
	}
	for _, e := range found {
		if f, _ := e.Part.Fields(); f.Name != e.Cell.Key {
			t.Errorf("%s has %s", e.Cell.Key, f.Name)
		}
	}
}

// TestOutOfReach has the store go away while an event is made anew: what was applied stays
// so, once.
func TestOutOfReach(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memstore.New(memstore.Options{Partitions: 2}), h)
	db := quipu.New(s, quipu.Options{})
	define(t, quipu.New(s, quipu.Options{}))
	h.On(storetest.OnReadParts, storetest.Fail(store.ErrUnavailable)) // The book can't be read.
	if _, err := db.Add(t.Context(), "v", 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	h.On(storetest.OnReadParts)
	if _, err := db.Add(t.Context(), "v", 1); err != nil || windows(t, db) != 1 {
		t.Errorf("%v, %d", err, windows(t, db))
	}
}

// TestHalfInForce has definitions reach one partition and not the other. What the one refuses
// is made anew, and what the other has taken is not sent again.
func TestHalfInForce(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memstore.New(memstore.Options{Partitions: 2}), h)
	db, publisher := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})
	home := store.PartitionOf(store.Cell{Key: "book/default"}, 2)
	h.On(storetest.OnApply, storetest.Cut(1-home, store.ErrUnavailable))
	if _, err := publisher.Define(t.Context(), []definition.Definition{{Pattern: "v*", Ledger: definition.Ledger{Record: definition.All}}}, quipu.DefineOptions{}); err == nil {
		t.Fatal("it is in force")
	}
	h.On(storetest.OnApply)
	var events []quipu.Event
	for i := range 20 {
		events = append(events, quipu.Event{Key: fmt.Sprint("v", i), Delta: 1, WantValue: true})
	}
	rs, err := db.AddBatch(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil || r.Value != 1 {
			t.Errorf("%s: %+v", r.Key, r)
		}
	}
}

// TestStartOutdated has a caller that can't wait start what is outdated: it is told to do it
// the other way, and nothing else.
func TestStartOutdated(t *testing.T) {
	// One that lays out counters starts nothing before it knows which are split.
	s := storetest.Wrap(memstore.New(memstore.Options{}), &storetest.Hooks{Traits: func(t *store.Traits) { t.Layouts = false }})
	db := quipu.New(s, quipu.Options{})
	define(t, db)
	define(t, quipu.New(s, quipu.Options{}), "country")
	deltas, results := []store.Delta{{Cell: store.Cell{Key: "v"}, Op: store.OpAdd, N: 1}}, make([]store.Result, 1)
	if db.Port().Start(deltas, results, func(err error) { t.Errorf("done: %v", err) }) {
		t.Error("started")
	}
	if err := db.Port().Apply(t.Context(), deltas, results); err != nil || windows(t, db) != 1 {
		t.Errorf("%v, %+v", err, results)
	}
	called := false
	if !db.Port().Start(deltas, results, func(err error) { called = err == nil }) || !called || windows(t, db) != 2 {
		t.Error("not started, now that the definitions are known")
	}
}

// TestUndoOfAMoment has the store write an event down a window later than it was made for.
// What takes it back changes the window that it was counted in.
func TestUndoOfAMoment(t *testing.T) {
	var ahead atomic.Int64
	begin := time.Now()
	h := new(storetest.Hooks)
	s := storetest.Wrap(memstore.New(memstore.Options{Now: func() time.Time { return begin.Add(time.Duration(ahead.Load())) }}), h)
	db := quipu.New(s, quipu.Options{})
	every, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	d := definition.Definition{
		Pattern: "v*", Windows: []definition.Window{{Every: every, Keep: definition.Keep(48 * time.Hour)}}, Ledger: definition.Ledger{Record: definition.All},
	}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	h.On(storetest.OnWrite, storetest.Before(func() { ahead.Store(int64(time.Hour)) }))
	if _, err := db.Add(t.Context(), "v", 7, quipu.Token("t")); err != nil {
		t.Fatal(err)
	}
	h.On(storetest.OnWrite)
	if _, err := db.Undo(t.Context(), "v", "t", quipu.Correction{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	got, err := db.Range(t.Context(), "v", quipu.RangeOptions{From: begin.Add(-2 * time.Hour), To: begin.Add(3 * time.Hour), Step: every})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Points {
		if p.Value != 0 {
			t.Errorf("the window from %v has %d", p.From, p.Value)
		}
	}
}

// TestEventMeters counts events that are late for a window, and values beyond the limit of
// a dimension: each once, also if the event is made anew because the definitions changed.
func TestEventMeters(t *testing.T) {
	s := memstore.New(memstore.Options{})
	db, other := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})
	defineWith := func(limit int) {
		t.Helper()
		hour, err := definition.ParseWidth("1h")
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Define(t.Context(), []definition.Definition{{
			Pattern: "v*", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(48 * time.Hour)}},
			Dimensions: []definition.Dimension{{By: []string{"country"}, Limit: limit}, {By: []string{"os"}}},
		}}, quipu.DefineOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(late, others float64) {
		t.Helper()
		db.Port().Meters(func(name, _ string, got float64) {
			want, ours := map[string]float64{"quipu_events_late_total": late, "quipu_dimensions_other_total": others}[name]
			if ours && got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		})
	}
	add := func(country string, ago time.Duration) {
		t.Helper()
		opts := []quipu.WriteOption{quipu.Dim("country", country), quipu.Dim("os", country), quipu.At(time.Now().Add(-ago))}
		if _, err := db.Add(t.Context(), "v", 1, opts...); err != nil {
			t.Fatal(err)
		}
	}
	defineWith(2)
	add("DE", 0)
	add("PE", time.Hour)
	add("", 0) // No value is none beyond the limit.
	expect(0, 0)
	add("FR", 0)
	expect(0, 1)
	add("DE", 100*time.Hour)
	expect(1, 1)
	add("FR", 100*time.Hour)
	expect(2, 2)
	defineWith(1) // This server has not heard of it. What was admitted stays.
	add("IT", 100*time.Hour)
	expect(3, 3)
	add("PE", 0)
	expect(3, 3)
	rs, err := db.AddBatch(t.Context(), []quipu.Event{
		{Key: "v2", Delta: 1, Dims: []quipu.Dimension{{Name: "country", Value: "DE"}}},
		{Key: "v2", Delta: 1, Dims: []quipu.Dimension{{Name: "country", Value: "FR"}}},
		{Key: "v2", Delta: 1, Dims: []quipu.Dimension{{Name: "country", Value: "FR"}}, At: time.Now().Add(-100 * time.Hour)},
		{Key: "w", Delta: 1, At: time.Now().Add(-100 * time.Hour)}, // It has no windows.
	})
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
	expect(4, 5)
}
