package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// races are the laws of many callers at once: every answer is explained by one
// order of the calls that agrees with when they were made.
func races(s *suite) {
	s.law("blind adds of many callers all count", func(k *kit) {
		hot, cs := cell("hot"), k.apart()
		k.parallel(8, func(g int) error {
			for i := range 50 {
				for _, c := range []store.Cell{hot, cs[i%len(cs)]} {
					if _, err := k.try(k.batch(add(c, int64(g)), add(c, 1))); err != nil {
						return err
					}
				}
			}
			return nil
		})
		const each = 50 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8)
		sum := int64(0)
		for _, v := range k.readAll(append(cs, hot)...) {
			sum += v.N
		}
		if sum != 2*each {
			k.Fatalf("the cells sum to %d, want %d", sum, 2*each)
		}
	})

	s.law("values handed out are unique and in order", func(k *kit) {
		c := cell("ids")
		const callers, calls = 8, 40
		var mu sync.Mutex
		var all []int64
		k.parallel(callers, func(int) error {
			last := int64(0)
			for range calls {
				rep, err := k.try(k.batch(want(add(c, 1))))
				if err != nil {
					return err
				}
				r := rep.Results[0]
				if r.After != r.Before+1 || r.After <= last {
					return fmt.Errorf("handed out %d to %d after %d", r.Before, r.After, last)
				}
				last = r.After
				mu.Lock()
				all = append(all, last)
				mu.Unlock()
			}
			return nil
		})
		slices.Sort(all)
		for i, n := range all {
			if n != int64(i+1) {
				k.Fatalf("handed out %d where %d was due: %v", n, i+1, all)
			}
		}
		k.holds(c, callers*calls)
	})

	s.law("a write is seen by every read that begins after it", func(k *kit) {
		c := cell("a")
		var acked atomic.Int64
		const calls = 100
		k.parallel(4, func(g int) error {
			if g == 0 {
				for i := range int64(calls) {
					if _, err := k.try(k.batch(add(c, 1))); err != nil {
						return err
					}
					acked.Store(i + 1)
				}
				return nil
			}
			last := store.Value{}
			v := make([]store.Value, 1)
			for acked.Load() < calls {
				floor := acked.Load()
				if err := k.store.Read(k.ctx, []store.Cell{c}, v); err != nil {
					return err
				}
				if v[0].N < floor || v[0].N < last.N || v[0].Version < last.Version {
					return fmt.Errorf("read %+v after %+v, when %d was acknowledged", v[0], last, floor)
				}
				last = v[0]
			}
			return nil
		})
	})

	s.law("racing repeats of a token count once", func(k *kit) {
		c := cell("a")
		const rounds = 40
		for i := range int64(rounds) {
			var fresh atomic.Int64
			k.parallel(4, func(int) error {
				rep, err := k.try(k.batch(once(add(c, 1), fmt.Sprint(i))))
				if err != nil {
					return err
				}
				r := rep.Results[0]
				if !r.Replayed {
					fresh.Add(1)
				}
				if r.Outcome != store.Applied || r.Before != i || r.After != i+1 {
					return fmt.Errorf("round %d: %+v", i, r)
				}
				return nil
			})
			if fresh.Load() != 1 {
				k.Fatalf("%d of the racing repeats were the first", fresh.Load())
			}
		}
		k.holds(c, rounds)
	})

	s.law("of racing payloads under one token one applies", func(k *kit) {
		c := cell("a")
		sum := int64(0)
		for i := range 40 {
			var won atomic.Int64
			k.parallel(4, func(g int) error {
				rep, err := k.try(k.batch(once(add(c, int64(g+1)), fmt.Sprint(i))))
				if err != nil {
					return err
				}
				switch r := rep.Results[0]; r.Outcome {
				case store.Applied:
					won.Add(int64(g + 1))
				case store.Mismatch:
				default:
					return r.Outcome.Err()
				}
				return nil
			})
			sum += won.Load()
			k.holds(c, sum)
		}
	})

	s.law("of racing writers at one version one wins", func(k *kit) {
		c := cell("a")
		k.one(add(c, 0))
		for i := range int64(40) {
			v := k.read(c)
			var won atomic.Int64
			k.parallel(4, func(int) error {
				rep, err := k.try(k.batch(match(set(c, i+1), v.Version)))
				if err != nil {
					return err
				}
				switch r := rep.Results[0]; r.Outcome {
				case store.Applied:
					won.Add(1)
				case store.Changed:
				default:
					return r.Outcome.Err()
				}
				return nil
			})
			if won.Load() != 1 {
				k.Fatalf("%d of the racing writers won", won.Load())
			}
		}
	})

	s.law("sets and deletes among adds are explained by one order", func(k *kit) {
		c := cell("a")
		var tick atomic.Int64
		const callers, calls = 6, 40
		made := make([][]step, callers)
		k.parallel(callers, func(g int) error {
			for i := range calls {
				d := want(add(c, int64(1+g)))
				switch {
				case g == 0 && i%4 == 0:
					d = want(set(c, int64(1000*i)))
				case g == 1 && i%4 == 0:
					d = want(del(c))
				case g == 2 && i%4 == 0:
					d = want(set(c, 0)) // a reset
				}
				st := step{delta: d, began: tick.Add(1)}
				rep, err := k.try(k.batch(d))
				if err != nil {
					return err
				}
				st.ended, st.result = tick.Add(1), rep.Results[0]
				made[g] = append(made[g], st)
			}
			return nil
		})
		if err := explain(slices.Concat(made...), k.read(c)); err != nil {
			k.Fatalf("%v", err)
		}
	})
}

// A step is one wanting write to a cell, when it began and when it ended.
type step struct {
	delta        store.Delta
	result       store.Result
	began, ended int64
}

// explain looks for an order of the steps on one cell, all applied to a cell
// that was absent, in which each meets the value that the one before left,
// none comes before one that had ended when it began, and the last leaves the
// final value. Versions give the order of adds and sets. Deletes have none, so
// they are put where the values need them.
func explain(steps []step, final store.Value) error {
	deletes := make(map[int64]int) // by the value they met
	var order []step
	for _, st := range steps {
		r := st.result
		if r.Outcome != store.Applied {
			return fmt.Errorf("refused: %w", r.Outcome.Err())
		}
		switch st.delta.Op {
		case store.OpDelete:
			if r.After != 0 || r.Version != 0 {
				return fmt.Errorf("a delete left %d at version %d", r.After, r.Version)
			}
			deletes[r.Before]++
			continue
		case store.OpSet:
			if r.After != st.delta.N {
				return fmt.Errorf("a set to %d left %d", st.delta.N, r.After)
			}
		default:
			if r.After != r.Before+st.delta.N {
				return fmt.Errorf("an add of %d went from %d to %d", st.delta.N, r.Before, r.After)
			}
		}
		order = append(order, st)
	}
	slices.SortFunc(order, func(a, b step) int {
		if a.result.Version < b.result.Version {
			return -1
		}
		return 1
	})
	delete(deletes, 0) // those that met nothing, or a zero, fit anywhere there is one

	at, version, began := int64(0), uint64(0), int64(0)
	for _, st := range order {
		r := st.result
		if r.Version == version {
			return fmt.Errorf("two changes made version %d", version)
		}
		if st.ended < began {
			return fmt.Errorf("version %d was over before an earlier version began", r.Version)
		}
		if r.Before != at {
			if r.Before != 0 || deletes[at] == 0 {
				return fmt.Errorf("version %d met %d, version %d left %d", r.Version, r.Before, version, at)
			}
			deletes[at]--
		}
		at, version, began = r.After, r.Version, max(began, st.began)
	}
	switch {
	case final.Exists && final.Version != version:
		return fmt.Errorf("the cell is at version %d, the last change made %d", final.Version, version)
	case !final.Exists && at != 0:
		if deletes[at] == 0 {
			return fmt.Errorf("the cell is gone, yet no delete met the %d that the last change left", at)
		}
		deletes[at]--
		at = 0
	}
	if final.N != at {
		return fmt.Errorf("the cell holds %d, the last change left %d", final.N, at)
	}
	for n, left := range deletes {
		if left > 0 {
			return fmt.Errorf("a delete met %d, which no change left to it", n)
		}
	}
	return nil
}
