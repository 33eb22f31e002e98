package view

import (
	"slices"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/store"
)

// laneZero is the name of the parts of the first lane.
const laneZero = "0"

// InLane returns v for a server that writes what many counters share into the lanes of a slot,
// from 0 on. It must not be in use yet.
func (v *Views) InLane(slot int) *Views {
	v.lane = string(rune('0' + slot))
	return v
}

// Tops returns the top lists of the counters. Request i + 2 of an event is for list i.
func (v *Views) Tops() []definition.Top {
	if v == nil {
		return nil
	}
	return v.tops
}

// Top returns which list has a name, of those by key or of the others.
func (v *Views) Top(name string, byKey bool) (i int, ok bool) {
	i = slices.IndexFunc(v.tops, func(t definition.Top) bool { return t.Name == name && byKey == (t.By == definition.ByKey) })
	return i, i >= 0
}

// TopOf returns the view that has list i of all time.
func (v *Views) TopOf(i int) Shown {
	all := v.All()
	at := slices.IndexFunc(all, func(s Shown) bool {
		return s.Top == i+1 && (s.Kind == store.PartSketch || s.Kind == store.PartShared)
	})
	return all[at] // each list has one
}

// TopWindows is Sources for the windows of list i.
func (v *Views) TopWindows(i int, now int64, since func(book.View) (at int64, ok bool)) []Source {
	return v.sources(now, since, func(r *ready) bool { return r.top == i+1 })
}

// merged appends the riders that take what an event asks into the sketches of its time.
func (v *Views) merged(riders []store.Rider, p *Plan, at, now int64, names []string) []store.Rider {
	which := int64(0) // all that the event asks
	if len(v.tops) > 0 {
		which = 1
	}
	add := func(some func(*ready) bool) {
		for _, part := range v.parts(p, at, now, names, some) {
			riders = append(riders, store.Rider{Part: part, Op: store.OpMerge, N: which})
		}
		which++
	}
	add(func(r *ready) bool { return r.unique })
	for i := range v.tops {
		add(func(r *ready) bool { return r.top == i+1 })
	}
	return riders
}
