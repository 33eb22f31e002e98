package storetest

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// starts are the laws of stores for callers that can't wait: Start is Apply,
// and Peek is Read, or they do nothing.
func starts(s *suite) {
	s.law("what is started replies as what is applied", func(k *kit) {
		c, other, w := cell("a"), cell("b"), k.enlist()
		version := uint64(0)
		for i, f := range []func(c store.Cell) store.Batch{
			func(c store.Cell) store.Batch { return k.batch(want(add(c, 5)), once(add(c, 1), "t"), get(c)) },
			func(c store.Cell) store.Batch {
				return k.batch(once(add(c, 1), "t"), match(add(c, 1), 0), want(del(c)))
			},
			func(c store.Cell) store.Batch { return given(k.batch(want(set(c, 9))), c, 0) },
			func(c store.Cell) store.Batch { return given(k.batch(want(set(c, 9))), c, 0) },
			func(c store.Cell) store.Batch { return k.batch(add(c, 1), add(cell(""), 1)) },
		} {
			started, applied := k.start(f(c))[0], k.apply(f(other))[0]
			if store.KindOf(started.Err) != store.KindOf(applied.Err) || len(started.Results) != len(applied.Results) {
				k.Fatalf("batch %d: started %+v, applied %+v", i, started, applied)
			}
			for j, r := range started.Results {
				version, r.Version = max(version, r.Version), applied.Results[j].Version
				if r != applied.Results[j] {
					k.Fatalf("batch %d, delta %d: started %+v, applied %+v", i, j, r, applied.Results[j])
				}
			}
		}
		if v := k.read(c); v.N != 9 || v.Version != version {
			k.Fatalf("the cell reads %+v, its last change made version %d", v, version)
		}

		b := k.numbered(w, 0, 2, want(add(c, 1)))
		first := k.start(b)[0]
		k.repeatsBatch(k.start(b)[0], first)
		k.repeatsBatch(k.reply(b), first)
		k.kind(k.start(k.numbered(w, 1, 2, add(c, 1)))[0].Err, store.KindMark)
		k.holds(c, 10)
	})

	s.law("one start carries many batches, in their order", func(k *kit) {
		cs := k.together(2)
		for i, r := range k.start(k.batch(want(add(cs[0], 1))), k.batch(want(add(cs[0], 1))), k.batch(want(add(cs[0], 1)))) {
			k.applied(r.Results[0], int64(i), int64(i+1))
		}
		k.start()
		k.absent(cs[1])
	})

	s.law("the replies of a start are there when it returns, and done is told once", func(k *kit) {
		st, ok := k.store.(store.Starter)
		if !ok {
			return
		}
		c := cell("a")
		const calls = 50
		told := make(chan error, 2*calls)
		begun := int64(0)
		for range calls {
			bs, replies := []store.Batch{k.batch(want(add(c, 1)))}, make([]store.Reply, 1)
			if !st.Start(bs, replies, func(err error) { told <- err }) {
				k.one(add(c, 1))
				continue
			}
			begun++
			if begun%7 == 0 {
				st.Flush(begun%2 == 0)
			}
			clear(bs[0].Deltas) // the store needs it no more
			k.applied(replies[0].Results[0], replies[0].Results[0].After-1, replies[0].Results[0].After)
		}
		st.Flush(true)
		for range begun {
			if err := <-told; err != nil {
				k.Fatalf("done was told %v", err)
			}
		}
		st.Flush(true) // of nothing
		k.holds(c, calls)
		k.close()
		st.Flush(true)
		for range calls {
			runtime.Gosched() // whoever would tell it again may
		}
		if len(told) != 0 {
			k.Fatalf("done was told %d times too often", len(told))
		}
	})

	s.law("Close waits for what was started", func(k *kit) {
		st, ok := k.store.(store.Starter)
		if !ok {
			return
		}
		c := cell("a")
		const calls = 20
		told := make(chan error, 2*calls)
		for range calls {
			b := []store.Batch{k.batch(add(c, 1))}
			if !st.Start(b, make([]store.Reply, 1), func(err error) { told <- err }) {
				told <- k.store.Apply(k.ctx, b, make([]store.Reply, 1))
			}
		}
		k.close()
		for range calls {
			if err := <-told; err != nil {
				k.Fatalf("started before Close, and done was told %v", err)
			}
		}
		if k.inst.Reopen != nil {
			k.replace(k.inst.Reopen(k.t))
			k.holds(c, calls)
		}
	})

	s.law("what is done is seen", func(k *kit) {
		c := cell("a")
		st, ok := k.store.(store.Starter)
		if !ok {
			return
		}
		var acked atomic.Int64
		const calls = 200
		k.parallel(3, func(g int) error {
			if g == 0 {
				told := make(chan error, 2*calls)
				done := func(err error) {
					acked.Add(1)
					runtime.Gosched() // to those who look
					told <- err
				}
				for range calls {
					b := []store.Batch{k.batch(add(c, 1))}
					if !st.Start(b, make([]store.Reply, 1), done) {
						done(k.store.Apply(k.ctx, b, make([]store.Reply, 1)))
					}
					st.Flush(acked.Load()%2 == 0)
					if err := <-told; err != nil {
						return err
					}
				}
				return nil
			}
			last := store.Value{}
			for acked.Load() < calls {
				floor := acked.Load()
				vs := k.peeked(c)
				if vs == nil {
					vs = make([]store.Value, 1)
					if err := k.store.Read(k.ctx, []store.Cell{c}, vs); err != nil {
						return err
					}
				}
				if vs[0].N < floor || vs[0].N < last.N || vs[0].Version < last.Version {
					return fmt.Errorf("peeked %+v after %+v, when %d was done", vs[0], last, floor)
				}
				last = vs[0]
			}
			return nil
		})
		k.holds(c, calls)
	})

	s.lawAt("a peek agrees with a read", store.Limits{}, func(k *kit, cl *clock) {
		cs := append(k.apart(), cell("absent"), cell("gone"), cell("expired"))
		for i, c := range k.apart() {
			k.one(until(set(c, int64(i)), cl.ms()+int64(i+2)))
		}
		k.one(add(cell("gone"), 1))
		k.one(del(cell("gone")))
		k.one(until(add(cell("expired"), 1), cl.ms()+1))
		for range 4 {
			peeked := k.peeked(cs...)
			for i, v := range k.readAll(cs...) {
				if peeked != nil && peeked[i] != v {
					k.Fatalf("%q peeks %+v, reads %+v", cs[i].Key, peeked[i], v)
				}
			}
			cl.move(1e6)
		}
	})

	s.law("a bad peek or start is left to those that can say why", func(k *kit) {
		st, ok := k.store.(store.Starter)
		if !ok {
			return
		}
		c := cell("a")
		bad := func(name string, cells []store.Cell, n int) {
			k.Helper()
			if st.Peek(cells, make([]store.Value, n)) {
				k.Fatalf("a peek that is %s was served", name)
			}
		}
		bad("of more cells than values", []store.Cell{c}, 0)
		bad("of fewer cells than values", nil, 1)
		bad("of no key", []store.Cell{cell("")}, 1)
		bad("too large", make([]store.Cell, store.ReadCellsMax+1), store.ReadCellsMax+1)
		start := func(kind store.Kind) {
			k.Helper()
			told := make(chan error, 2)
			if st.Start([]store.Batch{k.batch(add(c, 1))}, nil, func(err error) { told <- err }) {
				if err := <-told; store.KindOf(err) != kind {
					k.Fatalf("done was told %v, want an error of kind %d", err, kind)
				}
			}
			if len(told) != 0 {
				k.Fatalf("done was told again")
			}
		}
		start(store.KindInvalid)
		k.absent(c)
		k.close()
		bad("of a closed store", []store.Cell{c}, 1)
		told := make(chan error, 2)
		if st.Start([]store.Batch{k.batch(add(c, 1))}, make([]store.Reply, 1), func(err error) { told <- err }) {
			k.kind(<-told, store.KindClosed)
		}
		if len(told) != 0 {
			k.Fatalf("done was told without a start, or again")
		}
	})

	s.lawAt("size is the number of keys", store.Limits{}, func(k *kit, cl *clock) {
		k.sized(namespace, 0, 0)
		for i := range 5 {
			k.one(add(cell(fmt.Sprint(i)), 1))
			k.one(add(cell(fmt.Sprint(i)), 1))
			k.sized(namespace, int64(i+1), int64(i+1))
		}
		k.one(add(store.Cell{Namespace: "other", Key: "a"}, 1))
		k.one(settle(cell("settled"), "t"))
		k.one(get(cell("got")))
		k.sized(namespace, 5, 5)
		k.sized("other", 1, 1)
		k.one(del(cell("0")))
		k.one(del(cell("0")))
		k.sized(namespace, 4, 4)
		k.one(until(add(cell("1"), 1), cl.ms()+1))
		k.sized(namespace, 4, 4)
		cl.move(1e6)
		k.sized(namespace, 3, 4)
		k.one(add(cell("1"), 1))
		k.sized(namespace, 4, 4)
		k.one(until(add(cell("2"), 1), cl.ms()))
		k.one(until(add(cell("never"), 1), cl.ms()))
		k.sized(namespace, 3, 3)
	})
}

// sized checks the size of a namespace, if the store knows it.
func (k *kit) sized(ns string, least, most int64) {
	k.Helper()
	s, ok := k.store.(store.Sizer)
	if !ok {
		return
	}
	n, err := s.Size(k.ctx, ns)
	if err != nil {
		k.Fatalf("Size: %v", err)
	}
	if n < least || n > most {
		k.Fatalf("size of %q is %d, want %d to %d", ns, n, least, most)
	}
}

// start applies batches in one call, by Start if the store can.
func (k *kit) start(bs ...store.Batch) []store.Reply {
	k.Helper()
	if replies := k.started(bs...); replies != nil {
		return replies
	}
	return k.apply(bs...)
}

// started applies batches by Start and waits until they are done. It returns
// nil if the store can't, or can't now.
func (k *kit) started(bs ...store.Batch) []store.Reply {
	k.Helper()
	st, ok := k.store.(store.Starter)
	if !ok {
		return nil
	}
	replies := make([]store.Reply, len(bs))
	told := make(chan error, 1)
	if !st.Start(bs, replies, func(err error) { told <- err }) {
		return nil
	}
	st.Flush(len(bs)%2 == 0)
	if err := <-told; err != nil {
		k.Errorf("Start: %v", err)
	}
	return replies
}

// peeked returns what a peek at cells says, nil if the store can't, or can't
// now.
func (k *kit) peeked(cs ...store.Cell) []store.Value {
	st, ok := k.store.(store.Starter)
	if !ok {
		return nil
	}
	vs := make([]store.Value, len(cs))
	for i := range vs {
		vs[i] = store.Value{N: -77, Version: 77, Exists: true, DeadlineMS: 7} // to be overwritten
	}
	if !st.Peek(cs, vs) {
		return nil
	}
	return vs
}
