package redisstore

import (
	"math"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// drawersMax is how many drawers add.lua fills.
const drawersMax = 1000

// A filled drawer is what the riders of a batch come to in it.
type filled struct {
	drawer
	fields   []string
	ns       []int64 // what is added to each
	retained bool
	record   decide.Record // of an epoch
}

// A booked drawer has the books that counters of a namespace have been written under. They
// are only looked at, unless a counter is new.
type booked struct {
	drawer
	books []counterBook
}

// A counterBook is what a batch asks of the book that a counter has been written under. If
// the counter is new, that is what it gets. What it was before, outside of views, is 0.
type counterBook struct {
	cell  int // in Cells
	field string
	known bool // the counter must not be new
}

// ride puts what riders add into drawers; ok is false if add.lua can't take them.
func (p *planned) ride() (ok bool) {
	places := make(map[drawer]int) // in filled
	place := func(d drawer) int {
		i, known := places[d]
		if !known {
			i = len(p.filled)
			places[d] = i
			shelf, epoch, retained := d.shelf()
			if retained {
				p.keep(shelf, epoch)
			}
			p.filled = append(p.filled, filled{drawer: d, retained: retained})
		}
		return i
	}
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.Sum >= quarter || part.Sum <= -quarter {
			return false
		}
		d, field := drawerOf(part.PartCell.Cell, part.Part)
		f := &p.filled[place(d)]
		f.fields, f.ns = append(f.fields, field), append(f.ns, part.Sum)
		if f.retained {
			f.record.Merge(decide.PartChange(part.PartCell.Cell, part.Part, uint64(part.Sum)))
		}
	}
	for i := range p.Cells {
		if c := &p.Cells[i]; c.Book > 0 {
			p.book(i)
		}
	}
	return len(p.filled) <= drawersMax
}

// book takes what is asked of the book of a counter. Only the first delta to a new counter
// finds nothing there: those that follow find what it has set.
func (p *planned) book(cell int) {
	c := &p.Cells[cell]
	d, field := drawerOf(c.Cell, partBook)
	of := counterBook{cell: cell, field: field, known: true}
	if e := p.Batch.Deltas[p.first(cell)].Event; e != nil {
		for i := range e.Len() {
			if r := e.Rider(i); r.Op == store.OpMax && r.N == c.Book {
				of.known = false
			}
		}
	}
	for i := range p.booked {
		if b := &p.booked[i]; b.drawer == d {
			b.books = append(b.books, of)
			return
		}
	}
	p.booked = append(p.booked, booked{d, []counterBook{of}})
}

// keep takes that a floor must not be above an epoch.
func (p *planned) keep(s decide.Shelf, e store.Epoch) {
	for i := range p.floors {
		if f := &p.floors[i]; f.Shelf == s {
			f.epoch = min(f.epoch, e)
			return
		}
	}
	p.floors = append(p.floors, kept{s, e})
}

// A kept is the first epoch of a view that a batch adds to.
type kept struct {
	decide.Shelf
	epoch store.Epoch
}

// size returns about how many arguments add.lua takes.
func (p *planned) size() int {
	n := 32 + 3*len(p.Order)
	for i := range p.filled {
		n += 10 + 2*len(p.filled[i].fields)
	}
	for i := range p.booked {
		n += 4 + 3*len(p.booked[i].books)
	}
	return n
}

// appendDrawers appends the keys of drawers.
func (p *planned) appendDrawers(keys []string, home *partition) []string {
	if len(p.filled)+len(p.booked) > 0 {
		keys = append(keys, home.drawers, home.tally)
	}
	for i := range p.filled {
		keys = append(keys, home.contents(p.filled[i].drawer), home.order(p.filled[i].drawer))
	}
	for i := range p.booked {
		keys = append(keys, home.contents(p.booked[i].drawer), home.order(p.booked[i].drawer))
	}
	return keys
}

// appendFilled appends what add.lua takes of drawers.
func (p *planned) appendFilled(args []string) []string {
	for i := range p.filled {
		args = append(args, p.filled[i].name())
	}
	for i := range p.filled {
		f := &p.filled[i]
		by := ""
		if !slices.ContainsFunc(f.ns, func(n int64) bool { return n != f.ns[0] }) && len(f.ns) > 0 {
			by = strconv.FormatInt(f.ns[0], 10)
		}
		args = append(appendHalves(append(args, flag(f.retained)), f.record), by, strconv.Itoa(len(f.fields)))
		args = append(args, f.fields...)
		for _, n := range f.ns {
			if by == "" {
				args = append(args, strconv.FormatInt(n, 10))
			}
		}
	}
	if len(p.booked) == 0 {
		return args
	}
	spaces := make(map[string]int, len(p.spaces))
	for i := range p.spaces {
		spaces[p.spaces[i].name] = i + 1
	}
	for i := range p.booked {
		b := &p.booked[i]
		args = append(args, b.name(), strconv.Itoa(len(b.books)))
		for j := range b.books {
			args = append(args, b.books[j].field)
		}
		for j := range b.books {
			args = append(args, strconv.FormatInt(p.Cells[b.books[j].cell].Book, 10))
		}
		for j := range b.books {
			args = append(args, p.fresh(&b.books[j], spaces))
		}
	}
	return args
}

// fresh is what add.lua takes if a counter is new, "" if it must not be: the halves of
// what the book adds to the record, and where the cell is.
func (p *planned) fresh(b *counterBook, spaces map[string]int) string {
	if b.known {
		return ""
	}
	c := &p.Cells[b.cell]
	change := decide.PartChange(c.Cell, partBook, uint64(c.Book))
	text := make([]byte, 0, 128)
	for _, n := range [...]uint64{
		change.Sum >> 32, change.Sum & math.MaxUint32, change.Check >> 32, change.Check & math.MaxUint32, uint64(spaces[c.Namespace]), uint64(p.places[b.cell]),
	} {
		text = append(strconv.AppendUint(text, n, 10), ' ')
	}
	return string(text)
}
