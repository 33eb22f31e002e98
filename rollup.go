package quipu

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
// goroutine does it, while there are any.
type rollups struct {
	mu      sync.Mutex // guards the two below
	rolled  map[store.Cell]rolled
	running bool

	refreshed, refused, claimed, taken atomic.Uint64
	late                               atomic.Int64 // the age of the oldest total over its interval, in thousandths
}

// A rolled is how a total is refreshed.
type rolled struct {
	every time.Duration
	own   bool // with the versions of its parts, for what is written here
}

// roll has a total refreshed, as its policy says, and reports whether it was
// already.
func (db *DB) roll(c store.Cell, how rolled, now time.Time) bool {
	s := db.totals.stripe(c)
	s.mu.Lock()
	e := db.totals.entry(s, c)
	e.used = now
	was := e.rolled
	e.rolled = how
	s.mu.Unlock()
	if was == how {
		return true
	}
	r := &db.totals.rollups
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rolled == nil {
		r.rolled = make(map[store.Cell]rolled)
	}
	if was == (rolled{}) && len(r.rolled) >= rollupsMax || db.ctx.Err() != nil {
		r.refused.Add(1)
		db.totals.stopRolling(c)
		return false
	}
	r.rolled[c] = how
	if !r.running {
		r.running = true
		db.background.Add(1)
		go db.keepRolling()
	}
	return false
}

// stopRolling has a total not be refreshed.
func (t *totals) stopRolling(c store.Cell) {
	s := t.stripe(c)
	s.mu.Lock()
	if e := s.cells[c]; e != nil {
		e.rolled, e.duty = rolled{}, nil
	}
	s.mu.Unlock()
}

// keepRolling refreshes totals until nobody asks for any.
func (s *shared) keepRolling() {
	defer s.background.Done()
	r := &s.totals.rollups
	for {
		due, joint, next := s.due(time.Now())
		if next == 0 {
			r.mu.Lock()
			if len(r.rolled) == 0 {
				r.running = false
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
		}
		s.inPieces(joint, s.share)
		s.inPieces(due, s.refresh)
		rest := time.NewTimer(min(max(next, rollLeast), rollMost))
		select {
		case <-rest.C:
		case <-s.ctx.Done():
			rest.Stop()
			r.mu.Lock()
			r.running = false
			r.mu.Unlock()
			return
		}
	}
}

// inPieces calls f with some cells at a time.
func (s *shared) inPieces(cells []store.Cell, f func(ctx context.Context, cells []store.Cell)) {
	for len(cells) > 0 && s.ctx.Err() == nil {
		n := min(len(cells), rollCells)
		ctx, cancel := context.WithTimeout(store.Unheard(s.ctx), recallWait)
		f(ctx, cells[:n])
		cancel()
		cells = cells[n:]
	}
}

// due returns the totals that must be refreshed, those that other servers keep
// too and that must be looked at, and when to look again. It forgets those that
// nobody asks for.
func (s *shared) due(now time.Time) (cells, joint []store.Cell, next time.Duration) {
	t := s.totals
	t.rollups.mu.Lock()
	defer t.rollups.mu.Unlock()
	late := 0.0
	for c, how := range t.rollups.rolled {
		stripe := t.stripe(c)
		stripe.mu.Lock()
		e := stripe.cells[c]
		if e == nil || now.Sub(e.used) > max(idleLeast, idleIntervals*how.every) {
			delete(t.rollups.rolled, c)
			if e != nil {
				e.rolled, e.duty = rolled{}, nil
			}
			stripe.mu.Unlock()
			continue
		}
		age := now.Sub(e.asked.Time)
		if e.got == 0 || e.reading != nil {
			age = 0 // a reader is at it
		}
		late = max(late, float64(age)/float64(how.every))
		to, wait := &cells, how.every
		if s.isJoint(how, e.value.Layout) {
			if to, wait = &joint, how.every/rollup.Shares; e.duty == nil {
				e.duty = &rollup.Duty{}
			}
			age = now.Sub(e.duty.Looked())
		}
		stripe.mu.Unlock()
		if age >= wait {
			*to = append(*to, c)
			age = 0
		}
		if left := wait - age; next == 0 || left < next {
			next = left
		}
	}
	t.rollups.late.Store(int64(late * 1000))
	return cells, joint, next
}

// refresh reads totals, each partition by itself if all together fails: one that
// is out of reach must not keep the others from it.
func (s *shared) refresh(ctx context.Context, cells []store.Cell) {
	if len(cells) == 0 || s.collectInto(ctx, cells) != nil {
		return
	}
	byPartition := map[int][]store.Cell{}
	for _, c := range cells {
		p := store.PartitionOf(c, s.traits.Partitions)
		byPartition[p] = append(byPartition[p], c)
	}
	if len(byPartition) < 2 {
		s.totals.behind.Add(uint64(len(cells)))
		return
	}
	var wg sync.WaitGroup
	for _, some := range byPartition {
		wg.Go(func() {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), recallWait)
			defer cancel()
			if s.collectInto(within, some) == nil {
				s.totals.behind.Add(uint64(len(some)))
			}
		})
	}
	wg.Wait()
}

// collectInto reads totals, keeps and returns them. What can't be read stays as it
// is: its readers ask themselves when it is too old.
func (s *shared) collectInto(ctx context.Context, cells []store.Cell) []sight {
	sights, err := s.collect(ctx, cells)
	if err != nil {
		return nil
	}
	for i := range cells {
		s.totals.keep(cells[i], sights[i])
	}
	s.totals.rollups.refreshed.Add(uint64(len(cells)))
	return sights
}

// meters calls f for each meter of the totals.
func (t *totals) meters(f func(name, help string, value float64)) {
	t.rollups.mu.Lock()
	active := len(t.rollups.rolled)
	t.rollups.mu.Unlock()
	f("quipu_reads_recalled_total", "Counters that were served as last read, because the store could not be reached.", float64(t.recalled.Load()))
	f("quipu_reads_rollup_total", "Counters that were served from totals kept here.", float64(t.cached.Load()))
	f("quipu_reads_coalesced_total", "Counters whose readers waited for a call that another reader had made.", float64(t.coalesced.Load()))
	f("quipu_reads_fallback_total", "Counters that were asked of the store although a total is kept for their readers, because it was too old.", float64(t.late.Load()))
	f("quipu_reads_partial_total", "Counters that were served without some of their shards.", float64(t.partial.Load()))
	f("quipu_rollups", "Totals that are kept fresh for readers.", float64(active))
	f("quipu_rollups_refreshed_total", "Totals read again to keep them fresh.", float64(t.rollups.refreshed.Load()))
	f("quipu_rollups_claimed_total", "Totals that were summed here for all servers.", float64(t.rollups.claimed.Load()))
	f("quipu_rollups_taken_total", "Totals that were taken from another server.", float64(t.rollups.taken.Load()))
	f("quipu_rollups_failed_total", "Totals that could not be read again.", float64(t.behind.Load()))
	f("quipu_rollups_refused_total", "Totals that were not kept fresh because there are too many.", float64(t.rollups.refused.Load()))
	f("quipu_rollup_age_ratio", "Age of the oldest total that is kept fresh, over its interval.", float64(t.rollups.late.Load())/1000)
}
