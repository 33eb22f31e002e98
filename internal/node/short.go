package node

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// shorts are counters of which a run was refused by its bound not long ago: what is left
// will do for some of its adds, or for none. For a moment they go side by side instead, or
// each would be sent twice.
type shorts map[store.Cell]time.Time

// shortFor is how long that moment is.
const shortFor = 100 * time.Millisecond

// has reports whether a delta, which has a bound if it matters, goes by itself.
func (s shorts) has(d *store.Delta) bool {
	if d.Guard.Bound == nil || len(s) == 0 {
		return false
	}
	at, ok := s[d.Cell]
	return ok && time.Since(at) < shortFor
}

// add notes that a run of which a delta was one was refused.
func (s *shorts) add(d *store.Delta) {
	if d.Guard.Bound == nil {
		return
	}
	if *s == nil || len(*s) >= runsKept {
		*s = make(shorts)
	}
	(*s)[d.Cell] = time.Now()
}
