package engine

import "github.com/quipudb/quipu/store"

// An extra is what few cells have beside their value: a deadline, in Unix
// milliseconds, if it is above 0, or a layout, negated, if it is below. That of an
// object has its deadline in the bits above the 16 that no other layout ends in. In memory
// it is in a map beside the table, and a bit of the slot says that it is there.
//
// On disk it is in the cell's row, and the cell is in the filter of those that
// must be read before they are changed: so a cell that nobody has looked at has
// none.
type extra int64

const objectBits = 16

// extraOf returns that of a value.
func extraOf(v store.Value) extra {
	if v.Layout == store.LayoutObject {
		return objectUntil(v.DeadlineMS)
	}
	return extra(v.DeadlineMS - v.Layout)
}

// objectUntil returns that of an object that has a deadline, 0 for none.
func objectUntil(ms int64) extra { return -extra(ms<<objectBits | store.LayoutObject) }

func (x extra) isObject() bool { return x < 0 && -x&(1<<objectBits-1) == store.LayoutObject }

func (x extra) deadline() int64 {
	if x.isObject() {
		return int64(-x >> objectBits)
	}
	return max(int64(x), 0)
}

func (x extra) layout() int64 {
	if x.isObject() {
		return store.LayoutObject
	}
	return max(-int64(x), 0)
}

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
	if ms := x.deadline(); ms > 0 {
		e.soonestSet, e.soonestNew = min(e.soonestSet, ms), min(e.soonestNew, ms)
	}
}

// takes reports whether a cell takes a blind add as one without an extra would:
// it has no deadline, and the layout that the add names, if it names one; and if it
// is a part of a counter, a part can take it. An object takes none.
func (e *Engine) takes(d *store.Delta, id uint32) bool {
	x := e.extra(id)
	return x <= 0 && !x.isObject() && (!d.Guard.Laid || d.Guard.Layout == x.layout()) && (x == 0 || !d.NeedsWhole())
}

// isSplit reports whether a cell that is a part of a counter would have to decide
// one of the deltas alone, or an object would have to take one that is not meant for it.
func (c *change) isSplit(deltas []store.Delta, plans []plan) bool {
	for i := range deltas {
		if x := c.e.extra(plans[i].slot); x < 0 && deltas[i].Splits(x.layout()) && !c.over(x) {
			return true
		}
	}
	return false
}
