package crash

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/quipudb/quipu/store"
)

// A count is a counter as it was read.
type count struct {
	value   int64
	version uint64
}

// A counter is what is known of one counter.
//
// Its writes are kept until the next reckoning: then the process that got them
// is dead, and what it left behind is compared with them.
type counter struct {
	key        string
	durability store.Durability // of its policy
	rising     bool             // nothing is written to it but adds of more than 0
	deleted    bool             // it is deleted now and then, so versions don't order its writes
	views      views            // that it has

	mu       sync.Mutex // guards the fields below, and what its writes say
	base     count      // at the last reckoning
	recent   []*write   // sent since
	past     []*write   // if it has views: all that counted before
	untold   bool       // nobody can tell of some that were sent
	acked    int64      // if rising: what a read must count
	sent     int64      // if rising: what a read may count at most
	seen     int64      // if rising: the largest value that anyone has seen
	versions uint64     // the highest version seen
}

// floor returns what a read that begins now must count.
func (c *counter) floor() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acked
}

// saw takes what a read returned that began when floor was what it must count.
func (c *counter) saw(v count, floor int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions = max(c.versions, v.version)
	if !c.rising {
		return nil
	}
	if v.value < floor || v.value > c.sent {
		return fmt.Errorf("%s reads %d: want between %d, which was acknowledged, and %d, which was sent", c.key, v.value, floor, c.sent)
	}
	if c.durability > store.Memory {
		c.seen = max(c.seen, v.value)
	}
	return nil
}

// version returns the highest version seen.
func (c *counter) version() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions
}

// harden makes every acknowledged write firm: the process has ended in peace.
func (c *counter) harden() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.recent {
		w.firm = w.firm || w.state == applied
	}
}

// doubts returns the writes whose tokens must be looked up before a reckoning.
func (c *counter) doubts() (ws []*write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.recent {
		if w.doubtful() && w.traceable() {
			ws = append(ws, w)
		}
	}
	return ws
}

// reckon compares the recent writes with what the next process found: the
// counter as it reads now, and the fates of the doubtful writes. It returns
// the writes that are decided and those that did not count and may be sent
// again. The server is up, and nobody has written yet.
func (c *counter) reckon(v count, fates map[*write]fate) (decided, gone []*write, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var slack int64 // the sum of those that nobody can tell of
	var counted []*write
	for _, w := range c.recent {
		w.listed = false
		switch {
		case w.doubtful() && !w.traceable():
			slack += w.n
			c.untold = true
		case w.doubtful():
			if e := w.decide(fates[w]); e != nil {
				err = errors.Join(err, e)
			}
			if w.state == absent {
				gone = append(gone, w)
			}
		}
		switch w.state {
		case applied:
			counted = append(counted, w)
		case settled:
			decided = append(decided, w)
		default:
		}
	}
	if c.deleted {
		err = errors.Join(err, c.checkSum(counted, v))
	} else {
		err = errors.Join(err, c.checkChain(counted, slack, v))
	}
	if c.rising && v.value < c.seen {
		err = errors.Join(err, fmt.Errorf("%s reads %d, but %d was seen before the crash", c.key, v.value, c.seen))
	}
	if c.base, c.recent = v, nil; c.views != none {
		c.past = append(c.past, counted...)
	}
	c.acked, c.sent = v.value, v.value
	return append(decided, counted...), gone, err
}

// checkSum returns an error if v is not what the writes add up to.
func (c *counter) checkSum(counted []*write, v count) error {
	want := c.base.value
	for _, w := range counted {
		want += w.effect()
	}
	if v.value != want {
		return fmt.Errorf("%s reads %d: want %d, of %d writes since it was %d", c.key, v.value, want, len(counted), c.base.value)
	}
	return nil
}

// checkChain returns an error unless the writes, in the order of their
// versions, lead from the last reckoning to v: each met the value that the one
// before it left. So no two were given one value. Between them there is only
// what nobody can tell of, with a sum of at most slack.
func (c *counter) checkChain(counted []*write, slack int64, v count) error {
	slices.SortFunc(counted, func(a, b *write) int { return cmp.Compare(a.result.version, b.result.version) })
	at, left := c.base, slack
	step := func(to int64) bool { // is there a way from at to a value?
		gap := to - at.value
		left -= gap
		return gap == 0 || gap > 0 && left >= 0
	}
	for _, w := range counted {
		r := w.result
		if r.version <= at.version {
			return fmt.Errorf("%v: its version does not rise above %d", w, at.version)
		}
		if r.valued && !step(r.before) {
			return fmt.Errorf("%v: it met %d, want %d; in all up to %d more may have counted", w, r.before, at.value, slack)
		}
		if r.valued {
			at.value = r.value
		} else {
			at.value += w.n
		}
		at.version = r.version
	}
	// What a counter with views admits of values raises its version too.
	same := v.version == at.version || c.views != none && v.version > at.version
	if !step(v.value) || slack == 0 && !same {
		return fmt.Errorf("%s reads %+v: want %+v, after %d writes since it was %+v; in all up to %d more may have counted",
			c.key, v, at, len(counted), c.base, slack)
	}
	return nil
}

// recount returns an error if v is not what the last reckoning and the writes
// since then add up to. Nobody is writing, and every answer was definite.
func (c *counter) recount(v count) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := c.base.value
	for _, w := range c.recent {
		switch w.state {
		case applied:
			want += w.effect()
		case unknown:
			return fmt.Errorf("%v: still unknown", w)
		default:
		}
	}
	if v.value != want {
		return fmt.Errorf("%s reads %d after everything was sent again: want %d", c.key, v.value, want)
	}
	return nil
}
