// Package total keeps totals of counters for their readers: the last value
// read, its age, and what was written here since. Many readers of one counter
// share a call of the store. Totals that policies ask for are refreshed in the
// background. If several servers need the same total, they share the work.
package total

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// Options are what totals are made of.
type Options struct {
	Store    store.Store   // what is read
	Under    store.Store   // the same without its layouts
	Spread   *spread.Store // Store, if it knows layouts; else nil
	Policies func() *policy.Set
	Left     func(c store.Cell, deadlineMS int64) int64 // how long a counter has before its deadline

	Recall   int  // how many counters are remembered as they were last read
	ReadOnly bool // nothing is written, also not for other servers
	Near     bool // an exact read costs no more than a total that is kept
}

// Totals keep totals. They are safe for concurrent use.
type Totals struct {
	store    store.Store
	under    store.Store
	spread   *spread.Store
	policies func() *policy.Set
	readOnly bool
	near     bool
	traits   store.Traits
	server   uint64 // tells these from others over the same store
	memory   *memory

	ctx        context.Context // of what is done in the background
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// New returns totals of the counters of a store.
func New(o Options) *Totals {
	ts := &Totals{
		store: o.Store, under: o.Under, spread: o.Spread, policies: o.Policies, readOnly: o.ReadOnly, near: o.Near,
		traits: o.Store.Traits(), server: rand.Uint64(), memory: newMemory(o.Recall, o.Left),
	}
	ts.ctx, ts.cancel = context.WithCancel(context.Background())
	return ts
}

// Close ends what is done in the background. Totals are kept no more.
func (ts *Totals) Close() {
	r := &ts.memory.rollups
	r.mu.Lock() // Who begins to refresh totals under it either has, or sees that it is too late.
	ts.cancel()
	r.mu.Unlock()
	ts.background.Wait()
}

// Peek fills values with totals that are kept, as ByPolicy, and reports false if one
// of them is not.
func (ts *Totals) Peek(cells []store.Cell, values []store.Value, rules policy.Rules) bool {
	now := time.Now()
	for i := range cells {
		age, own, _ := terms(rules, cells[i].Key, ByPolicy)
		var ok bool
		if values[i], _, ok = ts.memory.get(cells[i], now, age, own); !ok {
			return false
		}
	}
	ts.memory.cached.Add(uint64(len(cells)))
	return true
}

// Outdo has totals that are kept of counters not be served any more: a reader is told
// something else, which may be more.
func (ts *Totals) Outdo(cells []store.Cell) { ts.memory.outdo(cells) }

// Meters calls f for each meter of the totals.
func (ts *Totals) Meters(f func(name, help string, value float64)) { ts.memory.meters(f) }

// Begin returns the moment at which a write begins, for End; zero if no
// total counts what is written here.
//
// Writes are noted from when the first total with a tail is about to be asked for,
// and ever after. What ended before that is in it, since it was asked for later;
// what ends after that is noted, as one that began at no known moment if need be.
func (ts *Totals) Begin() (m rollup.Moment) {
	if ts.memory.tails.Load() {
		m = ts.memory.now()
	}
	return m
}

// End notes what was changed by a write, before anyone is told.
func (ts *Totals) End(batches []store.Batch, replies []store.Reply, began rollup.Moment) {
	if ts.memory.tails.Load() {
		ts.memory.wrote(batches, replies, began)
	}
}

// Age returns how old a total is that is refreshed, and how often it is.
func (ts *Totals) Age(c store.Cell, now time.Time) (age, every time.Duration, ok bool) {
	t := ts.memory
	t.rollups.mu.Lock()
	how, ok := t.rollups.rolled[c]
	t.rollups.mu.Unlock()
	if !ok {
		return 0, 0, false
	}
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cells[c]
	if e == nil || e.got == 0 {
		return 0, 0, false
	}
	return now.Sub(e.asked.Time), how.every, true
}
