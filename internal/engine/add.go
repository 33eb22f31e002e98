package engine

import (
	"context"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// add is the fast path of Apply (BenchmarkAddHot): one add, without a guard or
// a writer, to a cell that is in memory and needs no look at the disk. It does
// what apply would do, without the generality; for everything else, and for
// whatever is out of the ordinary, it changes nothing and reports false. If it
// is done, the caller waits for the frame. The laws run on both, since a batch
// of two deltas takes the other path.
func (e *Engine) add(ctx context.Context, b *store.Batch, r *store.Reply) (f *wal.Frame, done bool) {
	if b.Writer != 0 || b.Partition != 0 || len(b.Deltas) != 1 || b.Durability > store.Synced || ctx.Err() != nil {
		return nil, false
	}
	d := &b.Deltas[0]
	if d.Op != store.OpAdd || d.Guard.Token != "" || d.Guard.Match || store.CheckCell(d.Cell) != nil || e.log.Room(ctx) != nil {
		return nil, false
	}
	level := b.Durability
	if level == store.DurabilityDefault {
		level = store.Synced
	}

	e.mu.Lock()
	if e.closed || e.spaceErr != nil || e.failed.Load() != nil || e.overfull() {
		e.mu.Unlock()
		return nil, false
	}
	cell := appendCell(e.cellBuf[:0], d.Cell)
	e.cellBuf = cell
	hash := xxh3.HashSeed(cell, e.id.seed())
	id := e.cells.find(uint32(hash), cell)
	if id == 0 {
		e.mu.Unlock()
		return nil, false
	}
	s := e.cells.slot(id)
	old, state := s.value, s.meta.state()
	value := old + d.N
	switch {
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
	at := f.Pos()
	f.Payload = appendCellRecord(f.Payload, recAdd, cell)
	f.Payload = binary.AppendVarint(f.Payload, d.N)
	end := f.Pos()
	e.log.End(level)
	own := e.marks.own
	own.dirty = true
	own.tally.count(hash, d.N)
	e.put(id, value, state, uint64(at), f.ID, level)
	e.meters.batches++
	e.meters.deltas++
	e.tend(end)
	e.mu.Unlock()

	res := store.Result{Outcome: store.Applied, Version: uint64(at)}
	if d.Want {
		res.Before, res.After = old, value
	}
	*r = store.Reply{Durability: level, Results: append(r.Results[:0], res)}
	return f, true
}
