package storetest

import (
	"math"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// marks are the laws of numbered batches: a mark is a compare-and-set.
func marks(s *suite) {
	s.law("batches follow each other", func(k *kit) {
		c, w := cell("a"), k.enlist()
		for i, seq := range [][2]uint64{{0, 1}, {1, 2}, {2, 100}, {100, 1 << 40}, {1 << 40, math.MaxUint64}} {
			r := k.reply(k.numbered(w, seq[0], seq[1], want(add(c, 1))))
			k.applied(r.Results[0], int64(i), int64(i+1))
			if r.Mark != seq[1] || r.Replayed || r.Results[0].Replayed {
				k.Fatalf("reply %+v, want mark %d", r, seq[1])
			}
		}
	})

	s.law("a repeat returns the first results and changes nothing", func(k *kit) {
		cs, w := k.together(2), k.enlist()
		c, other := cs[0], cs[1]
		b := k.numbered(w, 0, 3,
			want(add(c, 5)), add(c, 1), want(set(other, math.MaxInt64)), want(add(other, 1)),
			once(add(c, 2), "t"), once(add(c, 2), "t"), settle(c, "s"), match(add(c, 1), 0), want(del(other)))
		first := k.reply(b)
		k.one(add(c, 1000))
		k.one(set(other, 4))
		was := k.readAll(cs...)
		for range 2 {
			k.repeatsBatch(k.reply(b), first)
		}
		if now := k.readAll(cs...); now[0] != was[0] || now[1] != was[1] {
			k.Fatalf("a repeat changed the cells from %+v to %+v", was, now)
		}
		k.outcome(first.Results[3], store.Overflow)
		k.outcome(first.Results[7], store.Changed)
	})

	s.law("what does not follow the mark is refused with the mark", func(k *kit) {
		c, w := cell("a"), k.enlist()
		k.reply(k.numbered(w, 0, 2, add(c, 1)))
		k.reply(k.numbered(w, 2, 5, add(c, 1)))
		f := func(prev, seq uint64, ds ...store.Delta) {
			k.Helper()
			r := k.refused(k.numbered(w, prev, seq, ds...), store.KindMark)
			if r.Mark != 5 || r.Replayed {
				k.Fatalf("refused with mark %d, want 5", r.Mark)
			}
			k.holds(c, 2)
		}
		f(0, 2, add(c, 1))            // applied, but no longer the last
		f(6, 7, add(c, 1))            // a gap
		f(3, 7, add(c, 1))            // an overlap
		f(0, 9, add(c, 1))            // an overlap of everything
		f(0, 1, add(c, 1))            // long past
		f(3, 5, add(c, 1))            // the end of the last, but not its beginning
		f(2, 5, add(c, 2))            // the last again, but another payload
		f(2, 5, want(add(c, 1)))      // asking for more is another payload
		f(2, 5, add(c, 1), add(c, 1)) // so is one delta more
		k.reply(k.numbered(w, 5, 6, add(c, 1)))
		k.holds(c, 3)
	})

	s.law("a writer the partition does not know is at 0", func(k *kit) {
		c, w := cell("a"), k.enlist()
		if r := k.refused(k.numbered(w, 1, 2, add(c, 1)), store.KindMark); r.Mark != 0 {
			k.Fatalf("refused with mark %d, want 0", r.Mark)
		}
		k.absent(c)
		k.reply(k.numbered(w, 0, 2, add(c, 1)))
	})

	s.law("each writer has its own mark in each partition", func(k *kit) {
		w, v := k.enlist(), k.enlist()
		for _, c := range k.apart() {
			k.reply(k.numbered(w, 0, 7, add(c, 1)))
			k.reply(k.numbered(v, 0, 3, add(c, 1)))
			k.reply(k.numbered(w, 7, 8, add(c, 1)))
			k.refused(k.numbered(v, 7, 8, add(c, 1)), store.KindMark)
			k.holds(c, 3)
		}
	})

	s.law("an empty batch moves the mark", func(k *kit) {
		c, w := cell("a"), k.enlist()
		b := k.numbered(w, 0, 4)
		b.Partition = k.home(c)
		if r := k.reply(b); r.Mark != 4 || r.Replayed {
			k.Fatalf("reply %+v, want mark 4", r)
		}
		if r := k.reply(b); r.Mark != 4 || !r.Replayed {
			k.Fatalf("repeat %+v, want mark 4", r)
		}
		k.reply(k.numbered(w, 4, 5, add(c, 1)))
	})

	s.law("a batch of refused deltas moves the mark", func(k *kit) {
		c, w := cell("a"), k.enlist()
		b := k.numbered(w, 0, 1, match(add(c, 1), 99))
		first := k.reply(b)
		k.outcome(first.Results[0], store.Changed)
		k.repeatsBatch(k.reply(b), first)
		k.reply(k.numbered(w, 1, 2, add(c, 1)))
	})

	s.law("an invalid batch does not move the mark", func(k *kit) {
		c, w := cell("a"), k.enlist()
		k.refused(k.numbered(w, 0, 1, add(c, 1), store.Delta{Cell: c}), store.KindInvalid)
		k.refused(k.numbered(w, 1, 1, add(c, 1)), store.KindInvalid)
		k.refused(k.numbered(w, 2, 1, add(c, 1)), store.KindInvalid)
		k.absent(c)
		k.reply(k.numbered(w, 0, 1, add(c, 1)))
		k.holds(c, 1)
	})

	s.law("without a writer the numbers mean nothing", func(k *kit) {
		c := cell("a")
		b := k.batch(add(c, 1))
		b.Prev, b.Seq = 9, 3
		for range 2 {
			if r := k.reply(b); r.Replayed || r.Mark != 0 {
				k.Fatalf("reply %+v to a batch without a writer", r)
			}
		}
		k.holds(c, 2)
	})

	s.law("a resent batch may ask for another durability", func(k *kit) {
		c, w := cell("a"), k.enlist()
		b := k.numbered(w, 0, 1, want(add(c, 1)))
		b.Durability = store.Memory
		first := k.reply(b)
		b.Durability = store.Synced
		k.repeatsBatch(k.reply(b), first)
		k.holds(c, 1)
	})

	s.law("a token guards across batches and writers", func(k *kit) {
		c, w, v := cell("a"), k.enlist(), k.enlist()
		first := k.reply(k.numbered(w, 0, 1, once(add(c, 1), "t"))).Results[0]
		k.repeats(k.reply(k.numbered(w, 1, 2, once(add(c, 1), "t"))).Results[0], first)
		k.repeats(k.reply(k.numbered(v, 0, 1, once(add(c, 1), "t"))).Results[0], first)
		k.repeats(k.one(once(add(c, 1), "t")), first)
		k.holds(c, 1)
	})

	s.law("racing repeats apply once", func(k *kit) {
		c, w := cell("a"), k.enlist()
		const rounds = 30
		for i := range uint64(rounds) {
			b := k.numbered(w, i, i+1, want(add(c, 1)))
			var fresh atomic.Int64
			k.parallel(4, func(int) error {
				r, err := k.try(b)
				if err == nil && !r.Replayed {
					fresh.Add(1)
				}
				return err
			})
			if fresh.Load() != 1 {
				k.Fatalf("%d of the racing repeats were the first", fresh.Load())
			}
			k.applied(k.reply(b).Results[0], int64(i), int64(i+1))
		}
		k.holds(c, rounds)
	})

	s.law("of racing batches that follow one mark one applies", func(k *kit) {
		c, w := cell("a"), k.enlist()
		const rounds = 30
		for i := range uint64(rounds) {
			var won atomic.Int64
			k.parallel(4, func(g int) error {
				r, err := k.try(k.numbered(w, i, i+1, add(c, 1), add(c, int64(g)), add(c, -int64(g))))
				switch {
				case err == nil:
					won.Add(1)
				case store.KindOf(err) != store.KindMark || r.Mark != i+1:
					return err
				}
				return nil
			})
			if won.Load() != 1 {
				k.Fatalf("%d of the racing batches applied", won.Load())
			}
		}
		k.holds(c, rounds)
	})
}

// repeatsBatch checks that a reply is the first one again.
func (k *kit) repeatsBatch(got, first store.Reply) {
	k.Helper()
	if !got.Replayed || got.Mark != first.Mark || len(got.Results) != len(first.Results) {
		k.Fatalf("repeat returns %+v, want the first reply %+v", got, first)
	}
	for i, want := range first.Results {
		want.Replayed = true
		if got.Results[i] != want {
			k.Fatalf("repeat returns %+v for delta %d, want the first result %+v", got.Results[i], i, want)
		}
	}
}
