package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// writers are the laws of writer ids: how they are issued and how they end.
func writers(s *suite) {
	s.law("ids are unique and rise", func(k *kit) {
		last := store.Writer(0)
		for range 10 {
			w := k.enlist()
			if w <= last {
				k.Fatalf("writer %d after %d", w, last)
			}
			last = w
		}
	})

	s.law("ids are unique and rise under concurrency", func(k *kit) {
		var mu sync.Mutex
		seen := make(map[store.Writer]bool)
		k.parallel(8, func(int) error {
			last := store.Writer(0)
			for range 25 {
				w, err := store.Enlist(k.ctx, k.store)
				if err != nil {
					return err
				}
				mu.Lock()
				twice := seen[w]
				seen[w] = true
				mu.Unlock()
				if twice || w <= last {
					return fmt.Errorf("writer %d after %d, issued twice: %v", w, last, twice)
				}
				last = w
			}
			return nil
		})
	})

	s.law("retired writers are refused, later ones go on", func(k *kit) {
		c := cell("a")
		idle, old, middle, live := k.enlist(), k.enlist(), k.enlist(), k.enlist()
		sent := k.numbered(old, 0, 1, add(c, 1))
		k.reply(sent)
		k.reply(k.numbered(middle, 0, 1, add(c, 1)))
		k.reply(k.numbered(live, 0, 1, add(c, 1)))
		k.retire(k.home(c), middle)
		k.holds(c, 3)

		k.refused(sent, store.KindRetired) // even the repeat
		k.refused(k.numbered(old, 1, 2, add(c, 1)), store.KindRetired)
		k.refused(k.numbered(middle, 1, 2, add(c, 1)), store.KindRetired)
		k.refused(k.numbered(idle, 0, 1, add(c, 1)), store.KindRetired)
		k.holds(c, 3)
		k.reply(k.numbered(live, 1, 2, add(c, 1)))
		k.reply(k.numbered(k.enlist(), 0, 1, add(c, 1)))
		k.holds(c, 5)
	})

	s.law("the floor never falls", func(k *kit) {
		c := cell("a")
		low, high := k.enlist(), k.enlist()
		k.retire(k.home(c), high)
		k.retire(k.home(c), low)
		k.refused(k.numbered(high, 0, 1, add(c, 1)), store.KindRetired)
		k.refused(k.numbered(low, 0, 1, add(c, 1)), store.KindRetired)
	})

	s.law("retiring is of one partition", func(k *kit) {
		w := k.enlist()
		cs := k.apart()
		for _, c := range cs {
			k.reply(k.numbered(w, 0, 1, add(c, 1)))
		}
		k.retire(k.home(cs[0]), w)
		k.refused(k.numbered(w, 1, 2, add(cs[0], 1)), store.KindRetired)
		for _, c := range cs[1:] {
			k.reply(k.numbered(w, 1, 2, add(c, 1)))
		}
	})

	s.law("a numbered batch retires others and repeats", func(k *kit) {
		c := cell("a")
		old, live := k.enlist(), k.enlist()
		k.reply(k.numbered(old, 0, 1, add(c, 1)))
		b := k.numbered(live, 0, 1, want(add(c, 1)), store.Delta{Op: store.OpRetire, N: int64(old)})
		first := k.reply(b)
		k.outcome(first.Results[1], store.Applied)
		k.repeatsBatch(k.reply(b), first)
		k.refused(k.numbered(old, 1, 2, add(c, 1)), store.KindRetired)
	})

	s.law("a writer retired while it writes stops for good", func(k *kit) {
		c := cell("a")
		for range 10 {
			w, was := k.enlist(), k.read(c).N
			var acked, seen int64
			begun := make(chan struct{})
			var retired atomic.Bool
			k.parallel(2, func(g int) error {
				if g == 0 {
					<-begun
					r, err := k.try(k.batch(want(add(c, 0)), store.Delta{Op: store.OpRetire, N: int64(w)}))
					if err == nil {
						seen = r.Results[0].After
					}
					retired.Store(true)
					return err
				}
				for seq := uint64(0); ; seq++ {
					late := retired.Load()
					_, err := k.try(k.numbered(w, seq, seq+1, add(c, 1)))
					if seq == 0 {
						close(begun)
					}
					switch {
					case store.KindOf(err) == store.KindRetired:
						return nil
					case err != nil:
						return err
					case late:
						return fmt.Errorf("writer %d was retired, and goes on", w)
					}
					acked++
				}
			})
			if seen != was+acked {
				k.Fatalf("retired at %d; the writer took the cell from %d to %d", seen, was, was+acked)
			}
			k.holds(c, seen)
		}
	})

	s.law("tokens outlive their writer", func(k *kit) {
		c, w := cell("a"), k.enlist()
		first := k.reply(k.numbered(w, 0, 1, once(add(c, 1), "t"))).Results[0]
		k.retire(k.home(c), w)
		k.repeats(k.one(once(add(c, 1), "t")), first)
	})

	s.lawAt("a partition at its limit of marks takes no new writer", store.Limits{WritersMax: 3}, func(k *kit, _ *clock) {
		c := cell("a")
		var ws []store.Writer
		for range 3 {
			w := k.enlist()
			k.reply(k.numbered(w, 0, 1, add(c, 1)))
			ws = append(ws, w)
		}
		late := k.enlist()
		k.refused(k.numbered(late, 0, 1, add(c, 1)), store.KindFull)
		k.holds(c, 3)
		for _, w := range ws {
			k.reply(k.numbered(w, 1, 2, add(c, 1)))
		}
		k.one(add(c, 1)) // without a writer there is no mark
		k.retire(k.home(c), ws[0])
		k.reply(k.numbered(late, 0, 1, add(c, 1)))
		k.refused(k.numbered(k.enlist(), 0, 1, add(c, 1)), store.KindFull)
		k.holds(c, 8)
	})
}

// retire forgets the marks of writers up to last in a partition.
func (k *kit) retire(partition int, last store.Writer) {
	k.Helper()
	r := k.reply(store.Batch{
		Partition: partition,
		Deltas:    []store.Delta{{Op: store.OpRetire, N: int64(last)}},
	})
	k.outcome(r.Results[0], store.Applied)
}
