package spread

import (
	"errors"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A relearn looks at the homes of counters that others may have split, or laid out
// anew. If home still has a layout of which a shard did not take an add, that shard
// is lost: the counter is made whole by a fold.
type relearn struct {
	*core
	cells   []store.Cell
	refused map[store.Cell]hot.Word

	folding bool
	err     error
}

func (m *relearn) next(got []answer) []call {
	if got == nil {
		return reads(m.cells...)
	}
	for i := range got {
		m.err = errors.Join(m.err, got[i].err)
	}
	if m.folding || m.err != nil {
		return nil
	}
	var lost []store.Cell
	for i, c := range m.cells {
		v := &got[0].values[i]
		word := hot.Of(*v)
		m.known.learn(c, nil, word, v.Version)
		if word != 0 && word == m.refused[c] {
			lost = append(lost, c)
		}
	}
	m.folding = true
	return folds(lost, false)
}
