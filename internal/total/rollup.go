package total

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/store"
)

const (
	// rollupsMax is how many totals are refreshed. Those beyond it are read when
	// they are asked for.
	rollupsMax = 10_000

	// idleLeast is how long a total is refreshed at least without being asked for,
	// and idleIntervals how many intervals.
	idleLeast     = 5 * time.Second
	idleIntervals = 3

	// rollLeast is how long the refreshing rests at least, and rollMost at most: an
	// interval may have been made shorter.
	rollLeast = 5 * time.Millisecond
	rollMost  = time.Second

	// rollCells is how many totals are read by one call.
	rollCells = 1_000
)

// rollups are the totals that are refreshed while they are asked for. One
// goroutine sees to it, while there are any.
type rollups struct {
	mu      sync.Mutex // guards the two below
	rolled  map[store.Cell]schedule
	running bool

	refreshed, refused, claimed, taken atomic.Uint64
	ageRatio                           atomic.Int64 // the age of the oldest total over its interval, in thousandths
}

// A schedule is how a total is refreshed.
type schedule struct {
	every time.Duration
	own   bool // with the versions of its parts, for what is written here
}

// roll has a total refreshed, as its policy says, and reports whether it was
// already.
func (ts *Totals) roll(c store.Cell, how schedule, now time.Time) bool {
	s := ts.memory.stripe(c)
	s.mu.Lock()
	e := ts.memory.entry(s, c)
	e.used = now
	was := e.schedule
	e.schedule = how
	s.mu.Unlock()
	if was == how {
		return true
	}
	r := &ts.memory.rollups
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rolled == nil {
		r.rolled = make(map[store.Cell]schedule)
	}
	if was == (schedule{}) && len(r.rolled) >= rollupsMax || ts.ctx.Err() != nil {
		r.refused.Add(1)
		ts.memory.stopRolling(c)
		return false
	}
	r.rolled[c] = how
	if !r.running {
		r.running = true
		ts.background.Go(ts.keepRolling)
	}
	return false
}

// stopRolling has a total not be refreshed.
func (t *memory) stopRolling(c store.Cell) {
	s := t.stripe(c)
	s.mu.Lock()
	if e := s.cells[c]; e != nil {
		e.schedule, e.duty = schedule{}, nil
	}
	s.mu.Unlock()
}

// keepRolling refreshes totals until nobody asks for any. It waits for none: one
// that takes long would make all others late.
func (ts *Totals) keepRolling() {
	r := &ts.memory.rollups
	for {
		due, next := ts.due(time.Now())
		if next == 0 {
			r.mu.Lock()
			if len(r.rolled) == 0 {
				r.running = false
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
		}
		for g, cells := range due {
			ts.background.Go(func() { ts.refreshGroup(g.joint, cells) })
		}
		rest := time.NewTimer(min(max(next, rollLeast), rollMost))
		select {
		case <-rest.C:
		case <-ts.ctx.Done():
			rest.Stop()
			return
		}
	}
}

// A group is totals that are refreshed by one call. All that could be read the last
// time are one group. One that could not is apart, with those of its partition, so
// that it keeps no other from being refreshed. When it was read again, by whomever,
// it is one of all.
type group struct {
	joint     bool
	apart     bool
	partition int // if it is apart
}

// due returns the totals that must be refreshed, or looked at if other servers
// keep them too, and when to look again. It forgets those that nobody asks for.
func (ts *Totals) due(now time.Time) (due map[group][]store.Cell, next time.Duration) {
	t := ts.memory
	t.rollups.mu.Lock()
	defer t.rollups.mu.Unlock()
	due = make(map[group][]store.Cell)
	oldest := 0.0
	for c, how := range t.rollups.rolled {
		stripe := t.stripe(c)
		stripe.mu.Lock()
		e := stripe.cells[c]
		if e == nil || now.Sub(e.used) > max(idleLeast, idleIntervals*how.every) {
			delete(t.rollups.rolled, c)
			if e != nil {
				e.schedule, e.duty = schedule{}, nil
			}
			stripe.mu.Unlock()
			continue
		}
		age, wait := time.Duration(0), how.every // Nothing is known at first: a reader is at it.
		if e.got != 0 {
			age = now.Sub(e.asked.Time)
		}
		oldest = max(oldest, float64(age)/float64(how.every))
		joint := ts.isJoint(how, e.value.Layout)
		if joint {
			if wait = how.every / rollup.Shares; e.duty == nil {
				e.duty = &rollup.Duty{}
			}
			age = now.Sub(e.duty.Looked())
		}
		switch {
		case e.refreshing || !joint && e.reading != nil && !e.reading.isLate(now):
			age = 0 // It is being read.
		case age >= wait:
			g := group{joint: joint, apart: e.apart}
			if e.apart {
				g.partition = store.PartitionOf(c, ts.traits.Partitions)
			}
			due[g] = append(due[g], c)
			e.refreshing = true
			age = 0
		}
		stripe.mu.Unlock()
		if left := wait - age; next == 0 || left < next {
			next = left
		}
	}
	t.rollups.ageRatio.Store(int64(oldest * 1000))
	return due, next
}

// refreshGroup refreshes the totals of a group, some at a time.
func (ts *Totals) refreshGroup(joint bool, cells []store.Cell) {
	for len(cells) > 0 && ts.ctx.Err() == nil {
		some := cells[:min(len(cells), rollCells)]
		cells = cells[len(some):]
		ctx, cancel := context.WithTimeout(store.Unheard(ts.ctx), recallWait)
		if joint {
			ts.refreshJoint(ctx, some)
		} else {
			ts.refresh(ctx, some)
		}
		cancel()
		ts.memory.each(some, func(e *total) { e.refreshing = false })
	}
}

// each calls f for the totals that there are of some counters.
func (t *memory) each(cells []store.Cell, f func(e *total)) {
	for _, c := range cells {
		s := t.stripe(c)
		s.mu.Lock()
		if e := s.cells[c]; e != nil {
			f(e)
		}
		s.mu.Unlock()
	}
}

// refresh reads totals, keeps and returns them. What can't be read stays as it is:
// its readers ask themselves when it is too old.
func (ts *Totals) refresh(ctx context.Context, cells []store.Cell) []snapshot {
	if len(cells) == 0 {
		return nil
	}
	snapshots, err := ts.collect(ctx, cells)
	if err != nil {
		ts.failed(cells)
		return nil
	}
	for i := range cells {
		ts.memory.keep(cells[i], snapshots[i])
	}
	ts.memory.rollups.refreshed.Add(uint64(len(cells)))
	return snapshots
}

// failed notes that totals could not be refreshed together.
func (ts *Totals) failed(cells []store.Cell) {
	ts.memory.refreshFailures.Add(uint64(len(cells)))
	ts.memory.each(cells, func(e *total) { e.apart = true })
}

// meters calls f for each meter of the totals.
func (t *memory) meters(f func(name, help string, value float64)) {
	t.rollups.mu.Lock()
	active := len(t.rollups.rolled)
	t.rollups.mu.Unlock()
	f("quipu_reads_recalled_total", "Counters that were served as last read, because the store could not be reached.", float64(t.recalled.Load()))
	f("quipu_reads_rollup_total", "Counters that were served from totals kept here.", float64(t.cached.Load()))
	f("quipu_reads_coalesced_total", "Counters whose readers waited for a call that another reader had made.", float64(t.coalesced.Load()))
	f("quipu_reads_fallback_total", "Counters that were asked of the store although a total is kept for their readers, because it was too old.", float64(t.fallbacks.Load()))
	f("quipu_reads_partial_total", "Counters that were served without some of their shards.", float64(t.partial.Load()))
	f("quipu_rollups", "Totals that are kept fresh for readers.", float64(active))
	f("quipu_rollups_refreshed_total", "Totals read again to keep them fresh.", float64(t.rollups.refreshed.Load()))
	f("quipu_rollups_claimed_total", "Totals that were summed here for all servers.", float64(t.rollups.claimed.Load()))
	f("quipu_rollups_taken_total", "Totals that were taken from another server.", float64(t.rollups.taken.Load()))
	f("quipu_rollups_failed_total", "Totals that could not be read again.", float64(t.refreshFailures.Load()))
	f("quipu_rollups_refused_total", "Totals that were not kept fresh because there are too many.", float64(t.rollups.refused.Load()))
	f("quipu_rollup_age_ratio", "Age of the oldest total that is kept fresh, over its interval.", float64(t.rollups.ageRatio.Load())/1000)
}
