package spread

import (
	"context"
	"fmt"
	"slices"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// Each book brings a view, whose id is the book's. What an add has counted is in its
// window, and all else of the total is outside of it.

func windowOf(view int64) store.Part {
	return store.PartFields{Kind: store.PartWindow, View: uint16(view), Epoch: 7}.Part()
}

func outsideOf(view int64) store.Part {
	return store.PartFields{Kind: store.PartOutside, View: uint16(view)}.Part()
}

var partBook = store.PartFields{Kind: store.PartBook}.Part()

// ridersUnder returns what rides on a change under a book, and for each view by what was
// applied on another part.
func ridersUnder(id int64, each func(view int64) store.Part) (riders []store.Rider) {
	for view := int64(1); view <= id; view++ {
		riders = append(riders, store.Rider{
			Part: outsideOf(view), Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: view},
		})
		if each != nil {
			riders = append(riders, store.Rider{Part: each(view), Op: store.OpAdd, Amount: store.AmountApplied})
		}
	}
	return append(riders, store.Rider{Part: partBook, Op: store.OpMax, N: id})
}

func touchUnder(id int64) *store.Event {
	if id == 0 {
		return nil
	}
	return &store.Event{Riders: ridersUnder(id, nil)}
}

// A framed is a write as the definitions have it that a server knows. If they are
// outdated, the server reads them, and makes the write anew.
type framed struct {
	*write
	w     *world
	by    *actor
	delta store.Delta
	id    int64 // of the book that it was made under
}

func (m *framed) next(got []answer) []call {
	if m.write == nil {
		return m.make()
	}
	calls := m.write.next(got)
	if len(calls) > 0 || m.err != nil || !stale(m.replies) {
		return calls
	}
	if m.id == m.w.book {
		m.w.fails("the highest book is outdated")
		return nil
	}
	m.by.id = m.w.book
	return m.make()
}

func (m *framed) make() []call {
	d, id := m.delta, m.by.id
	m.id = id
	b := store.Batch{Partition: store.PartitionOf(subject, m.partitions()), Deltas: []store.Delta{d}}
	if id > 0 {
		b.Books = []store.Book{{Namespace: subject.Namespace, ID: id}}
		each := windowOf
		if d.Op != store.OpAdd {
			each = outsideOf
		}
		b.Deltas[0].Event = &store.Event{Riders: ridersUnder(id, each)}
	}
	// An add goes to the shard that it names.
	m.write = m.by.newWrite([]store.Batch{b}, make([]store.Reply, 1), func(d *store.Delta, shards int) int { return int(d.Lot) % shards })
	return m.write.next(nil)
}

func (m *framed) partitions() int { return m.w.scene.partitions }

// stale reports whether a batch was refused as outdated.
func stale(replies []store.Reply) bool {
	return slices.ContainsFunc(replies, func(r store.Reply) bool { return r.Err != nil && store.KindOf(r.Err) == store.KindOutdated })
}

// publishing has a server publish the next book.
var publishing = act{name: "publish", begin: func(w *world, s *actor) machine {
	w.book++
	s.id = w.book
	return raising.begin(w, s)
}}

// announcing has a server publish it without raising what partitions know, which raising
// does. Between them, telling has all servers hear of it.
var (
	announcing = act{name: "announce", begin: func(w *world, s *actor) machine {
		w.book++
		s.id = w.book
		return nothing{}
	}}
	raising = act{name: "raise", begin: func(w *world, _ *actor) machine {
		return &publisher{partitions: w.scene.partitions, id: w.book}
	}}
	telling = act{name: "tell", begin: func(w *world, _ *actor) machine { return &teller{w: w} }}
)

// knowing has a server hear of the highest book.
var knowing = act{name: "hear", begin: func(w *world, s *actor) machine {
	s.id = w.book
	return nothing{}
}}

// widening lets a server's adds with views go to shards.
var widening = act{name: "widen", begin: func(_ *world, s *actor) machine {
	k := s.known.get(subject)
	if k == nil || k.word.Folding() {
		return nothing{}
	}
	return &widen{core: &s.core, cell: subject, of: k}
}}

// nothing is what a server does that has nothing to do.
type nothing struct{}

func (nothing) next([]answer) []call { return nil }

// A teller reads something, and then tells all servers of the highest book.
type teller struct {
	w     *world
	asked bool
}

func (m *teller) next([]answer) []call {
	if m.asked {
		for _, s := range m.w.actors {
			s.id = m.w.book
		}
		return nil
	}
	m.asked = true
	return reads(subject)
}

// A publisher raises the book of each partition.
type publisher struct {
	partitions int
	id         int64
	asked      bool
}

func (m *publisher) next([]answer) []call {
	if m.asked {
		return nil
	}
	m.asked = true
	var batches []store.Batch
	for i := range m.partitions {
		batches = append(batches, store.Batch{Partition: i, Books: []store.Book{{Namespace: subject.Namespace, ID: m.id}}})
	}
	return []call{{apply: batches}}
}

// partsOf returns the parts of the cells of the counter: the book, the width, and for each
// view what is outside of it, and its window.
func (w *world) partsOf() (of [shardsMost][]int64) {
	if w.book == 0 {
		return of
	}
	var all []store.PartCell
	for _, c := range parts {
		all = append(all, store.PartCell{Cell: c, Part: partBook}, store.PartCell{Cell: c, Part: partWidth})
		for view := int64(1); view <= w.book; view++ {
			all = append(all, store.PartCell{Cell: c, Part: outsideOf(view)}, store.PartCell{Cell: c, Part: windowOf(view)})
		}
	}
	contents := make([]store.Content, len(all))
	if err := w.under.ReadParts(context.Background(), all, contents); err != nil {
		w.fails("%v", err)
	}
	for i := range contents {
		of[i*shardsMost/len(all)] = append(of[i*shardsMost/len(all)], contents[i].N)
	}
	return of
}

// checkViews checks that what a view has, and what is outside of it, adds up to the
// total, but for cells that nobody has written to since the view came; and that whoever
// reads a view looks at all shards that have some of it.
func (w *world) checkViews(home hot.Word, cells [shardsMost]store.Value) {
	of := w.partsOf()
	if w.lossy { // as the total is
		return
	}
	for view := int64(1); view <= w.book; view++ {
		n, shown := int64(0), ""
		for i := range cells {
			outside, window := of[i][2*view], of[i][2*view+1]
			n += outside + window
			if (outside != 0 || window != 0) && int64(i) > of[0][1] {
				w.fails("shard %d has parts of view %d, and the width is %d", i, view, of[0][1])
			}
			word := hot.Word(cells[i].Layout)
			live := i == 0 || home != 0 && i < home.Shards() && (word == hot.Open(home.Gen()) || word == hot.Open(home.Gen()).Fold())
			if live && of[i][0] < view {
				n += cells[i].N
			}
			shown += fmt.Sprintf(" [%d, book %d, outside %d, window %d]", cells[i].N, of[i][0], outside, window)
		}
		if n != w.truth {
			w.fails("view %d adds up to %d, and the counter is %d:%s", view, n, w.truth, shown)
		}
	}
}
