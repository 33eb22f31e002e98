package spread

import (
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

type meters struct {
	splits, folds, undone, rerouted, reasserted atomic.Uint64
}

// Meters calls f for each meter.
func (s *Store) Meters(f func(name, help string, value float64)) {
	shards, most, slowest := 0, 0, time.Duration(0)
	now := s.options.Now()
	s.known.mu.RLock()
	split := len(s.known.counters)
	for _, c := range s.known.counters {
		shards += len(c.cells)
		most = max(most, len(c.cells))
		slowest = max(slowest, c.slowest(now))
	}
	s.known.mu.RUnlock()
	f("quipu_splits_total", "Times that this server gave a counter more shards.", float64(s.meters.splits.Load()))
	f("quipu_folds_total", "Times that this server made a split counter one cell again.", float64(s.meters.folds.Load()))
	f("quipu_splits_undone_total", "Times that this server did so because the shards did not help.", float64(s.meters.undone.Load()))
	f("quipu_split_counters", "Counters that are split, as far as this server knows.", float64(split))
	f("quipu_shards", "Shards of all of them together.", float64(shards))
	f("quipu_shards_most", "Shards of the one that has the most.", float64(most))
	f("quipu_shard_seconds_max", "Time that the slowest write in a hundred to the slowest of all shards took of late.", slowest.Seconds())
	f("quipu_adds_rerouted_total", "Adds that found their shard closed and went to their counter's own cell.", float64(s.meters.rerouted.Load()))
	f("quipu_layouts_reasserted_total", "Layouts that the store had lost, and was told again.", float64(s.meters.reasserted.Load()))
	if m, ok := s.under.(store.Meter); ok {
		m.Meters(f)
	}
}
