package storetest

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// layouts are the laws of cells that are parts of a counter. A store that has
// none says so in its traits.
func layouts(s *suite) {
	if !s.probe().Store.Traits().Layouts {
		s.law("a store without layouts refuses them", func(k *kit) {
			k.refused(k.batch(layout(cell("a"), 0, 1)), store.KindUnsupported)
			k.refused(k.batch(laid(add(cell("a"), 1), 0)), store.KindUnsupported)
			k.absent(cell("a"))
		})
		return
	}

	s.law("a layout stays until it is changed, and is changed only from what it is", func(k *kit) {
		c := cell("a")
		k.one(add(c, 5))
		was := k.read(c)
		k.outcome(k.one(layout(c, 7, 9)), store.Unmet)
		if now := k.read(c); now != was {
			k.Fatalf("a refused layout changed %+v to %+v", was, now)
		}
		r := k.one(layout(c, 0, 7))
		k.outcome(r, store.Applied)
		k.laidOut(c, 5, 7)
		if r.Version <= was.Version || k.read(c).Version != r.Version {
			k.Fatalf("a layout made version %d of %d, and it reads %+v", r.Version, was.Version, k.read(c))
		}
		k.one(add(c, 2))
		k.laidOut(c, 7, 7)
		k.outcome(k.one(layout(c, 0, 9)), store.Unmet)
		k.outcome(k.one(layout(c, 7, 1<<62)), store.Applied)
		k.laidOut(c, 7, 1<<62)
		if e := k.scan(store.Range{Namespace: namespace}, 9); len(e) != 1 || e[0].Value != k.read(c) {
			k.Fatalf("scan lists %+v, it reads %+v", e, k.read(c))
		}
		k.outcome(k.one(layout(c, 1<<62, 0)), store.Applied)
		k.one(set(c, 1))
		k.laidOut(c, 1, 0)
		k.audited()
	})

	s.law("a layout makes a cell that is absent", func(k *kit) {
		c := cell("a")
		r := k.one(want(layout(c, 0, 3)))
		k.told(r, store.Result{Outcome: store.Applied})
		k.laidOut(c, 0, 3)
		k.outcome(k.one(laid(del(c), 4)), store.Unmet)
		k.outcome(k.one(laid(del(c), 3)), store.Applied)
		k.absent(c)
		k.outcome(k.one(laid(add(c, 1), 3)), store.Unmet)
		k.absent(c)
		k.one(add(c, 1)) // a new one, which has none
		k.laidOut(c, 1, 0)
	})

	s.law("a part of a counter takes adds that ask for nothing, and nothing else", func(k *kit) {
		cs := k.together(2)
		c, other := cs[0], cs[1]
		k.do(add(c, 10), add(other, 10))
		k.one(layout(c, 0, 7))
		was := k.read(c)
		token := once(add(c, 1), "t")
		for name, d := range map[string]store.Delta{
			"want": want(add(c, 1)), "set": set(c, 1), "delete": del(c), "get": get(c), "match": match(add(c, 1), was.Version),
			"exists": only(add(c, 1), store.ExistsMust), "bound": within(add(c, 1), store.Bound{High: 99}), "token and value": token,
			"large": add(c, store.AddMax+1), "large, taken away": add(c, -store.AddMax-1), "until": until(add(c, 1), 1<<50), "expire": expire(c, store.ExpirySet, 1<<50), "clear": expire(c, store.ExpiryClear, 0),
		} {
			r := k.apply(apartly(k.batch(add(other, 1), d, add(other, 1))))[0]
			if r.Err != nil || r.Results[0].Outcome != store.Applied || r.Results[2].Outcome != store.Applied {
				k.Fatalf("%s: reply %+v, want the neighbours applied", name, r)
			}
			k.outcome(r.Results[1], store.Split)
			k.refused(k.batch(add(other, 1), d), store.KindSplit)
		}
		if now := k.read(c); now != was {
			k.Fatalf("refused writes changed %+v to %+v", was, now)
		}
		k.holds(other, 10+2*13)
		k.state(c, "t", store.TokenUnknown)

		k.one(add(c, -12))
		token.Want = false
		k.outcome(k.one(token), store.Applied)
		k.outcome(k.one(token), store.Applied)
		k.state(c, "t", store.TokenApplied)
		k.outcome(k.one(settle(c, "u")), store.Settled)
		k.laidOut(c, -1, 7)
		k.outcome(k.one(laid(want(add(c, 1)), 7)), store.Applied)
		k.outcome(k.one(laid(set(c, 4), 7)), store.Applied)
		k.laidOut(c, 4, 7)
		k.one(layout(c, 7, 0))
		k.told(k.one(get(c)), store.Result{Outcome: store.Applied, Before: 4, After: 4, Existed: true})
	})

	s.law("what names a layout is refused alone if there is another", func(k *kit) {
		cs := k.together(2)
		k.one(layout(cs[0], 0, 7))
		rs := k.do(add(cs[1], 1), laid(add(cs[0], 1), 8), laid(add(cs[0], 2), 7), laid(add(cs[1], 4), 0), laid(add(cs[1], 8), 1))
		for i, o := range []store.Outcome{store.Applied, store.Unmet, store.Applied, store.Applied, store.Unmet} {
			k.outcome(rs[i], o)
		}
		k.laidOut(cs[0], 2, 7)
		k.holds(cs[1], 5)
	})

	s.law("a refused batch leaves its mark, and the same batch may come again", func(k *kit) {
		cs, w := k.together(2), k.enlist()
		k.reply(k.numbered(w, 0, 1, add(cs[1], 1)))
		k.one(layout(cs[0], 0, 7))
		b := k.numbered(w, 1, 2, add(cs[1], 1), want(add(cs[0], 1)))
		if r := k.refused(b, store.KindSplit); r.Mark != 1 {
			k.Fatalf("a refused batch moved the mark to %d", r.Mark)
		}
		k.holds(cs[1], 1)
		k.one(layout(cs[0], 7, 0))
		first := k.reply(b)
		k.repeatsBatch(k.reply(b), first)
		k.holds(cs[0], 1)
		k.holds(cs[1], 2)
		// A batch that names another layout is another batch.
		laidBatch := k.numbered(w, 2, 3, laid(add(cs[0], 1), 0))
		k.reply(laidBatch)
		laidBatch.Deltas[0].Guard.Layout = 1
		k.refused(laidBatch, store.KindMark)
	})

	s.lawAt("a cell has a deadline or a layout", store.Limits{}, func(k *kit, cl *clock) {
		c := cell("a")
		k.one(until(set(c, 3), cl.ms()+9))
		k.outcome(k.one(layout(c, 0, 7)), store.Unmet)
		k.holdsUntil(c, 3, cl.ms()+9)
		k.one(expire(c, store.ExpiryClear, 0))
		k.outcome(k.one(layout(c, 0, 7)), store.Applied)
		k.outcome(k.one(expire(c, store.ExpirySet, cl.ms()+9)), store.Split)
		cl.move(1 << 50)
		k.laidOut(c, 3, 7)
	})

	s.law("a cell with a layout is found after a repeat, and in a sum at the ends of int64", func(k *kit) {
		c := cell("a")
		k.one(set(c, math.MaxInt64-1))
		k.one(layout(c, 0, 7))
		k.outcome(k.one(add(c, 2)), store.Overflow)
		k.outcome(k.one(laid(add(c, 1<<62), 7)), store.Overflow)
		k.laidOut(c, math.MaxInt64-1, 7)
	})

	s.law("layouts that do not fit are refused", func(k *kit) {
		c := cell("a")
		token := layout(c, 0, 1)
		token.Guard.Token = "t"
		for _, d := range []store.Delta{
			{Cell: c, Op: store.OpLayout, N: 1},
			layout(c, 0, -1), layout(c, -1, 0), token,
			laid(until(add(c, 1), 1<<50), 0), until(layout(c, 0, 1), 1<<50), within(layout(c, 0, 1), store.Bound{Saturate: true}),
		} {
			k.refused(k.batch(d), store.KindInvalid)
		}
		k.absent(c)
	})

	s.lawAt("a layout needs room for its cell", store.Limits{KeysMax: 1}, func(k *kit, _ *clock) {
		cs := k.together(2)
		k.one(add(cs[0], 1))
		k.outcome(k.one(layout(cs[1], 0, 1)), store.Full)
		k.outcome(k.one(layout(cs[0], 0, 1)), store.Applied)
		k.absent(cs[1])
	})

	s.law("shards are cells like others, in no list", func(k *kit) {
		c := cell("a/b")
		for i := 1; i < 9; i++ {
			shard := store.ShardCell(c, i)
			if of, n, ok := store.ShardOf(shard); of != c || n != i || !ok {
				k.Fatalf("shard %d of %v is %v: that is taken for shard %d of %v", i, c, shard, n, of)
			}
			if home := k.home(shard); home != (k.home(c)+i)%k.parts {
				k.Fatalf("shard %d of a counter in partition %d is in %d of %d", i, k.home(c), home, k.parts)
			}
			k.outcome(k.one(layout(shard, 0, 7)), store.Applied)
			k.outcome(k.one(laid(add(shard, int64(i)), 7)), store.Applied)
			k.laidOut(shard, int64(i), 7)
		}
		claim, total := store.RollupCells(c)
		if k.home(claim) != k.home(c) || k.home(total) != k.home(c) {
			k.Fatalf("a counter in partition %d has its claim in %d and its total in %d", k.home(c), k.home(claim), k.home(total))
		}
		k.one(add(claim, 1))
		k.one(set(total, 9))
		k.absent(c)
		if e := k.scan(store.Range{Namespace: namespace}, 9); len(e) > 0 {
			k.Fatalf("scan lists %+v", e)
		}
		k.sized(namespace, 0, 0)
		k.audited()
	})

	s.law("of many who change a layout at once, one does", func(k *kit) {
		c := cell("a")
		var word atomic.Int64
		for round := range int64(10) {
			var won atomic.Int64
			k.parallel(8, func(i int) error {
				r, err := k.try(k.batch(layout(c, word.Load(), round*8+int64(i)+1)))
				if err == nil && r.Results[0].Outcome == store.Applied {
					won.Add(1)
				} else if err == nil && r.Results[0].Outcome != store.Unmet {
					err = fmt.Errorf("outcome %d", r.Results[0].Outcome)
				}
				return err
			})
			if won.Load() != 1 {
				k.Fatalf("%d of 8 changed the layout", won.Load())
			}
			word.Store(k.read(c).Layout)
		}
	})

	s.law("no add lands in a part that was closed", func(k *kit) {
		c := cell("a")
		k.one(layout(c, 0, 1))
		var added atomic.Int64
		k.parallel(9, func(i int) error {
			if i == 0 {
				r, err := k.try(k.batch(layout(c, 1, 2)))
				if err == nil && r.Results[0].Outcome != store.Applied {
					err = fmt.Errorf("outcome %d", r.Results[0].Outcome)
				}
				return err
			}
			for range 50 {
				r, err := k.try(k.batch(laid(add(c, 1), 1)))
				if err != nil {
					return err
				}
				if r.Results[0].Outcome == store.Unmet {
					return nil
				}
				added.Add(1)
			}
			return nil
		})
		k.laidOut(c, added.Load(), 2)
	})
	s.kept("layouts", func(k *kit, _ *clock, reopen func()) {
		cs := k.together(3)
		k.do(add(cs[0], 1), add(cs[1], 2))
		k.do(layout(cs[0], 0, 7), layout(cs[1], 0, 1<<62), layout(cs[2], 0, 3))
		k.do(add(cs[0], 4), laid(del(cs[2]), 3))
		for range 2 {
			reopen()
			k.laidOut(cs[0], 5, 7)
			k.laidOut(cs[1], 2, 1<<62)
			k.absent(cs[2])
			k.outcome(k.one(want(add(cs[0], 1))), store.Split)
			k.audited()
		}
		k.one(layout(cs[0], 7, 0))
		reopen()
		k.laidOut(cs[0], 5, 0)
		k.applied(k.one(want(add(cs[0], 1))), 5, 6)
	})
}

// laidOut checks the value and the layout of a cell.
func (k *kit) laidOut(c store.Cell, n, word int64) {
	k.Helper()
	if v := k.read(c); !v.Exists || v.N != n || v.Version == 0 || v.Layout != word || v.DeadlineMS != 0 {
		k.Fatalf("%q reads %+v, want %d laid out as %d", c.Key, v, n, word)
	}
}
