package storetest

import (
	"fmt"
	"math"
	"math/big"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// bounds are the laws of floors and ceilings: no sum crosses one.
func bounds(s *suite) {
	s.law("a sum stays within its bound, to the ends of int64", boundTable)

	s.law("what a bound refuses is refused alone and changes nothing", func(k *kit) {
		cs := k.together(3)
		c := cs[0]
		k.one(set(c, 8))
		was := k.read(c)
		no := within(want(add(c, 3)), store.Bound{High: 10})
		rs := k.do(add(cs[1], 1), no, within(add(c, -9), store.Bound{High: 10}), once(no, "t"), add(cs[2], 1))
		for _, r := range []store.Result{rs[1], rs[3]} {
			k.told(r, store.Result{Outcome: store.Bounded, Before: 8, After: 8, Existed: true})
		}
		k.outcome(rs[2], store.Bounded)
		k.outcome(rs[0], store.Applied)
		k.outcome(rs[4], store.Applied)
		if now := k.read(c); now != was {
			k.Fatalf("refused writes changed the cell from %+v to %+v", was, now)
		}
	})

	s.law("a token remembers that a bound refused its write", func(k *kit) {
		c := cell("a")
		for _, d := range []store.Delta{
			within(want(add(c, 3)), store.Bound{High: 2}),
			within(add(c, -1), store.Bound{High: 2}),
			within(want(set(c, 3)), store.Bound{High: 2}),
		} {
			name := fmt.Sprint("t", d.Op, d.N)
			first := k.one(once(d, name))
			k.outcome(first, store.Bounded)
			k.absent(c)
			if f := k.state(c, name, store.TokenRefused); f.Op != d.Op || f.N != d.N || f.Result != kept(first) {
				k.Fatalf("fate %+v, want %+v", f, first)
			}
			k.one(set(c, 1)) // By now there is room for it.
			k.repeats(k.one(once(d, name)), first)
			k.repeats(k.one(settle(c, name)), first)
			other := once(d, name)
			other.Guard.Digest++
			k.outcome(k.one(other), store.Mismatch)
			k.holds(c, 1)
			k.one(del(c))
			k.repeats(k.one(once(d, name)), first)
		}
		// Other refusals are forgotten.
		k.outcome(k.one(once(within(match(add(c, 1), 7), store.Bound{High: 2}), "u")), store.Changed)
		k.outcome(k.one(once(within(only(add(c, 1), store.ExistsMust), store.Bound{High: 2}), "u")), store.Unmet)
		k.state(c, "u", store.TokenUnknown)
		k.applied(k.one(once(within(want(add(c, 1)), store.Bound{High: 2}), "u")), 0, 1)
	})

	clock := newClock()
	limits := store.Limits{TokensMax: 20, TokenWindow: window}
	s.lawWith("refusals by a bound have room of their own", Config{Limits: limits, Now: clock.now}, func(k *kit) {
		c := cell("a")
		no := func(token string) store.Result {
			r := k.one(once(within(want(add(c, 1)), store.Bound{High: 0}), token))
			k.outcome(r, store.Bounded)
			return r
		}
		if r := no("t"); r.Forgotten || no("u").Forgotten || !no("t").Replayed {
			k.Fatalf("%+v: there is room for two", r)
		}
		for range 2 { // The second is decided anew.
			if r := no("v"); !r.Forgotten || r.Replayed {
				k.Fatalf("%+v: there is no room", r)
			}
		}
		k.state(c, "v", store.TokenUnknown)
		k.applied(k.one(once(within(want(add(c, 1)), store.Bound{High: 1}), "v")), 0, 1)
		k.one(del(c))
		clock.move(2 * window)
		if r := no("w"); r.Forgotten {
			k.Fatalf("%+v: the first refusals are over", r)
		}
	})

	s.law("an absent cell is zero to a bound", func(k *kit) {
		c := cell("a")
		k.told(k.one(within(want(add(c, 1)), store.Bound{Low: 2, High: 9})), store.Result{Outcome: store.Bounded})
		k.told(k.one(within(want(add(c, 0)), store.Bound{Low: -9, High: -1})), store.Result{Outcome: store.Bounded})
		k.absent(c)
		k.told(k.one(within(want(add(c, 1)), store.Bound{Low: 2, High: 9, Saturate: true})), store.Result{Outcome: store.Applied, After: 2})
		k.holds(c, 2)
	})

	s.law("a saturated write repeats with what it added", func(k *kit) {
		c, w := cell("a"), k.enlist()
		k.one(set(c, 8))
		d := once(within(add(c, 5), store.Bound{High: 10, Saturate: true}), "t")
		first := k.one(d)
		k.applied(first, 8, 10)
		k.one(set(c, 1))
		k.repeats(k.one(d), first)
		if f := k.state(c, "t", store.TokenApplied); f.N != 5 || f.Result.After != 10 {
			k.Fatalf("lookup returns %+v, the first result was %+v", f, first)
		}
		b := k.numbered(w, 0, 1, within(want(add(c, 5)), store.Bound{Low: 7, High: 10}), within(want(add(c, 50)), store.Bound{High: 10, Saturate: true}))
		reply := k.reply(b)
		k.outcome(reply.Results[0], store.Bounded)
		k.applied(reply.Results[1], 1, 10)
		k.one(set(c, 3))
		k.repeatsBatch(k.reply(b), reply)
		k.holds(c, 3)
	})

	s.law("a saturated write at its limit is a change all the same", func(k *kit) {
		c := cell("a")
		was := k.one(set(c, 10)).Version
		r := k.one(within(want(add(c, 1)), store.Bound{High: 10, Saturate: true}))
		k.applied(r, 10, 10)
		if r.Version <= was {
			k.Fatalf("version %d after %d", r.Version, was)
		}
	})

	s.law("a bound is of its write alone", func(k *kit) {
		c := cell("a")
		k.one(within(add(c, 5), store.Bound{High: 5}))
		k.applied(k.one(want(add(c, 5))), 5, 10)
		k.applied(k.one(within(want(add(c, 5)), store.Bound{High: 20})), 10, 15)
		k.outcome(k.one(within(add(c, 0), store.Bound{High: 14})), store.Bounded)
		k.holds(c, 15)
	})

	s.law("an inward bound lets a value outside come back, and go no farther", func(k *kit) {
		c := cell("a")
		f := func(old, n int64, b store.Bound, o store.Outcome, after int64) {
			k.Helper()
			b.Inward = true
			k.one(set(c, old))
			k.told(k.one(within(want(add(c, n)), b)), store.Result{Outcome: o, Before: old, After: after, Existed: true})
			k.holds(c, after)
		}
		stock := store.Bound{Low: 0, High: 100}
		f(5, -5, stock, store.Applied, 0)
		f(5, -6, stock, store.Bounded, 5)
		f(-9, 2, stock, store.Applied, -7)
		f(-9, -1, stock, store.Bounded, -9)
		f(-9, 0, stock, store.Applied, -9)
		f(-9, 110, stock, store.Bounded, -9)
		f(99, 2, stock, store.Bounded, 99)
		f(109, -2, stock, store.Applied, 107)
		f(109, 1, stock, store.Bounded, 109)
		stock.Saturate = true
		f(5, -6, stock, store.Applied, 0)
		f(99, 2, stock, store.Applied, 100)
		f(-9, -1, stock, store.Applied, -9)
		f(-9, 2, stock, store.Applied, -7)
		f(109, 5, stock, store.Applied, 109)
		f(math.MinInt64, math.MinInt64, stock, store.Applied, math.MinInt64)
		f(math.MaxInt64, math.MaxInt64, stock, store.Applied, math.MaxInt64)
		// Each side by itself: no value is within both.
		f(7, -3, store.Bound{Low: 5, High: 1}, store.Bounded, 7)
		f(7, -2, store.Bound{Low: 5, High: 1}, store.Applied, 5)
		f(0, 1, store.Bound{Low: 5, High: 1}, store.Applied, 1)
	})

	s.law("a set outside its bound is refused", func(k *kit) {
		c := cell("a")
		b := store.Bound{Low: 0, High: 10}
		k.told(k.one(within(want(set(c, -1)), b)), store.Result{Outcome: store.Bounded})
		k.absent(c)
		k.applied(k.one(within(want(set(c, 10)), b)), 0, 10)
		k.told(k.one(once(within(want(set(c, 11)), b), "t")), store.Result{Outcome: store.Bounded, Before: 10, After: 10, Existed: true})
		k.state(c, "t", store.TokenRefused)
		b.Inward = true
		k.told(k.one(within(want(set(c, 11)), b)), store.Result{Outcome: store.Bounded, Before: 10, After: 10, Existed: true})
		k.holds(c, 10)
	})

	s.law("an empty bound admits nothing", func(k *kit) {
		c := cell("a")
		for _, n := range []int64{-1, 0, 1} {
			k.outcome(k.one(within(add(c, n), store.Bound{Low: 1, High: -1})), store.Bounded)
		}
		k.absent(c)
	})

	s.law("an inward bound may change before a batch is sent again", func(k *kit) {
		c, w := cell("a"), k.enlist()
		limit := &store.Bound{Low: 0, High: 3, Inward: true}
		b := k.numbered(w, 0, 1, add(c, 5))
		first := k.reply(b)
		b.Deltas[0].Guard.Bound = limit
		k.repeatsBatch(k.reply(b), first)
		b = k.numbered(w, 1, 2, add(c, 1), add(c, -2))
		b.Deltas[0].Guard.Bound = limit
		first = k.reply(b)
		k.outcome(first.Results[0], store.Bounded)
		b.Deltas[0].Guard.Bound = nil
		k.repeatsBatch(k.reply(b), first)
		k.holds(c, 3)
	})

	s.law("a bound is never crossed by many at once, and what it admits adds up", boundRaces)
}

// boundTable compares sums with those of unbounded integers.
func boundTable(k *kit) {
	c := cell("a")
	ends := []int64{
		math.MinInt64, math.MinInt64 + 1, math.MinInt64 / 2, -10, -1, 0, 1, 10, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64,
	}
	for _, b := range []store.Bound{
		{Low: 0, High: 10},
		{Low: -10, High: 1},
		{Low: 0, High: 0},
		{Low: 10, High: 11},
		{Low: math.MinInt64, High: math.MaxInt64},
		{Low: math.MinInt64, High: -1},
		{Low: 1, High: math.MaxInt64},
		{Low: math.MinInt64, High: math.MinInt64},
		{Low: math.MaxInt64, High: math.MaxInt64},
		{Low: math.MinInt64 + 1, High: math.MaxInt64 - 1},
	} {
		for _, b.Saturate = range []bool{false, true} {
			var ds []store.Delta
			for _, old := range ends {
				for _, n := range ends {
					ds = append(ds, set(c, old), within(want(add(c, n)), b), get(c))
				}
			}
			rs := k.do(ds...)
			for i := 0; i < len(rs); i += 3 {
				old, n := ds[i].N, ds[i+1].N
				after, outcome := boundedModel(old, n, b)
				want := store.Result{Outcome: outcome, Before: old, After: after, Existed: true}
				if outcome == store.Overflow {
					want = store.Result{Outcome: outcome}
				}
				got := rs[i+1]
				want.Version = got.Version
				if got != want || (got.Version > rs[i].Version) != (outcome == store.Applied) {
					k.Fatalf("%d + %d within %+v: %+v, want %+v", old, n, b, got, want)
				}
				if rs[i+2].After != after {
					k.Fatalf("%d + %d within %+v left %d, want %d", old, n, b, rs[i+2].After, after)
				}
			}
		}
	}
}

func boundedModel(old, n int64, b store.Bound) (after int64, o store.Outcome) {
	sum := new(big.Int).Add(big.NewInt(old), big.NewInt(n))
	limit := b.Low
	switch {
	case sum.Cmp(big.NewInt(b.Low)) >= 0 && sum.Cmp(big.NewInt(b.High)) <= 0:
		return sum.Int64(), store.Applied
	case !b.Saturate:
		return old, store.Bounded
	case sum.Cmp(big.NewInt(b.High)) > 0:
		limit = b.High
	}
	if !new(big.Int).Sub(big.NewInt(limit), big.NewInt(old)).IsInt64() {
		return old, store.Overflow
	}
	return limit, store.Applied
}

// boundRaces is a stock that many take from and some give to.
func boundRaces(k *kit) {
	for _, saturate := range []bool{false, true} {
		c := cell(fmt.Sprint("stock", saturate))
		const stock, most = 40, 60
		k.one(set(c, stock))
		b := store.Bound{Low: 0, High: most, Saturate: saturate}
		var moved, refused atomic.Int64
		done := make(chan struct{})
		var left atomic.Int64
		left.Store(6)
		k.parallel(7, func(g int) error {
			if g == 6 {
				return k.watch(done, []store.Cell{c}, func(vs []store.Value) error {
					if vs[0].N < b.Low || vs[0].N > b.High {
						return fmt.Errorf("the cell reads %d, its bound is %+v", vs[0].N, b)
					}
					return nil
				})
			}
			defer func() {
				if left.Add(-1) == 0 {
					close(done)
				}
			}()
			for i := range 40 {
				n := int64(-1 - (g+i)%5)
				if g == 0 {
					n = 7
				}
				d := within(want(add(c, n)), b)
				if i%2 == 0 {
					d = once(d, fmt.Sprint(g, "-", i))
				}
				for range 1 + i%2 { // those with a token once, others twice
					rep, err := k.try(k.batch(d))
					if err != nil {
						return err
					}
					r := rep.Results[0]
					switch {
					case r.Outcome == store.Bounded && !saturate:
						refused.Add(1)
					case r.Outcome != store.Applied:
						return fmt.Errorf("outcome %d: %w", r.Outcome, r.Outcome.Err())
					case r.After < b.Low || r.After > b.High || (!saturate && r.After != r.Before+n):
						return fmt.Errorf("an add of %d within %+v went from %d to %d", n, b, r.Before, r.After)
					default:
						moved.Add(r.After - r.Before)
					}
				}
			}
			return nil
		})
		k.holds(c, stock+moved.Load())
		if !saturate && refused.Load() == 0 {
			k.Fatalf("nothing was refused: the law tried nothing")
		}
	}
	k.audited()
}
