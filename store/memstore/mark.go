package memstore

import (
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A partition keeps the marks of its writers.
type partition struct {
	marks      map[store.Writer]*decide.Mark
	floor      store.Writer // unknown writers up to this one are refused
	books      decide.Fences
	floors     decide.Floors
	tallies    map[epoch]decide.Record // of what was changed in each epoch of parts
	unnumbered decide.Record           // what batches without a writer, and retired writers, changed
}

// retire forgets the marks of writers up to last and refuses those writers
// from now on. A writer that retires itself keeps the mark of the batch that
// does so, since it is set after the deltas: the batch can be sent again.
func (p *partition) retire(last store.Writer) {
	p.floor = max(p.floor, last)
	for w, m := range p.marks {
		if w <= last {
			p.unnumbered.Merge(m.Record)
			m.Record = decide.Record{}
			delete(p.marks, w)
		}
	}
}
