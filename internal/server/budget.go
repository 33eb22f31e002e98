package server

import (
	"context"
	"slices"
	"sync"

	"github.com/quipudb/quipu/store"
)

// RequestMemoryDefault is the size of a Budget that nobody chose.
const RequestMemoryDefault = 64 << 20

// lineMax is how many requests may wait for memory. They hold little, but each
// that gives up is looked for in the line.
const lineMax = 1000

// errNoMemory refuses a request.
var errNoMemory = store.Errorf(store.KindUnavailable, "the server's memory for requests is used up")

// A Budget bounds the memory of large requests, from the first bytes of their
// bodies to the end of their replies, over all doors that share it. A request
// that finds it used up waits in line, and is refused if the line is long. It is
// safe for concurrent use.
type Budget struct {
	max int64

	mu      sync.Mutex // guards the fields below
	used    int64
	line    []*claim
	refused int64
}

// A claim is a request that waits.
type claim struct {
	n       int64
	granted chan struct{}
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{max: bytes} }

// Take takes n bytes, or all there are if that is less: what is larger than the
// budget goes alone. It returns how many it took, for Give, or
// store.ErrUnavailable if there were not so many until ctx ended. Take once for
// a request, because who waits while holding some may wait for its like.
func (b *Budget) Take(ctx context.Context, n int64) (int64, error) {
	n = min(n, b.max)
	b.mu.Lock()
	if len(b.line) == 0 && b.used+n <= b.max { // Fast path.
		b.used += n
		b.mu.Unlock()
		return n, nil
	}
	if len(b.line) >= lineMax {
		b.refused++
		b.mu.Unlock()
		return 0, errNoMemory
	}
	c := &claim{n, make(chan struct{})}
	b.line = append(b.line, c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return n, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.line, c)
	if i < 0 { // granted at the last moment
		return n, nil
	}
	b.line = slices.Delete(b.line, i, i+1)
	b.refused++
	b.grant() // those behind it may fit
	return 0, errNoMemory
}

// Give gives back what Take took.
func (b *Budget) Give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grant()
}

// grant serves the line, first come first served.
func (b *Budget) grant() {
	for len(b.line) > 0 && b.used+b.line[0].n <= b.max {
		b.used += b.line[0].n
		close(b.line[0].granted)
		b.line = slices.Delete(b.line, 0, 1)
	}
}

// meters returns what the budget counts.
func (b *Budget) meters() (used, waiting, refused float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used), float64(len(b.line)), float64(b.refused)
}
