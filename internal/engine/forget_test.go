package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// A clock that is moved by hand.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(1_700_000_000_000)
	return c
}

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func (c *clock) options() engine.Options { return engine.Options{Now: c.now, Limits: hourly} }

func (c *clock) kept() time.Duration { return 2 * hourly.TokenWindow }

func tokens(t testing.TB, e *engine.Engine) int64 { return audited(t, e).Tokens }

// TestTokenForgottenTwice lets a token be decided anew while a checkpoint
// forgets it, and crashes: it is counted once.
func TestTokenForgottenTwice(t *testing.T) {
	during := func(name string, sweep bool) {
		t.Run(name, func(t *testing.T) {
			clock, mem := newClock(), newMemDisk()
			e := open(t, mem, clock.options())
			do(t, e, once(add(cell("a"), 1), "token"), once(add(cell("a"), 1), "other"))
			checkpoint(t, e)
			clock.advance(clock.kept() + time.Second)
			finish := e.BeginCheckpoint()
			do(t, e, once(add(cell("a"), 1), "token")) // known, and long over
			if err := finish(bg, sweep); err != nil {
				t.Fatal(err)
			}
			crashed := open(t, cut(mem), clock.options())
			holds(t, crashed, cell("a"), 3)
			if n := tokens(t, crashed); n != 1 {
				t.Errorf("%d tokens after a crash, want 1", n)
			}
			if n := tokens(t, e); n != 1 {
				t.Errorf("%d tokens, want 1", n)
			}
		})
	}
	during("while it is swept", true)
	during("before it is swept", false) // by the audit
	t.Run("before that is durable", func(t *testing.T) {
		clock, mem := newClock(), newMemDisk()
		entered := make(chan struct{}, 100)
		gate, release := newGate()
		defer release()
		fs, on := failing(mem, func(op errorfs.Op) bool {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
				notify(entered)
				<-gate
			}
			return false
		})
		e := open(t, fs, clock.options())
		do(t, e, once(add(cell("a"), 1), "token"))
		checkpoint(t, e)
		clock.advance(clock.kept() + time.Second)
		on.Store(true)
		done := make(chan error)
		go func() { done <- e.Checkpoint(bg) }()
		<-entered // it was applied, and is not yet flushed
		do(t, e, once(add(cell("a"), 1), "token"))
		crashed := open(t, cut(mem), clock.options())
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		holds(t, crashed, cell("a"), 2)
		if n := tokens(t, crashed); n != 1 {
			t.Errorf("%d tokens after a crash, want 1", n)
		}
		if n := tokens(t, e); n != 1 {
			t.Errorf("%d tokens, want 1", n)
		}
	})
}

// TestTokensOverCrashes decides, repeats, forgets and settles tokens over many
// crashes and restarts.
func TestTokensOverCrashes(t *testing.T) {
	clock, fs := newClock(), newMemDisk()
	rng := rand.New(rand.NewPCG(3, 3))
	e := open(t, fs, clock.options())
	type state struct {
		at      int64
		settled bool
	}
	decided := map[string]state{}
	var sum int64
	for step := range 1500 {
		token := fmt.Sprint("token ", rng.IntN(40))
		age := clock.ms.Load() - decided[token].at
		fresh := age >= clock.kept().Milliseconds()
		d := once(add(cell("a"), 1), token)
		if rng.IntN(5) == 0 {
			d = settle(cell("a"), token)
		}
		r, err := try(e, batch(d))
		if err != nil {
			t.Fatal(err)
		}
		want := store.Applied
		switch s := decided[token]; {
		case fresh && d.Op == store.OpSettle:
			want = store.Settled
			decided[token] = state{clock.ms.Load(), true}
		case fresh:
			sum++
			decided[token] = state{clock.ms.Load(), false}
		case age >= hourly.TokenWindow.Milliseconds():
			want = store.Expired
		case s.settled:
			want = store.Settled
		}
		if got := r.Results[0].Outcome; got != want {
			t.Fatalf("step %d: %s, %v old: outcome %d, want %d", step, token, time.Duration(age)*time.Millisecond, got, want)
		}
		clock.advance(time.Duration(rng.IntN(10)) * time.Minute)
		switch rng.IntN(40) {
		case 0:
			checkpoint(t, e)
		case 1:
			mustClose(t, e)
			e = open(t, fs, clock.options())
		case 2:
			old := e
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			e = open(t, fs, clock.options())
			mustClose(t, old)
		case 3:
			audited(t, e)
		}
	}
	holds(t, e, cell("a"), sum)
	audited(t, e)
}

// TestClockJumpsAtOpen opens a store under a clock that is far ahead for a
// moment: no token is forgotten for that.
func TestClockJumpsAtOpen(t *testing.T) {
	clock, mem := newClock(), newMemDisk()
	e := open(t, mem, clock.options())
	do(t, e, once(add(cell("a"), 1), "token"))
	ahead := clock.kept() + time.Second
	clock.advance(ahead)
	e = open(t, cut(mem), clock.options())
	clock.advance(-ahead)
	if r := do(t, e, once(add(cell("a"), 1), "token")); !r[0].Replayed {
		t.Errorf("a repeat counted: %+v", r[0])
	}
	holds(t, e, cell("a"), 1)
	audited(t, e)
}
