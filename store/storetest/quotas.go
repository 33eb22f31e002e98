package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/quipudb/quipu/store"
)

// quotas are the laws of what a namespace may hold: full means refused.
func quotas(s *suite) {
	const hourMS = 3_600_000
	few := store.Limits{KeysMax: 4, TokensMax: 4, TokenWindow: window}

	s.lawAt("a full namespace takes no new key", few, func(k *kit, _ *clock) {
		for i := range 4 {
			k.outcome(k.one(add(cell(fmt.Sprint(i)), 1)), store.Applied)
		}
		for _, d := range []store.Delta{add(cell("new"), 1), set(cell("new"), 1), once(add(cell("new"), 1), "t")} {
			k.outcome(k.one(d), store.Full)
			k.absent(cell("new"))
		}
		k.state(cell("new"), "t", store.TokenUnknown)
		k.outcome(k.one(del(cell("new"))), store.Applied)
		for i := range 4 {
			k.applied(k.one(want(add(cell(fmt.Sprint(i)), 1))), 1, 2)
			k.applied(k.one(want(set(cell(fmt.Sprint(i)), 5))), 2, 5)
		}
		k.outcome(k.one(add(store.Cell{Namespace: "other", Key: "new"}, 1)), store.Applied)

		k.outcome(k.one(del(cell("2"))), store.Applied)
		k.outcome(k.one(del(cell("2"))), store.Applied) // frees nothing more
		k.outcome(k.one(once(add(cell("new"), 1), "t")), store.Applied)
		k.outcome(k.one(add(cell("2"), 1)), store.Full)
	})

	byDelta := func(name string, how func(store.Batch) store.Batch) {
		s.lawAt(name, few, func(k *kit, _ *clock) {
			cs := k.together(6)
			rs := k.apply(how(k.batch(add(cs[0], 1), add(cs[1], 1), add(cs[2], 1), add(cs[3], 1), add(cs[4], 1),
				add(cs[3], 1), del(cs[0]), add(cs[5], 1), add(cs[4], 1))))[0].Results
			for i, o := range []store.Outcome{
				store.Applied, store.Applied, store.Applied, store.Applied, store.Full,
				store.Applied, store.Applied, store.Applied, store.Full,
			} {
				if rs[i].Outcome != o {
					k.Fatalf("delta %d: outcome %d, want %d", i, rs[i].Outcome, o)
				}
			}
			k.listed(k.scan(store.Range{Namespace: namespace}, 10), sortedKeys(cs[1], cs[2], cs[3], cs[5]))
		})
	}
	byDelta("room is counted delta by delta", func(b store.Batch) store.Batch { return b })
	byDelta("room is counted delta by delta, also of those that are apart", apartly)

	s.lawAt("a batch with conditions makes all of its keys, or none", few, func(k *kit, cl *clock) {
		cs := k.together(7)
		for _, c := range cs[:3] {
			k.one(set(c, 1))
		}
		f := func(want store.Kind, keys int64, deltas ...store.Delta) {
			k.Helper()
			b := given(k.batch(deltas...), cs[0], k.read(cs[0]).Version)
			if want != store.KindOther {
				k.refused(b, want)
			} else {
				for i, r := range k.reply(b).Results {
					if r.Outcome != store.Applied {
						k.Fatalf("delta %d: outcome %d", i, r.Outcome)
					}
				}
			}
			k.sized(namespace, keys, 4)
		}
		f(store.KindFull, 3, add(cs[0], 1), set(cs[3], 1), add(cs[4], 1))
		k.holds(cs[0], 1)
		f(store.KindFull, 3, put(cs[3], "three"), want(add(cs[0], 1)), put(cs[4], "four"))
		k.holds(cs[0], 1)
		f(store.KindFull, 3, add(cs[3], 1), add(cs[4], 1), del(cs[4])) // They are decided in their order.
		f(store.KindFull, 3, add(cs[3], 1), add(cs[4], 1), del(cs[4]), del(cs[3]), add(cs[5], 1))
		f(store.KindOther, 4, del(cs[1]), add(cs[0], 1), set(cs[3], 1), add(cs[3], 1), put(cs[4], "four"))
		k.holds(cs[0], 2)
		f(store.KindFull, 4, add(cs[0], 1), put(cs[5], "five"), del(cs[2]))
		f(store.KindOther, 4, del(cs[4]), add(cs[0], 1), put(cs[5], "five"))
		k.holds(cs[0], 3)
		f(store.KindOther, 4, add(cs[0], 1), del(cs[6])) // It is not there, and makes no room.
		f(store.KindFull, 4, del(cs[6]), add(cs[4], 1))
		k.one(del(cs[5]))
		k.one(until(add(cs[4], 1), cl.ms()+hourMS))
		cl.move(2 * time.Hour) // What has expired makes room.
		b := given(k.batch(add(cs[0], 1), put(cs[5], "five")), cs[0], k.read(cs[0]).Version)
		for _, r := range k.reply(b).Results {
			k.outcome(r, store.Applied)
		}
		f(store.KindFull, 4, add(cs[0], 1), put(cs[6], "six"))
		k.audited()
	})

	s.lawAt("the version is judged before the room for a key", few, func(k *kit, _ *clock) {
		for i := range 4 {
			k.one(add(cell(fmt.Sprint(i)), 1))
		}
		k.outcome(k.one(match(add(cell("new"), 1), 7)), store.Changed)
		k.outcome(k.one(match(add(cell("new"), 1), 0)), store.Full)
	})

	s.lawAt("conditions are judged before the room for a key, and sums after it", few, func(k *kit, cl *clock) {
		for i := range 4 {
			k.one(set(cell(fmt.Sprint(i)), math.MaxInt64))
		}
		c := cell("new")
		k.outcome(k.one(until(add(c, 1), cl.ms())), store.Full) // also if it is over at once
		k.outcome(k.one(until(add(c, 1), cl.ms()+1)), store.Full)
		k.outcome(k.one(only(add(c, 1), store.ExistsMust)), store.Unmet)
		k.outcome(k.one(only(add(c, 1), store.ExistsNot)), store.Full)
		k.outcome(k.one(within(add(c, 1), store.Bound{Low: 2, High: 3})), store.Full)
		k.outcome(k.one(within(add(c, 1), store.Bound{Low: 2, High: 3, Saturate: true})), store.Full)
		k.outcome(k.one(expire(c, store.ExpirySet, cl.ms()+1)), store.Unmet)
		k.outcome(k.one(get(c)), store.Applied)
		k.absent(c)
		k.refused(given(k.batch(add(c, 1)), c, 1), store.KindChanged)
		k.outcome(k.one(until(add(cell("0"), -1), cl.ms())), store.Applied) // is a delete
		k.outcome(k.one(add(c, 1)), store.Applied)
		k.outcome(k.one(add(cell("0"), 1)), store.Full)
	})

	s.lawAt("expired keys make room", few, func(k *kit, cl *clock) {
		for round := range 3 {
			for i := range 4 {
				c := cell(fmt.Sprint(round, "-", i))
				k.makesRoom(cl, until(add(c, 1), cl.ms()+hourMS))
				k.holds(c, 1)
			}
			k.outcome(k.one(add(cell("new"), 1)), store.Full)
			k.sized(namespace, 4, 4)
			cl.move(2 * time.Hour)
		}
		// The last of a namespace too, and the same keys again.
		for i := range 4 {
			k.makesRoom(cl, add(cell(fmt.Sprint("2-", i)), 1))
		}
		k.outcome(k.one(add(cell("new"), 1)), store.Full)
		k.audited()
	})

	s.lawAt("a repeat wins over the room for a key", few, func(k *kit, _ *clock) {
		first := k.one(once(add(cell("a"), 1), "t"))
		k.one(del(cell("a")))
		for i := range 4 {
			k.outcome(k.one(add(cell(fmt.Sprint(i)), 1)), store.Applied)
		}
		k.repeats(k.one(once(add(cell("a"), 1), "t")), first)
		k.absent(cell("a"))
	})

	s.lawAt("keys created at once stay within the limit", few, func(k *kit, _ *clock) {
		k.parallel(4, func(g int) error {
			for i := range 6 {
				r, err := k.try(k.batch(add(cell(fmt.Sprintf("%d-%d", g, i)), 1)))
				if err != nil {
					return err
				}
				if o := r.Results[0].Outcome; o != store.Applied && o != store.Full {
					return o.Err()
				}
			}
			return nil
		})
		if es := k.scan(store.Range{Namespace: namespace}, 100); len(es) != 4 {
			k.Fatalf("the namespace holds %d keys, its limit is 4", len(es))
		}
	})

	s.lawAt("tokens decided at once stay within the limit", few, func(k *kit, _ *clock) {
		c := cell("a")
		k.parallel(4, func(g int) error {
			for i := range 6 {
				r, err := k.try(k.batch(once(add(c, 1), fmt.Sprintf("%d-%d", g, i))))
				if err != nil {
					return err
				}
				if o := r.Results[0].Outcome; o != store.Applied && o != store.Full {
					return o.Err()
				}
			}
			return nil
		})
		k.holds(c, 4)
	})

	s.lawAt("a namespace full of tokens takes no new one and evicts none", few, tokensFull)

	two := store.Limits{NamespacesMax: 2, TokenWindow: window}
	s.lawAt("no namespace is made beyond their number", two, func(k *kit, cl *clock) {
		in := func(ns string) store.Cell { return store.Cell{Namespace: ns, Key: "a"} }
		k.outcome(k.one(add(in("one"), 1)), store.Applied)
		k.outcome(k.one(settle(in("two"), "t")), store.Settled)
		full := func(ns string) {
			k.Helper()
			k.outcome(k.one(add(in(ns), 1)), store.Full)
			k.outcome(k.one(set(in(ns), 1)), store.Full)
			k.outcome(k.one(settle(in(ns), "t")), store.Full)
			k.outcome(k.one(once(add(in(ns), 1), "t")), store.Full)
			k.absent(in(ns))
		}
		full("three")
		k.outcome(k.one(add(in("one"), 1)), store.Applied)
		k.outcome(k.one(add(in("two"), 1)), store.Applied)

		// One that has neither keys nor tokens any more makes room.
		k.outcome(k.one(del(in("one"))), store.Applied)
		k.outcome(k.one(add(in("three"), 1)), store.Applied)
		full("one")
		k.outcome(k.one(del(in("two"))), store.Applied)
		full("one") // the token is still remembered
		cl.move(2 * window)
		k.outcome(k.one(once(add(in("one"), 1), "t")), store.Applied)
		full("two")
	})

	s.lawAt("a namespace of expired keys makes room for another", two, func(k *kit, cl *clock) {
		in := func(ns string) store.Cell { return store.Cell{Namespace: ns, Key: "a"} }
		k.outcome(k.one(add(in("one"), 1)), store.Applied)
		for i := range 3 {
			k.makesRoom(cl, until(add(in(fmt.Sprint(i)), 1), cl.ms()+hourMS))
			k.outcome(k.one(add(in("new"), 1)), store.Full)
			cl.move(2 * time.Hour)
		}
		k.makesRoom(cl, add(in("new"), 1))
		k.outcome(k.one(add(in("0"), 1)), store.Full)
	})

	s.lawAt("the store's own namespace has no limit", few, func(k *kit, _ *clock) {
		for i := range 10 {
			c := store.Cell{Key: fmt.Sprintf("own%d", i)}
			k.applied(k.one(once(add(c, 1), "t")), 0, 1)
			k.enlist()
		}
	})
}

// makesRoom makes a write that expired keys may be in the way of, until the
// store has removed them. It has real time, and its own, to do so.
func (k *kit) makesRoom(cl *clock, d store.Delta) {
	k.Helper()
	for begun := time.Now(); ; cl.move(time.Millisecond) {
		r := k.one(d)
		if r.Outcome != store.Full {
			k.outcome(r, store.Applied)
			return
		}
		if time.Since(begun) > 10*time.Second {
			k.Fatalf("a namespace full of expired keys takes no new one")
		}
	}
}

func tokensFull(k *kit, cl *clock) {
	c := cell("a")
	firsts := make([]store.Result, 4)
	for i := range firsts {
		if i == 1 {
			cl.move(time.Minute)
			k.outcome(k.one(settle(c, "1")), store.Settled)
			continue
		}
		firsts[i] = k.one(once(add(c, 1), fmt.Sprint(i)))
		k.outcome(firsts[i], store.Applied)
	}
	full := func() {
		k.Helper()
		was := k.read(c)
		k.outcome(k.one(once(add(c, 1), "new")), store.Full)
		k.outcome(k.one(settle(c, "new")), store.Full)
		k.outcome(k.one(once(add(cell("b"), 1), "new")), store.Full)
		k.refused(given(k.batch(once(add(c, 1), "new"), add(c, 1)), c, was.Version), store.KindFull)
		if now := k.read(c); now != was {
			k.Fatalf("a refused write changed the cell from %+v to %+v", was, now)
		}
		k.absent(cell("b"))
		k.state(c, "new", store.TokenUnknown)
	}
	full()
	for i := range firsts {
		if i != 1 {
			k.repeats(k.one(once(add(c, 1), fmt.Sprint(i))), firsts[i])
		}
	}
	k.outcome(k.one(settle(c, "1")), store.Settled)
	k.outcome(k.one(once(add(c, 2), "0")), store.Mismatch)
	k.outcome(k.one(add(c, 1)), store.Applied) // needs no token
	k.outcome(k.one(once(add(store.Cell{Namespace: "other", Key: "a"}, 1), "new")), store.Applied)

	// Expired tokens are still held, to be refused.
	cl.move(window)
	full()
	k.outcome(k.one(once(add(c, 1), "0")), store.Expired)

	// Forgotten ones make room: the first now, the rest a minute later.
	cl.move(window - time.Minute + time.Millisecond)
	was := k.read(c).N
	k.applied(k.one(once(add(c, 1), "new")), was, was+1)
	k.outcome(k.one(once(add(c, 1), "newer")), store.Full)
	cl.move(time.Minute)
	for i := range 3 {
		k.outcome(k.one(once(add(c, 1), fmt.Sprint("newest", i))), store.Applied)
	}
	k.outcome(k.one(once(add(c, 1), "too many")), store.Full)
}
