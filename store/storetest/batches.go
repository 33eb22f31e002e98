package storetest

import (
	"fmt"
	"slices"

	"github.com/quipudb/quipu/store"
)

// batches are the laws of a call of Apply: what one batch does to another, and
// one delta to its neighbours.
func batches(s *suite) {
	s.law("deltas are decided in their order", func(k *kit) {
		c := cell("a")
		rs := k.do(want(add(c, 2)), want(set(c, 10)), want(add(c, 1)), want(del(c)), want(add(c, -3)))
		for i, want := range [][2]int64{{0, 2}, {2, 10}, {10, 11}, {11, 0}, {0, -3}} {
			k.applied(rs[i], want[0], want[1])
		}
		k.holds(c, -3)
	})

	s.law("batches of one partition in one call apply in their order", func(k *kit) {
		c, w := cell("a"), k.enlist()
		rs := k.apply(
			k.batch(want(add(c, 1))),
			k.numbered(w, 0, 1, want(set(c, 5))),
			k.numbered(w, 1, 2, want(add(c, 1))),
			k.batch(want(add(c, 1))),
		)
		for i, want := range [][2]int64{{0, 1}, {1, 5}, {5, 6}, {6, 7}} {
			if rs[i].Err != nil {
				k.Fatalf("batch %d: %v", i, rs[i].Err)
			}
			k.applied(rs[i].Results[0], want[0], want[1])
		}
	})

	s.law("one call carries batches of all partitions", func(k *kit) {
		var bs []store.Batch
		cells := k.apart()
		for i, c := range cells {
			bs = append(bs, k.batch(add(c, int64(i)), want(add(c, 1))))
		}
		for i, r := range k.apply(bs...) {
			if r.Err != nil {
				k.Fatalf("batch %d: %v", i, r.Err)
			}
			k.applied(r.Results[1], int64(i), int64(i+1))
			k.holds(cells[i], int64(i+1))
		}
	})

	s.law("a refused batch changes nothing and harms no other", func(k *kit) {
		c, w := cell("a"), k.enlist()
		bad := []store.Batch{
			k.numbered(w, 3, 4, add(c, 100)),           // no such mark
			k.batch(add(c, 100), add(cell(""), 1)),     // no key
			k.batch(add(c, 100), store.Delta{Cell: c}), // no operation
			{Partition: k.parts},                       // no such partition
			{Partition: -1},                            // nor that one
		}
		for i, b := range bad {
			rs := k.apply(k.batch(add(c, 1)), b, k.batch(want(add(c, 1))))
			if rs[1].Err == nil {
				k.Fatalf("batch %d was not refused", i)
			}
			if len(rs[1].Results) != 0 {
				k.Fatalf("batch %d was refused with results %+v", i, rs[1].Results)
			}
			if rs[0].Err != nil || rs[2].Err != nil {
				k.Fatalf("neighbours of batch %d: %v, %v", i, rs[0].Err, rs[2].Err)
			}
			k.applied(rs[2].Results[0], int64(2*i+1), int64(2*i+2))
		}
		k.holds(c, int64(2*len(bad)))
	})

	s.law("a cell of another partition is invalid", func(k *kit) {
		if k.parts == 1 {
			return // every cell is at home
		}
		cs := k.apart()
		for _, d := range []store.Delta{
			add(cs[1], 1), set(cs[1], 1), del(cs[1]), settle(cs[1], "t"), get(cs[1]), expire(cs[1], store.ExpiryClear, 0),
		} {
			k.refused(k.batch(add(cs[0], 1), d), store.KindInvalid)
		}
		k.refused(given(k.batch(add(cs[0], 1)), cs[1], 0), store.KindInvalid)
		k.absent(cs[0])
		k.absent(cs[1])
		k.state(cs[1], "t", store.TokenUnknown)
		k.reply(store.Batch{Partition: 1, Deltas: []store.Delta{{Cell: cs[0], Op: store.OpRetire, N: 1}}})
	})

	s.law("an empty batch, and an empty call, are fine", func(k *kit) {
		k.apply()
		if r := k.reply(store.Batch{}); len(r.Results) != 0 || r.Mark != 0 {
			k.Fatalf("an empty batch returned %+v", r)
		}
	})

	s.law("replies are reused and nothing of them stays", func(k *kit) {
		c := cell("a")
		room := make([]store.Result, 1, 8)
		room[0] = store.Result{Outcome: store.Mismatch, Replayed: true, Before: 3, After: 4, Version: 5, Existed: true, DeadlineMS: 6}
		replies := []store.Reply{{Err: store.ErrClosed, Mark: 9, Replayed: true, Results: room}}
		batch := []store.Batch{k.batch(add(c, 1), add(c, 1))}
		if err := k.store.Apply(k.ctx, batch, replies); err != nil {
			k.Fatalf("Apply: %v", err)
		}
		r := replies[0]
		if r.Err != nil || r.Mark != 0 || r.Replayed || len(r.Results) != 2 {
			k.Fatalf("old contents shine through: %+v", r)
		}
		for _, res := range r.Results {
			if res.Outcome != store.Applied || res.Replayed || res.Version == 0 || res.DeadlineMS != 0 {
				k.Fatalf("old contents shine through: %+v", res)
			}
		}
		if &r.Results[0] != &room[0] {
			k.Fatalf("a result slice with room was not reused")
		}
	})

	s.law("the store keeps no reference to its arguments", func(k *kit) {
		c, w := cell("a"), k.enlist()
		batch := func() store.Batch {
			return given(k.numbered(w, 0, 1, once(add(c, 1), "t"), within(want(add(c, 1)), store.Bound{Low: 1, High: 2})), c, 0)
		}
		sent := []store.Batch{batch()}
		replies := make([]store.Reply, 1)
		if err := k.store.Apply(k.ctx, sent, replies); err != nil {
			k.Fatalf("Apply: %v", err)
		}
		first := replies[0]
		first.Results = slices.Clone(first.Results)
		clear(replies[0].Results)
		clear(sent[0].If)
		*sent[0].Deltas[1].Guard.Bound = store.Bound{}
		clear(sent[0].Deltas)
		for range 2 {
			again := k.reply(batch())
			k.repeatsBatch(again, first)
			clear(again.Results)
		}
		k.repeats(k.one(once(add(c, 1), "t")), first.Results[0])
		k.holds(c, 2)
		if k.inst.Reopen != nil {
			k.replace(k.inst.Reopen(k.t))
			k.repeatsBatch(k.reply(batch()), first)
			k.holds(c, 2)
		}
	})

	s.law("the largest batch is applied whole", func(k *kit) {
		cs := k.together(50)
		var ds []store.Delta
		for i := range store.BatchDeltasMax {
			ds = append(ds, add(cs[i%len(cs)], int64(i)))
		}
		for i, r := range k.do(ds...) {
			if r.Outcome != store.Applied {
				k.Fatalf("delta %d: %v", i, r.Outcome.Err())
			}
		}
		sum := int64(0)
		for _, v := range k.readAll(cs...) {
			sum += v.N
		}
		if want := int64(store.BatchDeltasMax) * (store.BatchDeltasMax - 1) / 2; sum != want {
			k.Fatalf("the cells sum to %d, want %d", sum, want)
		}
	})

	s.law("a batch is seen whole or not at all", func(k *kit) {
		cs := k.together(3)
		const rounds = 200
		done := make(chan struct{})
		k.parallel(4, func(i int) error {
			if i == 0 {
				defer close(done)
				for n := range int64(rounds) {
					if _, err := k.try(k.batch(add(cs[0], 1), set(cs[1], n+1), add(cs[2], -1))); err != nil {
						return err
					}
				}
				return nil
			}
			return k.watch(done, cs, func(vs []store.Value) error {
				if vs[0].N != vs[1].N || vs[0].N != -vs[2].N || vs[0].Exists != vs[2].Exists {
					return fmt.Errorf("half a batch was seen: %+v", vs)
				}
				return nil
			})
		})
		k.holds(cs[0], rounds)
	})
}
