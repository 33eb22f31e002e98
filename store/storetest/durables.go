package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/quipudb/quipu/store"
)

// durables are the laws of what an acknowledgement survives.
func durables(s *suite) {
	s.law("every durability is taken, and the reply names what was given", func(k *kit) {
		c, most := cell("a"), k.store.Traits().Durability
		w := k.enlist()
		for i, asked := range []store.Durability{store.DurabilityDefault, store.Memory, store.Written, store.Synced} {
			least := asked
			if asked == store.DurabilityDefault {
				least = store.Synced
			}
			least = min(least, most)
			b := k.numbered(w, uint64(i), uint64(i+1), once(add(c, 1), fmt.Sprint(i)))
			b.Durability = asked
			for range 2 { // the repeat says it too
				if r := k.reply(b); r.Durability < least || r.Durability > most {
					k.Fatalf("asked for %v of a store that offers %v, given %d", asked, most, r.Durability)
				}
			}
			k.holds(c, int64(i+1))
		}
	})

	s.kept("values and versions", func(k *kit, _ *clock, again func()) {
		cs := k.together(3)
		k.do(add(cs[0], 41), set(cs[1], -9), add(cs[2], 1))
		k.one(del(cs[2]))
		gone := k.one(add(cell("gone"), 1)).Version
		k.one(del(cell("gone")))
		was := k.readAll(cs...)
		for range 2 {
			again()
			for i, v := range k.readAll(cs...) {
				if v != was[i] {
					k.Fatalf("%q reads %+v, was %+v", cs[i].Key, v, was[i])
				}
			}
			k.absent(cell("gone"))
			k.listed(k.scan(store.Range{Namespace: namespace}, 10), sortedKeys(cs[:2]...))
		}
		if r := k.one(want(add(cs[0], 1))); r.Before != 41 || r.Version <= was[0].Version {
			k.Fatalf("went on with %+v after %+v", r, was[0])
		}
		if r := k.one(want(add(cell("gone"), 1))); r.Before != 0 || r.Version <= gone {
			k.Fatalf("created again with %+v, it was at version %d", r, gone)
		}
	})

	s.kept("deadlines", func(k *kit, cl *clock, again func()) {
		cs, ms := k.together(4), cl.ms()+1000
		k.do(until(add(cs[0], 1), ms), set(cs[1], 2), until(set(cs[2], 3), ms), until(set(cs[3], 4), ms+1))
		k.do(expire(cs[1], store.ExpirySet, ms), expire(cs[2], store.ExpiryClear, 0), add(cs[3], 1))
		was := k.readAll(cs...)
		same := func() {
			k.Helper()
			again()
			for i, v := range k.readAll(cs...) {
				if v != was[i] {
					k.Fatalf("%q reads %+v, was %+v", cs[i].Key, v, was[i])
				}
			}
			k.audited()
		}
		same()
		cl.move(time.Second - time.Millisecond)
		same()
		cl.move(time.Millisecond) // while it is open, or closed: it is the same
		version := was[0].Version
		was[0], was[1] = store.Value{}, store.Value{}
		same()
		k.listed(k.scan(store.Range{Namespace: namespace}, 10), sortedKeys(cs[2:]...))
		r := k.one(want(add(cs[0], 1)))
		k.told(r, store.Result{Outcome: store.Applied, After: 1})
		if r.Version <= version {
			k.Fatalf("version %d after %d", r.Version, version)
		}
		was[0] = k.read(cs[0])
		same()
		cl.move(time.Millisecond)
		was[3] = store.Value{}
		k.absent(cs[3])
		same()
		k.outcome(k.one(until(add(cs[0], 1), 1)), store.Applied)
		was[0] = store.Value{}
		same()
		cl.move(time.Hour)
		same()
	})

	s.kept("what has expired from coming back with the clock", func(k *kit, cl *clock, again func()) {
		cs := k.together(2)
		k.one(until(add(cs[0], 5), cl.ms()+1000))
		cl.move(time.Second)
		k.outcome(k.one(add(cs[1], 1)), store.Applied) // the store has seen this time
		cl.move(-time.Second)
		again()
		k.absent(cs[0])
		k.told(k.one(want(add(cs[0], 1))), store.Result{Outcome: store.Applied, After: 1})
	})

	s.kept("tokens of bounds and deadlines", func(k *kit, cl *clock, again func()) {
		c := cell("a")
		ds := []store.Delta{
			once(until(within(add(c, 50), store.Bound{High: 10, Saturate: true}), cl.ms()+1000), "saturated"),
			once(within(add(c, -10), store.Bound{High: 10}), "bounded"),
			once(expire(c, store.ExpirySet|store.ExpiryIfSome, cl.ms()+500), "expire"),
		}
		firsts := k.do(ds...)
		k.applied(firsts[0], 0, 10)
		for range 2 {
			again()
			for i, d := range ds {
				k.repeats(k.one(d), firsts[i])
				if f := k.state(c, d.Guard.Token, store.TokenApplied); f.Op != d.Op || f.N != d.N || f.Result.Version != firsts[i].Version {
					k.Fatalf("fate %+v of %+v, whose result was %+v", f, d, firsts[i])
				}
			}
			cl.move(time.Second)
		}
		k.absent(c)
	})

	s.kept("tokens, settled ones too", func(k *kit, cl *clock, again func()) {
		c := cell("a")
		d := once(add(c, 5), "t")
		first := k.one(d)
		k.one(settle(c, "s"))
		decided := k.lookup(c, "t").AtMS
		again()
		k.repeats(k.one(d), first)
		k.outcome(k.one(once(add(c, 6), "t")), store.Mismatch)
		k.outcome(k.one(once(add(c, 1), "s")), store.Settled)
		k.state(c, "s", store.TokenSettled)
		if f := k.state(c, "t", store.TokenApplied); f.AtMS != decided {
			k.Fatalf("decided at %d, was at %d", f.AtMS, decided)
		}
		k.outcome(k.one(once(add(c, 1), "full")), store.Applied)
		again()
		k.outcome(k.one(once(add(c, 1), "one more")), store.Full)
		cl.move(window)
		again()
		k.outcome(k.one(d), store.Expired)
		k.outcome(k.one(settle(c, "s")), store.Expired)
		k.outcome(k.one(once(add(c, 1), "one more")), store.Full)
		cl.move(window + time.Millisecond)
		again()
		k.outcome(k.one(once(add(c, 1), "one more")), store.Applied)
		k.holds(c, 7)
	})

	s.kept("time, when the clock goes back meanwhile", func(k *kit, cl *clock, again func()) {
		c := cell("a")
		k.one(once(add(c, 5), "t"))
		cl.move(window)
		k.one(add(c, 1))
		cl.move(-window)
		again()
		k.state(c, "t", store.TokenExpired)
		k.outcome(k.one(once(add(c, 5), "t")), store.Expired)
		k.holds(c, 6)
	})

	s.kept("marks with their results", func(k *kit, _ *clock, again func()) {
		c, w := cell("a"), k.enlist()
		k.reply(k.numbered(w, 0, 3, add(c, 1)))
		b := k.numbered(w, 3, 7, want(add(c, 1)), once(add(c, 1), "t"), match(add(c, 1), 0), settle(c, "s"),
			want(expire(c, store.ExpirySet, math.MaxInt64)), within(want(add(c, 1)), store.Bound{High: 3}), only(want(del(c)), store.ExistsNot), get(c))
		b = given(b, c, k.read(c).Version)
		first := k.reply(b)
		k.told(first.Results[5], store.Result{Outcome: store.Bounded, Before: 3, After: 3, Existed: true, DeadlineMS: math.MaxInt64})
		for range 2 {
			again()
			k.repeatsBatch(k.reply(b), first)
			if r := k.refused(k.numbered(w, 3, 7, add(c, 1)), store.KindMark); r.Mark != 7 {
				k.Fatalf("mark %d, want 7", r.Mark)
			}
			k.refused(k.numbered(w, 0, 3, add(c, 1)), store.KindMark)
			k.refused(given(k.numbered(w, 7, 8, add(c, 1)), c, 0), store.KindChanged)
			k.holds(c, 3)
		}
		k.reply(k.numbered(w, 7, 8, add(c, 1)))
	})

	s.kept("writers and the floor of retired ones", func(k *kit, _ *clock, again func()) {
		c := cell("a")
		low, high := k.enlist(), k.enlist()
		k.reply(k.numbered(low, 0, 1, add(c, 1)))
		k.retire(k.home(c), high)
		again()
		k.refused(k.numbered(low, 1, 2, add(c, 1)), store.KindRetired)
		k.refused(k.numbered(high, 0, 1, add(c, 1)), store.KindRetired)
		w := k.enlist()
		if w <= high {
			k.Fatalf("writer %d after %d", w, high)
		}
		k.reply(k.numbered(w, 0, 1, add(c, 1)))
		k.holds(c, 2)
	})

	s.kept("the counts of keys and marks", func(k *kit, _ *clock, again func()) {
		for i := range 4 {
			k.outcome(k.one(add(cell(fmt.Sprint(i)), 1)), store.Applied)
		}
		k.outcome(k.one(del(cell("0"))), store.Applied)
		var ws []store.Writer
		for range 3 {
			ws = append(ws, k.enlist())
			k.reply(k.numbered(ws[len(ws)-1], 0, 1, add(cell("1"), 1)))
		}
		again()
		k.sized(namespace, 3, 3)
		k.outcome(k.one(add(cell("4"), 1)), store.Applied)
		k.sized(namespace, 4, 4)
		k.outcome(k.one(add(cell("5"), 1)), store.Full)
		k.refused(k.numbered(k.enlist(), 0, 1, add(cell("1"), 1)), store.KindFull)
		k.retire(k.home(cell("1")), ws[0])
		k.reply(k.numbered(k.enlist(), 0, 1, add(cell("1"), 1)))
	})

	// An answer at a stronger level is about a write at a weaker one: it makes
	// that write as durable as itself.
	s.kept("a write in memory that a settle, a repeat or a refusal has told of", func(k *kit, _ *clock, again func()) {
		c := cell("a")
		f := func(written store.Delta, o store.Outcome, asks store.Delta) {
			k.Helper()
			k.one(del(c))
			b := k.batch(written)
			b.Durability = store.Memory
			first := k.reply(b).Results[0]
			k.outcome(first, store.Applied)
			k.outcome(k.one(asks), o)
			again()
			k.holds(c, 7)
			if written.Guard.Token != "" {
				k.repeats(k.one(written), first)
			}
		}
		blind := add(c, 7)
		f(once(blind, "t"), store.Applied, settle(c, "t"))
		f(once(blind, "u"), store.Applied, once(blind, "u"))
		f(once(blind, "v"), store.Mismatch, once(add(c, 8), "v"))
		f(blind, store.Applied, get(c))
		f(blind, store.Changed, match(blind, 0))
		f(blind, store.Unmet, only(blind, store.ExistsNot))
		f(blind, store.Unmet, expire(c, store.ExpiryClear, 0))
		f(blind, store.Bounded, within(blind, store.Bound{High: 6}))
	})

	s.kept("the audit", func(k *kit, cl *clock, again func()) {
		w := k.enlist()
		for i, c := range k.apart() {
			k.one(once(add(c, int64(i)), "t"))
			k.reply(k.numbered(w, 0, 1, set(c, 5), add(c, 1)))
		}
		k.audited()
		again()
		k.audited()
		k.one(del(k.apart()[0]))
		k.one(until(set(k.apart()[0], 1<<40), cl.ms()+5))
		again()
		k.audited()
		cl.move(5 * time.Millisecond)
		k.audited()
		again()
		k.audited()
		k.absent(k.apart()[0])
		k.one(add(k.apart()[0], 3))
		again()
		k.audited()
	})

	if s.probe().Reopen != nil {
		s.law("closing keeps what was only in memory", func(k *kit) {
			c := cell("a")
			b := k.batch(once(add(c, 1), "t"))
			b.Durability = store.Memory
			first := k.reply(b).Results[0]
			k.replace(k.inst.Reopen(k.t))
			k.holds(c, 1)
			k.repeats(k.one(once(add(c, 1), "t")), first)
		})
	}
	if s.probe().Crash != nil {
		crashes(s)
	}
}

// kept runs a law about what survives on stores that keep something: once over
// clean closings, once over crashes.
func (s *suite) kept(what string, check func(k *kit, c *clock, again func())) {
	few := store.Limits{KeysMax: 4, TokensMax: 3, WritersMax: 3, TokenWindow: window}
	if s.probe().Reopen != nil {
		s.lawAt("closing keeps "+what, few, func(k *kit, c *clock) {
			check(k, c, func() { k.replace(k.inst.Reopen(k.t)) })
		})
	}
	if s.probe().Crash != nil {
		s.lawAt("a crash keeps "+what, few, func(k *kit, c *clock) {
			check(k, c, func() { k.replace(k.inst.Crash(k.t)) })
		})
	}
}
