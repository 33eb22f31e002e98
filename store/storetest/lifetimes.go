package storetest

import (
	"math"
	"time"

	"github.com/quipudb/quipu/store"
)

// lifetimes are the laws of deadlines that the store computes itself: its time
// plus a lifetime, in the step that applies the delta.
func lifetimes(s *suite) {
	forever := store.Limits{}
	const life = 1000

	s.lawAt("a lifetime begins when the store applies it", forever, func(k *kit, cl *clock) {
		for _, d := range []store.Delta{add(cell("add"), 7), set(cell("set"), 7), {Cell: cell("expire"), Op: store.OpExpire}} {
			c := d.Cell
			if d.Op == store.OpExpire {
				k.one(set(c, 7))
			}
			ms := cl.ms() + life
			if r := k.one(want(lasting(d, life))); r.Outcome != store.Applied || r.DeadlineMS != ms || r.After != 7 {
				k.Fatalf("%+v returns %+v, want 7 until %d", d, r, ms)
			}
			k.holdsUntil(c, 7, ms)
			cl.move((life - 1) * time.Millisecond)
			k.holdsUntil(c, 7, ms)
			// A second lifetime begins anew.
			k.one(lasting(add(c, 1), life))
			k.holdsUntil(c, 8, cl.ms()+life)
			cl.move(life * time.Millisecond)
			k.absent(c)
		}
	})

	s.lawAt("conditions compare the deadline that a lifetime makes", forever, lifetimeConditions)

	s.lawAt("the longest lifetime ends at the last deadline", forever, func(k *kit, _ *clock) {
		c := cell("a")
		for _, ms := range []int64{math.MaxInt64, math.MaxInt64 - 1} {
			r := k.one(want(lasting(set(c, 1), ms)))
			k.told(r, store.Result{Outcome: store.Applied, Before: r.Before, After: 1, Existed: r.Existed, DeadlineMS: math.MaxInt64})
			k.holdsUntil(c, 1, math.MaxInt64)
		}
		// No deadline is later than the last.
		later := want(lasting(expire(c, 0, 0), math.MaxInt64))
		later.Expiry |= store.ExpiryIfLater
		k.outcome(k.one(later), store.Unmet)
	})

	s.lawAt("the clock that went back shortens no lifetime", forever, func(k *kit, cl *clock) {
		cs := k.together(2)
		c, other := cs[0], cs[1]
		cl.move(time.Hour)
		k.one(add(other, 1)) // the store has seen this time
		cl.move(-time.Hour)
		r := k.one(want(lasting(set(c, 5), life)))
		if ms := cl.ms() + time.Hour.Milliseconds() + life; r.Outcome != store.Applied || r.DeadlineMS != ms {
			k.Fatalf("a lifetime of %d returns %+v, want it until %d", life, r, ms)
		}
		k.holdsUntil(c, 5, r.DeadlineMS)
		cl.move(time.Hour + (life-1)*time.Millisecond)
		k.holdsUntil(c, 5, r.DeadlineMS)
		cl.move(time.Millisecond)
		k.absent(c)
	})

	s.lawAt("a repeat does not move the deadline", store.Limits{TokenWindow: window}, func(k *kit, cl *clock) {
		c := cell("a")
		ms := cl.ms() + life
		d := once(lasting(add(c, 5), life), "t")
		first := k.one(d)
		k.told(first, store.Result{Outcome: store.Applied, After: 5, DeadlineMS: ms})
		w := k.enlist()
		n := cell("n")
		b := k.numbered(w, 0, 1, want(lasting(add(n, 3), life)))
		sent := k.reply(b)
		for range 3 {
			cl.move(life / 4 * time.Millisecond)
			k.repeats(k.one(d), first)
			k.holdsUntil(c, 5, ms)
			k.repeatsBatch(k.reply(b), sent)
			k.holdsUntil(n, 3, ms)
		}
		cl.move(life / 4 * time.Millisecond)
		k.absent(c)
		k.repeats(k.one(d), first)
		k.repeatsBatch(k.reply(b), sent)
		k.absent(c)
		k.absent(n)
	})

	s.lawAt("a store tells the time that it judges deadlines by", forever, func(k *kit, cl *clock) {
		s, ok := k.store.(store.Clock)
		if !ok {
			return
		}
		c := cell("a")
		f := func(want int64) {
			k.Helper()
			k.holds(c, 7)
			if now := s.NowMS(c); now != want {
				k.Fatalf("the store says that it is %d, want %d", now, want)
			}
		}
		written := cl.ms()
		ms := k.one(want(lasting(set(c, 7), life))).DeadlineMS
		f(ms - life)
		cl.move(300 * time.Millisecond)
		f(ms - life + 300)
		cl.move(-time.Hour)
		k.holds(c, 7)
		if now := s.NowMS(c); now < written || now > written+300 {
			k.Fatalf("the clock went back, and the store says that it is %d, after a write at %d", now, written)
		}
	})

	s.lawAt("a store that has read a part is not behind the time at which it did", forever, func(k *kit, cl *clock) {
		s, ok := k.store.(store.Clock)
		if !ok {
			return
		}
		c := cell("a")
		k.one(with(add(c, 7), plus(partHeld, 1)))
		for range 3 {
			cl.move(time.Second)
			k.partHolds(c, partHeld, 1)
			if now := s.NowMS(c); now != cl.ms() {
				k.Fatalf("the store says that it is %d, want %d", now, cl.ms())
			}
		}
	})

	s.kept("a lifetime stays the deadline that it was", func(k *kit, cl *clock, again func()) {
		c, ms := cell("a"), cl.ms()+life
		k.one(lasting(set(c, 7), life))
		cl.move(life / 2 * time.Millisecond)
		again()
		k.holdsUntil(c, 7, ms)
		k.one(add(c, 1))
		cl.move(life/2*time.Millisecond - time.Millisecond)
		k.holdsUntil(c, 8, ms)
		cl.move(time.Millisecond)
		again()
		k.absent(c)
	})
}

// lifetimeConditions tries each condition on cells whose deadline is before, at
// and after the one that a lifetime makes, and on those that have none.
func lifetimeConditions(k *kit, cl *clock) {
	const life = 20_000
	for _, x := range []struct {
		bit                       store.Expiry
		none, sooner, same, later bool // whether it holds
	}{
		{0, true, true, true, true},
		{store.ExpiryIfNone, true, false, false, false},
		{store.ExpiryIfSome, false, true, true, true},
		{store.ExpiryIfLater, false, true, false, false},
		{store.ExpiryIfSooner, true, false, false, true},
	} {
		for old, holds := range map[int64]bool{0: x.none, life - 1: x.sooner, life: x.same, life + 1: x.later} {
			for _, d := range []store.Delta{add(cell("a"), 1), set(cell("a"), 6), {Cell: cell("a"), Op: store.OpExpire}} {
				c, now := d.Cell, cl.ms()
				ds := []store.Delta{del(c), set(c, 5)}
				was := int64(0)
				if old != 0 {
					was = now + old
					ds = append(ds, expire(c, store.ExpirySet, was))
				}
				rs := k.do(append(ds, want(expiring(d, store.ExpirySet|store.ExpiryAfter|x.bit, life)))...)
				outcome, ms := store.Applied, was
				switch {
				case holds:
					ms = now + life
				case d.Op == store.OpExpire:
					outcome = store.Unmet
				}
				if r := rs[len(rs)-1]; r.Outcome != outcome || r.DeadlineMS != ms {
					k.Fatalf("%+v with condition %d on a cell until %d at %d: %+v, want outcome %d until %d", d, x.bit, was, now, r, outcome, ms)
				}
				if v := k.read(c); v.DeadlineMS != ms {
					k.Fatalf("%+v with condition %d left %+v, want it until %d", d, x.bit, v, ms)
				}
				cl.move(time.Millisecond)
			}
		}
	}
}
