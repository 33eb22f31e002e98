package resp

import (
	"fmt"
	"net"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/server"
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
	rests  bool // it executes nothing until then
	until  time.Time

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
	}, func() { l.hear(k) })
	k.s.conn, k.s.place = k, place
	place.OnDrop(k.s.hang)
	l.post(k)
	return true, nil
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
