package crash

import (
	"fmt"
	"slices"

	"github.com/quipudb/quipu/store"
)

// A verb is what a write does.
type verb uint8

const (
	add verb = iota
	set
	reset
	remove
	undo
)

// A state is what is known of a write.
type state uint8

const (
	fresh   state = iota // never sent
	unknown              // sent, and not answered: it counted once or not at all
	applied              // acknowledged, or found by its token
	absent               // it did not count, and is not on its way: it may be sent again
	settled              // its token was settled first: it never will count
	refused              // answered, and never will count
)

// A write is one change of one counter: what is asked, and what is known of it.
type write struct {
	request *request // that sends it
	counter *counter
	verb    verb
	n       int64
	token   string // "" if it can't be repeated
	match   uint64 // the version it needs, if not 0
	minimal bool   // asks for no value
	event          // of an add: what views count it by
	adjust  bool   // of an add: it is a correction
	of      *write // of an undo: what it takes back

	// Guarded by the counter's lock.
	state    state
	firm     bool // what was said of it survives the death of the process
	settling bool // a settle was sent
	listed   bool // among the counter's recent ones
	undone   bool // an undo of it was sent
	result   result
}

// A result is what the server says of a write that was applied.
type result struct {
	valued        bool
	before, value int64
	version       uint64
}

func (w *write) String() string {
	return fmt.Sprintf("write %q of %d to %s (verb %d, state %d, firm %v, result %+v)",
		w.token, w.n, w.counter.key, w.verb, w.state, w.firm, w.result)
}

// effect is what a write that was applied changed the counter by.
func (w *write) effect() int64 {
	if w.verb == add || w.verb == undo {
		return w.n
	}
	return w.result.value - w.result.before
}

// check returns an error if r is no result that w can have.
func (w *write) check(r result) error {
	ok := r.valued != w.minimal
	if r.valued {
		switch w.verb {
		case add:
			ok = ok && r.value == r.before+w.n
		case set:
			ok = ok && r.value == w.n
		case reset, remove:
			ok = ok && r.value == 0
		case undo: // what it takes back is in another write
		}
	}
	if !ok {
		return fmt.Errorf("%v: it can't have the result %+v", w, r)
	}
	return nil
}

// A request is what is sent at a time: one write, or a batch of adds.
type request struct {
	writes []*write
	token  string // of a batch: its writes have the token and their number
	owed   bool   // must be sent again
}

// repeatable reports whether r can be sent again without counting again.
func (r *request) repeatable() bool { return r.writes[0].token != "" }

// is reports whether one of r's writes is in one of some states.
func (r *request) is(states ...state) bool {
	return slices.ContainsFunc(r.writes, func(w *write) bool { return w.is(states...) })
}

// An answer is what the server says of one write.
type answer struct {
	outcome    outcome
	kind       string // why it was refused
	replayed   bool
	durability store.Durability
	result     result
}

// An outcome is the kind of an answer.
type outcome uint8

const (
	noAnswer outcome = iota // it may have counted
	success
	refusal // this time it did not count
)

// A fate is what the server says of a token.
type fate struct {
	state  state // unknown, applied or settled
	result result
}

// open prepares w to be sent, and returns what was known of it before.
func (w *write) open() (before state) {
	c := w.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	before = w.state
	if before == fresh || before == absent {
		w.state = unknown
		c.sent += w.n
		w.list()
	}
	return before
}

// list puts w among the counter's recent writes.
func (w *write) list() {
	if !w.listed {
		w.listed = true
		w.counter.recent = append(w.counter.recent, w)
	}
}

// note takes the answer to a write of which before was known when it was sent,
// and returns an error if there can't be such an answer.
func (w *write) note(before state, a answer) error {
	c := w.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	switch a.outcome {
	case success:
		return w.noteSuccess(before, a)
	case refusal:
		return w.noteRefusal(before, a.kind)
	default:
		return nil
	}
}

func (w *write) noteSuccess(before state, a answer) error {
	c := w.counter
	switch {
	case (before == fresh || before == absent) && a.replayed:
		return fmt.Errorf("%v: the first is said to be a repeat: %+v", w, a)
	case before == applied && !a.replayed:
		return fmt.Errorf("%v: it counted again: %+v", w, a)
	case w.state == applied && w.result != a.result && w.verb != undo: // a second undo tells the version by then
		return fmt.Errorf("%v: a repeat returned %+v", w, a.result)
	case w.state != applied && w.state != unknown:
		return fmt.Errorf("%v: it never was to count: %+v", w, a)
	case a.durability < c.durability:
		return fmt.Errorf("%v: it is %v, want %v", w, a.durability, c.durability)
	}
	if w.state == unknown {
		if err := w.check(a.result); err != nil {
			return err
		}
		w.state, w.result = applied, a.result
		c.acked += w.n
		c.versions = max(c.versions, a.result.version)
	}
	w.firm = w.firm || a.durability > store.Memory
	if w.firm && a.result.valued {
		c.seen = max(c.seen, a.result.value)
	}
	return nil
}

func (w *write) noteRefusal(before state, kind string) error {
	next := w.state
	switch {
	case kind == kindUnsent, kind == kindUnavailable, kind == kindClosed:
		if before == fresh || before == absent {
			next = absent
		}
	case before == applied:
		return fmt.Errorf("%v: a repeat is refused: %s", w, kind)
	case kind == kindSettled && w.settling:
		next = settled
	case kind == kindChanged && w.match != 0:
		next = refused
	default:
		return fmt.Errorf("%v: refused: %s", w, kind)
	}
	if w.state == unknown && next != unknown {
		w.counter.sent -= w.n
	}
	w.state = next
	return nil
}

// noteFate takes what the server says of a write's token while nobody sends
// it, and returns an error if that can't be.
func (w *write) noteFate(f fate) error {
	c := w.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := f.state != settled || w.settling
	switch w.state {
	case applied:
		ok = f == fate{applied, w.result}
	case settled:
		ok = f.state == settled
	case fresh, absent, refused:
		ok = ok && f.state != applied
	case unknown:
	}
	if !ok {
		return fmt.Errorf("%v: its token is said to be %+v", w, f)
	}
	return nil
}

// beginSettle prepares a settle of w's token. That of a write known to be
// applied must say so.
func (w *write) beginSettle() {
	w.counter.mu.Lock()
	defer w.counter.mu.Unlock()
	w.settling = w.settling || w.state != applied
}

// noteSettle takes what a settle returned. It is final, whatever the policy.
func (w *write) noteSettle(f fate) error {
	if f.state == unknown {
		return fmt.Errorf("%v: it is unknown after a settle", w)
	}
	if err := w.noteFate(f); err != nil {
		return err
	}
	c := w.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.state == settled:
		if w.state == unknown {
			c.sent -= w.n
		}
		w.state = settled
		w.list()
	case w.state == applied:
		w.firm = true
	}
	return nil
}

// is reports whether w is in one of some states.
func (w *write) is(states ...state) bool {
	w.counter.mu.Lock()
	defer w.counter.mu.Unlock()
	return slices.Contains(states, w.state)
}

// doubtful reports whether only the store can tell if w counted, once the process
// that got it is dead.
func (w *write) doubtful() bool { return w.state == unknown || w.state == applied && !w.firm }

// decide makes a doubtful write's fate what is known of it.
func (w *write) decide(f fate) error {
	was, knew := w.state, w.result
	switch {
	case f.state == settled && !w.settling,
		f.state == settled && was == applied,
		f.state == applied && was == applied && f.result != knew:
		return fmt.Errorf("%v: after the crash its token is %+v", w, f)
	case f.state == applied:
		w.state, w.result, w.firm = applied, f.result, true
		return w.check(f.result)
	case f.state == settled:
		w.state = settled
	default:
		w.state, w.result, w.firm = absent, result{}, false
	}
	return nil
}
