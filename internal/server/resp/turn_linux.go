package resp

import (
	"context"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/quipudb/quipu/store"
)

// A told is how many commands that came at a time have their replies.
type told struct {
	came time.Duration
	answer
}

const (
	toldMax  = 1024 // that are kept before they are measured
	toldBack = 4    // that are looked at for one to add to
)

// serve reads what a connection has sent.
func (l *loop) serve(c *conn, events uint32) {
	if events&syscall.EPOLLOUT != 0 {
		l.due(c)
	}
	if events&^syscall.EPOLLOUT == 0 {
		return
	}
	if c.listed && len(c.s.in) > 0 { // what it has sent before comes first
		return
	}
	if c.busy || c.s.held > 0 || c.stuck || c.ended || c.more || c.rests || l.full(c) {
		// Not now. If the client is gone the next write tells.
		if events&(syscall.EPOLLERR|syscall.EPOLLHUP) != 0 {
			l.drop(c)
			return
		}
		l.listen(c, c.events&^(syscall.EPOLLIN|syscall.EPOLLRDHUP))
		return
	}
	n, err := syscall.Read(c.fd, l.scratch[:l.share])
	c.s.came = l.now.Sub(l.d.start)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
	case err != nil:
		l.drop(c)
	case n == 0:
		c.ended = true
		l.settle(c)
	case len(c.s.in) == 0:
		l.gather(c, l.scratch[:n])
	default:
		c.s.in = append(c.s.in, l.scratch[:n]...)
		l.list(c)
	}
}

// gatherAgain executes what connections have sent before and could not have executed
// at once. If they were all to end a long command at the same time, those who send
// short ones would wait for them: when enough was executed, or the turn is long, the
// rest is for the next turns, in its order.
func (l *loop) gatherAgain() {
	spent := 0
	again := l.again
	l.again = l.spare[:0]
	late := false
	for i, c := range again {
		c.listed = false
		long := len(c.s.in) > l.share
		if i%lookEvery == lookEvery-1 || long && spent > 0 {
			late = late || time.Since(l.now) > turnLong
		}
		if late || long && spent >= l.turn {
			l.list(c)
			continue
		}
		before := len(c.s.in)
		l.gather(c, c.s.in)
		spent += max(before-len(c.s.in), 0)
	}
	clear(again)
	l.spare = again
}

// gather executes what a connection has sent, and keeps the rest.
func (l *loop) gather(c *conn, buf []byte) {
	s := c.s
	if c.closed || c.busy || c.s.held > 0 || c.rests {
		return
	}
	used, ok := l.execute(c, buf)
	if !ok {
		return
	}
	if rest := buf[used:]; len(rest) == 0 {
		s.in = keep(s.in)
	} else if used > 0 || len(s.in) == 0 {
		s.in = append(s.in[:0], rest...) // which may be a part of s.in
	}
	if s.closing {
		s.in = nil
	}
	if s.rest > 0 {
		l.lay(c)
	}
	if s.job != nil {
		s.settleAt(l.now) // the job may hold much, and wait for its turn
		l.work(c)
		return
	}
	c.stuck = s.pending > 0 && s.refused
	c.more = len(s.out) >= l.w.soft
	if len(s.in) > s.inMax() && !c.stuck && !c.more && !l.full(c) {
		s.tooLong()
	}
	if len(s.in)+s.owed > keptBytesMax { // it may hold much, and never be sent a reply
		s.settleAt(l.now)
	}
	l.settle(c)
}

// lay lays a connection to rest, whose principal sends much more than its quota. What it
// has sent stays in the kernel, which holds it back in the end: so a flood costs as
// little as it may, and others do not wait for it.
func (l *loop) lay(c *conn) {
	c.rests, c.until = true, l.now.Add(c.s.rest)
	c.s.rest = 0
	if len(l.resting) == 0 || c.until.Before(l.rested) {
		l.rested = c.until
	}
	l.resting = append(l.resting, c)
	l.listen(c, c.events&^(syscall.EPOLLIN|syscall.EPOLLRDHUP))
	l.d.meters.rests.Add(1)
}

// rouse lets connections go on whose rest is over.
func (l *loop) rouse() {
	if len(l.resting) == 0 || l.now.Before(l.rested) {
		return
	}
	kept := l.resting[:0]
	for _, c := range l.resting {
		switch {
		case c.closed:
		case l.now.Before(c.until):
			if len(kept) == 0 || c.until.Before(l.rested) {
				l.rested = c.until
			}
			kept = append(kept, c)
		default:
			c.rests = false
			l.list(c)
		}
	}
	clear(l.resting[len(kept):])
	l.resting = kept
}

// full reports whether a connection has so many replies to come that it is to
// execute no more.
func (l *loop) full(c *conn) bool { return len(c.s.out)-c.off+c.s.owed >= l.w.soft }

// execute executes commands, and reports whether none of them has panicked.
func (l *loop) execute(c *conn, buf []byte) (used int, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			l.d.panicked(c.s, p, debug.Stack())
			l.w.abandon()
			l.drop(c)
		}
	}()
	return l.w.gather(c.s, buf), true
}

// settle decides what comes next for a connection that waits for nothing.
func (l *loop) settle(c *conn) {
	s := c.s
	if c.closed || c.busy {
		return
	}
	if len(s.out) > c.off || s.closing || c.ended {
		l.due(c)
	}
	if c.events&syscall.EPOLLIN == 0 && !c.ended && !s.closing && !c.stuck && !c.more && !c.rests && c.s.held == 0 && !l.full(c) {
		l.listen(c, c.events|syscall.EPOLLIN|syscall.EPOLLRDHUP)
	}
}

// due lists a connection that has replies to be sent, or is to be closed.
func (l *loop) due(c *conn) {
	if !c.due {
		c.due = true
		l.unsent = append(l.unsent, c)
	}
}

// submit starts a cycle. If the store panics, those whose commands are in it have
// an error for a reply.
func (l *loop) submit(c *cycle) {
	l.cycles = append(l.cycles, c)
	defer func() {
		if p := recover(); p != nil {
			l.cycles[len(l.cycles)-1] = c.failed(panicError(p))
		}
	}()
	if c.wake == nil {
		c.wake = l.wake
	}
	c.left.Store(1) // this call
	c.startLane()
	if len(c.deltas) > 0 {
		l.start(c)
	}
	if len(c.asks) > 0 {
		l.ask(c)
	}
	c.done(nil)
}

// ask asks the questions of a cycle. If the store would have to wait a goroutine does, and
// only the sessions that have asked.
func (l *loop) ask(c *cycle) {
	c.left.Add(1)
	if c.startAllow() {
		return
	}
	c.slow = true
	var waiting []*run
	from := 0
	c.mu.Lock()
	for i := range c.runs {
		r := &c.runs[i]
		if slices.ContainsFunc(c.entries[from:r.to], func(e entry) bool { return e.kind == asked }) {
			waiting = append(waiting, r)
			r.left++
			r.hold()
		}
		from = r.to
	}
	c.mu.Unlock()
	l.aside(c, func(ctx context.Context) error {
		defer func() {
			c.mu.Lock()
			for _, r := range waiting {
				r.left--
			}
			c.mu.Unlock()
			l.wake()
		}()
		c.allow(ctx)
		return nil
	})
}

// start starts the deltas of a cycle.
func (l *loop) start(c *cycle) {
	c.room()
	c.left.Add(1)
	if !c.db.Port().Start(c.deltas, c.results, c.done) {
		l.detour(c)
		return
	}
	if at := c.redo(all); len(at) > 0 {
		from := at[0]
		c.left.Add(1)
		if !c.db.Port().Start(c.deltas[from:], c.results[from:], c.done) {
			l.hold(c)
			l.aside(c, func(ctx context.Context) error {
				return store.Partly(c.db.Port().Apply(ctx, c.deltas[from:], c.results[from:]), true)
			})
		}
	}
	if at := c.stale(all); len(at) > 0 && !c.joined {
		l.hold(c)
		c.left.Add(1)
		l.aside(c, func(ctx context.Context) error { return c.again(ctx, at) })
	}
	if refused := c.uncounted(all); len(refused) > 0 {
		l.hold(c)
		c.left.Add(1)
		l.aside(c, func(ctx context.Context) error {
			c.lookAt(ctx, refused)
			return nil
		})
	}
}

// detour applies the deltas of a cycle that have to wait, each portion in a goroutine:
// as many as the sessions that wait for them, and no session has more than one such
// cycle. The sessions are held, so that their commands stay in order while others
// overtake them.
func (l *loop) detour(c *cycle) {
	c.slow = true
	if c.joined {
		l.hold(c)
		l.aside(c, func(ctx context.Context) error {
			c.apply(ctx, nil)
			return c.err
		})
		return
	}
	portions := c.divide()
	for i := range c.runs {
		if r := &c.runs[i]; r.left > 0 {
			r.hold()
		}
	}
	c.left.Add(int32(len(portions) - 1))
	for i := range portions {
		l.aside(c, func(ctx context.Context) error {
			c.decide(ctx, &portions[i])
			l.wake() // some sessions wait for nothing else
			return nil
		})
	}
}

// hold keeps the sessions of a cycle from executing anything until it is
// finished.
func (l *loop) hold(c *cycle) {
	for i := range c.runs {
		c.runs[i].hold()
	}
}

func (r *run) hold() {
	if !r.held {
		r.held = true
		r.s.held++
	}
}

// aside waits for a part of a cycle in a goroutine.
func (l *loop) aside(c *cycle, f func(context.Context) error) {
	go func() {
		ctx, cancel := l.d.deadline(l.d.ctx)
		defer cancel()
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = panicError(p)
			}
			c.done(err)
		}()
		err = f(ctx)
	}()
}

// finish gives the replies of cycles that are durable to their sessions, and of
// those that are slow what is known already.
func (l *loop) finish() {
	kept := l.cycles[:0]
	waiting := false
	for _, c := range l.cycles {
		switch {
		case waiting:
			kept = append(kept, c)
		case c.left.Load() == 0:
			l.reply(c)
			c.noteSlow(l.d, l.now.Sub(l.d.start))
			l.w.done(c)
		default:
			kept = append(kept, c)
			// Nobody overtakes what the lane has taken: its sessions are not held.
			if waiting = !c.slow || c.lane.waits(); c.split && !waiting {
				l.reply(c)
			}
		}
	}
	clear(l.cycles[len(kept):])
	l.cycles = kept
}

// reply gives the sessions of a cycle the replies that there are.
func (l *loop) reply(c *cycle) {
	if err := c.fault.Swap(nil); err != nil {
		c.err = *err
	}
	if err := c.lane.fault.Swap(nil); err != nil {
		c.lane.err = *err
		l.d.report(*err, c.undecided(true))
	}
	c.advance(func(r *run) {
		k := r.s.conn
		r.ended = l.now.Sub(l.d.start)
		l.tell(r.came, answer{r.command, r.calls})
		if r.held {
			r.s.held--
		}
		if k.closed {
			return
		}
		l.due(k)
		if r.s.pending == 0 && r.s.held == 0 && (k.stuck || len(r.s.in) > 0 || k.events&syscall.EPOLLIN == 0) {
			k.stuck = false
			l.list(k)
		}
	})
}

// tellNews gives connections their news that have no command under way. What they have read
// is in their replies by then: a cycle that was decided before a change that is told is
// finished before it is.
func (l *loop) tellNews() {
	l.mu.Lock()
	l.newsy = append(l.newsy, l.heard...)
	clear(l.heard)
	l.heard = l.heard[:0]
	l.mu.Unlock()
	kept := l.newsy[:0]
	for _, c := range l.newsy {
		switch {
		case c.closed:
		case !c.added || c.busy || c.s.held > 0 || c.s.pending > 0 || l.full(c):
			kept = append(kept, c)
		default:
			c.s.tellNews()
			l.settle(c)
		}
	}
	clear(l.newsy[len(kept):])
	l.newsy = kept
}

// list makes a connection gather again, in this turn or the next.
func (l *loop) list(c *conn) {
	if !c.listed {
		c.listed = true
		l.again = append(l.again, c)
	}
}

// send sends replies.
func (l *loop) send() {
	for i := 0; i < len(l.unsent); i++ {
		c := l.unsent[i]
		c.due = false
		if !c.closed && !c.busy {
			for _, a := range c.s.answers {
				l.tell(c.s.came, a)
			}
			c.s.answers = c.s.answers[:0]
			l.write(c)
		}
	}
	l.unsent = l.unsent[:0]
	if len(l.told) > 0 {
		l.pace(l.spent + l.observe() - l.now.Sub(l.d.start))
	}
}

// tell notes that commands have their replies. Those of a turn came, mostly, at
// one time, and are of few kinds, and so are noted together.
func (l *loop) tell(came time.Duration, a answer) {
	for i := len(l.told) - 1; i >= max(0, len(l.told)-toldBack); i-- {
		if t := &l.told[i]; t.came == came && t.command == a.command {
			t.calls += a.calls
			return
		}
	}
	if len(l.told) == toldMax {
		l.observe()
	}
	l.told = append(l.told, told{came, a})
}

// observe measures what the replies that were sent took, and returns the time by the
// door's clock.
func (l *loop) observe() (now time.Duration) {
	now = time.Since(l.d.start)
	for _, t := range l.told {
		l.d.observe(now-t.came, t.answer)
	}
	l.told = l.told[:0]
	return now
}

// write sends as much as the connection takes, and no more than is fair to others:
// the rest follows in the next turns.
func (l *loop) write(c *conn) {
	s := c.s
	if c.off < len(s.out) {
		n, err := syscall.Write(c.fd, s.out[c.off:min(c.off+l.share, len(s.out))])
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
		case err != nil:
			l.drop(c)
			return
		default:
			c.off += n
			c.took = l.now
		}
	}
	switch {
	case c.off == len(s.out):
		s.out, c.off = keep(s.out), 0
		l.listen(c, c.events&^syscall.EPOLLOUT)
	case c.off > len(s.out)/2:
		s.out, c.off = s.out[:copy(s.out, s.out[c.off:])], 0
		fallthrough
	default:
		if c.events&syscall.EPOLLOUT == 0 {
			c.took = l.now
		}
		l.listen(c, c.events|syscall.EPOLLOUT)
	}
	s.settleAt(l.now)
	switch {
	case c.off < len(s.out) || c.closed:
	case s.closing && s.pending == 0:
		l.drop(c)
	case c.rests && !c.more:
	case c.more, c.events&syscall.EPOLLIN == 0 && !c.ended && !c.stuck && s.held == 0:
		c.more = false
		l.list(c)
	case c.ended && s.pending == 0 && !c.listed:
		l.drop(c)
	}
}
