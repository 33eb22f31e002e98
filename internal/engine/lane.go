package engine

import (
	"math"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// The lane of plain adds: what is looked up in groups, changed and logged under one
// hold of the lock, without a delta, a plan of what to read, or a result for each.
// It takes cells that are known, in memory or to have no row; the rest is for Apply, which
// decides the same (storetest plays one against the other).

// StartAdds decides the adds that need nothing but their cells.
func (e *Engine) StartAdds(a *store.Adds, done func(error)) bool {
	anywhere := store.Cell{Namespace: a.Namespace, Key: "any"} // keys are checked
	if len(a.Each) == 0 || a.Namespace == "" || store.CheckCell(anywhere) != nil || e.log.Full() {
		return false
	}
	ps := e.addressAdds(a)
	defer e.plans.Put(ps)
	e.mu.Lock()
	if !e.admits() || a.Book != e.fences.books[a.Namespace] {
		e.mu.Unlock()
		return false
	}
	c := change{e: e, f: e.log.Begin(), level: store.Synced}
	taken := c.adds(a, ps)
	end := c.f.Pos()
	e.log.End(c.level)
	e.tend(end) // it may evict cells, so not before all adds are made
	e.mu.Unlock()
	if taken == 0 {
		return false
	}
	c.f.Notify(c.level, done)
	return true
}

// admits reports whether a write is let in without waiting. The lock is held.
func (e *Engine) admits() bool {
	return !e.closed && e.spaceErr == nil && e.failed.Load() == nil && !e.overfull()
}

// addressAdds encodes and hashes the cell of every add.
func (e *Engine) addressAdds(a *store.Adds) *plans {
	ps := e.plans.Get().(*plans)
	ps.reset()
	seed := e.id.seed()
	var room [1 + store.NamespaceBytesMax]byte
	namespace := appendNamespace(room[:0], a.Namespace)
	for i := range a.Each {
		from := len(ps.keys)
		ps.keys = append(append(ps.keys, namespace...), a.KeyOf(&a.Each[i])...)
		ps.all = append(ps.all, plan{
			hash: xxh3.HashSeed(ps.keys[from:], seed), from: uint32(from), to: uint32(len(ps.keys)),
		})
	}
	return ps
}

// adds makes the adds that it can and returns how many those are. That it leaves
// what follows to a cell that it has left needs no list: it leaves an add for what
// its cell is, which nothing here changes but the adds themselves.
func (c *change) adds(a *store.Adds, ps *plans) (taken int) {
	e := c.e
	if len(c.f.Payload) == 0 {
		c.time()
	}
	c.mark = e.marks.get(0)
	for i := range a.Each {
		if i%groupMax == 0 {
			e.counters.filter.fetch(e.cells.findNext(ps.all, i, ps.keys))
		}
		add, p := &a.Each[i], &ps.all[i]
		if add.Left = add.Left || !c.times(add, p, ps.keys[p.from:p.to]); !add.Left {
			taken++
			e.meters.writes += uint64(add.Times)
		}
	}
	if taken > 0 {
		e.meters.batches++
		e.meters.deltas += uint64(taken)
	}
	return taken
}

// times makes one add, or reports that it can't.
func (c *change) times(add *store.Add, p *plan, cell []byte) bool {
	e := c.e
	if add.Size-1 >= store.KeyBytesMax || p.slot == 0 && !e.noRow(p.hash) {
		return false
	}
	if p.slot == 0 {
		p.slot = e.locate(p.hash, cell)
	}
	s := e.cells.slot(p.slot)
	switch {
	case s.meta&hasExtra != 0, s.meta.state() == unread:
		return false
	case s.meta.state() == absent && e.names.full(cell, 1, &e.o.Limits):
		return false // whether there is room after all takes longer to find out
	}
	const small = 1 << 31 // of which any number of times is an int64
	add.Before, add.Taken = s.value, add.Times
	if sum := add.N * int64(add.Times); add.N < small && add.N > -small && inRange(s.value, sum) {
		c.add(p, s, cell, sum, present)
		return true
	}
	// Slow path: the value, or the amount, is near the limits.
	add.Taken = fit(s.value, add.N, add.Times)
	for rest := add.Taken; rest > 0; {
		n := fit(0, add.N, rest) // what is logged is an int64 too
		c.add(p, s, cell, add.N*int64(n), present)
		rest -= n
	}
	e.meters.refused += uint64(add.Times - add.Taken)
	return true
}

// fit returns how many of some additions of n to a value stay within int64.
func fit(value, n int64, times uint32) uint32 {
	var room uint64
	switch {
	case n > 0:
		room = (math.MaxInt64 - uint64(value)) / uint64(n)
	case n < 0:
		room = (uint64(value) - 1<<63) / -uint64(n)
	default:
		return times
	}
	return uint32(min(room, uint64(times)))
}

// inRange reports whether the sum of a value and a change is an int64.
func inRange(value, change int64) bool { return (value+change > value) == (change > 0) }

// add adds n to a cell that can take it, and returns its version: the one place that
// does. The slot is the plan's.
func (c *change) add(p *plan, s *slot, cell []byte, n int64, next meta) uint64 {
	e := c.e
	version := e.version(c.f.Pos())
	e.logAdd(c.f, p.slot, cell, n)
	c.mark.tally.count(p.hash, n)
	if c.level == store.Memory && s.meta&e.dirtyBit != 0 && s.meta.state() == next {
		// Fast path, what put would do: the cell is in every list already, and nobody
		// needs the value before.
		s.value, s.meta = s.value+n, s.meta.withVersion(version)|recent
	} else {
		e.put(p.slot, s.value+n, next, version, c.f.ID, c.level)
	}
	return version
}
