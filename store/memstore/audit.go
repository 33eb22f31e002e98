package memstore

import (
	"context"
	"fmt"
	"maps"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

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

	have := make([]decide.Record, len(s.parts))
	keys := make(map[string]int64)
	for c, v := range s.cells {
		have[store.PartitionOf(c, len(s.parts))].Merge(decide.Change(c, uint64(v.N)))
		keys[c.Namespace]++
	}
	epochs := make([]map[epoch]decide.Record, len(s.parts))
	for id, v := range s.held {
		home := store.PartitionOf(id.Cell, len(s.parts))
		change := decide.PartChange(id.Cell, id.Part, uint64(v.N))
		shelf, e, ok := decide.ShelfOf(id.Cell, id.Part)
		if !ok {
			have[home].Merge(change)
			continue
		}
		if epochs[home] == nil {
			epochs[home] = make(map[epoch]decide.Record)
		}
		change.Merge(epochs[home][epoch{shelf, e}])
		epochs[home][epoch{shelf, e}] = change
	}
	for i := range s.parts {
		all := maps.Clone(s.parts[i].tallies)
		for e := range epochs[i] {
			all[e] = s.parts[i].tallies[e] // also if it has none
		}
		for e, want := range all {
			if e.epoch >= s.parts[i].floors[e.Shelf] { // those below are gone
				compare(epochs[i][e].Check, want.Check, "check sum of parts of kind %#x, view %d, epoch %#x of namespace %q in partition %d", e.Kind, e.View, e.epoch, e.Namespace, i)
			}
		}
	}
	for i := range s.parts {
		want := s.parts[i].unnumbered
		for _, m := range s.parts[i].marks {
			want.Merge(m.Record)
		}
		a.Deltas += want.Deltas
		compare(have[i].Sum, want.Sum, "sum of cells in partition %d", i)
		compare(have[i].Check, want.Check, "check sum of cells in partition %d", i)
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
		deltas += p.unnumbered.Deltas
		for _, m := range p.marks {
			deltas += m.Record.Deltas
		}
	}
	writes, reads := s.writes, s.reads
	s.mu.Unlock()
	if !s.shared { // Else a node counts them.
		f("quipu_writes_total", "Writes of callers that were decided, each by itself though some come combined.", float64(writes))
		f("quipu_store_reads_total", "Cells read.", float64(reads))
	}
	f("quipu_store_cells", "Cells that exist.", float64(cells))
	f("quipu_store_tokens", "Tokens remembered.", float64(tokens))
	f("quipu_store_marks", "Marks of writers remembered.", float64(marks))
	f("quipu_store_deltas_total", "Changes applied to cells.", float64(deltas))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Meters(f)
}
