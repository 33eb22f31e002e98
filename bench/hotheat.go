package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

const heatAbout = "Memory that it takes to know which counters are hot: growth of the live heap by one `Add` to each of 10 million counters, through a DB " +
	"over a store that keeps nothing, so that all that stays is what the DB itself knows of counters."

const liveMiB = "MiB of live heap"

func heatMemory(s *session) error {
	n := pick(s, 10_000_000, 100_000)
	err := s.alternate(func() error {
		db := quipu.New(forgetful{}, quipu.Options{})
		before := liveHeap()
		for i := range n {
			// A string of its own for each: what is known of a counter keeps its key.
			if _, err := db.Add(s.ctx, fmt.Sprintf(keyFormat, i), 1); err != nil {
				return errors.Join(err, db.Close())
			}
		}
		s.record("quipu", liveMiB, (liveHeap()-before)/mib)
		return db.Close()
	})
	if err != nil {
		return err
	}
	s.note("%s counters.", number(float64(n)))
	s.atMost(liveMiB, s.median("quipu", liveMiB), 16)
	return nil
}

// liveHeap returns the bytes of the heap that are in use.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // what pools had goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// A forgetful store acknowledges everything and keeps nothing. It knows layouts, so
// that a DB minds which counters are hot.
type forgetful struct{}

func (forgetful) Apply(_ context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		replies[i] = store.Reply{Durability: store.Synced, Results: replies[i].Results[:0]}
		for range batches[i].Deltas {
			replies[i].Results = append(replies[i].Results, store.Result{Outcome: store.Applied})
		}
	}
	return nil
}

func (forgetful) Read(_ context.Context, _ []store.Cell, values []store.Value) error {
	clear(values)
	return nil
}

func (forgetful) Scan(context.Context, store.Range, int) ([]store.Entry, error) { return nil, nil }

func (forgetful) ReadParts(context.Context, []store.PartCell, []store.Content) error { return nil }

func (forgetful) ScanParts(context.Context, store.Rows, int) ([]store.PartEntry, error) {
	return nil, nil
}

func (forgetful) Lookup(context.Context, store.Cell, string) (store.Fate, error) {
	return store.Fate{}, nil
}

func (forgetful) Traits() store.Traits {
	return store.Traits{Name: "forgetful", Partitions: 1, Durability: store.Synced, Limits: store.Limits{}.WithDefaults(), Layouts: true}
}

func (forgetful) Close() error { return nil }
