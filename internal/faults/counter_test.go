package faults

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A counter is what the callers know of one. All of them add, so each of its
// values has one write that led to it.
type counter struct {
	key  string
	base int64 // what it was when the round began

	mu     sync.Mutex // guards the fields below
	acked  int64      // what was acknowledged since
	spans  []span
	doubts []*write
	denied []*write // of which it was said that they changed nothing
	proofs []*write // some of the acknowledged that have a token
	gaps   [2]gap   // by node
}

// A span is what a write was told: it led from one value to another.
type span struct {
	from, to int64
	by       *write
}

// A write is an add that was sent.
type write struct {
	counter *counter
	delta   int64
	token   string // "" if it has none
	node    int    // by which it was sent
	value   int64  // what it was told
}

func (w *write) String() string {
	return fmt.Sprintf("add %d to %s by node %d, token %q", w.delta, w.counter.key, w.node, w.token)
}

// proofsKept is how many writes that were acknowledged are sent again.
const proofsKept = 5

// told takes what a node said of a write.
func (w *write) told(r reply) {
	c := w.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.outcome {
	case refused:
		c.denied = append(c.denied, w)
	case counted:
		w.value = r.value
		c.acked += w.delta
		c.spans = append(c.spans, span{r.value - w.delta, r.value, w})
		c.gaps[w.node].end(time.Now())
		if w.token != "" && len(c.proofs) < proofsKept {
			c.proofs = append(c.proofs, w)
		}
	case doubtful, lost:
		c.doubts = append(c.doubts, w)
	}
}

// begin begins a round.
func (c *counter) begin(value int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.acked, c.spans, c.doubts, c.denied, c.proofs = value, 0, nil, nil, nil, nil
}

// bounds returns between which values the counter must be: what was acknowledged
// counts, what is in doubt may.
func (c *counter) bounds() (low, high int64) {
	low = c.base + c.acked
	high = low
	for _, w := range c.doubts {
		high += w.delta
	}
	return low, high
}

// overlaps returns the writes that were told the value of another one, or one
// that the counter can't have had.
func (c *counter) overlaps(value int64) (found []error) {
	slices.SortFunc(c.spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from)) })
	last := span{to: c.base}
	for _, s := range c.spans {
		if s.from < last.to || s.to > value {
			found = append(found, fmt.Errorf("%v: told %d, after %v was told %d; the counter is %d", s.by, s.to, last.by, last.to, value))
		}
		last = s
	}
	return found
}

// holes returns the values that nobody was told, of a counter of which too much
// was counted, and the writes of which it was said that they changed nothing:
// where to look for the fault.
func (c *counter) holes(value int64) (text string) {
	c.overlaps(value) // sorts
	last := c.base
	for _, s := range append(c.spans, span{from: value, to: value}) {
		if s.from > last {
			text += fmt.Sprintf("; nobody was told %d to %d", last+1, s.from)
		}
		last = s.to
	}
	for _, w := range c.denied {
		text += fmt.Sprintf("; refused: %v", w)
	}
	return text
}

// A gap is the longest time without an acknowledgement.
type gap struct {
	last    time.Time
	longest time.Duration
}

func (g *gap) end(at time.Time) {
	g.longest = max(g.longest, at.Sub(g.last))
	g.last = at
}

// mark begins to measure the gaps of a counter.
func (c *counter) mark(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.gaps {
		c.gaps[i] = gap{last: at}
	}
}

// countedSince reports whether all nodes have counted something since.
func (c *counter) countedSince(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.gaps {
		if !c.gaps[i].last.After(at) {
			return false
		}
	}
	return true
}

// longest returns the longest gap of the counter at any node.
func (c *counter) longest() (d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.gaps {
		d = max(d, c.gaps[i].longest)
	}
	return d
}
