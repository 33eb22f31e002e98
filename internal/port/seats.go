package port

import (
	"cmp"
	"context"
	"slices"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A seat is where a user of a counter is: the counter's own cell, or a shard of it.
type seat struct {
	home store.Cell
	user string
}

// membersOf returns what package spread has to know of the users of a counter.
func (s *shared) membersOf(c store.Cell) (m spread.Members) {
	known := s.books.Known(c.Namespace)
	if m.Shards, m.May = known.Shards(c.Key); !m.May {
		return m
	}
	if keys := known.Of(c.Key); keys != nil {
		m.Assign = keys.Assign
	}
	return m
}

// mayHaveSeats reports whether the users of a counter may be in shards of it.
func (s *shared) mayHaveSeats(c store.Cell) bool {
	_, may := s.books.Known(c.Namespace).Shards(c.Key)
	return may
}

// seated reports whether it is known where the users of a counter are.
func (s *shared) seated(c store.Cell) bool { return s.spread == nil || s.spread.Acquainted(c) }

// seats returns the cells that have the users of a counter.
func (s *shared) seats(ctx context.Context, c store.Cell) ([]store.Cell, error) {
	if s.spread == nil {
		return []store.Cell{c}, nil
	}
	return s.spread.Seats(ctx, c)
}

// generation returns that of a counter's members, as the store has it. A reset that has not
// ended is ended before. If somebody is about to react, it is settled where members are.
func (s *shared) generation(ctx context.Context, c store.Cell, reacts bool) (gen int64, err error) {
	if s.spread != nil {
		gen, err = s.spread.Generation(ctx, c, reacts)
	} else {
		var content [1]store.Content
		err = s.store.ReadParts(ctx, []store.PartCell{{Cell: c, Part: view.Generation()}}, content[:])
		gen = content[0].N
	}
	if err == nil {
		s.gens.put(c, gen)
	}
	return gen, err
}

// readGenerations fills in the generations of some reactions as the store has them.
func (p *Port) readGenerations(ctx context.Context, reactions []Reaction, some []int, gens []int64) error {
	var plain []int
	apart := map[string]int64{}
	for _, i := range some {
		key := reactions[i].Key
		if !p.mayHaveSeats(p.Cell(key)) {
			plain = append(plain, i)
			continue
		}
		gen, known := apart[key]
		if !known {
			var err error
			if gen, err = p.generation(ctx, p.Cell(key), true); err != nil {
				return err
			}
			apart[key] = gen
		}
		gens[i] = gen
	}
	if len(plain) == 0 {
		return nil
	}
	parts, contents := make([]store.PartCell, len(plain)), make([]store.Content, len(plain))
	for n, i := range plain {
		parts[n] = store.PartCell{Cell: p.Cell(reactions[i].Key), Part: view.Generation()}
	}
	if err := p.readParts(ctx, parts, contents); err != nil {
		return err
	}
	for n, i := range plain {
		gens[i] = contents[n].N
		p.gens.put(parts[n].Cell, contents[n].N)
	}
	return nil
}

// chosen fills choices[i] with the number of what the user of seats[i] has chosen. It is read
// together with the generation of the same cell, so that members that are gone are not told.
func (p *Port) chosen(ctx context.Context, seats []seat, choices []int64) error {
	todo := make([]int, len(seats))
	for i := range todo {
		todo[i] = i
	}
	for range memberTries {
		parts, gens := make([]store.PartCell, 0, 2*len(todo)), make([]int64, len(todo))
		var of store.Cell
		var cells []store.Cell
		for n, i := range todo {
			s := &seats[i]
			if s.home != of {
				var err error
				if cells, err = p.seats(ctx, s.home); err != nil {
					return err
				}
				of = s.home
			}
			c := spread.SeatOf(cells, s.user)
			gens[n], _ = p.gens.get(s.home)
			parts = append(parts, store.PartCell{Cell: c, Part: view.Generation()}, store.PartCell{Cell: c, Part: view.Member(gens[n], s.user)})
		}
		contents := make([]store.Content, len(parts))
		if err := p.readParts(ctx, parts, contents); err != nil {
			return err
		}
		var again []int
		for n, i := range todo {
			if gen := contents[2*n].N; gen == gens[n] {
				choices[i] = contents[2*n+1].N
				continue
			} else if !p.mayHaveSeats(seats[i].home) {
				p.gens.put(seats[i].home, gen)
			} else if _, err := p.generation(ctx, seats[i].home, false); err != nil {
				return err
			}
			again = append(again, i)
		}
		if todo = again; len(todo) == 0 {
			return nil
		}
	}
	return errRestless(seats[todo[0]].home.Key)
}

// membersIn returns a page of the members of one generation that are in several cells, and
// the last user that was looked at, unless it was the last of all.
func (p *Port) membersIn(ctx context.Context, cells []store.Cell, gen int64, after string, q *MembersQuery) (page []Member, last string, err error) {
	if len(cells) == 1 {
		return p.membersOf(ctx, cells[0], gen, after, q)
	}
	for _, c := range cells {
		some, end, err := p.membersOf(ctx, c, gen, after, q)
		if err != nil {
			return nil, "", err
		}
		page = append(page, some...)
		if end != "" && (last == "" || end < last) { // Nobody has looked behind it there.
			last = end
		}
	}
	slices.SortFunc(page, func(a, b Member) int { return cmp.Compare(a.User, b.User) })
	if last != "" {
		page = slices.DeleteFunc(page, func(m Member) bool { return m.User > last })
	}
	if len(page) > q.Limit {
		page = page[:q.Limit]
		last = page[q.Limit-1].User
	}
	return page, last, nil
}
