package engine

import (
	"context"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// addServes is what add serves.
const addServes = store.NeedValue

// add is the fast path of Apply (BenchmarkAddHot): one add, without a guard or
// a writer, to a cell that is in memory and needs no look at the disk. It does
// what apply would do, without the generality; for everything else, and for
// whatever is out of the ordinary, it changes nothing and reports false. If it
// is done, the caller waits for the frame. The laws run on both, since a batch
// of two deltas takes the other path.
func (e *Engine) add(ctx context.Context, b *store.Batch, r *store.Reply) (f *wal.Frame, done bool) {
	if len(b.Deltas) != 1 || b.Needs()&^addServes != 0 || b.Partition != 0 || b.Durability > store.Synced ||
		ctx.Err() != nil || e.log.Room(ctx) != nil {
		return nil, false
	}
	d := &b.Deltas[0]
	level := b.Durability
	if level == store.DurabilityDefault {
		level = store.Synced
	}

	e.mu.Lock()
	if e.closed || e.spaceErr != nil || e.failed.Load() != nil || e.overfull() || !e.isHot(&d.Cell) && !e.heat(&d.Cell) {
		e.mu.Unlock()
		return nil, false
	}
	id, hash, s, cell := e.hot.id, e.hot.hash, e.hot.slot, e.hot.cell
	old, state := s.value, s.meta.state()
	value := old + d.N
	switch {
	case s.meta&hasExtra != 0:
		e.mu.Unlock()
		return nil, false
	case state == present && (value > old) == (d.N > 0):
	case state == unread && s.meta&(dirty0|dirty1|saving) != 0 && !e.mustRead(d, s, hash, cell, 1):
	default:
		e.mu.Unlock()
		return nil, false
	}
	if u := e.undo.at(s.undo, id); u != nil && u.level > level && e.horizon().pending(u.frame, u.level) {
		level = u.level
	}

	f = e.log.Begin()
	if len(f.Payload) == 0 {
		e.tick(f)
	}
	version := e.version(f.Pos())
	e.logAdd(f, id, cell, d.N)
	end := f.Pos()
	e.log.End(level)
	own := e.marks.own
	own.dirty = true
	own.tally.count(hash, d.N)
	if level == store.Memory && s.meta&e.dirtyBit != 0 {
		// What put would do: the cell is in every list already, and nobody needs
		// the value before.
		s.value, s.meta = value, s.meta.withVersion(version)|recent
	} else {
		e.put(id, value, state, version, f.ID, level)
	}
	e.meters.batches++
	e.meters.deltas++
	e.tend(end)
	e.mu.Unlock()

	r.Err, r.Mark, r.Replayed = nil, 0, false
	r.Durability = level
	r.Results = slices.Grow(r.Results[:0], 1)[:1]
	res := &r.Results[0]
	*res = store.Result{Outcome: store.Applied, Version: version}
	if d.Want {
		res.Before, res.After, res.Existed = old, value, true
	}
	return f, true
}

// hot is the cell of the last plain add, and where it is, for the next one to the
// same: slots and keys stay where they are until they are removed.
type hot struct {
	id             uint32 // 0 if there is none
	hash           uint64
	slot           *slot
	cell           []byte
	namespace, key []byte // of the cell
}

var defaultNamespaceBytes = []byte(defaultNamespace)

// isHot reports whether a cell is the hot one.
func (e *Engine) isHot(c *store.Cell) bool {
	h := &e.hot
	return h.id != 0 && string(h.key) == c.Key && string(h.namespace) == c.Namespace
}

// heat makes a cell the hot one, if it is one and is in memory.
func (e *Engine) heat(c *store.Cell) bool {
	if store.CheckCell(*c) != nil {
		return false
	}
	cell := appendCell(e.cellBuf[:0], *c)
	e.cellBuf = cell
	hash := xxh3.HashSeed(cell, e.id.seed())
	id := e.cells.find(uint32(hash), cell)
	if id == 0 {
		return false
	}
	s := e.cells.slot(id)
	cell = e.cells.keyOf(id)
	n := namespaceLen(cell)
	e.hot = hot{id: id, hash: hash, slot: s, cell: cell, namespace: cell[1:n], key: cell[n:]}
	if cell[0] == nsDefault {
		e.hot.namespace = defaultNamespaceBytes
	}
	return true
}
