package spread

import (
	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A partial is a read of a counter of which some cells can't be reached: it asks for
// each by itself, once.
type partial struct {
	of *counter

	value   store.Value // the sum of those that were reached
	missing int         // how many were not
	err     error
}

func (m *partial) next(got []answer) []call {
	if got == nil {
		calls := make([]call, len(m.of.cells))
		for i := range calls {
			calls[i].read = m.of.cells[i : i+1]
		}
		return calls
	}
	parts := make([]store.Value, 0, len(got))
	var err error
	for i := range got {
		if got[i].err != nil {
			m.missing, err = m.missing+1, got[i].err
			continue
		}
		v := got[i].values[0]
		if !m.has(i, hot.Of(v)) {
			m.missing, m.err = 0, store.Errorf(store.KindUnavailable, "the layout of %q has changed", m.of.cells[0].Key)
			return nil
		}
		m.value.N, m.value.Version = plus(m.value.N, v.N), mix(m.value.Version, v.Version)
		parts = append(parts, v)
	}
	if len(parts) == 0 {
		m.missing, m.err = 0, err
		return nil
	}
	m.value = store.Value{N: m.value.N, Version: noCells(m.value.Version), Exists: true, Layout: int64(m.of.word), AsOfMS: asOf(parts)}
	return nil
}

// has reports whether a cell with a word is the i-th of the counter.
func (m *partial) has(i int, w hot.Word) bool {
	if i == 0 {
		return w.Same(m.of.word)
	}
	open := hot.Open(m.of.word.Gen())
	return w == open || w == open.Fold()
}
