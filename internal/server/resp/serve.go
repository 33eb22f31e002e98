package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// readBytes is how much is read at a time.
const readBytes = 16 << 10

// serve carries one connection until its end: it reads, executes, and sends, and
// waits in each. It is the simple transport, by which the loop is judged.
func (d *Door) serve(c net.Conn) {
	s := d.open(c.RemoteAddr().String(), c.LocalAddr().String(), func() { _ = c.Close() }, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	s.place = server.PlaceOf(c)
	defer s.end()
	if t, ok := c.(*tls.Conn); ok {
		if err := s.enterByCertificate(t); err != nil {
			d.options.Logger.Debug("TLS connection refused", "client", s.addr, "error", err)
			_ = c.Close()
			return
		}
	}
	d.mu.Lock()
	d.conns[s] = c
	d.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			d.panicked(s, p, debug.Stack())
		}
		_ = c.Close()
		d.mu.Lock()
		delete(d.conns, s)
		d.mu.Unlock()
	}()
	w := d.newWorker(nil)
	w.submit = func(c *cycle) {
		ctx, cancel := d.deadline(d.ctx)
		c.gathered(ctx)
		cancel()
		c.finish()
		c.answered(s)
		c.noteSlow(d, time.Since(d.start))
		w.done(c)
	}
	for {
		if !s.work(d.ctx, w, c) || s.closing || d.draining.Load() {
			return
		}
		if err := s.read(c); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && s.heard.Load() {
				continue
			}
			// The deadline is how Shutdown wakes those who wait. What has come by
			// then was executed.
			if errors.Is(err, os.ErrDeadlineExceeded) && !d.draining.Load() {
				d.options.Logger.Debug("idle connection closed", "id", s.id)
			}
			return
		}
	}
}

// work executes everything that was read, and sends the replies. It reports
// whether the connection is good for more.
func (s *session) work(ctx context.Context, w *worker, c net.Conn) bool {
	for {
		used := w.gather(s, s.in)
		s.in = s.in[:copy(s.in, s.in[used:])]
		w.flushAll()
		job := s.job
		if job != nil {
			s.job = nil
			s.settle()
			s.run(ctx, job)
		}
		if s.heard.Load() {
			s.tellNews()
		}
		if s.rest > 0 && !s.sleep(ctx, c) {
			return false
		}
		more := used > 0 || job != nil
		if !more && len(s.in) > s.inMax() {
			s.tooLong()
		}
		if len(s.out) > 0 && (!more || len(s.out) >= outBytesSoft) && !s.send(c) {
			return false
		}
		if !more {
			if len(s.in) == 0 {
				s.in = keep(s.in)
			}
			s.settle()
			return true
		}
	}
}

// sleep sends the replies, and rests for as long as the session has to: see loop.lay.
func (s *session) sleep(ctx context.Context, c net.Conn) bool {
	if len(s.out) > 0 && !s.send(c) {
		return false
	}
	s.d.meters.rests.Add(1)
	t := time.NewTimer(s.rest)
	defer t.Stop()
	s.rest = 0
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// run runs the session's job, unless the connection is closed before its turn.
func (s *session) run(ctx context.Context, job func(context.Context)) {
	defer s.leaveTurn()
	if s.takeTurn(s.slots) {
		job(ctx)
	}
	s.kept = 0
}

// send writes the replies.
func (s *session) send(c net.Conn) bool {
	s.settle()
	if c.SetWriteDeadline(time.Now().Add(s.d.options.Stall)) != nil {
		return false
	}
	n, err := c.Write(s.out)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.d.meters.stalled.Add(1)
		}
		return false
	}
	s.sent(n)
	s.observe()
	return true
}

// read waits for more.
func (s *session) read(c net.Conn) error {
	var until time.Time
	if idle := s.d.idleSeconds.Load(); idle > 0 {
		until = time.Now().Add(time.Duration(idle) * time.Second)
	}
	if err := c.SetReadDeadline(until); err != nil {
		return err
	}
	if s.d.draining.Load() || s.heard.Load() { // it may have set the deadline before we did
		return os.ErrDeadlineExceeded
	}
	if free := cap(s.in) - len(s.in); free < readBytes/4 {
		s.in = append(make([]byte, 0, max(2*cap(s.in), keptBytesMax)), s.in...)
	}
	n, err := c.Read(s.in[len(s.in):cap(s.in)])
	s.came = time.Since(s.d.start)
	s.in = s.in[:len(s.in)+n]
	if n > 0 {
		return nil
	}
	return err
}

// inMax returns how long the session's commands may be.
func (s *session) inMax() int {
	if !s.parser.known {
		return strangerBytesMax
	}
	return inBytesMax
}

// tooLong refuses a command that is longer than all.
func (s *session) tooLong() {
	s.d.meters.protocol.Add(1)
	s.fail(protocolError("too big query").Error())
	s.close()
	s.in = nil
}

// settle accounts for the session, and closes those who hold most if all hold too
// much: this one too.
func (s *session) settle() { s.settleAt(time.Now()) }

func (s *session) settleAt(now time.Time) {
	s.account(now)
	s.d.makeRoom(nil)
}

// panicked logs what a command has met, which costs its connection and nobody
// else's.
func (d *Door) panicked(s *session, p any, stack []byte) {
	d.options.Logger.Error("panic: connection closed", "client", s.addr, "error", p, "stack", string(stack))
}

// panicError returns what is logged of a panic that no connection alone has met.
func panicError(p any) error { return store.Errorf(store.KindOther, "panic: %v\n%s", p, debug.Stack()) }
