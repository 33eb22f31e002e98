package engine

import (
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// fences are what a batch is judged by as a whole after its mark: the highest books seen,
// and the first epochs that are kept.
type fences struct {
	books  decide.Fences
	floors decide.Floors
	rises  uint64         // how often a floor has risen
	dirty  bool           // changed since the last checkpoint began
	risen  []decide.Shelf // whose floor has risen since: what is below is to be removed
}

func newFences() fences {
	return fences{books: decide.Fences{}, floors: decide.Floors{}}
}

// judge returns an error if a batch was made under an older book, or changes a part that
// is not kept any more.
func (e *Engine) judge(b *store.Batch) error {
	f := &e.fences
	if len(f.books) > 0 {
		some := *b
		if isOfOne(b) { // Fast path: all others are judged as the first is.
			some.Deltas = b.Deltas[:1]
		}
		if err := f.books.Judge(&some); err != nil {
			return err
		}
	}
	if len(f.floors) == 0 {
		return nil
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Event == nil {
			continue
		}
		v := e.viewOf(d)
		if v != nil && v.judged == f.rises { // Fast path: its parts were kept, and no floor has risen since.
			continue
		}
		if f.floors.Judge(&store.Batch{Deltas: b.Deltas[i : i+1]}) != nil {
			return f.floors.Judge(b) // it says which
		}
		if v != nil {
			v.judged = f.rises
		}
	}
	return nil
}

// isOfOne reports whether all deltas of a batch are to cells of one namespace of callers.
func isOfOne(b *store.Batch) bool {
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Cell.Namespace == "" || d.Cell.Namespace != b.Deltas[0].Cell.Namespace || d.Op == store.OpRetire {
			return false
		}
	}
	return len(b.Deltas) > 0
}

func (f *fences) raiseBook(to store.Book) {
	f.books[to.Namespace] = max(f.books[to.Namespace], to.ID)
	f.dirty = true
}

func (f *fences) raiseFloor(to store.Floor) {
	s := shelfOf(to)
	f.floors[s] = max(f.floors[s], to.Epoch)
	f.risen = append(f.risen, s)
	f.rises++
	f.dirty = true
}

func shelfOf(f store.Floor) decide.Shelf {
	return decide.Shelf{Namespace: f.Namespace, Kind: f.Kind, View: f.View}
}

// raise keeps and logs the books and floors of a batch that is applied.
func (c *change) raise(b *store.Batch) {
	f := &c.e.fences
	for _, to := range b.Books {
		if to.ID > f.books[to.Namespace] {
			c.f.Payload = appendBook(c.f.Payload, to)
			f.raiseBook(to)
			c.e.fenced = true
			c.e.arm()
		}
	}
	for _, to := range b.Floors {
		if to.Epoch > f.floors[shelfOf(to)] {
			c.f.Payload = appendFloor(c.f.Payload, to)
			f.raiseFloor(to)
			c.e.arm()
		}
	}
}

// gone reports whether a part, by its key, is below its floor.
func (f *fences) gone(key []byte) bool {
	if f == nil || len(f.floors) == 0 {
		return false
	}
	epoch := epochOf(key)
	if epoch == nil {
		return false
	}
	r := reader{b: epoch}
	s := r.shelf()
	return r.epoch() < f.floors[s]
}

// stop reports whether a batch that names no book may not change a cell.
func (f *fences) stop(c *store.Cell) bool {
	return c.Namespace == "" || f.books[c.Namespace] > 0
}
