package history

import (
	"maps"
	"slices"

	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// react takes a part that reactions have made, and reports whether it is one.
func (c *counted) react(f *store.PartFields, content *store.Content) bool {
	switch f.Kind {
	case store.PartGeneration:
		if f.Position == 0 { // All cells of the counter that have users are at one, or come to be.
			c.generation = max(c.generation, content.N)
		}
	case store.PartMembers:
		if c.told == nil {
			c.told = map[int64]int64{}
		}
		c.told[f.Position] += content.N
	case store.PartMember:
		if c.found == nil {
			c.found = map[int64]int64{}
		}
		position, _ := view.Members(f.Position, content.N).Fields()
		c.found[position.Position]++
	default:
		return false
	}
	return true
}

// settle makes the users that are counted the cells of the view that has reactions, once all
// parts of the counter were taken.
func (c *counted) settle(q *equations) {
	for i := range q.views {
		if q.views[i].Kind != store.PartMembers {
			continue
		}
		c.views[i].cells = 0
		for position, n := range c.told {
			if gen, _ := view.MembersOf(position); gen == c.generation {
				c.views[i].cells += uint64(n)
			}
		}
	}
}

// reacts reports whether the entry has choices.
func (q *equations) reacts() bool { return len(q.entry.Definition.Choices) > 0 }

// reactions returns the choices of a counter that have other users than are counted.
func (q *equations) reactions(c *counted) (found []finding) {
	all := slices.Sorted(maps.Keys(c.told))
	for position := range c.found {
		if _, ok := c.told[position]; !ok {
			all = append(all, position)
		}
	}
	for _, position := range all {
		gen, choice := view.MembersOf(position)
		if gen == c.generation && c.told[position] != c.found[position] {
			name := view.ChoiceName(q.entry.Definition.Choices, choice)
			found = append(found, finding{"users that have " + name + ", as they are counted: as there are", uint64(c.told[position]), uint64(c.found[position]), true})
		}
	}
	return found
}
