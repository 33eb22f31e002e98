package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// conditions are the laws of looking before changing: of a delta whether its
// cell exists, of a batch at which versions cells are, and of gets.
func conditions(s *suite) {
	s.law("a delta may depend on whether its cell exists", existence)

	s.law("a get sees what the deltas before it did", func(k *kit) {
		cs := k.together(2)
		c := cs[0]
		k.one(set(c, 3))
		rs := k.do(get(c), add(c, 4), get(c), get(cs[1]), set(cs[1], 0), get(cs[1]), del(c), get(c), add(c, 1), get(c))
		for i, want := range map[int]store.Result{
			0: {Outcome: store.Applied, Before: 3, After: 3, Existed: true, Version: rs[0].Version},
			2: {Outcome: store.Applied, Before: 7, After: 7, Existed: true, Version: rs[1].Version},
			3: {Outcome: store.Applied},
			5: {Outcome: store.Applied, Existed: true, Version: rs[4].Version},
			7: {Outcome: store.Applied},
			9: {Outcome: store.Applied, Before: 1, After: 1, Existed: true, Version: rs[8].Version},
		} {
			if rs[i] != want {
				k.Fatalf("get %d returns %+v, want %+v", i, rs[i], want)
			}
		}
		if rs[0].Version == 0 || rs[0].Version >= rs[1].Version {
			k.Fatalf("the first get sees version %d, the next change made %d", rs[0].Version, rs[1].Version)
		}
	})

	s.lawAt("a get changes nothing", store.Limits{KeysMax: 2}, func(k *kit, cl *clock) {
		cs, w := k.together(4), k.enlist()
		k.do(until(set(cs[0], 3), cl.ms()+9), set(cs[1], 0))
		was, deltas := k.readAll(cs...), k.deltas()
		blind := get(cs[0])
		blind.Want = false
		gets := []store.Delta{
			get(cs[0]), get(cs[1]), get(cs[2]), blind, match(get(cs[0]), was[0].Version), match(get(cs[2]), 0), only(get(cs[3]), store.ExistsNot),
		}
		for _, r := range append(k.do(gets...), k.reply(k.numbered(w, 0, 1, gets...)).Results...) {
			k.outcome(r, store.Applied) // full or not
		}
		k.outcome(k.one(match(get(cs[0]), was[0].Version+1)), store.Changed)
		for i, now := range k.readAll(cs...) {
			if now != was[i] {
				k.Fatalf("gets changed %q from %+v to %+v", cs[i].Key, was[i], now)
			}
		}
		if now := k.deltas(); now != deltas && !k.inst.Probes {
			k.Fatalf("gets were counted as changes: %d, then %d", deltas, now)
		}
		k.sized(namespace, 2, 2)
		k.audited()
	})

	s.law("a batch is decided if all its conditions hold", func(k *kit) {
		cs := k.together(4)
		a, b, absent, target := cs[0], cs[1], cs[2], cs[3]
		va, vb := k.one(set(a, 1)).Version, k.one(set(b, 1)).Version
		holds := func() store.Batch {
			batch := k.batch(want(add(target, 1)), want(add(a, 1)), once(add(b, 1), "t"))
			return given(given(given(batch, a, va), b, vb), absent, 0)
		}
		for i, broken := range []store.Batch{
			given(holds(), a, 0), given(holds(), a, va+1), given(holds(), b, va), given(holds(), absent, 1), given(holds(), target, 5),
			given(k.batch(want(add(target, 1)), settle(target, "s")), absent, va),
		} {
			rs := k.apply(k.batch(want(get(a))), broken, k.batch(want(get(b))))
			k.kind(rs[1].Err, store.KindChanged)
			if len(rs[1].Results) != 0 || rs[1].Replayed || rs[1].Mark != 0 {
				k.Fatalf("batch %d was refused with %+v", i, rs[1])
			}
			if rs[0].Err != nil || rs[2].Err != nil {
				k.Fatalf("neighbours of batch %d: %v, %v", i, rs[0].Err, rs[2].Err)
			}
			vs := k.readAll(a, b)
			if vs[0].Version != va || vs[1].Version != vb {
				k.Fatalf("refused batch %d changed the cells to %+v", i, vs)
			}
			k.absent(target)
			k.state(b, "t", store.TokenUnknown)
			k.state(target, "s", store.TokenUnknown)
		}
		// A condition is on the state before the batch, also on cells it changes.
		r := k.reply(given(holds(), target, 0))
		k.applied(r.Results[0], 0, 1)
		k.applied(r.Results[1], 1, 2)
		k.refused(holds(), store.KindChanged)
		k.holds(target, 1)

		// A delta that is refused refuses no batch.
		r = k.reply(given(k.batch(match(add(target, 1), 0), want(add(a, 1))), absent, 0))
		k.outcome(r.Results[0], store.Changed)
		k.applied(r.Results[1], 2, 3)

		// Conditions alone are fine.
		alone := given(store.Batch{Partition: k.home(a)}, absent, 0)
		k.reply(alone)
		k.refused(given(alone, a, va), store.KindChanged)
		k.absent(absent)
	})

	s.law("a condition meets the batches before it in the call", func(k *kit) {
		cs := k.together(2)
		rs := k.apply(
			given(k.batch(add(cs[0], 1)), cs[0], 0),
			given(k.batch(add(cs[0], 1)), cs[0], 0),
			given(k.batch(add(cs[1], 1)), cs[1], 0),
			k.batch(del(cs[0])),
			given(k.batch(want(add(cs[0], 1))), cs[0], 0),
		)
		for i, r := range rs {
			if i == 1 {
				k.kind(r.Err, store.KindChanged)
			} else if r.Err != nil {
				k.Fatalf("batch %d: %v", i, r.Err)
			}
		}
		k.applied(rs[4].Results[0], 0, 1)
	})

	s.law("a batch refused by a condition does not move the mark", conditionsAndMarks)

	s.law("of racing batches on one condition one applies", func(k *kit) {
		cs := k.together(2)
		key, sum := cs[0], cs[1]
		k.one(add(key, 0))
		for i := range int64(40) {
			v := k.read(key)
			var won atomic.Int64
			k.parallel(4, func(g int) error {
				b := given(k.batch(add(sum, 1), set(key, i)), key, v.Version)
				if g%2 == 1 { // a change between the look and the batch is a race too
					b = given(b, sum, k.versionOf(sum))
				}
				_, err := k.try(b)
				switch {
				case err == nil:
					won.Add(1)
				case store.KindOf(err) != store.KindChanged:
					return err
				}
				return nil
			})
			if won.Load() != 1 {
				k.Fatalf("%d of the racing batches applied", won.Load())
			}
			k.holds(sum, i+1)
		}
	})

	s.law("what is moved on a condition is neither lost nor made", func(k *kit) {
		cs := k.together(2)
		k.do(set(cs[0], 100), set(cs[1], 0))
		k.parallel(4, func(g int) error {
			vs := make([]store.Value, 2)
			moved := 0
			for range 100_000 {
				if moved == 25 {
					return nil
				}
				if err := k.store.Read(k.ctx, cs, vs); err != nil {
					return err
				}
				b := given(given(k.batch(set(cs[0], vs[0].N-1), set(cs[1], vs[1].N+1)), cs[0], vs[0].Version), cs[1], vs[1].Version)
				_, err := k.try(b)
				switch {
				case err == nil:
					moved++
				case store.KindOf(err) != store.KindChanged:
					return fmt.Errorf("caller %d: %w", g, err)
				}
			}
			return fmt.Errorf("caller %d moved %d of 25, and then never again", g, moved)
		})
		k.holds(cs[0], 0)
		k.holds(cs[1], 100)
	})
}

// versionOf returns the version of a cell, for goroutines: 0 also if it can't
// be read.
func (k *kit) versionOf(c store.Cell) uint64 {
	vs := make([]store.Value, 1)
	if err := k.store.Read(k.ctx, []store.Cell{c}, vs); err != nil {
		k.Errorf("Read: %v", err)
	}
	return vs[0].Version
}

// deltas returns how many changes the store has counted, 0 if it does not.
func (k *kit) deltas() uint64 {
	k.Helper()
	a, ok := k.store.(store.Auditor)
	if !ok {
		return 0
	}
	found, err := a.Audit(k.ctx)
	if err != nil {
		k.Fatalf("Audit: %v", err)
	}
	return found.Deltas
}

func existence(k *kit) {
	c := cell("a")
	for _, exists := range []bool{true, false} {
		for _, must := range []store.Existence{store.ExistsAny, store.ExistsMust, store.ExistsNot} {
			for _, d := range []store.Delta{add(c, 2), set(c, 9), del(c), get(c), within(add(c, 2), store.Bound{High: 9})} {
				k.one(del(c))
				if exists {
					k.one(set(c, 5))
				}
				was := k.read(c)
				met := must == store.ExistsAny || (must == store.ExistsMust) == exists
				r := k.one(want(only(d, must)))
				if met {
					k.outcome(r, store.Applied)
					if r.Existed != exists || r.Before != was.N {
						k.Fatalf("%+v of %+v returns %+v", d, was, r)
					}
					continue
				}
				k.told(r, store.Result{Outcome: store.Unmet, Before: was.N, After: was.N, Existed: exists})
				if d.Op != store.OpGet {
					k.outcome(k.one(once(only(d, must), "t")), store.Unmet)
					k.state(c, "t", store.TokenUnknown)
				}
				if now := k.read(c); now != was {
					k.Fatalf("%+v was refused, and the cell went from %+v to %+v", d, was, now)
				}
			}
		}
	}
	// The deltas of one batch meet what the ones before left.
	k.one(del(c))
	rs := k.do(only(set(c, 1), store.ExistsMust), only(set(c, 2), store.ExistsNot), only(set(c, 3), store.ExistsNot),
		only(want(set(c, 4)), store.ExistsMust), only(del(c), store.ExistsMust), only(del(c), store.ExistsMust))
	for i, o := range []store.Outcome{store.Unmet, store.Applied, store.Unmet, store.Applied, store.Applied, store.Unmet} {
		k.outcome(rs[i], o)
	}
	k.applied(rs[3], 2, 4)
	k.absent(c)

	// An expire needs a cell, so it can't ask for none.
	rs = k.do(only(expire(c, store.ExpirySet, 1), store.ExistsNot), set(c, 1),
		only(expire(c, store.ExpirySet, 1), store.ExistsNot), only(expire(c, store.ExpirySet, 1), store.ExistsMust))
	for i, o := range []store.Outcome{store.Unmet, store.Applied, store.Unmet, store.Applied} {
		k.outcome(rs[i], o)
	}
	k.absent(c)

	// A repeat is judged by its token alone, and the version before existence.
	d := only(once(add(c, 1), "t"), store.ExistsNot)
	first := k.one(d)
	k.applied(first, 0, 1)
	k.repeats(k.one(d), first)
	k.outcome(k.one(match(only(add(c, 1), store.ExistsNot), first.Version+1)), store.Changed)
	k.outcome(k.one(match(only(add(c, 1), store.ExistsNot), first.Version)), store.Unmet)
	k.holds(c, 1)
}

func conditionsAndMarks(k *kit) {
	cs := k.together(2)
	c, guard := cs[0], cs[1]
	w, late := k.enlist(), k.enlist()
	k.reply(k.numbered(w, 0, 3, add(c, 1)))
	blocked := given(k.numbered(w, 3, 5, want(add(c, 1))), guard, 0)
	k.one(set(guard, 1))
	for range 2 {
		if r := k.refused(blocked, store.KindChanged); r.Mark != 3 || len(r.Results) != 0 || r.Replayed {
			k.Fatalf("refused with %+v, the mark is 3", r)
		}
	}
	k.holds(c, 1)
	// Its numbers are free: for the same batch, now that the condition holds.
	k.one(del(guard))
	first := k.reply(blocked)
	if first.Mark != 5 || first.Replayed {
		k.Fatalf("reply %+v, want mark 5", first)
	}
	k.applied(first.Results[0], 1, 2)
	// Applied once, it is repeated whatever the condition.
	k.one(set(guard, 1))
	k.repeatsBatch(k.reply(blocked), first)
	// Other conditions make another batch, and the mark is judged first.
	for _, other := range []store.Batch{
		k.numbered(w, 3, 5, want(add(c, 1))),
		given(k.numbered(w, 3, 5, want(add(c, 1))), guard, 1),
		given(k.numbered(w, 3, 5, want(add(c, 1))), c, 0),
		given(blocked, guard, 0),
		given(k.numbered(w, 4, 6, add(c, 1)), guard, 99),
	} {
		if r := k.refused(other, store.KindMark); r.Mark != 5 {
			k.Fatalf("mark %d, want 5", r.Mark)
		}
	}
	// Or for another batch with the same numbers.
	k.refused(given(k.numbered(w, 5, 6, add(c, 1)), guard, 0), store.KindChanged)
	k.reply(k.numbered(w, 5, 6, add(c, 10)))
	k.holds(c, 12)

	// A writer that was only refused has no mark.
	if r := k.refused(given(k.numbered(late, 0, 1, add(c, 1)), guard, 0), store.KindChanged); r.Mark != 0 {
		k.Fatalf("mark %d, want 0", r.Mark)
	}
	if r := k.refused(k.numbered(late, 1, 2, add(c, 1)), store.KindMark); r.Mark != 0 {
		k.Fatalf("mark %d, want 0", r.Mark)
	}
	k.reply(k.numbered(late, 0, 1, add(c, 1)))
	k.holds(c, 13)
}
