package view

import (
	"math"
	"strconv"

	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// A Reaction is what a user does to have a choice, or none.
type Reaction struct {
	Choice     int64 // its number, from 1 on; 0 is none any more
	Only       int64 // with Choice 0: nothing happens if another choice is met; 0 is any
	Generation int64 // of members: those of another one do not count
}

// generation is the part that has the generation of a counter's members.
var generation = Generation()

// Generation returns the part that has the generation of a counter's members. It rises when
// all of them go.
func Generation() store.Part { return store.PartFields{Kind: store.PartGeneration}.Part() }

// Cleared returns the part that has a generation below which no members are left.
func Cleared() store.Part {
	return store.PartFields{Kind: store.PartGeneration, Position: 2}.Part()
}

// Member returns the part that has the number of what a user has chosen; absent is nothing.
func Member(gen int64, user string) store.Part {
	return store.PartFields{Kind: store.PartMember, Position: gen, Name: user}.Part()
}

// choicesShift is where the number of a choice ends in the position of its members.
const choicesShift = 16

// Members returns the part that has how many users have a choice.
func Members(gen, choice int64) store.Part {
	return store.PartFields{Kind: store.PartMembers, Position: gen<<choicesShift | choice}.Part()
}

// MembersOf takes the position of a part that Members returned apart.
func MembersOf(position int64) (gen, choice int64) {
	return position >> choicesShift, position & (1<<choicesShift - 1)
}

// Choices returns what users may choose, in the order of their numbers; nil if the counter
// takes no reactions.
func (v *Views) Choices() []string {
	if v == nil {
		return nil
	}
	return v.choices
}

// ChoiceName returns the name of a choice: of one that the definition does not have any more,
// its number.
func ChoiceName(choices []string, n int64) string {
	switch {
	case n == 0:
		return ""
	case n > 0 && n <= int64(len(choices)):
		return choices[n-1]
	default:
		return "#" + strconv.FormatInt(n, 10)
	}
}

// React returns the plan of a reaction at a time, which is the store's. Its lead is the
// member, and has the number of the choice. The first rider refuses it if the generation is
// another one, and only then the second one if nothing would change: so whoever is told that
// was told of members that count. See RefusedGeneration and RefusedSame.
//
// The choice that the user had has one member less, the new one one more. If the user had
// none, or has none any more, the counter and its views change as well.
func (v *Views) React(now int64, names []string, r Reaction) *Plan {
	p := &Plan{at: calendar.Span{To: math.MaxInt64}, now: calendar.Span{From: math.MinInt64, To: math.MaxInt64}}
	had := store.Met{Kind: store.MetNot}
	same := store.Met{Kind: store.MetEqual, N: r.Choice}
	if r.Only != 0 {
		same = store.Met{Kind: store.MetNot, N: r.Only}
	}
	never := store.Met{Kind: store.MetEqual, N: -1} // no generation is
	riders := []store.Rider{
		{Part: generation, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: r.Generation}},
		{Part: generation, Op: store.OpGet, Is: never, When: same},
		{Part: Members(r.Generation, 0), Place: store.PlaceMet, Op: store.OpAdd, N: -1, When: had},
	}
	n, when := int64(-1), had
	if r.Choice != 0 {
		n, when = 1, store.Met{Kind: store.MetEqual}
		riders = append(riders, store.Rider{Part: Members(r.Generation, r.Choice), Op: store.OpAdd, N: 1})
	}
	riders = append(riders, store.Rider{Op: store.OpAdd, N: n, When: when})
	riders = append(riders, v.bases()...)
	for _, part := range v.parts(p, now, now, names, (*ready).counts) {
		riders = append(riders, store.Rider{Part: part, Op: store.OpAdd, N: n, When: when})
	}
	p.Event = planned(riders)
	return p
}

// The riders of a reaction that refuse it, as Result.Refused names them.
const (
	RefusedGeneration = 1 // the generation of members is another one
	RefusedSame       = 2 // the user has the choice already, or has none
)

// React returns what v.React returns, for always the same v.
func (c *Plans) React(v *Views, now int64, names []string, r Reaction) *Plan {
	const onlyShift = 8
	kind := uint64(r.Generation)<<choicesShift | 1<<(choicesShift-1) | uint64(r.Only)<<onlyShift | uint64(r.Choice)
	p, _ := c.of(v, kind, now, now, names, func() (*Plan, error) { return v.React(now, names, r), nil })
	return p
}

// CountsOnce reports whether each user is counted once in a window.
func (v *Views) CountsOnce() bool { return v != nil && v.once != nil }
