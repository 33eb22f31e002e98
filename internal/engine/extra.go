package engine

import "github.com/quipudb/quipu/store"

// An extra is what few cells have beside their value: a deadline, in Unix
// milliseconds, if it is above 0, or a layout, negated, if it is below. In memory
// it is in a map beside the table, and a bit of the slot says that it is there.
//
// On disk it is in the cell's row, and the cell is in the filter of those that
// must be read before they are changed: so a cell that nobody has looked at has
// none.
type extra int64

// extraOf returns that of a value.
func extraOf(v store.Value) extra { return extra(v.DeadlineMS - v.Layout) }

func (x extra) deadline() int64 { return max(int64(x), 0) }
func (x extra) layout() int64   { return max(-int64(x), 0) }

// extra returns that of the cell in a slot, or 0.
func (e *Engine) extra(id uint32) extra {
	if e.cells.slot(id).meta&hasExtra == 0 {
		return 0
	}
	return e.extras[id]
}

// setExtra gives the cell in a slot another one. It is called after put, which
// keeps the one before for readers and for the checkpoint under way.
func (e *Engine) setExtra(id uint32, x extra) {
	s := e.cells.slot(id)
	if x == 0 {
		s.meta &^= hasExtra
		delete(e.extras, id)
		return
	}
	s.meta |= hasExtra
	e.extras[id] = x
	if x > 0 {
		e.soonestSet, e.soonestNew = min(e.soonestSet, int64(x)), min(e.soonestNew, int64(x))
	}
}

// takes reports whether a cell takes a blind add as one without an extra would:
// it has no deadline, and the layout that the add names, if it names one; and if it
// is a part of a counter, a part can take it.
func (e *Engine) takes(d *store.Delta, id uint32) bool {
	x := e.extra(id)
	return x <= 0 && (!d.Guard.Laid || d.Guard.Layout == x.layout()) && (x == 0 || !d.NeedsWhole())
}

// isSplit reports whether a cell that is a part of a counter would have to decide
// one of the deltas alone.
func (e *Engine) isSplit(deltas []store.Delta, plans []plan) bool {
	for i := range deltas {
		if e.extra(plans[i].slot) < 0 && deltas[i].NeedsWhole() {
			return true
		}
	}
	return false
}
