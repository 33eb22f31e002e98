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

	// Forgotten says that there was no room to remember the refusal with the token: if
	// the write is sent again, it is decided again. The tokens of counters without a
	// definition never remember a refusal, and do not set Forgotten.
	Forgotten bool
}

// Error returns the amount or value that was asked for and the limit that
// refused it.
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

// Forgotten is added to the error of a refused write if its token does not
// remember the refusal.
const Forgotten = "; there is no room to remember that, so a repeat is decided anew"

// Unwrap returns store.ErrBound.
func (*BoundError) Unwrap() error { return store.ErrBound }
