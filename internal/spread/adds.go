package spread

import (
	"math/rand/v2"

	"github.com/quipudb/quipu/store"
)

// StartAdds is Start for plain adds. The store leaves those to counters that are
// split, as it leaves all cells that have a layout.
func (s *Store) StartAdds(a *store.Adds, done func(error)) bool {
	adder, ok := s.starter.(store.Adder)
	if !ok || !s.loaded.Load() || !s.splitting.TryRLock() {
		return false
	}
	defer s.splitting.RUnlock()
	if s.takeTurn() {
		began, told, some := s.options.Now(), done, some(a)
		done = func(err error) {
			if err == nil {
				s.took(some, began)
			}
			told(err)
		}
	}
	if !adder.StartAdds(a, done) {
		return false
	}
	if s.chosen() {
		s.note(some(a), nil, s.options.Now(), 0)
	}
	return true
}

// some returns a batch of a few adds that stand for all.
func some(a *store.Adds) []store.Batch {
	step := max(1, len(a.Each)/noted)
	b := store.Batch{Apart: true}
	for i := rand.IntN(step); i < len(a.Each); i += step {
		add := &a.Each[i]
		b.Deltas = append(b.Deltas, store.Delta{
			Cell: store.Cell{Namespace: a.Namespace, Key: string(a.KeyOf(add))},
			Op:   store.OpAdd, Want: true, N: add.N, Writes: add.Times * uint32(step),
		})
	}
	return []store.Batch{b}
}
