package redisstore

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// quarter is what the adds of one cell may come to in a batch that add.lua
// applies: far from the ends of int64 none of them can overflow.
const quarter = 1 << 62

// addServes is what add.lua serves.
const addServes = store.NeedMark | store.NeedValue | store.NeedToken | store.NeedLayout

// A planned batch is one of plain adds, summed by cell, as add.lua takes it.
type planned struct {
	batch  *store.Batch
	spaces []plannedSpace
	cells  []int // of each delta, its cell
	flat   []*plannedCell
	record decide.Record
	timed  bool // some tokens carry a time, these are the first and the last
	oldest int64
	newest int64
}

type plannedSpace struct {
	name   string
	cells  []*plannedCell // wanted ones first, then the others that are named
	wanted int
	named  int // the wanted ones too
	tokens []plannedToken
}

type plannedCell struct {
	cell   store.Cell
	space  int
	place  int // in its space, from 1
	sum    int64
	last   int // its last delta
	wanted bool
	named  bool // it must have the layout
	layout int64
}

type plannedToken struct {
	field string
	cell  *plannedCell
	delta int
	rest  string
}

// plan returns how add.lua applies a batch; ok is false if it can't: the batch
// has something else than adds, or conditions, or sums that may overflow, or it
// names two layouts for a cell.
func plan(b *store.Batch) (p *planned, ok bool) {
	if b.Needs()&^addServes != 0 {
		return nil, false
	}
	p = &planned{batch: b, cells: make([]int, len(b.Deltas))}
	places := make(map[store.Cell]int, len(b.Deltas))
	spaces := make(map[string]int, 1)
	var tokens map[[2]string]bool
	for i := range b.Deltas {
		d := &b.Deltas[i]
		g := &d.Guard
		if d.N >= quarter || d.N <= -quarter {
			return nil, false
		}
		at, known := places[d.Cell]
		if !known {
			s, listed := spaces[d.Cell.Namespace]
			if !listed {
				s = len(p.spaces)
				spaces[d.Cell.Namespace] = s
				p.spaces = append(p.spaces, plannedSpace{name: d.Cell.Namespace})
			}
			at = len(p.flat)
			places[d.Cell] = at
			p.flat = append(p.flat, &plannedCell{cell: d.Cell, space: s})
			p.spaces[s].cells = append(p.spaces[s].cells, p.flat[at])
		}
		c := p.flat[at]
		before := c.sum
		c.sum += d.N // two quarters do not overflow
		if c.sum >= quarter || c.sum <= -quarter {
			return nil, false
		}
		if d.NeedsWhole() || g.Laid {
			layout := int64(0) // of a counter that is whole
			if g.Laid {
				layout = g.Layout
			}
			if c.named && c.layout != layout {
				return nil, false
			}
			c.named, c.layout = true, layout
		}
		c.last, c.wanted = i, c.wanted || d.Want
		p.cells[i] = at
		if g.Token != "" {
			id := [2]string{d.Cell.Namespace, tokenField(d.Cell.Key, g.Token)}
			if tokens[id] {
				return nil, false // the second is a repeat
			}
			if tokens == nil {
				tokens = make(map[[2]string]bool)
			}
			tokens[id] = true
			p.carries(g.Token)
			t := decide.Token{Op: d.Op, N: d.N, Want: d.Want, Digest: g.Digest}
			sp := &p.spaces[c.space]
			sp.tokens = append(sp.tokens, plannedToken{field: id[1], cell: c, delta: i, rest: tokenRest(t, before, c.sum)})
		}
	}
	for i := range p.spaces {
		p.spaces[i].order()
	}
	for _, c := range p.flat {
		p.record.Merge(decide.Change(c.cell, uint64(c.sum)))
	}
	p.record.Deltas = uint64(len(b.Deltas))
	return p, true
}

// carries takes the time of a token into account: add.lua refuses to decide on
// one that may be expired.
func (p *planned) carries(token string) {
	ms, ok := store.TokenTime(token)
	if !ok {
		return
	}
	if !p.timed {
		p.timed, p.oldest, p.newest = true, ms, ms
	}
	p.oldest, p.newest = min(p.oldest, ms), max(p.newest, ms)
}

// order puts the wanted cells first, then those that are named, otherwise as they
// came.
func (s *plannedSpace) order() {
	rank := func(c *plannedCell) int {
		switch {
		case c.wanted:
			return 0
		case c.named:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(s.cells, func(a, b *plannedCell) int { return cmp.Compare(rank(a), rank(b)) })
	for i, c := range s.cells {
		c.place = i + 1
		if c.wanted {
			s.wanted++
		}
		if c.named {
			s.named++
		}
	}
}

// appendArgs appends what add.lua takes of the namespaces.
func (p *planned) appendArgs(args []string) []string {
	args = append(args, strconv.Itoa(len(p.spaces)))
	for i := range p.spaces {
		s := &p.spaces[i]
		args = append(args, s.name, strconv.Itoa(len(s.cells)), strconv.Itoa(s.wanted), strconv.Itoa(s.named), strconv.Itoa(len(s.tokens)))
		for _, c := range s.cells {
			args = append(args, c.cell.Key)
		}
		for _, c := range s.cells {
			args = append(args, strconv.FormatInt(c.sum, 10))
		}
		for _, c := range s.cells {
			args = append(args, strconv.Itoa(c.last+1))
		}
		for _, c := range s.cells[:s.named] {
			args = append(args, word(c.layout))
		}
		for _, t := range s.tokens {
			args = append(args, t.field)
		}
		for _, t := range s.tokens {
			args = append(args, strconv.Itoa(t.cell.place))
		}
		for _, t := range s.tokens {
			args = append(args, strconv.Itoa(t.delta+1))
		}
		for _, t := range s.tokens {
			args = append(args, t.rest)
		}
	}
	return args
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
	reply = reply[1:]
	is := make(map[*plannedCell]store.Value, wanted)
	for i := range p.spaces {
		for _, c := range p.spaces[i].cells[:p.spaces[i].wanted] {
			v := store.Value{}
			if reply[0] != "" {
				v.N, v.Exists = d.int(reply[0]), true
			}
			if reply[1] != "" {
				v.DeadlineMS = d.int(reply[1])
			}
			is[c] = v
			reply = reply[2:]
		}
	}
	for i := range p.batch.Deltas {
		delta := &p.batch.Deltas[i]
		r := store.Result{Outcome: store.Applied, Version: base + uint64(i) + 1}
		if c := p.flat[p.cells[i]]; c.wanted {
			v := is[c]
			if delta.Want {
				r.Before, r.After, r.Existed, r.DeadlineMS = v.N, v.N+delta.N, v.Exists, v.DeadlineMS
			}
			v.N, v.Exists = v.N+delta.N, true
			is[c] = v
		}
		rs = append(rs, r)
	}
	return rs, d.err
}
