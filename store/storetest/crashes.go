package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// crashes are the laws of losing power while calls are made. The crash in the
// middle of concurrent calls is in histories.
func crashes(s *suite) {
	s.law("a crash loses whole batches or nothing of them", func(k *kit) {
		cs, w := k.together(2), k.enlist()
		for _, d := range []store.Durability{store.Memory, store.Written, store.Synced} {
			crashTorn(k, cs, w, d)
		}
	})

	s.law("a crash keeps a beginning of what a partition did", func(k *kit) {
		c := cell("a")
		const writes = 30
		for i := range writes {
			b := k.batch(once(add(c, 1), fmt.Sprint(i)))
			b.Durability = store.Memory
			k.reply(b)
		}
		k.replace(k.inst.Crash(k.t))
		at := k.read(c).N
		for i := range int64(writes) {
			f := k.lookup(c, fmt.Sprint(i))
			if kept := f.State == store.TokenApplied; kept != (i < at) || (kept && f.Result.After != i+1) {
				k.Fatalf("the cell holds %d, and write %d is %+v", at, i, f)
			}
		}
	})

	s.law("what was acknowledged as synced is never lost", func(k *kit) {
		c, sum := cell("a"), int64(0)
		for i := range 20 {
			b := k.batch(once(add(c, 1), fmt.Sprint(i)))
			b.Durability = store.Durability(i % 4)
			r := k.reply(b)
			if r.Durability == store.Synced {
				sum = k.read(c).N // it, and what it was built on
			}
			if i%5 == 4 {
				k.replace(k.inst.Crash(k.t))
				if n := k.read(c).N; n < sum {
					k.Fatalf("the cell holds %d, %d was acknowledged as synced", n, sum)
				}
			}
		}
		for i := range 20 {
			k.outcome(k.one(once(add(c, 1), fmt.Sprint(i))), store.Applied)
		}
		k.holds(c, 20)
	})

	s.law("what was started and done is never lost, and the rest is a beginning", crashStarted)

	s.law("after a crash at once the store is empty and works", func(k *kit) {
		k.replace(k.inst.Crash(k.t))
		k.replace(k.inst.Crash(k.t))
		k.listed(k.scan(store.Range{Namespace: namespace}, 10), nil)
		k.applied(k.one(want(add(cell("a"), 1))), 0, 1)
	})
}

// crashTorn writes numbered batches with a durability that a crash may undo,
// crashes, and checks that cells, tokens and mark stopped at one batch. Then
// it sends the rest again.
func crashTorn(k *kit, cs []store.Cell, w store.Writer, d store.Durability) {
	k.Helper()
	const batches = 30
	start := k.readAll(cs...)[0].N
	made := func(i int64) store.Batch {
		b := k.numbered(w, uint64(i), uint64(i+1), add(cs[0], 1), add(cs[1], -1), once(add(cs[0], 0), fmt.Sprint("t", i)))
		b.Durability = d
		return b
	}
	safe := start
	for i := start; i < start+batches; i++ {
		if k.reply(made(i)).Durability == store.Synced {
			safe = i + 1
		}
	}
	k.replace(k.inst.Crash(k.t))

	vs := k.readAll(cs...)
	at := vs[0].N
	if at != -vs[1].N {
		k.Fatalf("half a batch survived: %+v", vs)
	}
	if at < safe || at > start+batches {
		k.Fatalf("batches asked to be %v: at %d after the crash, %d was synced, %d sent", d, at, safe, start+batches)
	}
	probe := k.numbered(w, 1<<40, 1<<40+1)
	probe.Partition = k.home(cs[0])
	if r := k.refused(probe, store.KindMark); r.Mark != uint64(at) {
		k.Fatalf("the mark is %d, the cells are at %d", r.Mark, at)
	}
	for i := start; i < start+batches; i++ {
		state := store.TokenUnknown
		if i < at {
			state = store.TokenApplied
		}
		k.state(cs[0], fmt.Sprint("t", i), state)
	}
	for i := at; i < start+batches; i++ {
		b := made(i)
		b.Durability = store.Synced
		k.reply(b)
	}
	k.holds(cs[0], start+batches)
	k.holds(cs[1], -start-batches)
}

// crashStarted starts many writes without waiting for them and crashes when
// half of them are done.
func crashStarted(k *kit) {
	st, ok := k.store.(store.Starter)
	if !ok {
		return
	}
	c := cell("a")
	const writes = 40
	var safe atomic.Int64
	half := make(chan struct{})
	for i := range int64(writes) {
		b := k.batch(once(add(c, 1), fmt.Sprint(i)))
		b.Durability = store.Synced
		done := func(err error) {
			if err == nil && safe.Add(1) == writes/2 {
				close(half)
			}
		}
		if !st.Start([]store.Batch{b}, make([]store.Reply, 1), done) {
			k.reply(b)
			done(nil)
		}
		if i == writes/2 {
			st.Flush(false)
		}
	}
	<-half
	least := safe.Load()
	k.replace(k.inst.Crash(k.t))
	at := int64(0)
	for at < writes && k.lookup(c, fmt.Sprint(at)).State == store.TokenApplied {
		at++
	}
	if at < least {
		k.Fatalf("%d writes were done, %d are kept", least, at)
	}
	k.holds(c, at)
	for i := range writes {
		k.outcome(k.one(once(add(c, 1), fmt.Sprint(i))), store.Applied)
	}
	k.holds(c, writes)
}
