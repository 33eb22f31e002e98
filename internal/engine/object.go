package engine

import (
	"encoding/binary"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// An object is a cell whose extra says so, and a part that has its bytes. Whoever removes
// the cell removes the part in the same frame, so the part has to be read first: to find
// out what it was, for the tally.

// mayLose reports whether a delta may remove an object.
func (e *Engine) mayLose(d *store.Delta, x extra) bool {
	return x.isObject() && (d.Op == store.OpDelete || x.deadline() != 0 && x.deadline() <= e.now())
}

// planLose collects what has to be read before an object can be removed.
func (e *Engine) planLose(cell []byte, p *plan, n *needs) {
	id, _ := e.locatePart(p.hash, decodeCell(cell), store.Object)
	s := e.cells.slot(id)
	s.meta |= recent
	if s.meta.state() == unread {
		n.cell(e.cells.keyOf(id))
	}
}

// keepHeld makes the own cell what an event makes of its key as a whole, an object or a
// count, and returns its version.
func (s *events) keepHeld(n int64, x extra) (version uint64) {
	e, f := s.e, s.f
	s.mark.tally.count(s.plan.hash, n-e.cells.slot(s.plan.slot).value)
	if x.isObject() {
		version = e.version(f.Pos())
		f.Payload = appendObject(f.Payload, s.cell, x.deadline())
	} else {
		version = s.logCount(n, x)
	}
	e.put(s.plan.slot, n, present, version, f.ID, s.level)
	return version
}

// logCount appends the records that make a key a count, whatever it held, and returns the
// version of its cell: the position of the last of them.
func (s *events) logCount(n int64, x extra) (version uint64) {
	f := s.f
	f.Payload = appendCellRecord(f.Payload, recDelete, s.cell)
	version = s.e.version(f.Pos())
	f.Payload = binary.AppendVarint(appendCellRecord(f.Payload, recSet, s.cell), n)
	if x != 0 {
		version = s.e.version(f.Pos())
		f.Payload = binary.AppendUvarint(appendCellRecord(f.Payload, recDeadline, s.cell), uint64(x.deadline()))
	}
	return version
}

// lose removes the bytes of an object whose cell has just been removed: the record of that
// is the last one. If they were not read, since its deadline came only now, that is done
// here; it is so rare that the lock is held meanwhile. If they can't be read, they
// stay, and are nothing.
func (c *change) lose(p plan) {
	s := events{change: c, plan: p, cell: c.e.cells.keyOf(p.slot)}
	of := decodeCell(s.cell)
	id, _ := c.e.locatePart(p.hash, of, store.Object)
	if s.read(id) == nil {
		decide.Lose(&s, of)
	}
}
