package redisstore

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// quarter is what the adds of one cell may come to in a batch that add.lua
// applies: far from the ends of int64 none of them can overflow.
const quarter = 1 << 62

// A planned batch is one of plain adds, as add.lua takes it.
type planned struct {
	*plan.Adds
	books  []store.Book // of all counters, 0 where the batch has none
	floors []kept
	spaces []plannedSpace
	filled []filled
	booked []booked
	places []int // of each cell, its place in its namespace, from 1
}

type plannedSpace struct {
	name   string
	cells  []int // wanted ones first, then the others that are named
	wanted int
	named  int // the wanted ones too
	tokens []*plan.Token
	events bool // there are some
	bounds bool // some of the named ones have bounds
}

// fencesMax is how many books, and floors, add.lua looks at.
const fencesMax = 1000

// planOf returns how add.lua applies a batch; ok is false if it can't.
func planOf(b *store.Batch) (p *planned, ok bool) {
	adds, ok := plan.WithRiders(b)
	if !ok {
		return nil, false
	}
	if p, ok = placed(adds); !ok {
		return nil, false
	}
	p.books = slices.Clip(b.Books)
	if p.judged(); len(p.books) > fencesMax || !p.ride() {
		return nil, false
	}
	return p, true
}

// leadsOf is planOf without riders and bounds: what is told of a batch does not depend on
// them, and a repeat may have others.
func leadsOf(b *store.Batch) (p *planned, ok bool) {
	bare := store.Batch{Deltas: slices.Clone(b.Deltas)}
	for i := range bare.Deltas {
		bare.Deltas[i].Event, bare.Deltas[i].Guard.Bound = nil, nil
	}
	adds, ok := plan.Of(&bare)
	if !ok {
		return nil, false
	}
	return placed(adds)
}

// tooLong reports whether a limit, which may be none, has more characters than Lua compares
// exactly.
func tooLong(limit, none int64) bool {
	const exact = 999_999_999_999_999
	return limit != none && (limit > exact || limit < -exact)
}

// limitWord is a limit as add.lua takes it.
func limitWord(limit, none int64) string {
	if limit == none {
		return ""
	}
	return strconv.FormatInt(limit, 10)
}

// placed puts adds into the order in which add.lua takes them.
func placed(adds *plan.Adds) (p *planned, ok bool) {
	p = &planned{Adds: adds, places: make([]int, len(adds.Cells))}
	for i := range p.Cells {
		c := &p.Cells[i]
		if c.High >= quarter || c.Low <= -quarter || c.Bounded && (tooLong(c.Least, math.MinInt64) || tooLong(c.Most, math.MaxInt64)) {
			return nil, false
		}
		if i == 0 || c.Namespace != p.Cells[i-1].Namespace {
			p.spaces = append(p.spaces, plannedSpace{name: c.Namespace})
		}
		s := &p.spaces[len(p.spaces)-1]
		s.cells = append(s.cells, i)
		s.bounds = s.bounds || c.Bounded
		for _, delta := range p.Order[c.From:c.To] {
			s.events = s.events || p.Batch.Deltas[delta].Event != nil
		}
	}
	for i := range p.spaces {
		p.order(&p.spaces[i])
	}
	// Marks have it so: see docs/formats/redis.md.
	slices.SortFunc(p.spaces, func(a, b plannedSpace) int { return cmp.Compare(p.firstOf(&a), p.firstOf(&b)) })
	s := 0
	for i := range p.Tokens {
		t := &p.Tokens[i]
		for p.spaces[s].name != t.Delta.Cell.Namespace {
			s = (s + 1) % len(p.spaces)
		}
		p.spaces[s].tokens = append(p.spaces[s].tokens, t)
	}
	return p, true
}

// judged adds the namespaces to the books that the batch has none of.
func (p *planned) judged() {
	last := ""
	for i := range p.Cells {
		name := store.SpaceOf(p.Cells[i].Cell)
		if i > 0 && name == last {
			continue
		}
		last = name
		if !slices.ContainsFunc(p.books, func(b store.Book) bool { return b.Namespace == name }) {
			p.books = append(p.books, store.Book{Namespace: name})
		}
	}
}

// first returns the first delta of a cell.
func (p *planned) first(cell int) int32 { return p.Order[p.Cells[cell].From] }

// firstOf returns the first delta of a namespace.
func (p *planned) firstOf(s *plannedSpace) int32 {
	return p.first(slices.MinFunc(s.cells, func(a, b int) int { return cmp.Compare(p.first(a), p.first(b)) }))
}

// order puts the wanted cells of a namespace first, then those that are named,
// otherwise as they came.
func (p *planned) order(s *plannedSpace) {
	rank := func(cell int) int {
		switch c := &p.Cells[cell]; {
		case c.Want:
			return 0
		case c.Laid:
			return 1
		}
		return 2
	}
	slices.SortFunc(s.cells, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(p.first(a), p.first(b)))
	})
	for i, cell := range s.cells {
		p.places[cell] = i + 1
		if p.Cells[cell].Want {
			s.wanted++
		}
		if p.Cells[cell].Laid {
			s.named++
		}
	}
}

// last returns the last delta of a cell.
func (p *planned) last(cell int) int { return int(p.Order[p.Cells[cell].To-1]) }

// common returns what is added to each cell of a namespace, "" if that differs; whether
// each has one delta, in their order; and whether none must have a layout. Most batches
// are so, and need not say it of each cell.
func (p *planned) common(s *plannedSpace) (by string, inOrder, whole bool) {
	same, inOrder, whole := true, true, true
	for i, c := range s.cells {
		same = same && p.Cells[c].Sum == p.Cells[s.cells[0]].Sum
		inOrder, whole = inOrder && p.last(c) == i, whole && p.Cells[c].Layout == 0
	}
	if same {
		by = strconv.FormatInt(p.Cells[s.cells[0]].Sum, 10)
	}
	return by, inOrder, whole
}

// appendArgs appends what add.lua takes of the namespaces.
func (p *planned) appendArgs(args []string) []string {
	args = append(args, strconv.Itoa(len(p.spaces)), strconv.Itoa(len(p.books)), strconv.Itoa(len(p.floors)), strconv.Itoa(len(p.filled)), strconv.Itoa(len(p.booked)))
	for _, b := range p.books {
		args = append(args, bookField(b.Namespace))
	}
	for _, f := range p.floors {
		args = append(args, floorField(f.Shelf))
	}
	for _, b := range p.books {
		args = append(args, strconv.FormatInt(b.ID, 10))
	}
	for _, f := range p.floors {
		args = append(args, strconv.FormatUint(uint64(f.epoch), 10))
	}
	for i := range p.spaces {
		s := &p.spaces[i]
		by, inOrder, whole := p.common(s)
		args = append(args, s.name, strconv.Itoa(len(s.cells)), strconv.Itoa(s.wanted), strconv.Itoa(s.named), strconv.Itoa(len(s.tokens)),
			by, flag(!inOrder), flag(!whole), flag(s.events), flag(s.bounds))
		for _, c := range s.cells {
			args = append(args, p.Cells[c].Key)
		}
		for _, c := range s.cells {
			if by == "" {
				args = append(args, strconv.FormatInt(p.Cells[c].Sum, 10))
			}
		}
		for _, c := range s.cells {
			if !inOrder {
				args = append(args, strconv.Itoa(p.last(c)+1))
			}
		}
		for _, c := range s.cells[:s.named] {
			if !whole {
				args = append(args, word(p.Cells[c].Layout))
			}
		}
		if s.bounds {
			for _, c := range s.cells[:s.named] {
				args = append(args, p.limits(c, math.MinInt64))
			}
			for _, c := range s.cells[:s.named] {
				args = append(args, p.limits(c, math.MaxInt64))
			}
		}
		for _, t := range s.tokens {
			args = append(args, tokenField(t.Delta.Cell.Key, t.Guard.Token))
		}
		for _, t := range s.tokens {
			args = append(args, strconv.Itoa(p.places[t.Cell]))
		}
		for _, t := range s.tokens {
			args = append(args, strconv.Itoa(t.Place+1))
		}
		for _, t := range s.tokens {
			kept := decide.Token{Op: t.Op, N: t.N, Want: t.Want, Digest: t.Guard.Digest}
			args = append(args, tokenRest(kept, t.Before, t.Before+t.N))
		}
	}
	return p.appendFilled(args)
}

// limits returns the least or the most that a cell may be before the batch, by what none is.
func (p *planned) limits(cell int, none int64) string {
	switch c := &p.Cells[cell]; {
	case !c.Bounded:
		return ""
	case none < 0:
		return limitWord(c.Least, none)
	default:
		return limitWord(c.Most, none)
	}
}

// results appends what the deltas became: the reply of add.lua has the version
// before the batch, and a value and a deadline for each wanted cell.
func (p *planned) results(reply []string, rs []store.Result) ([]store.Result, error) {
	wanted := 0
	for i := range p.spaces {
		wanted += p.spaces[i].wanted
	}
	if len(reply) != 1+2*wanted {
		return nil, store.Errorf(store.KindCorrupt, "%d values of %d wanted cells", len(reply), wanted)
	}
	d := decoder{}
	base := d.uint(reply[0])
	met := make([]store.Value, len(p.Cells))
	reply = reply[1:]
	for i := range p.spaces {
		for _, c := range p.spaces[i].cells[:p.spaces[i].wanted] {
			if reply[0] != "" {
				met[c].N, met[c].Exists = d.int(reply[0]), true
			}
			if reply[1] != "" {
				met[c].DeadlineMS = d.int(reply[1])
			}
			reply = reply[2:]
		}
	}
	return p.Results(rs, func(cell int) store.Value { return met[cell] },
		func(_, delta, _ int) uint64 { return base + uint64(delta) + 1 }), d.err
}
