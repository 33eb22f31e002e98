package spread

import (
	"context"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// SplitOnce is for tests that do not wait for heat.
func (s *Store) SplitOnce(ctx context.Context, c store.Cell, shards int) (bool, error) {
	return s.split(ctx, c, shards)
}

// Split is SplitOnce, twice if need be: as one who looks again it removes what others
// have left behind.
func (s *Store) Split(ctx context.Context, c store.Cell, shards int) (bool, error) {
	if ok, err := s.split(ctx, c, shards); ok || err != nil {
		return ok, err
	}
	return s.split(ctx, c, shards)
}

// Shards returns how many shards a counter is known to have.
func (s *Store) Shards(c store.Cell) int {
	if k := s.known.get(c); k != nil {
		return len(k.cells)
	}
	return 1
}

// Loaded reports whether it knows what was split when it was made.
func (s *Store) Loaded() bool { return s.loaded.Load() }

// Refresh is what is done every second, Look what is done more often, and Adopt
// what is done at the start.
func (s *Store) Refresh(ctx context.Context) error { return s.refresh(ctx) }
func (s *Store) Look(ctx context.Context) error    { return s.look(ctx) }
func (s *Store) Adopt(ctx context.Context) error   { return s.adopt(ctx) }

// WordOf returns the layout of a counter's home, as it was read.
func WordOf(v store.Value) hot.Word { return hot.Word(v.Layout) }
