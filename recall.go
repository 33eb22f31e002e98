package quipu

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

const (
	// recallStripes is how many locks share what is recalled.
	recallStripes = 16
	// recallWait is how long a store is waited for if there is something to say
	// without it.
	recallWait = time.Second
	// sourceRecalled is the Source of what was read earlier, because the store
	// can't be reached.
	sourceRecalled = "recalled"
)

// A recall remembers what was read last of some counters, for when the store
// can't be reached.
type recall struct {
	seed    maphash.Seed
	max     int // in each stripe
	stripes [recallStripes]recallStripe
}

type recallStripe struct {
	mu    sync.Mutex
	cells map[store.Cell]recalled
}

// A recalled is what a counter was.
type recalled struct {
	value store.Value
	asOf  time.Time
}

// newRecall returns a memory of up to n counters, nil for none.
func newRecall(n int) *recall {
	if n <= 0 {
		return nil
	}
	r := &recall{seed: maphash.MakeSeed(), max: (n + recallStripes - 1) / recallStripes}
	for i := range r.stripes {
		r.stripes[i].cells = make(map[store.Cell]recalled)
	}
	return r
}

func (r *recall) stripe(c store.Cell) *recallStripe {
	return &r.stripes[maphash.Comparable(r.seed, c)%recallStripes]
}

// keep remembers what a counter was. If there is no room, another is forgotten,
// whichever comes first: the map begins anywhere.
func (r *recall) keep(c store.Cell, v store.Value, asOf time.Time) {
	s := r.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.cells[c]
	if known && old.asOf.After(asOf) {
		return
	}
	if !known && len(s.cells) >= r.max {
		for other := range s.cells {
			delete(s.cells, other)
			break
		}
	}
	s.cells[c] = recalled{v, asOf}
}

// get returns what a counter was, if that is not older than some age.
func (r *recall) get(c store.Cell, now time.Time, age time.Duration) (recalled, bool) {
	s := r.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.cells[c]
	if d := v.value.DeadlineMS; d != 0 && d <= now.UnixMilli() {
		v.value = store.Value{} // it would be gone by now
	}
	return v, ok && age > 0 && now.Sub(v.asOf) <= age
}

// unreachable reports whether an error of a read means that the store could not
// be asked.
func unreachable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// read reads cells of the view, and returns as of when they are what they are.
// If the store can't be reached, that may be earlier: as much as the caller's
// staleness allows, or each counter's policy. Then every asOf is in times.
func (db *DB) read(ctx context.Context, cells []store.Cell, values []store.Value, staleness time.Duration) (asOf time.Time, times []time.Time, err error) {
	asOf = time.Now()
	if db.recall == nil {
		return asOf, nil, db.store.Read(ctx, cells, values)
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if db.allRecalled(cells, asOf, staleness, values, nil) {
		wait, cancel = context.WithTimeout(ctx, recallWait)
	}
	err = db.store.Read(wait, cells, values)
	cancel()
	if err == nil {
		for i := range cells {
			db.recall.keep(cells[i], values[i], asOf)
		}
		return asOf, nil, nil
	}
	times = make([]time.Time, len(cells))
	if ctx.Err() == context.Canceled || !unreachable(err) || !db.allRecalled(cells, time.Now(), staleness, values, times) {
		return asOf, nil, err
	}
	db.recalls.Add(uint64(len(cells)))
	return asOf, times, nil
}

// allRecalled fills values, and times if it is not nil, with what is recalled,
// if all may be.
func (db *DB) allRecalled(cells []store.Cell, now time.Time, staleness time.Duration, values []store.Value, times []time.Time) bool {
	for i := range cells {
		age := staleness
		if age == byPolicy {
			age = db.staleOf(cells[i].Key)
		}
		v, ok := db.recall.get(cells[i], now, age)
		if !ok {
			return false
		}
		values[i] = v.value
		if times != nil {
			times[i] = v.asOf
		}
	}
	return len(cells) > 0
}

// recalledCount is the count of a value that was read earlier.
func recalledCount(key string, v store.Value, asOf time.Time) Count {
	return Count{
		Key: key, Value: v.N, Lower: v.N, Upper: v.N, Bounded: true, Complete: true, Exists: v.Exists,
		AsOf: asOf, Staleness: time.Since(asOf), Source: sourceRecalled, Shards: 1, Version: v.Version,
	}
}
