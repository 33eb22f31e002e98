package engine

import (
	"context"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// addOneServes is what addOne serves, and eventServes what it serves of an event.
const (
	addOneServes = store.NeedValue
	eventServes  = addOneServes | store.NeedRiders | store.NeedBook | store.NeedFence
)

// addOne is the lane for a batch of one add (BenchmarkAddHot), without a guard or a
// writer, to a cell that is in memory and needs no look at the disk. The add may be an
// event that is bundled. For everything else, and for whatever is out of the ordinary, it
// changes nothing and reports false. If it is done, the caller waits for the frame.
func (e *Engine) addOne(ctx context.Context, b *store.Batch, r *store.Reply) (f *wal.Frame, done bool) {
	if len(b.Deltas) != 1 {
		return nil, false
	}
	d, serves := &b.Deltas[0], addOneServes
	if d.Event != nil {
		serves = eventServes
	}
	if b.Needs()&^serves != 0 || b.Partition != 0 || b.Durability > store.Synced || ctx.Err() != nil || e.log.Room(ctx) != nil {
		return nil, false
	}
	level := orSynced(b.Durability)

	e.mu.Lock()
	if !e.admits() || e.fenced && d.Event == nil && e.fences.stop(&d.Cell) || !e.isHot(&d.Cell) && !e.heat(&d.Cell) {
		e.mu.Unlock()
		return nil, false
	}
	h := &e.hot
	var v *view
	if d.Event == nil {
		done = e.takesAtOnce(d)
	} else if v = e.hotView(b); v != nil {
		bundle := e.bundle(v, h.hash, h.id)
		level, done = e.levelOn(e.cells.slot(bundle), bundle, level), bundle != 0
	}
	if !done {
		e.mu.Unlock()
		return nil, false
	}
	old, state := h.slot.value, h.slot.meta.state()
	level = e.levelOn(h.slot, h.id, level)
	f = e.log.Begin()
	if len(f.Payload) == 0 {
		e.tick(f)
	}
	c := change{e: e, f: f, level: level, mark: e.marks.get(0)}
	res := store.Result{Outcome: store.Applied}
	if v != nil {
		res, done = c.bundled(v, d, &plan{hash: h.hash, slot: h.id})
	} else {
		res.Version = c.add(&plan{hash: h.hash, slot: h.id}, h.slot, h.cell, d.N, state)
		if d.Want {
			res.Before, res.After, res.Existed = old, old+d.N, true
		}
	}
	end := f.Pos()
	e.log.End(level)
	if done {
		e.meters.batches++
		e.meters.deltas++
		e.meters.writes += uint64(max(1, d.Writes))
		e.tend(end)
	}
	e.mu.Unlock()
	if !done {
		return nil, false
	}
	r.Err, r.Mark, r.Replayed = nil, 0, false
	r.Durability = level
	r.Results = append(r.Results[:0], res)
	return f, true
}

// hotView returns the view of a batch of one event, if nothing stands in its way but
// perhaps its counter.
func (e *Engine) hotView(b *store.Batch) *view {
	d := &b.Deltas[0]
	v := e.viewOf(d)
	if v == nil || len(b.Books) != 1 || len(b.Floors) != 0 || b.Books[0].Namespace != d.Cell.Namespace ||
		e.fences.books[d.Cell.Namespace] != b.Books[0].ID || len(e.fences.floors) > 0 && v.judged != e.fences.rises {
		return nil
	}
	return v
}

// takesAtOnce reports whether the hot cell takes an add as it is.
func (e *Engine) takesAtOnce(d *store.Delta) bool {
	h := &e.hot
	switch s := h.slot; {
	case s.meta&hasExtra != 0:
		return false
	case s.meta.state() == present:
		return inRange(s.value, d.N)
	case s.meta.state() == unread:
		return s.meta&(dirty0|dirty1|saving) != 0 && !e.mustRead(d, unreadServes, s, h.hash, h.cell, 1)
	}
	return false
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
