package memstore

import "github.com/quipudb/quipu/store"

// A partition keeps the marks of its writers.
type partition struct {
	marks      map[store.Writer]*mark
	floor      store.Writer // unknown writers up to this one are refused
	unnumbered record       // what batches without a writer, and retired writers, changed
}

// A mark is the last batch applied from a writer.
type mark struct {
	seq     uint64
	digest  uint64
	results []store.Result
	record
}

// admit returns an error if a writer that p does not know may not have a mark.
func (s *Store) admit(p *partition, w store.Writer) error {
	if w <= p.floor {
		return store.Errorf(store.KindRetired, "writer %d: those up to %d are retired", w, p.floor)
	}
	if len(p.marks) >= s.limits.WritersMax {
		return store.Errorf(store.KindFull, "writer %d: the partition holds %d marks, its limit", w, len(p.marks))
	}
	return nil
}

// retire forgets the marks of writers up to last and refuses those writers
// from now on. A writer that retires itself keeps the mark of the batch that
// does so, since it is set after the deltas: the batch can be sent again.
func (p *partition) retire(last store.Writer) {
	p.floor = max(p.floor, last)
	for w, m := range p.marks {
		if w <= last {
			p.unnumbered.merge(m.record)
			m.record = record{}
			delete(p.marks, w)
		}
	}
}
