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

	// Forgotten says that the token of the write does not remember this, because there
	// was no room for it: sent again, the write is decided anew. The tokens of counters
	// without views never remember it, and do not say so.
	Forgotten bool
}

// Error says what was asked and what stood in the way.
func (e *BoundError) Error() string {
	side := "below the floor"
	if e.Above {
		side = "above the ceiling"
	}
	more := ""
	if e.Forgotten {
		more = Forgotten
	}
	if e.Set {
		return fmt.Sprintf("quipu: %d is %s of %d; the counter stays at %d%s", e.Asked, side, e.Limit, e.Value, more)
	}
	return fmt.Sprintf("quipu: adding %d to %d would end %s of %d%s", e.Asked, e.Value, side, e.Limit, more)
}

// Forgotten is what the error of a refusal adds that the write's token does not remember.
const Forgotten = "; there is no room to remember that, so a repeat is decided anew"

// Unwrap returns store.ErrBound.
func (*BoundError) Unwrap() error { return store.ErrBound }
