package total

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/store"
)

// readingLeast is for how long a reading goes on when the reader who began it has
// gone: others may wait for it.
const readingLeast = 5 * time.Second

// A reading is one call of the store that several readers wait for. It is no
// reader's own: it goes on when the one who began it has gone.
type reading struct {
	done  chan struct{}
	asked rollup.Moment
	value store.Value
	err   error
	alone bool // its call reads nothing else
}

// join returns readings of some of the cells: those under way, and for the rest new
// ones, which are made by one call. Shared says that those under way may be by calls
// that read other counters too: if one of these can't be read, all fail.
func (ts *Totals) join(ctx context.Context, k *Read, some []int, shared bool) []*reading {
	if len(some) == 0 {
		return nil
	}
	readings := make([]*reading, len(some))
	var begun []*reading
	var cells []store.Cell
	for n, i := range some {
		_, own, _ := k.terms(i)
		r, isNew := ts.memory.join(k.Cells[i], own, shared, len(some) == 1)
		if readings[n] = r; isNew {
			begun, cells = append(begun, r), append(cells, k.Cells[i])
		} else {
			ts.memory.coalesced.Add(1)
		}
	}
	if len(begun) > 0 {
		within, cancel := context.WithCancel(ts.ctx)
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(readingLeast, cancel) })
		go func() {
			defer cancel()
			defer stop()
			ts.fetch(within, cells, begun)
		}()
	}
	return readings
}

// join returns the reading of a counter that is under way, or a new one that the
// caller has to make, if that one may lack what readers or writers here were told,
// or takes so long that its call may be lost.
func (t *memory) join(c store.Cell, own, shared, alone bool) (r *reading, isNew bool) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.entry(s, c)
	now := t.now()
	e.used = now.Time
	if r = e.reading; r != nil && (shared || r.alone) && !r.isLate(now.Time) && r.asked.Tick >= max(e.got, e.shown) && (!own || r.asked.Tick > e.written) {
		return r, false
	}
	e.reading = &reading{done: make(chan struct{}), asked: now, alone: alone}
	return e.reading, true
}

// isLate reports whether a reading takes longer than others wait for it.
func (r *reading) isLate(now time.Time) bool { return now.Sub(r.asked.Time) >= recallWait }

// fetch makes readings by one call.
func (ts *Totals) fetch(ctx context.Context, cells []store.Cell, readings []*reading) {
	snapshots, err := ts.collect(ctx, cells)
	if err != nil && ts.ctx.Err() != nil {
		err = store.ErrClosed
	}
	for i, r := range readings {
		snapshots[i].shown = true
		ts.memory.made(cells[i], r, snapshots[i], err)
	}
}

// made ends a reading.
func (t *memory) made(c store.Cell, r *reading, v snapshot, err error) {
	s := t.stripe(c)
	s.mu.Lock()
	if e := s.cells[c]; e != nil && e.reading == r {
		e.reading = nil
	}
	s.mu.Unlock()
	if err == nil {
		t.keep(c, v)
	}
	r.value, r.err = v.value, err
	close(r.done)
}

// await waits for readings of some of the cells, and returns those that have to be
// read again: their reading began before this read, by another reader, and has
// failed, or takes too long, or is of too long ago. One that began after it always
// does, or its error is the answer.
func (ts *Totals) await(ctx context.Context, k *Read, some []int, readings []*reading) (again []int, err error) {
	for n, i := range some {
		r := readings[n]
		older := r.asked.Tick <= k.Began.Tick
		var late <-chan time.Time
		if older {
			late = time.After(time.Until(r.asked.Time.Add(recallWait)))
		}
		select {
		case <-r.done:
		case <-late:
			again = append(again, i)
			continue
		case <-ctx.Done():
			return nil, store.Errorf(store.KindUnavailable, "waiting for the store: %w", ctx.Err())
		}
		switch {
		case older && r.err != nil && unreachable(r.err), older && r.err == nil && !ts.takeOlder(k, i, r):
			again = append(again, i)
		case r.err != nil:
			return nil, r.err
		case !older:
			k.Values[i], k.From[i] = r.value, Seen{AsOf: r.asked.Time, Source: SourceStore}
		}
	}
	return again, nil
}

// takeOlder takes what a reading has brought that began before this read, if it
// will do. It may lack what was written between.
func (ts *Totals) takeOlder(k *Read, i int, r *reading) (ok bool) {
	age, own, _ := k.terms(i)
	if own {
		k.Values[i], k.From[i], ok = ts.memory.get(k.Cells[i], k.Began.Time, age, own)
		return ok
	}
	k.Values[i], k.From[i] = r.value, Seen{AsOf: r.asked.Time, Source: SourceRollup}
	return k.Began.Time.Sub(r.asked.Time) <= age
}
