package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/quipudb/quipu"
)

// openDB opens a DB that gives all keys one durability. Memory 0 is the
// default.
func openDB(dir string, memory int64, d quipu.Durability) (*quipu.DB, error) {
	return quipu.Open(dir, quipu.Options{
		Memory:   memory,
		Policies: []quipu.Policy{{Pattern: "*", Durability: d}},
		Logger:   slog.New(slog.DiscardHandler),
	})
}

// batchEvents is how many events the batches of all figures have.
const batchEvents = 1000

// addBatched adds one to each of n counters, in batches.
func addBatched(ctx context.Context, db *quipu.DB, n int, number func(i int) int) error {
	events := make([]quipu.Event, 0, batchEvents)
	for from := 0; from < n; from += batchEvents {
		k := newKeys(min(batchEvents, n-from), func(i int) int { return number(from + i) })
		events = events[:0]
		for i := range k.len() {
			events = append(events, quipu.Event{Key: k.at(i), Delta: 1})
		}
		if err := addEvents(ctx, db, events); err != nil {
			return err
		}
	}
	return nil
}

// addEvents adds a batch of which none may be refused.
func addEvents(ctx context.Context, db *quipu.DB, events []quipu.Event) error {
	receipts, err := db.AddBatch(ctx, events)
	for i := range receipts {
		if receipts[i].Err != nil {
			return fmt.Errorf("add to %s: %w", receipts[i].Key, receipts[i].Err)
		}
	}
	return err
}

// meter returns the value of one of the DB's meters.
func meter(db *quipu.DB, name string) (value float64) {
	db.Port().Meters(func(n, _ string, v float64) {
		if n == name {
			value = v
		}
	})
	return value
}
