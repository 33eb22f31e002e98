package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

// Clocks checks the laws of time on stores that make it from the clocks of their
// own machine: what the wall clock does, alone, ends nothing early and holds
// nothing up. A store on a server has the server's time, and need not keep them.
func Clocks(t *testing.T, open Opener) {
	s := &suite{t: t, open: open}
	const life = 10 * time.Minute

	s.lawBy("a clock that jumps ahead ends no lifetime early", func(k *kit, m *clocks) {
		for i, leap := range []time.Duration{61 * time.Second, time.Hour, 100 * time.Hour, 100_000 * time.Hour} {
			c := cell(fmt.Sprint("a", i))
			d := once(lasting(set(c, 5), life.Milliseconds()), "t")
			first := k.one(d)
			m.leap(leap)
			for range 2 {
				k.holdsUntil(c, 5, first.DeadlineMS)
				k.repeats(k.one(d), first)
				k.state(c, "t", store.TokenApplied)
				m.pass(life/2 - time.Minute)
			}
			k.holdsUntil(c, 5, first.DeadlineMS)
			m.leap(-leap)
			k.holdsUntil(c, 5, first.DeadlineMS)
			m.pass(2 * 2 * time.Minute)
			k.absent(c)
			k.repeats(k.one(d), first)
		}
	})

	s.lawBy("a clock that is set back holds no lifetime up", func(k *kit, m *clocks) {
		for i, leap := range []time.Duration{time.Second, time.Hour, 100 * time.Hour} {
			c := cell(fmt.Sprint("a", i))
			m.leap(-leap)
			r := k.one(want(lasting(set(c, 5), 1000)))
			m.pass(999 * time.Millisecond)
			k.holdsUntil(c, 5, r.DeadlineMS)
			m.pass(1001 * time.Millisecond)
			k.absent(c)
		}
	})

	s.lawBy("a small correction is followed at once", func(k *kit, m *clocks) {
		c := cell("a")
		k.one(until(set(c, 5), m.ms()+30_000))
		m.leap(29 * time.Second)
		k.holds(c, 5)
		m.leap(time.Second)
		k.absent(c)
	})

	s.lawBy("a jump is followed slowly", func(k *kit, m *clocks) {
		c := cell("a")
		m.leap(2 * time.Hour)
		k.one(until(set(c, 5), m.ms()))
		k.holds(c, 5)
		for range 119 {
			m.pass(time.Hour)
			k.read(cell("b"))
		}
		if v := k.read(c); v.Exists {
			k.Fatalf("at %d it is still %+v", m.ms(), v)
		}
		k.one(until(set(c, 5), m.ms()+1))
		k.holds(c, 5)
		m.pass(time.Millisecond)
		k.absent(c)
	})

	s.lawBy("no jump makes a repeat count", clockHistories)
}

// clockHistories tries every short history of jumps, restarts and time that
// passes: a token is remembered for as long as the store has lived through less
// than the window, and then refused, or forgotten after as long again.
func clockHistories(k *kit, m *clocks) {
	steps := []struct {
		name string
		do   func()
	}{
		{"pass a third", func() { m.pass(window / 3) }},
		{"leap ahead", func() { m.leap(100 * window) }},
		{"leap back", func() { m.leap(-100 * window) }},
		{"leap a little", func() { m.leap(2 * time.Minute) }},
	}
	for _, again := range []struct {
		name string
		do   func(testing.TB) store.Store
	}{{"reopen", k.inst.Reopen}, {"crash", k.inst.Crash}} {
		if again.do != nil {
			steps = append(steps, struct {
				name string
				do   func()
			}{again.name, func() { k.replace(again.do(k.t)) }})
		}
	}
	history := 0
	try := func(path []int) {
		history++
		c := cell(fmt.Sprint("h", history))
		d := once(want(add(c, 1)), "t")
		first, since, said := k.one(d), m.elapsed, ""
		for _, i := range path {
			steps[i].do()
			said += steps[i].name + ", "
			r := k.one(d)
			lived := m.elapsed - since
			switch {
			case r.Outcome == store.Applied && r.Replayed && r.Version == first.Version:
			case r.Outcome == store.Expired && lived >= window-window/50-time.Minute:
			default:
				k.Fatalf("%sa repeat after %v returns %+v, the first was %+v", said, lived, r, first)
			}
			k.holds(c, 1)
			k.one(add(cell("other"), 1)) // what the time is now, is written down
		}
	}
	var visit func(path []int)
	visit = func(path []int) {
		if len(path) == 3 {
			try(path)
			return
		}
		for i := range steps {
			visit(append(slices.Clip(path), i))
		}
	}
	visit(nil)
	for again := 4; again < len(steps); again++ {
		try([]int{1, again, 2, again})
		try([]int{1, again, 0, 2, again, 0, again})
	}
}

// clocks are a machine's two clocks, moved by hand.
type clocks struct {
	clock
	elapsed time.Duration
}

// pass lets time pass on both clocks.
func (m *clocks) pass(d time.Duration) {
	m.move(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elapsed += d
}

// leap sets the wall clock alone.
func (m *clocks) leap(d time.Duration) { m.move(d) }

func (m *clocks) monotonic() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elapsed
}

// lawBy runs one law on a new store with two clocks that the law moves.
func (s *suite) lawBy(name string, check func(k *kit, m *clocks)) {
	m := &clocks{clock: clock{t: newClock().now()}}
	c := Config{Limits: store.Limits{TokenWindow: window}, Now: m.now, Elapsed: m.monotonic}
	s.lawWith(name, c, func(k *kit) { check(k, m) })
}
