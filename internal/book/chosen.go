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

	// Shards is the highest number of cells over which their users may have been laid.
	// Counters that have users keep it, so no bound can come to hold for them.
	Shards int `json:"shards,omitempty"`
}

// Sharded reports whether the users of a key may be laid over several cells, by this book
// or by an earlier one.
func (b *Book) Sharded(key string) bool {
	if e := b.Of(key); e != nil && e.Definition.Shards > 1 {
		return true
	}
	return slices.ContainsFunc(b.Chosen, func(c Chosen) bool { return c.Shards > 1 && names(c.Pattern, key) })
}

// AnySharded reports whether there may be such keys.
func (b *Book) AnySharded() bool {
	return slices.ContainsFunc(b.Entries, func(e Entry) bool { return e.Definition.Shards > 1 }) ||
		slices.ContainsFunc(b.Chosen, func(c Chosen) bool { return c.Shards > 0 })
}

// choose takes over what users may have chosen by the book before, and returns an error if
// a choice would come to mean another one.
func (b *Book) choose(old *Book) error {
	was := slices.Clone(old.Chosen)
	for _, e := range old.Entries {
		if len(e.Definition.Choices) > 0 {
			was = append(was, Chosen{Pattern: e.Definition.Pattern, Choices: e.Definition.Choices, Shards: several(e.Definition.Shards)})
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
				return store.Errorf(store.KindInvalid, "pattern %q: choices [%s] would change the meaning of reactions to %q, which were made under [%s]: keep these in their order, and add others after them",
					d.Pattern, strings.Join(d.Choices, ", "), c.Pattern, strings.Join(c.Choices, ", "))
			}
			kept = kept || covers(d.Pattern, c.Pattern) && len(d.Choices) >= len(c.Choices) && d.Shards >= c.Shards
		}
		if i := slices.IndexFunc(b.Entries, func(e Entry) bool {
			return c.Shards > 0 && e.Definition.Bound() != nil && overlap(e.Definition.Pattern, c.Pattern)
		}); i >= 0 {
			return store.Errorf(store.KindInvalid, "pattern %q: the users of %q are spread over several shards, so no shard can check a floor or a ceiling: leave it out",
				b.Entries[i].Definition.Pattern, c.Pattern)
		}
		covered := func(o Chosen) bool {
			return covers(o.Pattern, c.Pattern) && len(o.Choices) >= len(c.Choices) && o.Shards >= c.Shards
		}
		if !kept && !slices.ContainsFunc(b.Chosen, covered) {
			b.Chosen = append(b.Chosen, c)
		}
	}
	if n := len(b.Chosen); n > PatternsMax {
		return store.Errorf(store.KindTooLarge, "%d patterns that once had choices: at most %d", n, PatternsMax)
	}
	return nil
}

// several returns a number of shards, 0 if that is one.
func several(shards int) int {
	if shards > 1 {
		return shards
	}
	return 0
}
