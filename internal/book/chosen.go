package book

import (
	"slices"
	"strings"

	"github.com/quipudb/quipu/store"
)

// reactions is the name of the view that has them.
const reactions = "reactions"

// A Chosen is what users may have chosen of the keys of a pattern, by an earlier
// definition. Members have the number of their choice, from 1 on, so it must mean the same
// for ever.
type Chosen struct {
	Pattern string   `json:"pattern"`
	Choices []string `json:"choices"`
}

// choose takes over what users may have chosen by the book before, and returns an error if
// a choice would come to mean another one.
func (b *Book) choose(old *Book) error {
	was := slices.Clone(old.Chosen)
	for _, e := range old.Entries {
		if len(e.Definition.Choices) > 0 {
			was = append(was, Chosen{e.Definition.Pattern, e.Definition.Choices})
		}
	}
	for _, c := range was {
		kept := false
		for _, e := range b.Entries {
			d := &e.Definition
			if len(d.Choices) == 0 || !overlap(d.Pattern, c.Pattern) {
				continue
			}
			if n := min(len(c.Choices), len(d.Choices)); !slices.Equal(c.Choices[:n], d.Choices[:n]) || d.Pattern == c.Pattern && n < len(c.Choices) {
				return store.Errorf(store.KindInvalid, "pattern %q: choices [%s] would change what users of %q have chosen, by [%s]: keep those in their order, and put others after them",
					d.Pattern, strings.Join(d.Choices, ", "), c.Pattern, strings.Join(c.Choices, ", "))
			}
			kept = kept || covers(d.Pattern, c.Pattern) && len(d.Choices) >= len(c.Choices)
		}
		covered := func(o Chosen) bool { return covers(o.Pattern, c.Pattern) && len(o.Choices) >= len(c.Choices) }
		if !kept && !slices.ContainsFunc(b.Chosen, covered) {
			b.Chosen = append(b.Chosen, c)
		}
	}
	if n := len(b.Chosen); n > PatternsMax {
		return store.Errorf(store.KindTooLarge, "%d patterns that once had choices: at most %d", n, PatternsMax)
	}
	return nil
}
