package resp_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// hows are the ways in which a store tells that a write failed: it can't take it
// at once, and the call fails; it takes it, and says so later; it refuses a batch.
var hows = []string{"call", "later", "batch"}

// fail has all calls for a caller fail, and writes in one of the hows.
func fail(h *storetest.Hooks, err error, how string) {
	h.On(storetest.OnAll, heard(storetest.Fail(err)))
	h.On(storetest.OnApply, storetest.Fail(err))
	switch how {
	case "later":
		h.On(storetest.OnStart, answer(store.Applied, nil, err))
	case "batch":
		h.On(storetest.OnWrite, answer(store.Applied, err, nil))
	}
}

// answer gives all writes the same answer, now and later, and none to the store.
func answer(o store.Outcome, now, later error) storetest.Hook {
	return func(c *storetest.Call) error {
		for i := range c.Batches {
			r := &c.Replies[i]
			*r = store.Reply{Results: r.Results[:0], Durability: store.Synced, Err: now}
			for range c.Batches[i].Deltas {
				r.Results = append(r.Results, store.Result{Outcome: o})
			}
		}
		if c.Done != nil {
			go c.Done(later)
		}
		return nil
	}
}

// heard is a hook for what is done for a caller. What is done in the background goes
// on.
func heard(h storetest.Hook) storetest.Hook {
	return storetest.If(func(c *storetest.Call) bool { return !store.IsUnheard(c.Ctx) }, h)
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

// hookedDoor opens a door over a store in memory.
func hookedDoor(t *testing.T, h *storetest.Hooks, o resp.Options) *door {
	t.Helper()
	return openOver(t, quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{}), o)
}

// overFaulty runs f with a door of a store that f has fail, over both transports and
// in both protocols.
func overFaulty(t *testing.T, f func(t *testing.T, h *storetest.Hooks, j *journal, d *door, c *client)) {
	transports(t, func(t *testing.T, o resp.Options) {
		for _, hello := range []string{"HELLO 2", "HELLO 3"} {
			t.Run(hello, func(t *testing.T) {
				h, j := new(storetest.Hooks), &journal{}
				o.Logger = slog.New(slog.NewTextHandler(j, nil))
				d := hookedDoor(t, h, o)
				c := dial(t, d.addr)
				c.line(hello)
				f(t, h, j, d, c)
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
	overFaulty(t, func(t *testing.T, h *storetest.Hooks, j *journal, d *door, c *client) {
		f := func(err error, want string) {
			t.Helper()
			logged := strings.Contains(want, seeLog) || strings.HasPrefix(want, "-UN") || strings.HasPrefix(want, "-LOST")
			for _, how := range hows {
				fail(h, err, how)
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
				h.On(storetest.OnAll)
				c.expect("WATCH a", ok)
				fail(h, err, how)
				c.send(array("MULTI") + array("INCR", "a") + array("EXEC") + array("INCR", "a") + array("PING") + array("GET", "a"))
				if got := c.reply() + c.reply() + c.reply() + c.reply() + c.reply() + c.reply(); got != ok+queued+want+want+pong+want {
					t.Errorf("EXEC after WATCH, %s: %q, want the error %q", how, got, want)
				}
				h.On(storetest.OnAll)
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
		f(store.ErrSessionLost, "-SESSIONLOST the store has lost a write that the session has seen: drop the session, and read again without it\r\n")
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
	overFaulty(t, func(t *testing.T, h *storetest.Hooks, _ *journal, _ *door, c *client) {
		nothing := null
		if strings.HasSuffix(t.Name(), "3") {
			nothing = "_\r\n"
		}
		f := func(o store.Outcome, words, want string) {
			t.Helper()
			h.On(storetest.OnWrite, answer(o, nil, nil))
			c.expect(words, want)
			c.send(array("MULTI") + array(strings.Fields(words)...) + array("EXEC") + array("PING"))
			if got := c.reply() + c.reply(); got == ok+queued {
				if got := c.reply() + c.reply(); got != "*1\r\n"+want+pong {
					t.Errorf("EXEC of %s: %q, want %q", words, got, want)
				}
			} else if got := c.reply() + c.reply(); !strings.HasPrefix(got, "-EXECABORT ") || !strings.HasSuffix(got, pong) {
				t.Errorf("EXEC of %s, which was refused: %q", words, got)
			}
			h.On(storetest.OnAll)
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
		h := new(storetest.Hooks)
		c := dial(t, hookedDoor(t, h, o).addr)
		h.On(storetest.OnAll, heard(storetest.Hang(nil, store.KindOther)))
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
		h.On(storetest.OnAll)
		c.expect("INCR a", one)
	})
}

// Who comes in does not wait for the store, and nor does anybody else meanwhile.
func TestAuthWhileStoreHangs(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		h := new(storetest.Hooks)
		d := hookedDoor(t, h, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		for _, hook := range []storetest.Hook{storetest.Hang(nil, store.KindOther), storetest.Fail(store.ErrUnavailable)} {
			h.On(storetest.OnAll, heard(hook))
			c.expect("AUTH shop x", ok)
			if got := c.line("HELLO 3 AUTH ads x"); !strings.HasPrefix(got, "%7\r\n") {
				t.Errorf("HELLO: %q", got)
			}
			c.expect("AUTH a/b x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
			other.expect("PING", pong)
		}
		h.On(storetest.OnAll)
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
		h, j := new(storetest.Hooks), &journal{}
		o.Logger = slog.New(slog.NewTextHandler(j, nil))
		d := hookedDoor(t, h, o)
		other := dial(t, d.addr)
		other.expect("PING", pong)
		for _, words := range everything {
			c := dial(t, d.addr)
			c.expect("PING", pong)
			h.On(storetest.OnAll, heard(func(*storetest.Call) error { panic("a bug") }))
			c.send(array(strings.Fields(words)...))
			// What shares a batch with others has an error for a reply instead.
			if got, err := resp.ReadReply(c.r); err == nil && got != "-ERR internal error: the server's log says more\r\n" {
				t.Errorf("%s: %q", words, got)
			}
			h.On(storetest.OnAll)
			if got := j.take(); !strings.Contains(got, "a bug") || !strings.Contains(got, "goroutine") {
				t.Errorf("%s: the log says %q", words, got)
			}
			other.expect("INCR a", one)
			other.expect("DEL a", one)
		}
	})
}

// A turn is what four clients are told whose commands the loop gathers at once. The
// third one's meet a bug.
type turn struct {
	*door
	first, before, buggy, after *client
}

// inOneTurn has clients send in one turn of the loop.
func inOneTurn(t *testing.T, o resp.Options, before, buggy, after string) *turn {
	t.Helper()
	h, j := new(storetest.Hooks), &journal{}
	o.Logger = slog.New(slog.NewTextHandler(j, nil))
	db := quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{})
	d := serveDoor(t, listen(t, o), db, resp.NewWithBug(db, o))
	k := &turn{d, dial(t, d.addr), dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)}
	entered, leave := make(chan struct{}), make(chan struct{})
	h.On(storetest.OnWrite, storetest.Hold(entered, leave))
	k.first.send(array("INCR", "first"))
	<-entered // the loop gathers all that comes now in its next turn
	k.before.send(before)
	k.buggy.send(buggy)
	k.after.send(after)
	close(leave)
	t.Cleanup(func() {
		if got := j.take(); !strings.Contains(got, "a bug") || !strings.Contains(got, "goroutine") {
			t.Errorf("the log says %q", got)
		}
	})
	return k
}

// replies checks the next replies.
func (c *client) replies(want ...string) {
	c.t.Helper()
	for i, w := range want {
		if got := c.reply(); got != w {
			c.t.Errorf("reply %d is %q, want %q", i, got, w)
		}
	}
}

// What a command has planned when it panics is taken back, and those whose
// commands are in the same batch have their replies.
func TestPanicInPlan(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		k := inOneTurn(t, o, array("INCR", "before")+array("GET", "before"),
			array("INCR", "mine")+array("BUG", "left")+array("INCR", "never"), array("INCRBY", "after", "3")+array("GET", "after"))
		k.first.replies(one)
		k.before.replies(one, bulk("1"))
		k.after.replies(":3\r\n", bulk("3"))
		if _, err := resp.ReadReply(k.buggy.r); err == nil {
			k.buggy.ended()
		}
		k.after.expect("EXISTS left never", zero)
		k.after.expect("INCR after", ":4\r\n")
	})
}

// A reply that can't be made costs its own connection, not that of others in the
// batch.
func TestPanicInReply(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		k := inOneTurn(t, o, array("INCR", "before"),
			array("INCR", "mine")+array("BUG.REPLY", "mine")+array("INCR", "mine"), array("INCR", "after"))
		for _, c := range []*client{k.first, k.before, k.after, k.buggy} {
			c.replies(one)
		}
		k.buggy.ended()
		k.after.expect("INCR after", ":2\r\n")
		k.free(t, k.after)
	})
}
