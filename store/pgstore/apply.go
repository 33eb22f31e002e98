package pgstore

import (
	"context"
	"math"
	"slices"

	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// Apply applies the batches in one transaction, in their order.
func (s *Store) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "apply %d batches into %d replies", len(batches), len(replies))
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.meters.calls.Add(1)
	w := &work{lazy: true}
	for i := range batches {
		b, r := &batches[i], &replies[i]
		*r = store.Reply{Results: r.Results[:0]}
		if r.Err = check(b); r.Err == nil {
			w.batches, w.replies = append(w.batches, b), append(w.replies, r)
			w.lazy = w.lazy && b.Durability == store.Memory
		}
	}
	if len(w.batches) == 0 {
		return nil
	}
	if err := s.apply(ctx, w); err != nil {
		return err
	}
	for _, r := range w.replies {
		r.Durability, r.Retries = s.durability, w.retries
		if w.lazy {
			r.Durability = store.Memory
		} else {
			s.tell(r.Results)
		}
	}
	return nil
}

// tell notes the highest version that callers are told of.
func (s *Store) tell(results []store.Result) {
	var highest uint64
	for i := range results {
		highest = max(highest, results[i].Version)
	}
	for told := s.told.Load(); told < highest; told = s.told.Load() {
		if s.told.CompareAndSwap(told, highest) {
			return
		}
	}
}

// apply tries the short way first.
func (s *Store) apply(ctx context.Context, w *work) error {
	var bounded []string
	if len(w.batches) == 1 {
		if p, ok := plainOf(w.batches[0]); ok {
			if bounded = p.bounded(); !s.short.any(bounded) {
				if done, err := s.applyShort(ctx, p, w); done || err != nil {
					return err
				}
			}
		}
	}
	_, err := s.transact(ctx, w)
	refused := func(r store.Result) bool { return r.Outcome == store.Bounded && !r.Replayed }
	if err == nil && len(bounded) > 0 && slices.ContainsFunc(w.replies[0].Results, refused) {
		s.short.add(bounded)
	}
	return err
}

// applyShort applies the only batch of w, which is plain, in one round trip. It reports
// false if the batch has to be decided here.
func (s *Store) applyShort(ctx context.Context, p *plain, w *work) (done bool, err error) {
	if s.isOne(p, w) {
		if done, err = s.applyOne(ctx, p, w); done || err != nil {
			return done, err
		}
		if p.least != nil { // The other way would not find it otherwise.
			return false, nil
		}
	}
	return s.applyPlain(ctx, p, w)
}

// check returns an error if b is no batch for this store.
func check(b *store.Batch) error {
	if b.Writer > math.MaxInt64 {
		return store.Errorf(store.KindInvalid, "writer %d was never issued", b.Writer)
	}
	return store.CheckBatch(b, 1)
}

// sortCells puts cells into the order in which they are locked, each once.
func sortCells(cells []store.Cell) []store.Cell {
	slices.SortFunc(cells, plan.Compare)
	return slices.Compact(cells)
}

// columns returns cells as the arrays that statements take.
func columns(cells []store.Cell) (namespaces, keys [][]byte) {
	namespaces, keys = make([][]byte, len(cells)), make([][]byte, len(cells))
	n := 0
	for i := range cells {
		n += len(cells[i].Key)
	}
	all := make([]byte, 0, n)
	for i := range cells {
		if i > 0 && cells[i].Namespace == cells[i-1].Namespace {
			namespaces[i] = namespaces[i-1]
		} else {
			namespaces[i] = []byte(cells[i].Namespace)
		}
		from := len(all)
		all = append(all, cells[i].Key...)
		keys[i] = all[from:]
	}
	return namespaces, keys
}
