package pgstore

import "context"

// Rotate begins and drops generations of tokens as the upkeep does.
func (s *Store) Rotate(ctx context.Context) error { return s.rotate(ctx) }

// Step folds and expires as the upkeep does.
func (s *Store) Step(ctx context.Context) error {
	_, err := s.step(ctx)
	return err
}

// Margin is how near a namespace must be to its limit to be counted alone.
func (s *Store) Margin() int64 { return s.margin }
