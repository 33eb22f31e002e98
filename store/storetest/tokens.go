package storetest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quipudb/quipu/store"
)

// window is the token window of the laws that move the clock.
const window = time.Hour

// tokens are the laws of writing once: what a repeat returns, and how the
// window ends.
func tokens(s *suite) {
	s.law("a lookup says what the write was and what it returned", func(k *kit) {
		c := cell("a")
		blind := add(c, -4)
		blind.Guard = store.Guard{Token: "blind", Digest: 1}
		for _, d := range []store.Delta{
			once(add(c, 5), "add"), once(set(c, 9), "set"), blind, once(add(c, 0), "zero"), once(del(c), "delete"),
		} {
			first := k.one(d)
			k.outcome(first, store.Applied)
			f := k.state(c, d.Guard.Token, store.TokenApplied)
			f.Result.Replayed = first.Replayed
			if f.Op != d.Op || f.N != d.N || f.Want != d.Want || f.Result != kept(first) {
				k.Fatalf("fate %+v of %+v, whose result was %+v", f, d, first)
			}
		}
	})

	s.law("a repeat returns the first result and changes nothing", func(k *kit) {
		c := cell("a")
		k.outcome(k.one(set(c, 100)), store.Applied)
		firsts := map[string]store.Result{}
		ds := []store.Delta{
			once(add(c, 5), "add"), once(add(c, 0), "zero"), once(set(c, 9), "set"),
			once(add(c, -2), "minus"), once(del(c), "delete"), once(add(c, 1), "again"),
		}
		for _, d := range ds {
			firsts[d.Guard.Token] = k.one(d)
			k.outcome(firsts[d.Guard.Token], store.Applied)
			if firsts[d.Guard.Token].Replayed {
				k.Fatalf("token %q was new, yet its result says replayed", d.Guard.Token)
			}
		}
		was := k.read(c)
		for range 2 {
			for _, d := range ds {
				k.repeats(k.one(d), firsts[d.Guard.Token])
			}
		}
		if now := k.read(c); now != was {
			k.Fatalf("repeats changed the cell from %+v to %+v", was, now)
		}
		k.applied(firsts["add"], 100, 105)
		k.applied(firsts["set"], 105, 9)
		k.applied(firsts["delete"], 7, 0)
	})

	s.law("a repeat of a blind write changes nothing either", func(k *kit) {
		c := cell("a")
		d := once(add(c, 5), "t")
		d.Want = false
		first := k.one(d)
		k.outcome(first, store.Applied)
		again := k.one(d)
		k.outcome(again, store.Applied)
		if !again.Replayed || again.Version != first.Version {
			k.Fatalf("repeat returns %+v, the first was %+v", again, first)
		}
		k.holds(c, 5)
	})

	s.law("two writes with one token in one batch are one write", func(k *kit) {
		c := cell("a")
		rs := k.do(once(add(c, 1), "t"), want(add(c, 1)), once(add(c, 1), "t"))
		k.applied(rs[0], 0, 1)
		k.applied(rs[1], 1, 2)
		k.repeats(rs[2], rs[0])
		k.holds(c, 2)
	})

	s.law("another payload under the token is refused", func(k *kit) {
		c := cell("a")
		first := k.one(once(add(c, 5), "t"))
		was := k.read(c)
		for _, d := range []store.Delta{once(add(c, 6), "t"), once(set(c, 5), "t"), once(del(c), "t")} {
			r := k.one(d)
			k.outcome(r, store.Mismatch)
			if r.Version != 0 || r.Replayed {
				k.Fatalf("refused with %+v", r)
			}
		}
		if now := k.read(c); now != was {
			k.Fatalf("a refused write changed the cell from %+v to %+v", was, now)
		}
		k.repeats(k.one(once(add(c, 5), "t")), first)
	})

	s.law("the digest alone says what another payload is", func(k *kit) {
		c := cell("a")
		d := once(add(c, 5), "t")
		for _, digest := range []uint64{0, math.MaxUint64, 1 << 63} {
			d.Guard.Token = fmt.Sprint("t", digest)
			d.Guard.Digest = digest
			first := k.one(d)
			k.outcome(first, store.Applied)
			k.repeats(k.one(d), first)
			d.Guard.Digest ^= 1
			k.outcome(k.one(d), store.Mismatch)
		}
	})

	s.law("a token belongs to its cell", func(k *kit) {
		cs := append(k.apart(), cell("x"), cell("y"), store.Cell{Namespace: "other", Key: "x"})
		for _, c := range cs {
			r := k.one(once(add(c, 1), "t"))
			k.outcome(r, store.Applied)
			if r.Replayed {
				k.Fatalf("the token of another cell was taken for that of %v", c)
			}
		}
	})

	s.law("tokens are bytes: case, space, zero and length count", func(k *kit) {
		c := cell("a")
		for i, token := range awkwardTokens() {
			k.state(c, token, store.TokenUnknown)
			k.applied(k.one(once(add(c, 1), token)), int64(i), int64(i+1))
		}
		for i, token := range awkwardTokens() {
			r := k.one(once(add(c, 1), token))
			k.applied(r, int64(i), int64(i+1))
			if !r.Replayed {
				k.Fatalf("token %q was not remembered", token)
			}
		}
	})

	s.law("a refused write does not use its token", refusedKeepsToken)
	s.law("a repeat wins over every other guard", repeatWins)

	s.law("set and delete forget no token", func(k *kit) {
		c := cell("a")
		first := k.one(once(add(c, 5), "t"))
		for _, d := range []store.Delta{set(c, 0), del(c), add(c, 0), del(c)} {
			k.outcome(k.one(d), store.Applied)
			k.repeats(k.one(once(add(c, 5), "t")), first)
			k.state(c, "t", store.TokenApplied)
		}
		k.absent(c)
	})

	s.lawAt("lookup tells what is known", store.Limits{TokenWindow: window}, func(k *kit, cl *clock) {
		c := cell("a")
		if f := k.state(c, "t", store.TokenUnknown); f.AtMS != 0 {
			k.Fatalf("an unknown token was decided at %d", f.AtMS)
		}
		k.state(c, "t", store.TokenUnknown) // looking changed nothing
		first := k.one(once(add(c, 5), "t"))
		atMS := cl.now().UnixMilli()
		cl.move(time.Minute)
		f := k.state(c, "t", store.TokenApplied)
		f.Result.Replayed = first.Replayed
		if f.Result != kept(first) {
			k.Fatalf("lookup returns %+v, the first result was %+v", f.Result, first)
		}
		if f.AtMS != atMS {
			k.Fatalf("lookup says it was decided at %d, it was at %d", f.AtMS, atMS)
		}
		k.state(cell("b"), "t", store.TokenUnknown)
		k.state(c, "T", store.TokenUnknown)
		k.one(settle(c, "s"))
		k.state(c, "s", store.TokenSettled)
	})

	s.lawAt("the window ends by refusal", store.Limits{TokenWindow: window}, windowEnds)
	s.lawAt("after the refusals a token may be forgotten", store.Limits{TokenWindow: window}, tokenForgotten)
	s.lawAt("a token that carries an old time is expired", store.Limits{TokenWindow: window}, tokenStale)
	s.lawAt("a clock that goes back resurrects nothing and forgets nothing", store.Limits{TokenWindow: window}, clockBack)

	s.lawAt("what was told expired is so when the clock goes back", store.Limits{TokenWindow: window}, func(k *kit, cl *clock) {
		c := cell("a")
		for i, d := range []store.Delta{once(add(c, 5), ""), once(del(c), ""), settle(c, "")} {
			d.Guard.Token = fmt.Sprint("t", i)
			k.outcome(k.one(once(add(c, 5), d.Guard.Token)), store.Applied)
			cl.move(window)
			k.outcome(k.one(d), store.Expired) // nobody else has seen the time
			cl.move(-window)
			k.outcome(k.one(d), store.Expired)
			k.state(c, d.Guard.Token, store.TokenExpired)
			cl.move(window)
		}
	})

	if s.probe().Beside != nil {
		s.lawWith("stores that share have one window", Config{Limits: store.Limits{TokenWindow: window}}, oneWindow)
	}
}

func awkwardTokens() []string {
	long := make([]byte, store.TokenBytesMax)
	for i := range long {
		long[i] = 'x'
	}
	return []string{
		"t", "T", "t ", " t", "t\x00", "\x00", "\x00t", "\n", "é", "e\u0301", "日本", "\U0010ffff",
		"%", "'", "\"", "\\", ":", "{t}", "t:a", string(long), string(long[1:]),
		"0198a3f0-0000-4000-8000-000000000000", // a UUID that carries no time
	}
}

func refusedKeepsToken(k *kit) {
	c := cell("a")
	k.outcome(k.one(set(c, math.MaxInt64)), store.Applied)
	k.outcome(k.one(once(add(c, 1), "t")), store.Overflow)
	k.state(c, "t", store.TokenUnknown)
	k.outcome(k.one(match(once(add(c, -9), "t"), k.read(c).Version+1)), store.Changed)
	k.state(c, "t", store.TokenUnknown)
	k.outcome(k.one(add(c, -1)), store.Applied)
	first := k.one(once(add(c, 1), "t"))
	k.applied(first, math.MaxInt64-1, math.MaxInt64)
	k.repeats(k.one(once(add(c, 1), "t")), first)
}

func repeatWins(k *kit) {
	c := cell("a")
	d := match(once(add(c, math.MaxInt64), "t"), 0)
	first := k.one(d)
	k.applied(first, 0, math.MaxInt64)
	k.repeats(k.one(d), first) // not Changed, not Overflow
	d.Guard.Digest++
	k.outcome(k.one(d), store.Mismatch)
	k.holds(c, math.MaxInt64)
}

func windowEnds(k *kit, cl *clock) {
	c := cell("a")
	d := once(add(c, 5), "t")
	first := k.one(d)
	k.one(settle(c, "s"))
	cl.move(window - time.Millisecond)
	k.repeats(k.one(d), first)
	k.state(c, "t", store.TokenApplied)
	k.outcome(k.one(add(c, 1)), store.Applied) // a repeat keeps no token young

	expired := func() {
		k.Helper()
		for _, token := range []string{"t", "s"} {
			k.state(c, token, store.TokenExpired)
			k.outcome(k.one(once(add(c, 5), token)), store.Expired)
			k.outcome(k.one(once(add(c, 6), token)), store.Expired)
			k.outcome(k.one(settle(c, token)), store.Expired)
		}
		k.holds(c, 6)
	}
	cl.move(time.Millisecond)
	expired()
	cl.move(window - time.Millisecond) // the last moment of the second window
	expired()
}

// tokenForgotten allows either: a store may refuse for longer than it must.
func tokenForgotten(k *kit, cl *clock) {
	c := cell("a")
	k.one(once(add(c, 5), "t"))
	cl.move(2 * window)
	state := k.lookup(c, "t").State
	r := k.one(once(add(c, 7), "t"))
	switch {
	case r.Outcome == store.Expired && state == store.TokenExpired:
		k.holds(c, 5)
	case r.Outcome == store.Applied && !r.Replayed && state == store.TokenUnknown:
		k.holds(c, 12)
		k.repeats(k.one(once(add(c, 7), "t")), r)
	default:
		k.Fatalf("a forgotten token was %v, and then %v", state, r)
	}
}

// uuid7 returns a token that carries a time.
func uuid7(t time.Time, n int) string {
	ms := t.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7000-8000-%012x", ms>>16, ms&0xffff, n)
}

func tokenStale(k *kit, cl *clock) {
	c := cell("a")
	young, edge := uuid7(cl.now(), 1), uuid7(cl.now().Add(-window), 2)
	old, ancient := uuid7(cl.now().Add(-window-time.Millisecond), 3), uuid7(time.UnixMilli(1), 4)
	for _, token := range []string{old, ancient} {
		k.state(c, token, store.TokenExpired)
		k.outcome(k.one(once(add(c, 1), token)), store.Expired)
		k.outcome(k.one(settle(c, token)), store.Expired)
	}
	k.absent(c)
	k.state(c, edge, store.TokenUnknown)
	k.applied(k.one(once(add(c, 1), edge)), 0, 1)
	first := k.one(once(add(c, 1), young))
	k.applied(first, 1, 2)

	// Known tokens are judged by when they were decided.
	cl.move(window - time.Millisecond)
	k.repeats(k.one(once(add(c, 1), young)), first)
	k.applied(k.one(once(add(c, 1), edge)), 0, 1)

	// However long ago it was forgotten, it is never taken as new.
	for range 5 {
		cl.move(window)
		for _, token := range []string{young, edge, old} {
			k.state(c, token, store.TokenExpired)
			k.outcome(k.one(once(add(c, 1), token)), store.Expired)
		}
	}
	k.holds(c, 2)
}

func clockBack(k *kit, cl *clock) {
	cs := k.together(2)
	c, other := cs[0], cs[1]
	first := k.one(once(add(c, 5), "t"))
	cl.move(window)
	k.outcome(k.one(add(other, 1)), store.Applied) // the store has seen this time
	k.outcome(k.one(once(add(c, 5), "t")), store.Expired)

	cl.move(-window)
	k.state(c, "t", store.TokenExpired)
	k.outcome(k.one(once(add(c, 5), "t")), store.Expired)
	k.holds(c, first.After)

	// A token decided now is as old as the store's time says, not the clock's.
	second := k.one(once(add(c, 1), "u"))
	k.outcome(second, store.Applied)
	cl.move(-24 * 365 * time.Hour)
	k.repeats(k.one(once(add(c, 1), "u")), second)
	k.state(c, "u", store.TokenApplied)
	cl.move(24*365*time.Hour + window + window - time.Millisecond)
	k.repeats(k.one(once(add(c, 1), "u")), second)
	cl.move(time.Millisecond)
	k.outcome(k.one(once(add(c, 1), "u")), store.Expired)
}

// oneWindow opens stores beside one that is there: who asks for another window is
// refused, and who asks for none has that.
func oneWindow(k *kit) {
	f := func(asked time.Duration, ok bool) {
		k.Helper()
		other, err := k.inst.Beside(k.t, store.Limits{TokenWindow: asked})
		if err != nil {
			if ok || !errors.Is(err, store.ErrInvalid) {
				k.Fatalf("window %s beside one of %s: %v", asked, window, err)
			}
			return
		}
		if got := other.Traits().Limits.TokenWindow; !ok || got != window {
			k.Errorf("window %s beside one of %s became %s", asked, window, got)
		}
		if err := other.Close(); err != nil {
			k.Errorf("Close: %v", err)
		}
	}
	f(window, true)
	f(0, true)
	f(window/2, false)
	f(2*window, false)
	f(window, true) // a refusal changed nothing
}
