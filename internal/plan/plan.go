// Package plan prepares a batch for a store in another process: how the batch
// is sent, what it reads and, if it has only adds, their sums by cell and the
// result of each caller. It is pure; pgstore and redisstore share it.
package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Adds are a batch of nothing but adds, summed by cell: a server can apply the sums
// by itself if nothing stands in their way.
type Adds struct {
	Batch  *store.Batch
	Cells  []Cell  // sorted by their addresses
	Order  []int32 // the deltas by cell; those of one cell as they are in the batch
	Tokens []Token // sorted by cell and name, each once
	Record decide.Record
	Want   bool // some ask for their value
	Parts  []Part

	// Some tokens carry a time: these are the first and the last of them.
	Timed          bool
	Oldest, Newest int64
}

// A Cell is what the adds of one cell come to.
type Cell struct {
	store.Cell
	From, To  int   // its deltas are Order[From:To]
	Sum       int64 // of them
	Low, High int64 // between what their sum is on the way, from 0 on
	Want      bool  // some ask for their value
	Laid      bool  // it must have the layout
	Layout    int64
	Book      int64 // the book that it must have been written under, or a higher one; 0 if that does not matter

	Bounded     bool  // some have a bound: then the value before all of them must be between these
	Least, Most int64 // both included
}

// A Part is what the adds of one cell come to for one of its parts.
type Part struct {
	store.PartCell
	Cell int   // in Cells
	Sum  int64 // of them
}

// Direct reports whether the sum is never outside of where it begins and ends: then
// one of the adds leaves int64 if and only if their sum does.
func (c *Cell) Direct() bool { return c.Low == min(c.Sum, 0) && c.High == max(c.Sum, 0) }

// A Token is an add that has one.
type Token struct {
	*store.Delta
	Place  int   // of the delta in the batch
	Cell   int   // in Cells
	Before int64 // the sum of the adds to the cell that come before it
	Later  int   // how many come after it
}

// Serves is what a batch that is nothing but adds may ask for.
const Serves = store.NeedMark | store.NeedValue | store.NeedToken | store.NeedLayout | store.NeedBound

// Of returns b as adds; ok is false if it has anything but adds, or conditions other
// than layouts, bounds and new tokens, or if it is known that they can't all be applied: a
// token is there twice, two layouts are asked of a cell, a sum leaves int64, or bounds let
// no value through.
func Of(b *store.Batch) (a *Adds, ok bool) {
	if b.Needs()&^Serves != 0 {
		return nil, false
	}
	return of(b)
}

func of(b *store.Batch) (a *Adds, ok bool) {
	a = &Adds{Batch: b, Order: make([]int32, len(b.Deltas))}
	tokens := 0
	for i := range b.Deltas {
		a.Order[i] = int32(i)
		if b.Deltas[i].Guard.Token != "" {
			tokens++
		}
	}
	if len(a.Order) > 1 {
		slices.SortFunc(a.Order, func(i, j int32) int {
			return cmp.Or(Compare(b.Deltas[i].Cell, b.Deltas[j].Cell), cmp.Compare(i, j))
		})
	}
	if tokens > 0 {
		a.Tokens = make([]Token, 0, tokens)
	}
	if !a.sum() {
		return nil, false
	}
	return a, a.arrange()
}

// Compare is the order of cells.
func Compare(a, b store.Cell) int {
	if a.Namespace != b.Namespace {
		return strings.Compare(a.Namespace, b.Namespace)
	}
	return strings.Compare(a.Key, b.Key)
}

// sum adds up the deltas of each cell, and reports whether that can be done.
func (a *Adds) sum() bool {
	a.Cells = make([]Cell, 0, len(a.Order))
	for at, i := range a.Order {
		d := &a.Batch.Deltas[i]
		if n := len(a.Cells); n == 0 || a.Cells[n-1].Cell != d.Cell {
			a.Cells = append(a.Cells, Cell{Cell: d.Cell, From: at})
		}
		n := len(a.Cells) - 1
		c := &a.Cells[n]
		c.To = at + 1
		before := c.Sum
		c.Sum += d.N
		if (c.Sum > before) != (d.N > 0) || !c.lay(d) || d.Guard.Bound != nil && !c.within(d, c.Sum) {
			return false
		}
		c.Low, c.High = min(c.Low, c.Sum), max(c.High, c.Sum)
		c.Want, a.Want = c.Want || d.Want, a.Want || d.Want
		if d.Guard.Token != "" {
			a.Tokens = append(a.Tokens, Token{Delta: d, Place: int(i), Cell: n, Before: before, Later: -at - 1})
		}
	}
	for i := range a.Cells {
		a.Record.Merge(decide.Change(a.Cells[i].Cell, uint64(a.Cells[i].Sum)))
	}
	a.Record.Deltas = uint64(len(a.Order))
	return true
}

// lay takes what d needs the layout of its cell to be, and reports false if another
// needs it to be different.
func (c *Cell) lay(d *store.Delta) bool {
	layout := int64(0) // of a counter that is whole
	if d.Guard.Laid {
		layout = d.Guard.Layout
	} else if !d.NeedsWhole() {
		return true
	}
	if c.Laid && c.Layout != layout {
		return false
	}
	c.Laid, c.Layout = true, layout
	return true
}

// arrange completes and sorts the tokens, and reports false if one is there twice:
// the second is a repeat.
func (a *Adds) arrange() bool {
	for i := range a.Tokens {
		t := &a.Tokens[i]
		t.Later += a.Cells[t.Cell].To
		if ms, ok := store.TokenTime(t.Guard.Token); ok {
			if !a.Timed {
				a.Timed, a.Oldest, a.Newest = true, ms, ms
			}
			a.Oldest, a.Newest = min(a.Oldest, ms), max(a.Newest, ms)
		}
	}
	order := func(x, y Token) int {
		return cmp.Or(cmp.Compare(x.Cell, y.Cell), strings.Compare(x.Guard.Token, y.Guard.Token))
	}
	slices.SortFunc(a.Tokens, order)
	for i := 1; i < len(a.Tokens); i++ {
		if order(a.Tokens[i-1], a.Tokens[i]) == 0 {
			return false
		}
	}
	return true
}

// Results appends what became of the deltas when all of them were applied. Met is
// told a cell and returns what the batch met there, if that was asked for. Version is
// told a cell, a delta, and how many of the deltas to the cell come after it.
func (a *Adds) Results(rs []store.Result, met func(cell int) store.Value, version func(cell, delta, later int) uint64) []store.Result {
	start := len(rs)
	rs = slices.Grow(rs, len(a.Order))[:start+len(a.Order)]
	for i := range a.Cells {
		c := &a.Cells[i]
		var v store.Value
		if c.Want {
			v = met(i)
		}
		for at, delta := range a.Order[c.From:c.To] {
			d := &a.Batch.Deltas[delta]
			r := store.Result{Outcome: store.Applied, Version: version(i, int(delta), c.To-c.From-at-1)}
			if d.Want {
				r.Before, r.After, r.Existed, r.DeadlineMS = v.N, v.N+d.N, v.Exists, v.DeadlineMS
			}
			v.N, v.Exists = v.N+d.N, true
			rs[start+int(delta)] = r
		}
	}
	return rs
}

// Names calls cell for each cell that a batch names, and token for each token, as
// often as it names them.
func Names(b *store.Batch, cell func(store.Cell), token func(store.Cell, string)) {
	for i := range b.If {
		cell(b.If[i].Cell)
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Op == store.OpRetire {
			continue
		}
		cell(d.Cell)
		if d.Event != nil && d.Event.Shares() { // Whoever changes the parts of a lane has it alone.
			for j := range d.Event.Len() {
				if p := d.Event.Rider(j).Part; p.Kind().Shared() {
					cell(p.Owner(d.Cell, b.Partition))
				}
			}
		}
		if d.Guard.Token != "" {
			token(d.Cell, d.Guard.Token)
		}
	}
}

// Parts calls part for each part that the events of a batch may read or change, as often
// as they name it, but for those whose place is known only in the step itself.
func Parts(b *store.Batch, part func(store.PartCell)) {
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Event == nil {
			continue
		}
		if d.Event.Part != "" {
			part(store.PartCell{Cell: d.Cell, Part: d.Event.Part})
		}
		for j := range d.Event.Len() {
			r := d.Event.Rider(j)
			if r.Part != "" && r.Place == store.PlaceFixed {
				part(store.PartCell{Cell: r.Part.Owner(d.Cell, b.Partition), Part: r.Part})
			}
			if r.When.Kind == store.MetBook {
				part(store.PartCell{Cell: d.Cell, Part: partBook})
			}
		}
	}
}

var partBook = store.PartFields{Kind: store.PartBook}.Part()

// Versions returns how many versions a batch may need: one for each event, and for each
// other delta that may leave a cell.
func Versions(b *store.Batch) int {
	n := 0
	for i := range b.Deltas {
		if b.Deltas[i].Event != nil {
			n++
			continue
		}
		switch b.Deltas[i].Op {
		case store.OpGet, store.OpDelete, store.OpSettle, store.OpRetire:
		default:
			n++
		}
	}
	return n
}
