package storetest

import (
	"strings"

	"github.com/quipudb/quipu/store"
)

// layoutsKept are the laws of layouts that nobody has looked at for a while, and
// of where they are judged.
func layoutsKept(s *suite) {
	if !s.probe().Store.Traits().Layouts {
		return
	}
	s.law("an add that names a layout is held to it alone as well", func(k *kit) {
		c := cell("a")
		for range 2 { // the second time it is the cell that was last added to
			k.one(add(c, 1))
			k.outcome(k.one(laid(add(c, 1), 7)), store.Unmet)
			k.outcome(k.one(laid(add(c, 1), 0)), store.Applied)
		}
		k.one(layout(c, 0, 7))
		for range 2 {
			k.one(add(c, 1))
			k.outcome(k.one(laid(add(c, 1), 0)), store.Unmet)
			k.outcome(k.one(laid(add(c, 1), 8)), store.Unmet)
			k.outcome(k.one(laid(add(c, 1), 7)), store.Applied)
			k.outcome(k.one(want(add(c, 1))), store.Split)
		}
		k.laidOut(c, 8, 7)
	})

	s.law("a batch is split by what it meets, and its deltas by what they meet", func(k *kit) {
		cs := k.together(2)
		rs := k.do(layout(cs[0], 0, 7), set(cs[0], 1), add(cs[0], 2), add(cs[1], 3))
		for i, o := range []store.Outcome{store.Applied, store.Split, store.Applied, store.Applied} {
			k.outcome(rs[i], o)
		}
		k.refused(k.batch(layout(cs[0], 7, 0), set(cs[0], 1)), store.KindSplit)
		k.laidOut(cs[0], 2, 7)
		// Writes that put a counter together.
		rs = k.do(laid(add(cs[0], 5), 7), layout(cs[0], 7, 0), laid(want(add(cs[0], 1)), 0))
		k.applied(rs[2], 7, 8)
		k.laidOut(cs[0], 8, 0)
	})

	s.law("a layout is changed at a version", func(k *kit) {
		c := cell("a")
		first := k.one(match(layout(c, 0, 7), 0)) // of what is absent
		k.outcome(first, store.Applied)
		k.outcome(k.one(match(layout(c, 7, 8), first.Version+1)), store.Changed)
		k.outcome(k.one(match(laid(del(c), 7), first.Version+1)), store.Changed)
		k.outcome(k.one(match(layout(c, 9, 8), first.Version)), store.Unmet)
		k.laidOut(c, 0, 7)
		k.one(add(c, 1))
		k.outcome(k.one(match(layout(c, 7, 8), first.Version)), store.Changed)
		k.outcome(k.one(match(laid(del(c), 7), first.Version)), store.Changed)
		k.laidOut(c, 1, 7)
		k.outcome(k.one(match(layout(c, 7, 8), k.read(c).Version)), store.Applied)
		k.outcome(k.one(match(laid(del(c), 8), k.read(c).Version)), store.Applied)
	})

	s.law("a layout is changed within a bound of the value", func(k *kit) {
		c := cell("a")
		b := store.Bound{Low: -1, High: 1}
		k.outcome(k.one(within(layout(c, 0, 7), b)), store.Applied) // what is absent is 0
		k.one(add(c, 2))
		k.outcome(k.one(within(layout(c, 7, 8), b)), store.Bounded)
		k.outcome(k.one(within(layout(c, 8, 9), b)), store.Unmet)
		k.laidOut(c, 2, 7)
		k.one(add(c, -4))
		k.outcome(k.one(within(layout(c, 7, 8), b)), store.Bounded)
		k.one(add(c, 1))
		k.outcome(k.one(within(layout(c, 7, 8), b)), store.Applied)
		k.laidOut(c, -1, 8)
	})

	s.law("a layout is told by whatever tells a value", func(k *kit) {
		cs := k.together(2)
		started := k.start(k.batch(layout(cs[0], 0, 7), add(cs[0], 1), add(cs[1], 1)))[0]
		k.outcome(started.Results[0], store.Applied)
		k.laidOut(cs[0], 1, 7)
		for i, v := range k.peeked(cs...) {
			if v != k.read(cs[i]) {
				k.Fatalf("a peek tells %+v, it reads %+v", v, k.read(cs[i]))
			}
		}
		split := k.start(k.batch(add(cs[1], 1), want(add(cs[0], 1))))[0]
		k.kind(split.Err, store.KindSplit)
		k.holds(cs[1], 1)
	})

	s.kept("layouts that nobody has looked at", func(k *kit, _ *clock, again func()) {
		cs := k.together(4)
		k.do(layout(cs[0], 0, 7), layout(cs[1], 0, 8), add(cs[2], 1), layout(cs[3], 0, 9))
		again()
		rs := k.do(add(cs[0], 1), laid(add(cs[1], 1), 7), laid(add(cs[2], 1), 8), laid(add(cs[3], 1), 9))
		for i, o := range []store.Outcome{store.Applied, store.Unmet, store.Unmet, store.Applied} {
			k.outcome(rs[i], o)
		}
		again() // what was added is over what nobody has looked at
		k.outcome(k.one(laid(add(cs[0], 1), 7)), store.Applied)
		k.outcome(k.one(set(cs[3], 1)), store.Split)
		again()
		k.refused(k.batch(add(cs[2], 1), set(cs[1], 1)), store.KindSplit)
		again()
		k.outcome(k.one(layout(cs[0], 7, 0)), store.Applied)
		k.outcome(k.one(laid(del(cs[1]), 8)), store.Applied)
		again()
		k.outcome(k.one(laid(add(cs[0], 1), 7)), store.Unmet)
		k.applied(k.one(want(add(cs[0], 1))), 2, 3)
		k.outcome(k.one(laid(add(cs[1], 1), 8)), store.Unmet)
		k.laidOut(cs[3], 1, 9)
		k.audited()
	})

	s.kept("shards of the longest address", func(k *kit, _ *clock, again func()) {
		c := store.Cell{Namespace: strings.Repeat("n", store.NamespaceBytesMax), Key: strings.Repeat("k", store.KeyBytesMax)}
		shard := store.ShardCell(c, 1<<24)
		k.one(layout(shard, 0, 7))
		k.outcome(k.one(laid(add(shard, 5), 7)), store.Applied)
		again()
		token := laid(add(shard, 1), 7)
		token.Guard.Token = strings.Repeat("t", store.TokenBytesMax)
		k.outcome(k.one(token), store.Applied)
		again()
		k.outcome(k.one(token), store.Applied)
		k.laidOut(shard, 6, 7)
		k.audited()
	})
}
