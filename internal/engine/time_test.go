package engine_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// Two clocks that are moved by hand.
type clocks struct {
	clock
	elapsed atomic.Int64
}

func newClocks() *clocks {
	c := &clocks{}
	c.ms.Store(newClock().ms.Load())
	return c
}

func (c *clocks) pass(d time.Duration) {
	c.advance(d)
	c.elapsed.Add(int64(d))
}

func (c *clocks) options() engine.Options {
	return engine.Options{Now: c.now, Elapsed: func() time.Duration { return time.Duration(c.elapsed.Load()) }, Limits: hourly}
}

// brief makes a delta give its cell a lifetime of a second.
func brief(d store.Delta) store.Delta {
	d.Expiry, d.DeadlineMS = store.ExpirySet|store.ExpiryAfter, 1000
	return d
}

// What the background has removed as expired is told only when it is durable.
func TestCollectedExpiryIsDurable(t *testing.T) {
	clock, mem := newClock(), newMemDisk()
	e := open(t, mem, clock.options())
	do(t, e, brief(set(cell("a"), 7)))
	checkpoint(t, e)
	clock.advance(time.Second)
	if err := e.Collect(bg); err != nil {
		t.Fatal(err)
	}
	if v := value(t, e, cell("a")); v.Exists {
		t.Fatalf("%+v has not expired", v)
	}
	clock.advance(-time.Second)
	crashed := open(t, cut(mem), clock.options())
	if v := value(t, crashed, cell("a")); v.Exists {
		t.Errorf("%+v is back", v)
	}
	audited(t, crashed)
}

// Deadlines are collected in their order, some at a time. A checkpoint may write one
// that is before those that were collected: it is found too.
func TestCollectGoesOn(t *testing.T) {
	const cells = 1000
	clock := newClock()
	e := open(t, newMemDisk(), clock.options())
	for i := range cells {
		do(t, e, brief(set(cell(fmt.Sprint("b", i)), 7)))
	}
	checkpoint(t, e)
	do(t, e, brief(set(cell("a"), 7)))
	clock.advance(time.Second)
	f := func(want int) {
		t.Helper()
		if err := e.Collect(bg); err != nil {
			t.Fatal(err)
		}
		if n := meter(t, e, "quipu_store_expired_total"); n < float64(want) { // the background may look after some as well
			t.Errorf("%v deadlines were looked after, want %d", n, want)
		}
	}
	f(cells)
	finish := e.BeginCheckpoint()
	f(cells)
	if err := finish(bg, false); err != nil {
		t.Fatal(err)
	}
	f(cells + 1)
	if n, err := e.Size(bg, "test"); n != 0 || err != nil {
		t.Errorf("%d cells are left, %v", n, err)
	}
	audited(t, e)
}

// Readers wait for the expiry that a change has found and that is not durable yet.
func TestPendingExpiryIsNotTold(t *testing.T) {
	clock, mem := newClock(), newMemDisk()
	e := open(t, mem, clock.options())
	do(t, e, brief(set(cell("a"), 7)))
	clock.advance(time.Second)
	done := make(chan error, 1)
	replies := make([]store.Reply, 1)
	if !e.Start([]store.Batch{batch(want(add(cell("a"), 1)))}, replies, func(err error) { done <- err }) {
		t.Fatal("it would have to wait")
	}
	vs := make([]store.Value, 1)
	if e.Peek([]store.Cell{cell("a")}, vs) {
		select {
		case <-done: // it was durable by then
			done <- nil
		default:
			t.Errorf("peek tells %+v before that is durable", vs[0])
		}
	}
	e.Flush(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	holds(t, e, cell("a"), 1)
}

// A cell that has expired costs one sync of the log, not one for each look.
func TestExpiryIsKeptOnce(t *testing.T) {
	clock := newClock()
	e := open(t, newMemDisk(), clock.options())
	do(t, e, brief(set(cell("a"), 7)), brief(set(cell("b"), 7)))
	clock.advance(time.Second)
	value(t, e, cell("a"))
	before := meter(t, e, "quipu_log_syncs_total")
	vs := make([]store.Value, 1)
	for range 10 {
		value(t, e, cell("b"))
		if !e.Peek([]store.Cell{cell("a")}, vs) || vs[0].Exists {
			t.Errorf("peek has to wait, or tells %+v", vs[0])
		}
	}
	if after := meter(t, e, "quipu_log_syncs_total"); after != before {
		t.Errorf("%v syncs for what was known", after-before)
	}
}

func meter(t *testing.T, e *engine.Engine, name string) (value float64) {
	t.Helper()
	found := false
	e.Meters(func(n, _ string, v float64) {
		if n == name {
			value, found = v, true
		}
	})
	if !found {
		t.Fatalf("no meter %s", name)
	}
	return value
}

// A token grows older by what the store lives through: time for which it was
// closed does not count, and after two windows it is forgotten nevertheless.
func TestTokensAgeWhileTheStoreIsOpen(t *testing.T) {
	clock, mem := newClocks(), newMemDisk()
	e := open(t, mem, clock.options())
	d := once(add(cell("a"), 1), "token")
	do(t, e, d)
	for range 5 {
		mustClose(t, e)
		clock.advance(1000 * time.Hour)
		e = open(t, mem, clock.options())
		clock.pass(hourly.TokenWindow / 6)
		if r := do(t, e, d); !r[0].Replayed {
			t.Fatalf("a repeat counted: %+v", r[0])
		}
	}
	clock.pass(hourly.TokenWindow / 3)
	if r, err := try(e, batch(d)); err != nil || r.Results[0].Outcome != store.Expired {
		t.Errorf("a repeat after the window: %+v, %v", r, err)
	}
	if f, err := e.Lookup(bg, cell("a"), "token"); err != nil || f.State != store.TokenExpired {
		t.Errorf("a token after the window: %+v, %v", f, err)
	}
	clock.pass(hourly.TokenWindow)
	checkpoint(t, e)
	if n := tokens(t, e); n != 0 {
		t.Errorf("%d tokens after two windows", n)
	}
	holds(t, e, cell("a"), 1)
}

// lines is a log whose messages can be waited for.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A jump of the wall clock is logged once, and metered.
func TestClockJumpIsReported(t *testing.T) {
	clock, log := newClocks(), make(lines, 100)
	o := clock.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	e := open(t, newMemDisk(), o)
	f := func(leap time.Duration, jumps float64, logged bool) {
		t.Helper()
		clock.advance(leap)
		e.WatchClock()
		e.WatchClock()
		if logged {
			if line := <-log; !strings.Contains(line, "the system clock jumped") || !strings.Contains(line, "by="+leap.String()) {
				t.Errorf("after a jump of %v: %s", leap, line)
			}
		}
		if len(log) > 0 {
			t.Errorf("after a jump of %v: %s", leap, <-log)
		}
		if got := meter(t, e, "quipu_clock_jumps_total"); got != jumps {
			t.Errorf("after a jump of %v: %v jumps, want %v", leap, got, jumps)
		}
	}
	f(0, 0, false)
	f(59*time.Second, 0, false)
	f(2*time.Hour, 1, true)
	if got := meter(t, e, "quipu_clock_behind_seconds"); got < 7000 || got > 7200 {
		t.Errorf("%v s behind", got)
	}
	f(-2*time.Hour, 2, true)
}
