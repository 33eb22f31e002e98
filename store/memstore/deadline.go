package memstore

import (
	"container/heap"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A dueHeap has the cells that have a deadline, the soonest on top, each once.
type dueHeap struct {
	cells []due
	place map[store.Cell]int // in cells
}

type due struct {
	ms   int64
	cell store.Cell
}

// set makes ms the deadline of a cell; 0 is none.
func (h *dueHeap) set(c store.Cell, ms int64) {
	i, had := h.place[c]
	switch {
	case ms == 0 && had:
		heap.Remove(h, i)
	case ms == 0:
	case had:
		h.cells[i].ms = ms
		heap.Fix(h, i)
	default:
		heap.Push(h, due{ms, c})
	}
}

// Len, Less, Swap, Push and Pop are for package heap.
func (h *dueHeap) Len() int           { return len(h.cells) }
func (h *dueHeap) Less(i, j int) bool { return h.cells[i].ms < h.cells[j].ms }

// Swap swaps two cells.
func (h *dueHeap) Swap(i, j int) {
	h.cells[i], h.cells[j] = h.cells[j], h.cells[i]
	h.place[h.cells[i].cell], h.place[h.cells[j].cell] = i, j
}

// Push puts a cell at the end.
func (h *dueHeap) Push(x any) {
	d := x.(due)
	h.place[d.cell] = len(h.cells)
	h.cells = append(h.cells, d)
}

// Pop removes the cell at the end.
func (h *dueHeap) Pop() any {
	last := len(h.cells) - 1
	d := h.cells[last]
	h.cells[last] = due{}
	h.cells = h.cells[:last]
	delete(h.place, d.cell)
	return d
}

// expire removes the cells whose deadline has come. No batch did it, so what
// they held is taken from the record of batches without a writer.
func (s *Store) expire() {
	for len(s.due.cells) > 0 && s.due.cells[0].ms <= s.nowMS {
		c := s.due.cells[0].cell
		p := &s.parts[store.PartitionOf(c, len(s.parts))]
		p.unnumbered.Merge(decide.Change(c, -uint64(s.cells[c].N)))
		if s.cells[c].Layout == store.LayoutObject {
			p.unnumbered.Merge(decide.Lose(state{s}, c))
		}
		state{s}.Put(c, store.Value{})
	}
}
