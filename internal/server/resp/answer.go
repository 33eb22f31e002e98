package resp

import (
	"context"
	"runtime/debug"

	"github.com/quipudb/quipu/store"
)

// answered tells a session, whose all runs are, what the cycle answers.
func (c *cycle) answered(s *session) {
	for i := range c.runs {
		s.answer(c.runs[i].command, c.runs[i].calls)
	}
}

// undecided returns how many replies say that the call of the cycle failed, or that
// of what its lane took.
func (c *cycle) undecided(taken bool) (n int) {
	for i := range c.entries {
		switch e := &c.entries[i]; {
		case e.kind.ofResults() && !taken:
			n++
		case e.kind == added && c.lane.took(e) == taken:
			n += int(e.n)
		}
	}
	return n
}

// finish gives every session its replies.
func (c *cycle) finish() { c.advance(func(*run) {}) }

// advance gives the sessions their replies whose commands are decided, and calls
// then for each run of them. A session has its replies in the order of its runs. One
// whose replies do not fit, or can't be made, is closed, and no other minds.
func (c *cycle) advance(then func(*run)) {
	if c.err != nil && len(c.runs) > 0 {
		c.runs[0].s.d.report(c.err, c.undecided(false))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from, waiting := 0, false
	for i := range c.runs {
		r := &c.runs[i]
		entries := c.entries[from:r.to]
		from = r.to
		switch {
		case r.told:
		case r.left > 0 || r.s.behind:
			r.s.behind, waiting = true, true
		default:
			c.tell(r, entries)
			then(r)
		}
	}
	for i := 0; waiting && i < len(c.runs); i++ {
		if r := &c.runs[i]; !r.told { // else the session goes on
			r.s.behind = false
		}
	}
}

// tell gives a session the replies of a run.
func (c *cycle) tell(r *run, entries []entry) {
	start := len(r.s.out)
	if r.s.follow.noloop && !c.reading {
		c.changedBy(r.s, entries)
	}
	c.reply(r, entries)
	switch {
	case r.s.broken:
		r.s.cut(start)
	case r.s.fault != nil:
		r.s.overflow(start)
	case r.mute:
		r.s.cut(start)
	}
	r.s.owed -= r.owed
	r.told = true
	if !c.reading {
		r.s.pending--
	}
}

// reply gives a session the replies that entries make.
func (c *cycle) reply(r *run, entries []entry) {
	start := len(r.s.out)
	defer func() {
		if p := recover(); p != nil {
			r.s.d.panicked(r.s, p, debug.Stack())
			r.s.breakOff(start)
		}
	}()
	replies, failed := 0, 0
	for i := range entries {
		e := &entries[i]
		at := len(r.s.out)
		switch {
		case e.kind == textual:
			r.s.raw(c.text[e.at : e.at+e.n])
			at = len(r.s.out) // what it says is counted already
		case e.kind == added:
			failed += c.values(r.s, e)
			replies += int(e.n) - 1
			at = len(r.s.out)
		case e.kind == asked:
			c.answerTo(r.s, e)
		case c.err != nil:
			r.s.fail(errorText(c.err))
		case c.errs != nil && c.failure(e) != nil:
			err := c.failure(e)
			r.s.d.report(err, 1)
			r.s.fail(errorText(err))
		case c.barred(e) != nil:
			r.s.fail(errorText(c.barred(e)))
		case e.kind == visited:
			c.visited(&r.s.encoder, &c.visits[e.nth], &c.results[e.at])
		default:
			if int(e.at+e.n) <= len(c.texts) {
				r.s.told = c.texts[e.at : e.at+e.n]
			}
			c.encoders[e.nth](&r.s.encoder, c.results[e.at:e.at+e.n])
			r.s.told = nil
		}
		replies++
		if at < len(r.s.out) && r.s.out[at] == '-' {
			failed++
		}
	}
	// A transaction has more replies, and fails as a whole.
	if failed > 0 && r.command != nil && (replies == r.calls || c.err != nil) {
		r.command.stats.failed.Add(uint64(min(failed, r.calls)))
	}
}

// values replies the values after additions of the lane, and returns how many of them
// have failed.
func (c *cycle) values(s *session, e *entry) (failed int) {
	l := &c.lane
	if l.took(e) {
		if l.err != nil {
			return s.failures(l.err, int(e.n))
		}
		a := &l.Each[e.at]
		fit := min(max(int32(a.Taken)-e.nth, 0), e.n)
		s.sums(a.Before+a.N*int64(e.nth+1), a.N, int(fit), l.blind[e.at])
		return s.failures(store.ErrOverflow, int(e.n-fit))
	}
	if c.err != nil {
		return s.failures(c.err, int(e.n))
	}
	a, spelled := &l.Each[e.at], l.spelled[e.at]
	for i := e.nth; i < e.nth+e.n; i++ {
		at, by := spelled.at+i, a.N
		if spelled.sum {
			at, by = spelled.at, a.N*int64(i+1)
		}
		result := &c.results[at]
		switch {
		case c.errs != nil && c.errs[at] != nil:
			s.d.report(c.errs[at], 1)
			failed += s.failures(c.errs[at], 1)
		case result.Outcome == store.Barred:
			failed += s.failures(c.why(int(at)), 1)
		case isText(result) && int(at) < len(c.texts) && c.texts[at] != nil:
			failed += s.failures(errWrongType, 1)
		case isText(result):
			failed += s.failures(errNotInteger, 1)
		case result.Outcome != store.Applied:
			failed += s.failures(result.Outcome.Err(), 1)
		default:
			s.sums(result.Before+by, 0, 1, l.blind[e.at])
		}
	}
	return failed
}

// barred returns why a definition does not allow what a command does, or nil if it does.
func (c *cycle) barred(e *entry) error {
	for i := e.at; i < e.at+e.n; i++ {
		if c.results[i].Outcome == store.Barred && int(i) < len(c.deltas) {
			return c.why(int(i))
		}
	}
	return nil
}

// why returns why a definition does not allow a delta, in Redis's words if there are some.
func (c *cycle) why(at int) error {
	d, p := c.deltas[at], c.db.Port()
	if p.KnownChoices(d.Cell.Key) != nil && d.Expiry&store.ExpirySet == 0 && (d.Event == nil || d.Event.Part == "") {
		return errWrongType
	}
	d.Cell = p.Cell(d.Cell.Key)
	return p.Why(context.Background(), &d, nil) // It asks no store.
}

// failures replies an error to some commands, and returns how many they are.
func (s *session) failures(err error, n int) int {
	if n > 0 {
		text := errorText(err)
		for range n {
			s.fail(text)
		}
	}
	return n
}

// failure returns why a command has no results, or nil. If some of what it does was
// decided, its outcome is unknown.
func (c *cycle) failure(e *entry) (err error) {
	decided := false
	for _, one := range c.errs[e.at : e.at+e.n] {
		if one == nil {
			decided = true
		} else if err == nil || store.KindOf(one) == store.KindUnknown {
			err = one
		}
	}
	return store.Partly(err, decided && !c.reading)
}
