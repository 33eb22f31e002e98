package memstore

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/store"
)

// A record says how much was changed under a mark, apart from the cells
// themselves. Sums wrap around: they are compared, never read as numbers.
type record struct {
	deltas uint64 // changes applied
	sum    uint64 // of all changes
	check  uint64 // of all changes, each multiplied by a hash of its cell
}

func (r *record) enter(c store.Cell, delta uint64) {
	r.deltas++
	r.merge(change(c, delta))
}

// change is the record of a change that no delta made.
func change(c store.Cell, delta uint64) record {
	return record{sum: delta, check: hash(c) * delta}
}

func (r *record) merge(o record) {
	r.deltas += o.deltas
	r.sum += o.sum
	r.check += o.check
}

// hash is FNV-1a, made odd so that no delta is multiplied away.
func hash(c store.Cell) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, s := range [...]string{c.Namespace, "\x00", c.Key} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	return h | 1
}

// Audit adds up the cells of each partition and compares the sums with those
// that the marks carry, and the counted keys with the cells there are.
func (s *Store) Audit(ctx context.Context) (store.Audit, error) {
	if err := s.enter(ctx); err != nil {
		return store.Audit{}, err
	}
	defer s.mu.Unlock()
	a := store.Audit{Cells: int64(len(s.cells)), Tokens: int64(len(s.tokens))}
	compare := func(have, want uint64, format string, args ...any) {
		if have != want {
			a.Drift = append(a.Drift, store.Drift{
				What: fmt.Sprintf(format, args...),
				Have: fmt.Sprint(have),
				Want: fmt.Sprint(want),
			})
		}
	}

	have := make([]record, len(s.parts))
	keys := make(map[string]int64)
	for c, v := range s.cells {
		have[store.PartitionOf(c, len(s.parts))].enter(c, uint64(v.N))
		keys[c.Namespace]++
	}
	for i := range s.parts {
		want := s.parts[i].unnumbered
		for _, m := range s.parts[i].marks {
			want.merge(m.record)
		}
		a.Deltas += want.deltas
		compare(have[i].sum, want.sum, "sum of cells in partition %d", i)
		compare(have[i].check, want.check, "check sum of cells in partition %d", i)
	}
	for ns, n := range s.keys {
		compare(uint64(keys[ns]), uint64(n), "keys of namespace %q", ns)
	}
	return a, nil
}

// Meters reports how much the store holds and how much was changed.
func (s *Store) Meters(f func(name, help string, value float64)) {
	s.mu.Lock()
	cells, tokens, marks, deltas := len(s.cells), len(s.tokens), 0, uint64(0)
	for i := range s.parts {
		p := &s.parts[i]
		marks += len(p.marks)
		deltas += p.unnumbered.deltas
		for _, m := range p.marks {
			deltas += m.deltas
		}
	}
	s.mu.Unlock()
	f("quipu_store_cells", "Cells that exist.", float64(cells))
	f("quipu_store_tokens", "Tokens remembered.", float64(tokens))
	f("quipu_store_marks", "Marks of writers remembered.", float64(marks))
	f("quipu_store_deltas_total", "Changes applied to cells.", float64(deltas))
}
