package storetest

import (
	"fmt"
	"time"

	"github.com/quipudb/quipu/store"
)

// settles are the laws of the definite answer: after a settle the token's
// write was applied, or never will be.
func settles(s *suite) {
	s.law("an applied token settles as applied, with its result", func(k *kit) {
		c := cell("a")
		first := k.one(once(add(c, 5), "t"))
		for range 2 {
			k.repeats(k.one(settle(c, "t")), first)
		}
		k.state(c, "t", store.TokenApplied)
		k.repeats(k.one(once(add(c, 5), "t")), first)
		k.holds(c, 5)
	})

	s.law("an unknown token settles, and its write never counts", func(k *kit) {
		c := cell("a")
		r := k.one(settle(c, "t"))
		if r != (store.Result{Outcome: store.Settled}) {
			k.Fatalf("settle returns %+v, want only Settled", r)
		}
		k.absent(c)
		k.state(c, "t", store.TokenSettled)
		for _, d := range []store.Delta{once(add(c, 5), "t"), once(set(c, 5), "t"), once(del(c), "t"), once(add(c, 6), "t")} {
			r := k.one(d)
			k.outcome(r, store.Settled)
			if r.Version != 0 || r.Before != 0 || r.After != 0 {
				k.Fatalf("a late write returns %+v", r)
			}
		}
		k.absent(c)
		r = k.one(settle(c, "t"))
		k.outcome(r, store.Settled)
		if !r.Replayed {
			k.Fatalf("the second settle does not say that it is a repeat")
		}
		k.state(c, "t", store.TokenSettled)
	})

	s.law("settle ignores the digest", func(k *kit) {
		c := cell("a")
		first := k.one(once(add(c, 5), "t"))
		d := settle(c, "t")
		d.Guard.Digest = 12345
		k.repeats(k.one(d), first)
		d = settle(c, "s")
		d.Guard.Digest = 1
		k.outcome(k.one(d), store.Settled)
		d.Guard.Digest = 2
		k.outcome(k.one(d), store.Settled)
	})

	s.law("settle belongs to its cell", func(k *kit) {
		k.outcome(k.one(settle(cell("a"), "t")), store.Settled)
		k.applied(k.one(once(add(cell("b"), 1), "t")), 0, 1)
	})

	s.law("settle and its write may share a batch", func(k *kit) {
		c := cell("a")
		rs := k.do(once(add(c, 1), "t"), settle(c, "t"), settle(c, "s"), once(add(c, 1), "s"))
		k.applied(rs[0], 0, 1)
		k.repeats(rs[1], rs[0])
		k.outcome(rs[2], store.Settled)
		k.outcome(rs[3], store.Settled)
		k.holds(c, 1)
	})

	s.law("settle does not touch the cell", func(k *kit) {
		c := cell("a")
		k.one(set(c, 3))
		was := k.read(c)
		k.one(settle(c, "t"))
		k.one(once(add(c, 1), "t"))
		if now := k.read(c); now != was {
			k.Fatalf("the cell went from %+v to %+v", was, now)
		}
	})

	s.lawAt("a settled token expires like any other", store.Limits{TokenWindow: window}, func(k *kit, cl *clock) {
		c := cell("a")
		k.outcome(k.one(settle(c, "t")), store.Settled)
		cl.move(window - time.Millisecond)
		k.state(c, "t", store.TokenSettled)
		k.outcome(k.one(settle(c, "t")), store.Settled)
		cl.move(time.Millisecond)
		k.state(c, "t", store.TokenExpired)
		k.outcome(k.one(settle(c, "t")), store.Expired)
		k.outcome(k.one(once(add(c, 1), "t")), store.Expired)
		k.absent(c)
	})

	s.law("a settle and its write at once agree", func(k *kit) {
		c, sum := cell("a"), int64(0)
		for i := range 50 {
			token := fmt.Sprintf("t%d", i)
			var rs [4]store.Result
			k.parallel(len(rs), func(g int) error {
				d := settle(c, token)
				if g%2 == 0 {
					d = once(add(c, 1), token)
				}
				r, err := k.try(k.batch(d))
				if err == nil {
					rs[g] = r.Results[0]
				}
				return err
			})
			for _, r := range rs[1:] {
				if r.Outcome != rs[0].Outcome || r.After != rs[0].After {
					k.Fatalf("token %q was both: %+v", token, rs)
				}
			}
			if rs[0].Outcome == store.Applied {
				sum++
			}
		}
		if sum == 0 {
			k.absent(c)
			return
		}
		k.holds(c, sum)
	})
}
