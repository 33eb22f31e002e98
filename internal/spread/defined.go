package spread

import (
	"slices"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A defined is what a server knows of the definitions of a counter: the book of its
// namespace, and if the counter has views, the event of a change that they do not count.
//
// The total that a cell had before a view came is added to what is outside of that view by the
// first event under the book that brought it. A fold moves counts from shards to home.
// They must be outside of each view once: with the shard, if home had its first event
// before it took them in; with home otherwise. So a fold is made under one book from its
// first step to the last: it touches home, then each shard, and then home takes them in.
// Home's partition has seen that book by then, and nobody takes them in under a lower one.
type defined struct {
	book  store.Book
	touch *store.Event
}

// defined returns what is known of a counter.
func (m *core) defined(c store.Cell) (d defined) {
	if m.book != nil {
		d.book.Namespace = c.Namespace
		d.book.ID, d.touch = m.book(c)
	}
	return d
}

// touches returns the deltas that touch a cell which has a word: none if the counter has
// no views.
func (d defined) touches(c store.Cell, w hot.Word) []store.Delta {
	if d.touch == nil {
		return nil
	}
	return []store.Delta{laid(store.Delta{Cell: c, Op: store.OpAdd, Event: d.touch}, w)}
}

// partWidth is the number of the last shard that may have parts of a counter.
var partWidth = store.PartFields{Kind: store.PartWidth}.Part()

// widens returns the deltas by which a home that has a word keeps how many shards it has
// had: none if the counter has no views. No add with views goes to a shard before.
func (d defined) widens(c store.Cell, w hot.Word) []store.Delta {
	deltas := d.touches(c, w)
	for i := range deltas {
		touch := *d.touch
		touch.Riders = append(slices.Clip(touch.Riders), store.Rider{Part: partWidth, Op: store.OpMax, N: int64(w.Shards() - 1)})
		deltas[i].Event = &touch
	}
	return deltas
}

// outdated reports whether an error says that a book is outdated, and a higher one is
// known by now.
func (m *core) outdated(err error, c store.Cell, was defined) bool {
	return err != nil && store.KindOf(err) == store.KindOutdated && m.defined(c).book.ID > was.book.ID
}

// A widen lets the adds of a counter that have views go to its shards: others have split
// it, or it was split before it had views.
type widen struct {
	*core
	cell store.Cell
	of   *counter

	asked bool
	err   error
}

func (m *widen) next(got []answer) []call {
	if !m.asked {
		m.asked = true
		d := m.defined(m.cell)
		if deltas := d.widens(m.cell, m.of.word); len(deltas) > 0 {
			return m.changes(d, deltas...)
		}
		return nil
	}
	if m.err = failure(got); m.err != nil {
		return nil
	}
	if m.of.narrow.Store(false); applied(got) {
		m.of.wide.Store(true)
	} else {
		m.known.forget(m.cell, m.of)
	}
	return nil
}
