package storetest

import (
	"fmt"
	"math"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// adds are the laws of stores with a short way for plain adds: they do what Apply
// would do, or nothing. Random histories have them too (see doAdds).
func adds(s *suite) {
	s.law("adds are decided each as if it came alone", func(k *kit) {
		adder, ok := k.store.(store.Adder)
		if !ok {
			return
		}
		f := func(from, n int64, times, taken uint32) {
			k.Helper()
			c := cell(fmt.Sprintf("from %d by %d", from, n))
			k.one(set(c, from))
			a := &store.Adds{Namespace: c.Namespace}
			appendAdd(a, c.Key, n, times)
			if !k.addAll(adder, a) {
				return
			}
			if got := a.Each[0]; got.Left || got.Before != from || got.Taken != taken {
				k.Fatalf("%d times %d to %d: %+v, want %d of them", times, n, from, got, taken)
			}
			k.holds(c, from+n*int64(taken))
		}
		f(0, 1, 1, 1)
		f(5, -1, 7, 7)
		f(5, 0, 3, 3)
		f(math.MaxInt64-2, 1, 2, 2)
		f(math.MaxInt64-2, 1, 5, 2)
		f(math.MaxInt64, 1, 5, 0)
		f(math.MinInt64+2, -1, 5, 2)
		f(math.MinInt64, math.MaxInt64, 3, 2)
		f(math.MaxInt64, math.MinInt64, 2, 1)
		f(-1<<62, 1<<62, 4, 2)
		f(0, 1<<31, math.MaxUint32>>8, math.MaxUint32>>8)
		k.audited()
	})

	s.law("adds are in order, whatever other adds come between", func(k *kit) {
		adder, ok := k.store.(store.Adder)
		if !ok {
			return
		}
		a := &store.Adds{Namespace: namespace}
		const keys, rounds = 100, 5
		for i := range keys {
			k.one(add(cell(fmt.Sprint(i)), 1))
		}
		for range rounds {
			for i := range keys {
				appendAdd(a, fmt.Sprint(i), int64(i), 2)
			}
		}
		if !k.addAll(adder, a) {
			return
		}
		for i := range a.Each {
			key, round := int64(i%keys), int64(i/keys)
			if got := &a.Each[i]; !got.Left && got.Before != 1+key*2*round {
				k.Fatalf("add %d: %+v, want %d before it", i, *got, 1+key*2*round)
			}
		}
	})

	s.law("an add that is marked to be left is left", func(k *kit) {
		adder, ok := k.store.(store.Adder)
		if !ok {
			return
		}
		for _, key := range []string{"a", "b", "c"} {
			k.one(add(cell(key), 1))
		}
		a := &store.Adds{Namespace: namespace}
		appendAdd(a, "a", 1, 1)
		appendAdd(a, "b", 1, 1)
		appendAdd(a, "c", 1, 1)
		a.Each[1].Left = true
		some := k.addAll(adder, a)
		for i, key := range []string{"a", "b", "c"} {
			n := int64(1)
			if some && !a.Each[i].Left {
				n++
			}
			k.holds(cell(key), n)
		}
		k.holds(cell("b"), 1)
	})

	s.law("adds that can't be taken are left to those that can say why", func(k *kit) {
		adder, ok := k.store.(store.Adder)
		if !ok {
			return
		}
		k.one(add(cell("a"), 1))
		f := func(why, namespace string, adds int) {
			k.Helper()
			a := &store.Adds{Namespace: namespace}
			for range adds {
				appendAdd(a, "a", 1, 1)
			}
			if adder.StartAdds(a, func(error) {}) {
				k.Fatalf("%s were taken", why)
			}
		}
		f("no adds", namespace, 0)
		f("adds to the store's own namespace", "", 1)
		f("adds to what is no namespace", "\xff", 1)
		k.holds(cell("a"), 1)
		k.close()
		f("adds to a closed store", namespace, 1)
	})

	if s.probe().Crash != nil {
		s.law("adds that are done are never lost", func(k *kit) {
			adder, ok := k.store.(store.Adder)
			if !ok {
				return
			}
			k.one(add(cell("a"), 1))
			a := &store.Adds{Namespace: namespace}
			appendAdd(a, "a", 3, 2)
			if k.addAll(adder, a) && !a.Each[0].Left {
				k.replace(k.inst.Crash(k.t))
				k.holds(cell("a"), 7)
				k.audited()
			}
		})
	}
}

// appendAdd adds an add.
func appendAdd(a *store.Adds, key string, n int64, times uint32) {
	a.Each = append(a.Each, store.Add{N: n, Key: uint32(len(a.Keys)), Times: times, Size: uint16(len(key))})
	a.Keys = append(a.Keys, key...)
}

// addAll gives adds to the store and waits until those that it takes are done. It
// reports whether it takes any.
func (k *kit) addAll(adder store.Adder, a *store.Adds) bool {
	k.Helper()
	told := make(chan error, 1)
	if !adder.StartAdds(a, func(err error) { told <- err }) {
		return false
	}
	adder.Flush(len(a.Each)%2 == 0)
	if err := <-told; err != nil {
		k.Fatalf("StartAdds: %v", err)
	}
	return true
}

// doAdds gives plain adds to the store, and what it leaves of them goes the other
// way. It shows all of it to the model.
func (m *machine) doAdds(r *rapid.T) {
	adder, ok := m.store.(store.Adder)
	if !ok {
		return
	}
	a := &store.Adds{Namespace: rapid.SampledFrom(someSpaces()).Draw(r, "namespace")}
	for range rapid.IntRange(1, 12).Draw(r, "adds") {
		appendAdd(a, rapid.SampledFrom(someKeys()).Draw(r, "key"),
			rapid.SampledFrom(someNumbers()).Draw(r, "n"), rapid.SampledFrom([]uint32{1, 1, 2, 3}).Draw(r, "times"))
	}
	m.tick()
	if !m.addAll(adder, a) {
		for i := range a.Each {
			a.Each[i].Left = true
		}
	}
	left, taken := map[store.Cell]bool{}, map[store.Cell]bool{}
	var rest []store.Delta
	for i := range a.Each {
		one := &a.Each[i]
		c := store.Cell{Namespace: a.Namespace, Key: string(a.KeyOf(one))}
		switch {
		case one.Left:
			left[c] = true
			for range one.Times {
				rest = append(rest, want(add(c, one.N)))
			}
		case left[c]:
			m.Fatalf("add %d, %+v, was taken after one to its cell that was left", i, *one)
		default:
			taken[c] = taken[c] || one.Taken > 0
			if err := m.model.added(c, one); err != nil {
				m.Fatalf("add %d, %+v: %v", i, *one, err)
			}
		}
	}
	for c, changed := range taken {
		if v := m.read(c).Version; changed && v <= m.model.cells[c].highest {
			m.Fatalf("%+v: version %d after %d", c, v, m.model.cells[c].highest)
		} else if changed {
			m.model.cells[c].Version, m.model.cells[c].highest = v, v
		}
	}
	for _, d := range rest {
		m.send(m.batch(d))
	}
}

// added takes what became of an add, each time as of a delta that wants its value.
func (m *model) added(c store.Cell, a *store.Add) error {
	for i := range a.Times {
		d, v := want(add(c, a.N)), m.value(c)
		old := v.N
		why := decide.Cell(&v, &d, m.nowMS, m.keysFull(c.Namespace, false)).Outcome
		if took := i < a.Taken; took != (why == store.Applied) || !took && why != store.Overflow {
			return fmt.Errorf("made the %d. time: %v, want %v", i+1, took, why)
		}
		if before := a.Before + a.N*int64(min(i, a.Taken)); before != old {
			return fmt.Errorf("%d before the %d. time, want %d", before, i+1, old)
		}
		if why != store.Applied {
			continue
		}
		if m.cells[c] == nil {
			m.cells[c] = &modelCell{}
		}
		m.cells[c].Value = v
	}
	return nil
}
