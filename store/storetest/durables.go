package storetest

import (
	"fmt"
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
		b := k.numbered(w, 3, 7, want(add(c, 1)), once(add(c, 1), "t"), match(add(c, 1), 0), settle(c, "s"))
		first := k.reply(b)
		for range 2 {
			again()
			k.repeatsBatch(k.reply(b), first)
			if r := k.refused(k.numbered(w, 3, 7, add(c, 1)), store.KindMark); r.Mark != 7 {
				k.Fatalf("mark %d, want 7", r.Mark)
			}
			k.refused(k.numbered(w, 0, 3, add(c, 1)), store.KindMark)
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
		k.outcome(k.one(add(cell("4"), 1)), store.Applied)
		k.outcome(k.one(add(cell("5"), 1)), store.Full)
		k.refused(k.numbered(k.enlist(), 0, 1, add(cell("1"), 1)), store.KindFull)
		k.retire(k.home(cell("1")), ws[0])
		k.reply(k.numbered(k.enlist(), 0, 1, add(cell("1"), 1)))
	})

	// An answer at a stronger level is about a write at a weaker one: it makes
	// that write as durable as itself.
	s.kept("a write in memory that a settle, a repeat or a refusal has told of", func(k *kit, _ *clock, again func()) {
		asks := map[string]func(d store.Delta) store.Outcome{
			"settle":   func(d store.Delta) store.Outcome { return k.one(settle(d.Cell, d.Guard.Token)).Outcome },
			"repeat":   func(d store.Delta) store.Outcome { return k.one(d).Outcome },
			"mismatch": func(d store.Delta) store.Outcome { d.Guard.Digest++; return k.one(d).Outcome },
		}
		for name, ask := range asks {
			c := cell(name)
			b := k.batch(once(add(c, 7), "t"))
			b.Durability = store.Memory
			first := k.reply(b).Results[0]
			if o := ask(b.Deltas[0]); (o == store.Applied) != (name != "mismatch") {
				k.Fatalf("%s: outcome %d", name, o)
			}
			again()
			k.holds(c, 7)
			k.repeats(k.one(b.Deltas[0]), first)
		}
	})

	s.kept("the audit", func(k *kit, _ *clock, again func()) {
		w := k.enlist()
		for i, c := range k.apart() {
			k.one(once(add(c, int64(i)), "t"))
			k.reply(k.numbered(w, 0, 1, set(c, 5), add(c, 1)))
		}
		k.audited()
		again()
		k.audited()
		k.one(del(k.apart()[0]))
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
