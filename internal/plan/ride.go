package plan

import (
	"slices"
	"strings"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// RidersServe is what a batch of adds may ask for if they add to parts too.
const RidersServe = Serves | store.NeedRiders | store.NeedBook | store.NeedFence

// WithRiders is Of for adds that may be events. Their riders do nothing but add what was
// applied, and keep the book of the counter up to date: if every counter has been
// written under its Cell.Book, or a higher one, the riders that are for the first event
// under a book are left out. Books are those of the batch, and for the caller to look at.
func WithRiders(b *store.Batch) (a *Adds, ok bool) {
	if b.Needs()&^RidersServe != 0 || len(b.Floors) > 0 {
		return nil, false
	}
	if a, ok = of(b); !ok {
		return nil, false
	}
	for i := range a.Cells {
		if !a.ride(i) {
			return nil, false
		}
	}
	for i := range a.Parts {
		if p := &a.Parts[i]; p.Part.Kind()&store.PartRetained == 0 { // an epoch has a record of its own
			a.Record.Merge(decide.PartChange(p.PartCell.Cell, p.Part, uint64(p.Sum)))
		}
	}
	return a, true
}

// ride adds up what the events of a cell add to its parts. Those of one plan are one. Adds
// of both signs could leave int64 on the way, and an add of 0 makes no part exist.
func (a *Adds) ride(cell int) bool {
	c, from := &a.Cells[cell], len(a.Parts)
	var plan *store.Plan // of those that were added up last
	sum, up, down := int64(0), false, false
	for _, i := range a.Order[c.From:c.To] {
		d := &a.Batch.Deltas[i]
		if d.Event == nil {
			continue
		}
		if len(d.Event.Riders) > 0 || d.Event.Plan != nil && (d.N == 0 || !d.Event.Plan.Sums()) {
			return false
		}
		if plan != d.Event.Plan {
			if !a.take(cell, plan, sum) {
				return false
			}
			plan, sum = d.Event.Plan, 0
		}
		sum += d.N // the cell's own sum does not wrap, and this is a part of it
		up, down = up || d.N > 0, down || d.N < 0
	}
	return (!up || !down) && a.take(cell, plan, sum) && a.merge(from)
}

// take adds what the events of a plan add to parts, and reports false if it keeps a book
// that is none.
func (a *Adds) take(cell int, plan *store.Plan, sum int64) bool {
	if plan == nil {
		return true
	}
	c, e := &a.Cells[cell], store.Event{Plan: plan}
	for i := range e.Len() {
		switch r := e.Rider(i); {
		case r.Op == store.OpMax && (r.Part != partBook || r.N <= 0), r.When.Kind == store.MetBook && r.When.N <= 0:
			return false // no book has such a number
		case r.Op == store.OpMax:
			c.Book = max(c.Book, r.N)
		case r.When.Kind == store.MetBook: // it is for the first event under a book
			c.Book = max(c.Book, r.When.N)
		default:
			a.Parts = append(a.Parts, Part{store.PartCell{Cell: c.Cell, Part: r.Part}, cell, sum})
		}
	}
	return true
}

// merge sorts the parts of a cell, each once. The sums have one sign.
func (a *Adds) merge(from int) bool {
	parts := a.Parts[from:]
	slices.SortFunc(parts, func(x, y Part) int { return strings.Compare(string(x.Part), string(y.Part)) })
	kept := parts[:0]
	for _, p := range parts {
		if n := len(kept); n > 0 && kept[n-1].Part == p.Part {
			before := kept[n-1].Sum
			kept[n-1].Sum += p.Sum
			if (kept[n-1].Sum > before) != (p.Sum > 0) {
				return false
			}
			continue
		}
		kept = append(kept, p)
	}
	a.Parts = a.Parts[:from+len(kept)]
	return true
}
