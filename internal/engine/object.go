package engine

import (
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
