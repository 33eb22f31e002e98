package resp

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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
	spent   time.Duration // in this turn before now, without the sync
	looked  time.Time     // when connections were last looked over
	ended   chan struct{}

	// Cycles are in the order in which they were submitted. One that is slow
	// may finish after later ones, because the sessions in it have none in those.
	cycles []*cycle
	again  []*conn // to gather once more
	spare  []*conn // room for again
	unsent []*conn // with replies
	newsy  []*conn // with news that can't be told yet
	told   []told  // by those replies, for the metrics

	resting []*conn   // those that rest
	rested  time.Time // when the first of them has

	slowUntil time.Time // the disk is, or may be

	draining bool // every connection was told

	asleep atomic.Bool // in epoll, or about to be
	news   atomic.Bool // a cycle is durable, or something was posted

	mu     sync.Mutex // guards the fields below
	posted []*conn    // new, hung up, or with a job that is done
	heard  []*conn    // with news
	quit   bool
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

// hear has the loop tell what a connection has heard.
func (l *loop) hear(c *conn) {
	l.mu.Lock()
	l.heard = append(l.heard, c)
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
		l.tellNews()
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
	} else if len(l.resting) > 0 {
		timeout = min(timeout, int(max(time.Until(l.rested), 0)/time.Millisecond)+1)
	}
	n, err := syscall.EpollWait(l.poll, events, timeout)
	l.asleep.Store(false)
	l.now, l.spent = time.Now(), 0
	if l.now.Sub(l.looked) >= tick {
		l.lookOver()
	}
	l.rouse()
	if err != nil { // interrupted
		return 0
	}
	return n
}

// flush makes the cycles durable that were started. It does so itself: what
// connections send meanwhile can only be durable with the next cycles, and waking
// another for the sync, and being woken by it, costs more than what could be done
// while it lasts, at any depth of pipelines. But while the disk is slow nobody shall
// wait for it who need not.
func (l *loop) flush() {
	if len(l.cycles) == 0 {
		return
	}
	began := time.Now()
	if began.Before(l.slowUntil) {
		l.d.db.Port().Flush(false)
		if len(l.again) > 0 {
			// This goroutine will not sleep: the one that flushes may have no other processor.
			runtime.Gosched()
		}
		return
	}
	l.d.db.Port().Flush(true)
	l.synced(began, time.Now())
}

// synced notes a sync that the loop has waited for. The disk is judged by that alone:
// a long turn before it is no slow disk.
func (l *loop) synced(began, ended time.Time) {
	l.spent += began.Sub(l.now)
	l.now = ended
	if ended.Sub(began) > slowSync {
		l.slowUntil = ended.Add(slowPause)
	}
}
