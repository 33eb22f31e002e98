package call

import (
	"fmt"

	"github.com/quipudb/quipu/store"
)

// A BoundError is the error of a write that a floor or a ceiling refused. It
// matches store.ErrBound.
type BoundError struct {
	Value int64 // the counter, which stays as it is
	Asked int64 // the amount that was to be added, or the value that was to be set
	Limit int64 // the floor or the ceiling
	Above bool  // the limit is a ceiling
	Set   bool  // the write was no Add
}

// Error says what was asked and what stood in the way.
func (e *BoundError) Error() string {
	side := "below the floor"
	if e.Above {
		side = "above the ceiling"
	}
	if e.Set {
		return fmt.Sprintf("quipu: %d is %s of %d; the counter stays at %d", e.Asked, side, e.Limit, e.Value)
	}
	return fmt.Sprintf("quipu: adding %d to %d would end %s of %d", e.Asked, e.Value, side, e.Limit)
}

// Unwrap returns store.ErrBound.
func (*BoundError) Unwrap() error { return store.ErrBound }
