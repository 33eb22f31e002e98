package resp

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

const (
	// scratchBytes is how much is read from a connection, or written to it, before
	// the next one is served. When many are ready it is less: see divide.
	scratchBytes = 64 << 10
	// turnBytesMax is how much is read in a turn, from all connections together. It is
	// less, down to turnBytesMin, while turns take longer than turnLong: see pace.
	turnBytesMax = 1 << 20
	turnBytesMin = 64 << 10
	turnLong     = 4 * time.Millisecond
	// lookEvery is after how many connections with short commands a turn that may be
	// long looks at the clock.
	lookEvery = 8
	// shareMin is how much is read from a connection in any case: more than most
	// pipelines have in a turn, or a quarter of it when turns are as small as can be.
	shareMin = 4 << 10
	// eventsMax is how many connections are served before anyone's replies are.
	eventsMax = 1024
	// thinBytes is how much a connection sends at a time if it waits for each
	// reply, or nearly so.
	thinBytes = 256
	// slowSync is how long a sync may take that the loop waits for, and slowPause
	// for how long it leaves them to others after a longer one.
	slowSync  = 10 * time.Millisecond
	slowPause = time.Second
	// tick is how often connections are looked over for those to be closed.
	tick = time.Second
)

// A loop carries connections in one goroutine. In a turn it reads from those
// that have sent something, gathers their commands into cycles, starts the
// cycles, and sends the replies of those that are durable. It waits for nothing
// but epoll and short syncs (see flush): what would have to wait for the store is
// a job, or a slow cycle, in a goroutine of its own.
//
// A turn costs a read and a write for each connection, and for all of them
// together one batch: that is why it beats a goroutine for each.
type loop struct {
	d       *Door
	w       *worker
	poll    int
	event   int // an eventfd: wakes the loop
	conns   map[int]*conn
	scratch []byte
	turn    int // how much is read in a turn
	share   int // how much is read from a connection, or written to it, in this turn
	now     time.Time
	looked  time.Time // when connections were last looked over
	ended   chan struct{}

	// Cycles are in the order in which they were submitted. One that is slow
	// may finish after later ones, because the sessions in it have none in those.
	cycles []*cycle
	again  []*conn // to gather once more
	spare  []*conn // room for again
	unsent []*conn // with replies
	told   []told  // by those replies, for the metrics

	reads     int       // since something was flushed
	readBytes int       // by them
	slowUntil time.Time // the disk is, or may be

	draining bool // every connection was told

	asleep atomic.Bool // in epoll, or about to be
	news   atomic.Bool // a cycle is durable, or something was posted

	mu     sync.Mutex // guards the fields below
	posted []*conn    // new, hung up, or with a job that is done
	quit   bool
}

// A told is how many commands that came at a time have their replies.
type told struct {
	came time.Duration
	answer
}

const (
	toldMax  = 1024 // that are kept before they are measured
	toldBack = 4    // that are looked at for one to add to
)

// A conn is a connection in the loop. But for the last fields it belongs to the
// loop's goroutine.
type conn struct {
	s      *session
	fd     int
	events uint32 // what epoll waits for
	off    int    // how much of the session's replies was sent
	took   time.Time
	busy   bool // a goroutine runs the session's job
	stuck  bool // its next command waits for those before
	ended  bool // nothing more will be read
	closed bool
	listed bool // in again
	due    bool // in unsent
	more   bool // it stopped executing because it had so many replies

	added bool        // the loop has seen it
	hung  atomic.Bool // to be closed at once
	idle  atomic.Bool // its job is done
}

// carryInLoop takes a connection that has a file descriptor to give.
func (d *Door) carryInLoop(c net.Conn) (bool, error) {
	detachable, ok := c.(server.Detachable)
	if !ok {
		return false, nil
	}
	l, err := d.theLoop()
	if err != nil {
		return false, err
	}
	addr, local := c.RemoteAddr().String(), c.LocalAddr().String()
	fd, place, err := detachable.Detach()
	if err != nil {
		return false, fmt.Errorf("take the connection over: %w", err)
	}
	k := &conn{fd: fd}
	k.s = d.open(addr, local, func() {
		k.hung.Store(true)
		l.post(k)
	})
	k.s.conn, k.s.place = k, place
	place.OnDrop(k.s.hang)
	l.post(k)
	return true, nil
}

// theLoop returns the door's loop, and starts it if there is none.
func (d *Door) theLoop() (*loop, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loop != nil {
		return d.loop, nil
	}
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	event, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		_ = syscall.Close(poll)
		return nil, fmt.Errorf("eventfd2: %w", errno)
	}
	l := &loop{
		d: d, poll: poll, event: int(event), conns: map[int]*conn{}, scratch: make([]byte, scratchBytes), turn: turnBytesMax,
		now: time.Now(), ended: make(chan struct{}),
	}
	l.w = d.newWorker(l.submit)
	if err := l.control(syscall.EPOLL_CTL_ADD, l.event, syscall.EPOLLIN); err != nil {
		_ = syscall.Close(poll)
		_ = syscall.Close(l.event)
		return nil, err
	}
	d.loop = l
	go l.run()
	return l, nil
}

func (l *loop) control(op, fd int, events uint32) error {
	if err := syscall.EpollCtl(l.poll, op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// post hands a connection to the loop.
func (l *loop) post(c *conn) {
	l.mu.Lock()
	l.posted = append(l.posted, c)
	l.mu.Unlock()
	l.wake()
}

// wake makes the loop look for news.
func (l *loop) wake() {
	l.news.Store(true)
	if l.asleep.Swap(false) {
		one := [8]byte{1}
		_, _ = syscall.Write(l.event, one[:]) // it can only fail if the loop is being woken anyway
	}
}

// close ends the loop, which has no connections any more.
func (l *loop) close() {
	l.mu.Lock()
	l.quit = true
	l.mu.Unlock()
	l.wake()
	<-l.ended
	_ = syscall.Close(l.poll)
	_ = syscall.Close(l.event)
}

func (l *loop) run() {
	defer close(l.ended)
	events := make([]syscall.EpollEvent, eventsMax)
	for {
		ready := events[:l.wait(events)]
		l.divide(len(ready))
		for _, e := range ready {
			if int(e.Fd) == l.event {
				var b [8]byte
				_, _ = syscall.Read(l.event, b[:])
				continue
			}
			if c := l.conns[int(e.Fd)]; c != nil {
				l.serve(c, e.Events)
			}
		}
		if l.news.Swap(false) && l.take() {
			return
		}
		l.finish()
		l.gatherAgain()
		l.w.flushAll()
		l.flush()
		l.finish() // what is durable now
		l.send()
	}
}

// divide shares a turn among the connections that are ready, so that one that has
// sent a single command does not wait for all that the others have: together they are
// read so much, or shareMin each, and make not much more of replies.
func (l *loop) divide(ready int) {
	least := shareMin
	if l.turn < turnBytesMax {
		least /= 4
	}
	share := max(l.turn/max(ready+len(l.again), 1), least)
	l.share = min(share, scratchBytes)
	l.w.soft = min(2*share, outBytesSoft)
}

// pace makes the next turn smaller if this one took long. How long bytes take differs
// by a hundred times: there may be one long command in them, or thousands that are
// refused with a long error.
func (l *loop) pace(took time.Duration) {
	switch {
	case took > turnLong:
		l.turn = max(l.turn/2, turnBytesMin)
	case took < turnLong/2:
		l.turn = min(l.turn*2, turnBytesMax)
	}
}

// wait waits for events or news.
func (l *loop) wait(events []syscall.EpollEvent) int {
	l.asleep.Store(true)
	timeout := int(tick / time.Millisecond)
	if l.news.Load() || len(l.again) > 0 {
		timeout = 0
	}
	n, err := syscall.EpollWait(l.poll, events, timeout)
	l.asleep.Store(false)
	l.now = time.Now()
	if l.now.Sub(l.looked) >= tick {
		l.lookOver()
	}
	if err != nil { // interrupted
		return 0
	}
	return n
}

// flush makes the cycles durable that were started. When connections send a
// command or two at a time it does so itself: what they send meanwhile can only
// be durable with the next cycles, and being woken for each, and for this, costs
// more than serving them. Otherwise there is work to be done meanwhile; and
// while the disk is slow nobody shall wait for it who need not.
func (l *loop) flush() {
	if len(l.cycles) == 0 {
		return
	}
	here := l.readBytes < thinBytes*l.reads && l.now.After(l.slowUntil)
	l.reads, l.readBytes = 0, 0
	l.d.db.Flush(here)
	if !here && len(l.again) > 0 {
		// This goroutine will not sleep: the one that flushes may have no other processor.
		runtime.Gosched()
	}
	if here {
		now := time.Now()
		if now.Sub(l.now) > slowSync {
			l.slowUntil = now.Add(slowPause)
		}
		l.now = now
	}
}

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
	if c.busy || c.s.held > 0 || c.stuck || c.ended || c.more || l.full(c) {
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
	l.reads++
	l.readBytes += max(n, 0)
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
	if c.closed || c.busy || c.s.held > 0 {
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

// work runs a session's job in a goroutine, which has the session meanwhile.
func (l *loop) work(c *conn) {
	job := c.s.job
	c.s.job = nil
	c.busy = true
	go func() {
		defer func() {
			if p := recover(); p != nil {
				l.d.panicked(c.s, p, debug.Stack())
				c.hung.Store(true)
			}
			c.idle.Store(true)
			l.post(c)
		}()
		c.s.run(l.d.ctx, job)
	}()
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
	if c.events&syscall.EPOLLIN == 0 && !c.ended && !s.closing && !c.stuck && !c.more && c.s.held == 0 && !l.full(c) {
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

// listen changes what epoll waits for.
func (l *loop) listen(c *conn, events uint32) {
	if c.events == events || c.closed {
		return
	}
	c.events = events
	if err := l.control(syscall.EPOLL_CTL_MOD, c.fd, events); err != nil {
		l.d.options.Logger.Warn("wait for a connection", "error", err)
		l.drop(c)
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
	c.left.Store(2) // the deltas, and this call
	if c.wake == nil {
		c.wake = l.wake
	}
	if len(c.deltas) == 0 {
		c.done(nil)
		c.done(nil)
		return
	}
	c.room()
	if !c.db.Start(c.deltas, c.results, c.done) {
		l.detour(c)
		c.done(nil)
		return
	}
	if at := c.redo(all); len(at) > 0 {
		from := at[0]
		c.left.Add(1)
		if !c.db.Start(c.deltas[from:], c.results[from:], c.done) {
			l.hold(c)
			l.aside(c, func(ctx context.Context) error {
				return store.Partly(c.db.Apply(ctx, c.deltas[from:], c.results[from:]), true)
			})
		}
	}
	c.done(nil)
}

// detour applies a cycle that has to wait, each portion in a goroutine: as many as
// the sessions that wait for them, and no session has more than one such cycle. The
// sessions are held, so that their commands stay in order while others overtake
// them.
func (l *loop) detour(c *cycle) {
	l.hold(c)
	c.slow = true
	if c.joined {
		l.aside(c, func(ctx context.Context) error {
			c.apply(ctx, nil)
			return c.err
		})
		return
	}
	portions := c.divide()
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
	c.held = true
	for _, r := range c.runs {
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
			if waiting = !c.slow; c.split {
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
	c.advance(func(r *run) {
		k := r.s.conn
		r.ended = l.now.Sub(l.d.start)
		l.tell(r.came, answer{r.command, r.calls})
		if c.held {
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
		l.pace(l.observe() - l.now.Sub(l.d.start))
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
	case c.more, c.events&syscall.EPOLLIN == 0 && !c.ended && !c.stuck && s.held == 0:
		c.more = false
		l.list(c)
	case c.ended && s.pending == 0 && !c.listed:
		l.drop(c)
	}
}

// drop closes a connection.
func (l *loop) drop(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	if c.added {
		delete(l.conns, c.fd)
	}
	// With something unread, closing would take back replies under way.
	_ = syscall.Shutdown(c.fd, syscall.SHUT_WR)
	for range 16 {
		if c.hung.Load() { // there is nothing to be told
			break
		}
		if n, err := syscall.Read(c.fd, l.scratch); n <= 0 || err != nil {
			break
		}
	}
	_ = syscall.Close(c.fd)
	c.s.place.Release()
	c.s.end()
	if !c.busy {
		l.d.serving.Done()
	}
}

// take takes what was posted, and reports whether the loop is to end.
func (l *loop) take() (quit bool) {
	l.mu.Lock()
	posted := l.posted
	l.posted = nil
	quit = l.quit
	l.mu.Unlock()
	for _, c := range posted {
		if !c.added {
			l.add(c)
		}
		if c.idle.Swap(false) {
			l.free(c)
		}
		if c.hung.Load() {
			l.drop(c)
		}
	}
	if l.d.draining.Load() && !l.draining {
		l.draining = true
		for _, c := range l.conns {
			l.last(c)
		}
	}
	return quit
}

// last makes what a connection has sent the last.
func (l *loop) last(c *conn) {
	c.ended = true
	l.list(c)
}

// add begins to serve a connection.
func (l *loop) add(c *conn) {
	c.added = true
	c.took = l.now
	c.events = syscall.EPOLLIN | syscall.EPOLLRDHUP
	l.conns[c.fd] = c
	if err := l.control(syscall.EPOLL_CTL_ADD, c.fd, c.events); err != nil {
		l.d.options.Logger.Warn("serve a connection", "error", err)
		l.drop(c)
		return
	}
	if l.draining {
		l.last(c)
	}
}

// free takes a session back from its job.
func (l *loop) free(c *conn) {
	c.busy = false
	if c.closed {
		c.s.end() // the job may have taken more since
		l.d.serving.Done()
		return
	}
	c.s.settleAt(l.now)
	l.list(c)
}

// lookOver closes connections that are idle, or take no replies, for too long.
func (l *loop) lookOver() {
	l.looked = l.now
	idle := time.Duration(l.d.idleSeconds.Load()) * time.Second
	for _, c := range l.conns {
		switch {
		case c.busy:
		case c.events&syscall.EPOLLOUT != 0 && l.now.Sub(c.took) > l.d.options.Stall:
			l.d.meters.stalled.Add(1)
			l.drop(c)
		case idle > 0 && c.s.pending == 0 && l.now.Sub(time.UnixMilli(c.s.active.Load())) > idle:
			l.drop(c)
		}
	}
}
