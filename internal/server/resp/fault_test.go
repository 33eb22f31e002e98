package resp_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A faulty store is one in memory that does what its fault says, as long as it
// has one.
type faulty struct {
	*memstore.Store
	fault atomic.Pointer[fault]
}

type fault struct {
	err     error         // what calls return
	how     string        // where a write says it: see hows
	outcome store.Outcome // of every change, if there is no err
	hangs   bool          // calls wait for the end of their context, and fail with its error
	panics  bool          // calls panic
}

// hows are the ways in which a store tells that a write failed: it can't take it
// at once, and the call fails; it takes it, and says so later; it refuses a batch.
var hows = []string{"call", "later", "batch"}

func (s *faulty) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	f := s.fault.Load()
	switch {
	case f == nil:
		return s.Store.Apply(ctx, batches, replies)
	case f.how != "batch" && f.fails(ctx) != nil:
		return f.fails(ctx)
	}
	f.fill(batches, replies)
	return nil
}

func (s *faulty) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	f := s.fault.Load()
	switch {
	case f == nil:
		return s.Store.Start(batches, replies, done)
	case f.panics:
		panic("a bug")
	case f.hangs, f.err != nil && f.how == "call":
		return false
	}
	f.fill(batches, replies)
	if f.how == "later" {
		go done(f.err)
	} else {
		done(nil)
	}
	return true
}

// fill fills replies with the fault.
func (f *fault) fill(batches []store.Batch, replies []store.Reply) {
	for i := range batches {
		r := &replies[i]
		*r = store.Reply{Results: r.Results[:0], Durability: store.Synced}
		if f.how == "batch" {
			r.Err = f.err
		}
		for range batches[i].Deltas {
			r.Results = append(r.Results, store.Result{Outcome: f.outcome})
		}
	}
}

// fails returns the error of a call.
func (f *fault) fails(ctx context.Context) error {
	if f.panics {
		panic("a bug")
	}
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.err
}

// failure is that of calls for a caller: what is done in the background goes on.
func (s *faulty) failure(ctx context.Context) error {
	if f := s.fault.Load(); f != nil && !store.IsUnheard(ctx) {
		return f.fails(ctx)
	}
	return nil
}

func (s *faulty) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if err := s.failure(ctx); err != nil {
		return err
	}
	return s.Store.Read(ctx, cells, values)
}

func (s *faulty) Peek(cells []store.Cell, values []store.Value) bool {
	f := s.fault.Load()
	if f != nil && f.panics {
		panic("a bug")
	}
	return (f == nil || f.err == nil && !f.hangs) && s.Store.Peek(cells, values)
}

func (s *faulty) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if err := s.failure(ctx); err != nil {
		return nil, err
	}
	return s.Store.Scan(ctx, r, n)
}

func (s *faulty) Lookup(ctx context.Context, c store.Cell, token string) (store.Fate, error) {
	if err := s.failure(ctx); err != nil {
		return store.Fate{}, err
	}
	return s.Store.Lookup(ctx, c, token)
}

func (s *faulty) Size(ctx context.Context, namespace string) (int64, error) {
	if err := s.failure(ctx); err != nil {
		return 0, err
	}
	return s.Store.Size(ctx, namespace)
}

// A journal is what was logged.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

// take returns what was logged since the last call.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.b.Reset()
	return j.b.String()
}

// overFaulty runs f with a door of a faulty store, over both transports and in
// both protocols.
func overFaulty(t *testing.T, f func(t *testing.T, s *faulty, j *journal, d *door, c *client)) {
	transports(t, func(t *testing.T, o resp.Options) {
		for _, hello := range []string{"HELLO 2", "HELLO 3"} {
			t.Run(hello, func(t *testing.T) {
				s, j := &faulty{Store: memstore.New(memstore.Options{})}, &journal{}
				o.Logger = slog.New(slog.NewTextHandler(j, nil))
				d := openOver(t, quipu.New(s, quipu.Options{}), o)
				c := dial(t, d.addr)
				c.line(hello)
				f(t, s, j, d, c)
			})
		}
	})
}

// everything is a command for each way to the store.
var everything = []string{
	"INCR a", "INCRBY a 2", "INCREX a", "SET a 1", "SET a 1 NX GET", "MSET a 1 b 2", "MSETNX n 1 m 2", "GETDEL a", "GETEX a PERSIST", "DEL a b",
	"EXPIRE a 100", "PERSIST a", "GET a", "MGET a b", "EXISTS a", "STRLEN a", "TYPE a", "TTL a", "RENAME a b", "RENAMENX a c",
	"KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "FLUSHALL", "WATCH a", "Q.ADD a 1", "Q.ADD a 1 NOVALUE", "Q.ADD a 1 ID t",
	"Q.GET a", "Q.LOOKUP t a", "Q.SETTLE t a",
}

// When the store can't serve, every command says so in the same words, what a
// client is not told is logged, and the connection serves on.
func TestStoreFails(t *testing.T) {
	file := &fs.PathError{Op: "write", Path: "/var/lib/quipu/1.wal", Err: syscall.ENOSPC}
	const seeLog = " internal error: the server's log says more\r\n"
	overFaulty(t, func(t *testing.T, s *faulty, j *journal, d *door, c *client) {
		f := func(err error, want string) {
			t.Helper()
			logged := strings.Contains(want, seeLog) || strings.HasPrefix(want, "-UN") || strings.HasPrefix(want, "-LOST")
			for _, how := range hows {
				s.fault.Store(&fault{err: err, how: how})
				failures := d.meter("quipu_resp_failures_total")
				for _, words := range everything {
					j.take()
					c.expect(words, want)
					if got := j.take(); strings.Contains(got, "error=") != logged {
						t.Errorf("%s failed, and the log says %q", words, got)
					}
					if logged {
						failures++
					}
					if got := d.meter("quipu_resp_failures_total"); got != failures {
						t.Errorf("%s failed: %v failures are metered, want %v", words, got, failures)
					}
				}
				// In a transaction each command has its reply, unless it was watched.
				c.send(array("MULTI") + array("INCR", "a") + array("GET", "a") + array("EXEC") + array("PING"))
				if got := c.reply() + c.reply() + c.reply() + c.reply() + c.reply(); got != ok+queued+queued+"*2\r\n"+want+want+pong {
					t.Errorf("EXEC, %s: %q, want errors %q", how, got, want)
				}
				if got := d.meter("quipu_resp_failures_total"); logged && got != failures+2 {
					t.Errorf("two of a transaction failed: %v failures are metered, want %v", got, failures+2)
				}
				s.fault.Store(nil)
				c.expect("WATCH a", ok)
				s.fault.Store(&fault{err: err, how: how})
				c.send(array("MULTI") + array("INCR", "a") + array("EXEC") + array("INCR", "a") + array("PING") + array("GET", "a"))
				if got := c.reply() + c.reply() + c.reply() + c.reply() + c.reply() + c.reply(); got != ok+queued+want+want+pong+want {
					t.Errorf("EXEC after WATCH, %s: %q, want the error %q", how, got, want)
				}
				s.fault.Store(nil)
				c.expect("DEL a", zero) // nothing has counted
				c.expect("INCR a", one)
				c.expect("DEL a", one)
			}
		}
		f(store.Errorf(store.KindUnavailable, "the log can't be written: %w", file), "-UNAVAILABLE the log can't be written: no space left on device; nothing changed\r\n")
		f(store.Errorf(store.KindUnknown, "the log has failed: %w", file),
			"-UNKNOWN the log has failed: no space left on device; it may have counted: send the same again under the same token, or settle it\r\n")
		f(store.ErrClosed, "-UNAVAILABLE the server is closing; nothing changed\r\n")
		f(context.DeadlineExceeded, "-UNAVAILABLE the deadline of the call passed; nothing changed\r\n")
		f(store.Errorf(store.KindCorrupt, "/var/lib/quipu/1.wal: a bit flipped"), "-CORRUPT"+seeLog)
		f(store.Errorf(store.KindLost, "/var/lib/quipu/1.wal: gone"), "-LOST the store has lost acknowledged writes; this call counted nothing; try again\r\n")
		f(store.ErrSessionLost, "-SESSIONLOST the store has lost what the session has seen: drop it, and read again without it\r\n")
		f(errors.New("/var/lib/quipu: broken"), "-ERR"+seeLog)
		f(store.Errorf(store.KindTooLarge, "9 of something: at most 8"), "-ERR 9 of something: at most 8\r\n")
		f(store.Errorf(store.KindInvalid, "something is wrong"), "-ERR something is wrong\r\n")
		f(store.ErrFull, full)
		if got := d.meter("quipu_resp_connections_total"); got != 1 {
			t.Errorf("%v connections, want the one", got)
		}
	})
}

const (
	pong   = "+PONG\r\n"
	queued = "+QUEUED\r\n"
	full   = "-OOM the namespace is at its limit of keys or tokens, or there are too many namespaces\r\n"
)

// When the store refuses a change, the command says why, alone.
func TestStoreRefuses(t *testing.T) {
	overFaulty(t, func(t *testing.T, s *faulty, _ *journal, _ *door, c *client) {
		nothing := null
		if strings.HasSuffix(t.Name(), "3") {
			nothing = "_\r\n"
		}
		f := func(o store.Outcome, words, want string) {
			t.Helper()
			s.fault.Store(&fault{outcome: o})
			c.expect(words, want)
			c.send(array("MULTI") + array(strings.Fields(words)...) + array("EXEC") + array("PING"))
			if got := c.reply() + c.reply(); got == ok+queued {
				if got := c.reply() + c.reply(); got != "*1\r\n"+want+pong {
					t.Errorf("EXEC of %s: %q, want %q", words, got, want)
				}
			} else if got := c.reply() + c.reply(); !strings.HasPrefix(got, "-EXECABORT ") || !strings.HasSuffix(got, pong) {
				t.Errorf("EXEC of %s, which was refused: %q", words, got)
			}
			s.fault.Store(nil)
			c.expect("INCR other", one)
			c.expect("DEL other", one)
		}
		f(store.Mismatch, "Q.ADD a 1 ID t", "-TOKEN the token was used for another payload\r\n")
		f(store.Expired, "Q.ADD a 1 ID t", "-EXPIRED the token is older than the window\r\n")
		f(store.Settled, "Q.ADD a 1 ID t", "-SETTLED the token was settled before its write arrived\r\n")
		for _, words := range []string{"Q.ADD a 1 ID t", "Q.ADD a 1", "Q.ADD a 1 NOVALUE", "INCR a", "DECRBY a 3", "INCREX a"} {
			f(store.Full, words, full)
			f(store.Overflow, words, overflow)
		}
		for _, words := range []string{"SET a 1", "SET a 1 NX", "SET a 1 GET", "SETNX a 1", "SETEX a 10 1", "GETSET a 1", "MSET a 1 b 2", "MSETNX a 1 b 2"} {
			f(store.Full, words, full)
		}
		f(store.Unmet, "SET a 1 NX", nothing)
		f(store.Unmet, "SET a 1 XX GET", nothing)
		f(store.Unmet, "SETNX a 1", zero)
		f(store.Unmet, "EXPIRE a 100 GT", zero)
		f(store.Unmet, "PERSIST a", zero)
		f(store.Bounded, "INCREX a UBOUND 5", "*2\r\n:0\r\n:0\r\n")
		f(store.Outcome(99), "INCR a", "-CORRUPT internal error: the server's log says more\r\n")
		f(store.Outcome(99), "SET a 1", "-CORRUPT internal error: the server's log says more\r\n")
		f(store.Outcome(99), "Q.ADD a 1 ID t", "-CORRUPT internal error: the server's log says more\r\n")
	})
}

// The real thing: the limits of a store, and one that is closed under the door.
func TestStoreLimits(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		now := time.Now()
		s := memstore.New(memstore.Options{
			Limits: store.Limits{KeysMax: 2, TokensMax: 2, TokenWindow: time.Hour}, Now: func() time.Time { return now },
		})
		c := dial(t, openOver(t, quipu.New(s, quipu.Options{}), o).addr)
		f := c.expect
		f("MSET a 1 b 2", ok)
		f("INCR c", full)
		f("INCR a", ":2\r\n")
		f("RENAME a c", ok) // one key for another
		f("Q.ADD b 1 ID t", ":3\r\n")
		f("Q.ADD b 1 ID u", ":4\r\n")
		f("Q.ADD b 1 ID v", full)
		f("Q.ADD b 1 ID t", ":3\r\n")
		f("Q.ADD b 1 ID 018d0000-0000-7000-8000-000000000000", "-EXPIRED the token is older than the window\r\n")
		if got := c.do("Q.ADD", "b", "1", "ID", strings.Repeat("t", 256)); !strings.HasPrefix(got, "-ERR token of 256 bytes") {
			t.Errorf("a long token: %q", got)
		}
		if got := c.do("INCR", strings.Repeat("k", 513)); !strings.HasPrefix(got, "-ERR key of 513 bytes") {
			t.Errorf("a long key: %q", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, words := range everything {
			f(words, "-UNAVAILABLE the server is closing; nothing changed\r\n")
		}
		f("PING", pong)
	})
}

// A command does not wait for the store for ever.
func TestStoreHangs(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Timeout = 10 * time.Millisecond
		s := &faulty{Store: memstore.New(memstore.Options{})}
		c := dial(t, openOver(t, quipu.New(s, quipu.Options{}), o).addr)
		s.fault.Store(&fault{hangs: true})
		for _, words := range []string{
			"INCR a", "SET a 1 NX GET", "MSET a 1 b 2", "MSETNX n 1 m 2", "GETDEL a", "EXPIRE a 100", "RENAME a b", "RENAMENX a c", "SCAN 0",
			"RANDOMKEY", "DBSIZE", "WATCH a", "Q.ADD a 1", "Q.ADD a 1 ID t", "Q.GET a", "Q.LOOKUP t a", "Q.SETTLE t a",
			"GET a", "MGET a b", "EXISTS a", "STRLEN a", "TYPE a", "TTL a",
		} {
			c.expect(words, "-UNAVAILABLE the deadline of the call passed; nothing changed\r\n")
		}
		if got := c.line("INFO"); !strings.Contains(got, "# Server") || strings.Contains(got, "db0:") {
			t.Errorf("INFO: %q", got)
		}
		s.fault.Store(nil)
		c.expect("INCR a", one)
	})
}

// Who comes in does not wait for the store, and nor does anybody else meanwhile.
func TestAuthWhileStoreHangs(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		s := &faulty{Store: memstore.New(memstore.Options{})}
		d := openOver(t, quipu.New(s, quipu.Options{}), o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		for _, f := range []*fault{{hangs: true}, {err: store.ErrUnavailable}} {
			s.fault.Store(f)
			c.expect("AUTH shop x", ok)
			if got := c.line("HELLO 3 AUTH ads x"); !strings.HasPrefix(got, "%7\r\n") {
				t.Errorf("HELLO: %q", got)
			}
			c.expect("AUTH a/b x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
			other.expect("PING", pong)
		}
		s.fault.Store(nil)
		c.expect("INCR a", one)
		if got, err := d.db.In("ads").Read(t.Context(), "a"); err != nil || got.Value != 1 {
			t.Errorf("namespace ads: %+v, %v", got, err)
		}
	})
}

// A panic in a command closes the connection that sent it, and no other, and is
// logged.
func TestPanic(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		s, j := &faulty{Store: memstore.New(memstore.Options{})}, &journal{}
		o.Logger = slog.New(slog.NewTextHandler(j, nil))
		d := openOver(t, quipu.New(s, quipu.Options{}), o)
		other := dial(t, d.addr)
		other.expect("PING", pong)
		for _, words := range everything {
			c := dial(t, d.addr)
			c.expect("PING", pong)
			s.fault.Store(&fault{panics: true})
			c.send(array(strings.Fields(words)...))
			// What shares a batch with others has an error for a reply instead.
			if got, err := resp.ReadReply(c.r); err == nil && got != "-ERR internal error: the server's log says more\r\n" {
				t.Errorf("%s: %q", words, got)
			}
			s.fault.Store(nil)
			if got := j.take(); !strings.Contains(got, "a bug") || !strings.Contains(got, "goroutine") {
				t.Errorf("%s: the log says %q", words, got)
			}
			other.expect("INCR a", one)
			other.expect("DEL a", one)
		}
	})
}

// What a command has planned when it panics is taken back, and those whose
// commands are in the same batch have their replies.
func TestPanicInPlan(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		s, j := &gated{Store: memstore.New(memstore.Options{}), entered: make(chan struct{}), leave: make(chan struct{})}, &journal{}
		o.Logger = slog.New(slog.NewTextHandler(j, nil))
		db := quipu.New(s, quipu.Options{})
		d := serveDoor(t, listen(t, o), db, resp.NewWithBug(db, o))
		first, before, buggy, after := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
		s.shut.Store(true)
		first.send(array("INCR", "first"))
		<-s.entered // the loop gathers all that comes now in its next turn
		before.send(array("INCR", "before") + array("GET", "before"))
		buggy.send(array("INCR", "mine") + array("BUG", "left") + array("INCR", "never"))
		after.send(array("INCRBY", "after", "3") + array("GET", "after"))
		close(s.leave)
		for _, f := range []struct {
			c    *client
			want string
		}{{first, one}, {before, one + bulk("1")}, {after, ":3\r\n" + bulk("3")}} {
			got := f.c.reply()
			if f.c != first {
				got += f.c.reply()
			}
			if got != f.want {
				t.Errorf("a neighbour's reply: %q, want %q", got, f.want)
			}
		}
		if _, err := resp.ReadReply(buggy.r); err == nil {
			buggy.ended()
		}
		if got := j.take(); !strings.Contains(got, "a bug") || !strings.Contains(got, "goroutine") {
			t.Errorf("the log says %q", got)
		}
		after.expect("EXISTS left never", zero)
		after.expect("INCR after", ":4\r\n")
	})
}

// A gated store keeps the first that comes after it was shut.
type gated struct {
	*memstore.Store
	shut           atomic.Bool
	entered, leave chan struct{}
}

func (s *gated) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	s.wait()
	return s.Store.Start(batches, replies, done)
}

func (s *gated) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.wait()
	return s.Store.Apply(ctx, batches, replies)
}

func (s *gated) wait() {
	if s.shut.CompareAndSwap(true, false) {
		close(s.entered)
		<-s.leave
	}
}
