package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/store"
)

// ask has a client of a limit use 1 of what comes back in a time.
func (w *world) ask(name, who string, per time.Duration) {
	w.Helper()
	req := limit.Request{Cost: 1, NRules: 1}
	req.Rules[0] = limit.Rule{Tag: 1, Algorithm: limit.Bucket, Rate: 1, PerUS: per.Microseconds(), Burst: 10}
	c := store.LimitCell("ns", name, 0)
	d := store.Delta{Cell: c, Op: store.OpMerge, Event: &store.Event{
		Part:   store.PartFields{Kind: store.PartLimit, Name: who}.Part(),
		Bytes:  req.Append(nil),
		Riders: []store.Rider{{Op: store.OpAdd, N: 1, When: store.Met{Kind: store.MetEqual}}},
	}}
	b := store.Batch{Partition: store.PartitionOf(c, partitions), Deltas: []store.Delta{d}}
	if known := w.books.Known("ns"); known != nil {
		b.Books = known.Fence
	}
	replies := make([]store.Reply, 1)
	if err := w.store.Apply(w.Context(), []store.Batch{b}, replies); err != nil || replies[0].Err != nil || replies[0].Results[0].Outcome != store.Applied {
		w.Fatalf("%v, %+v", err, replies[0])
	}
}

// clients checks how many clients a limit remembers, and that it counts them.
func (w *world) clients(name string, want int64, exists bool) {
	w.Helper()
	c := store.LimitCell("ns", name, 0)
	var value [1]store.Value
	if err := w.store.Read(w.Context(), []store.Cell{c}, value[:]); err != nil {
		w.Fatal(err)
	}
	of := store.PartFields{Kind: store.PartLimit}
	parts, err := w.store.ScanParts(w.Context(), store.RowsUnder("", of, c.Key), store.ScanMax)
	if err != nil || int64(len(parts)) != want || value[0].N != want || value[0].Exists != exists {
		w.Errorf("limit %s has %d clients, %v, and counts %+v; want %d", name, len(parts), err, value[0], want)
	}
}

// What clients of limits have used goes when it is as good as nothing, and limits without
// clients go too; what is used stays.
func TestLimitsAreForgotten(t *testing.T) {
	w := newWorld(t)
	sweep := func() {
		t.Helper()
		if err := w.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	for i := range 2500 { // more than a page
		w.ask("a", fmt.Sprint(i), time.Minute)
	}
	w.ask("b", "eve", hour)
	w.ask("b", "bob", time.Minute)
	sweep()
	w.clients("a", 2500, true)
	w.now = w.now.Add(time.Minute)
	sweep() // somebody may have been told an earlier time
	w.clients("a", 2500, true)
	w.ask("a", "7", time.Minute)
	w.now = w.now.Add(30 * time.Second)
	w.define(30*day, "*") // what is removed is so under the book of its namespace
	sweep()
	w.clients("a", 1, true)
	w.clients("b", 1, true)
	w.now = w.now.Add(hour)
	sweep()
	w.clients("a", 0, false)
	w.clients("b", 0, false)
	lapsed := 0.0
	w.Meters(func(name, _ string, value float64) {
		if name == "quipu_limits_lapsed_total" {
			lapsed = value
		}
	})
	if lapsed != 2502 {
		t.Errorf("%v clients were forgotten, want 2502", lapsed)
	}
}
