package storetest

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// takeIn is a merge of items into the sketch that a key is.
func takeIn(c store.Cell, items ...string) store.Delta {
	return want(into(c, store.Object, asking(precise, items...)))
}

var (
	partPiece   = partOf(store.PartSketch, 0, "piece")
	secondPiece = partOf(store.PartSketch, 1, "piece")
)

// heldSketches are the laws of keys that hold sketches.
func heldSketches(s *suite) {
	s.law("a merge makes a key a sketch, and changes it", func(k *kit) {
		c := cell("a")
		r := k.one(takeIn(c, "eve"))
		k.told(r, store.Result{Outcome: store.Applied, Before: 1, After: 1})
		at := k.object(c, sketchOf("eve")).Version
		if r.Version != at {
			k.Fatalf("version %d, and the key has %d", r.Version, at)
		}
		k.told(k.one(takeIn(c, "bob")), store.Result{Outcome: store.Applied, Before: 1, After: 1, Existed: true})
		if now := k.object(c, sketchOf("bob", "eve")).Version; now <= at {
			k.Fatalf("version %d after %d", now, at)
		}
		k.one(put(c, "text"))
		k.one(put(c, ""))
		k.told(k.one(takeIn(c, "eve")), store.Result{Outcome: store.Applied, Before: 1, After: 1, Existed: true})
		k.object(c, sketchOf("eve"))
		k.one(count(c, 5))
		k.partAbsent(c, store.Object)
		k.holds(c, 5)
		k.one(del(c))
		k.one(takeIn(c))
		k.object(c, sketchOf())
		k.audited()
	})
	s.law("a merge that changes nothing leaves a key as it is", func(k *kit) {
		c := cell("a")
		k.one(takeIn(c, "eve", "bob"))
		was := k.object(c, sketchOf("eve", "bob"))
		for _, d := range []store.Delta{takeIn(c, "eve"), takeIn(c), takeIn(c, "bob", "eve"), match(takeIn(c, "bob"), was.Version)} {
			r := k.one(d)
			k.told(r, store.Result{Outcome: store.Applied, Existed: true})
			if now := k.object(c, sketchOf("eve", "bob")); now != was || r.Version != was.Version {
				k.Fatalf("%+v and result %+v, want version %d", now, r, was.Version)
			}
		}
		k.audited()
	})
	s.law("a merge into what is no sketch is refused", func(k *kit) {
		c := cell("a")
		for _, d := range []store.Delta{add(c, 7), put(c, "text"), takeIn(c, "eve")} {
			k.one(d)
			was, bytes := k.read(c), k.part(c, store.Object)
			bad := want(into(c, store.Object, []byte("no request")))
			if d.Op != store.OpMerge {
				bad = takeIn(c, "bob")
			}
			r := k.one(bad)
			k.told(r, store.Result{Outcome: store.Unmet, Before: bytes.N, After: bytes.N, Existed: true})
			if now := k.read(c); now != was || k.part(c, store.Object) != bytes {
				k.Fatalf("a refused merge made %+v of %+v", now, was)
			}
			k.one(del(c))
		}
		k.outcome(k.one(into(c, store.Object, nil)), store.Unmet)
		k.absent(c)
		k.partAbsent(c, store.Object)
	})
	s.law("a merge into a key has conditions", func(k *kit) {
		c := cell("a")
		k.outcome(k.one(only(takeIn(c, "eve"), store.ExistsMust)), store.Unmet)
		k.outcome(k.one(only(takeIn(c, "eve"), store.ExistsNot)), store.Applied)
		k.outcome(k.one(only(takeIn(c, "bob"), store.ExistsNot)), store.Unmet)
		at := k.object(c, sketchOf("eve"))
		k.outcome(k.one(match(takeIn(c, "bob"), at.Version+1)), store.Changed)
		is := takeIn(c, "bob")
		is.Event.Is = store.Met{Kind: store.MetEqual, N: content(sketchOf("eve")).N + 1}
		k.outcome(k.one(is), store.Unmet)
		is.Event.Is.N--
		k.outcome(k.one(is), store.Applied)
		k.outcome(k.one(is), store.Unmet)
		k.outcome(k.one(match(takeIn(c, "ann"), k.read(c).Version)), store.Applied)
		k.object(c, sketchOf("eve", "bob", "ann"))
	})
	s.law("a merge into a key with a token is made once", func(k *kit) {
		c := cell("a")
		d := once(takeIn(c, "eve"), "t")
		first := k.one(d)
		k.one(takeIn(c, "bob"))
		again := k.one(d)
		if !again.Replayed || again.Before != first.Before || again.Version != first.Version {
			k.Fatalf("%+v, and again %+v", first, again)
		}
		k.object(c, sketchOf("eve", "bob"))
	})
	s.lawAt("a sketch ends as other keys do", store.Limits{KeysMax: 2}, func(k *kit, cl *clock) {
		cs := k.together(3)
		c, ms := cs[0], cl.ms()+10
		k.one(until(takeIn(c, "eve"), ms))
		k.objectUntil(c, sketchOf("eve"), ms)
		k.told(k.one(takeIn(c, "bob")), store.Result{Outcome: store.Applied, Before: 1, After: 1, Existed: true, DeadlineMS: ms})
		was := k.objectUntil(c, sketchOf("eve", "bob"), ms)
		k.told(k.one(until(takeIn(c, "bob"), ms+10)), store.Result{Outcome: store.Applied, Existed: true, DeadlineMS: ms + 10})
		if now := k.objectUntil(c, sketchOf("eve", "bob"), ms+10); now.Version <= was.Version {
			k.Fatalf("version %d after %d", now.Version, was.Version)
		}
		k.one(add(cs[1], 1))
		k.outcome(k.one(takeIn(cs[2], "x")), store.Full)
		cl.move(20 * time.Millisecond)
		k.absent(c)
		k.told(k.one(takeIn(c, "ann")), store.Result{Outcome: store.Applied, Before: 1, After: 1})
		k.object(c, sketchOf("ann"))
		k.one(until(takeIn(c, "eve"), 1))
		k.absent(c)
		k.partAbsent(c, store.Object)
		k.audited()
	})
	s.law("pieces ride on what a key holds", func(k *kit) {
		c := cell("a")
		eve, bob := asking(precise, "eve"), asking(precise, "bob")
		ride := func(p store.Part, bytes []byte) store.Rider {
			return store.Rider{Part: p, Op: store.OpMerge, Bytes: bytes}
		}
		head := put(c, "head")
		head.Event.Riders = []store.Rider{ride(partPiece, eve), ride(secondPiece, bob)}
		k.outcome(k.one(head), store.Applied)
		k.object(c, "head")
		k.sketchIs(c, partPiece, sketchOf("eve"))
		k.sketchIs(c, secondPiece, sketchOf("bob"))
		head.Event.Riders = []store.Rider{ride(partPiece, bob), {Part: secondPiece, Op: store.OpDelete}}
		head.Event.Is = store.Met{Kind: store.MetEqual, N: content("other").N}
		k.outcome(k.one(head), store.Unmet)
		k.sketchIs(c, partPiece, sketchOf("eve"))
		head.Event.Is.N = content("head").N
		k.outcome(k.one(head), store.Applied)
		k.sketchIs(c, partPiece, sketchOf("eve", "bob"))
		k.partAbsent(c, secondPiece)
		bad := head
		bad.Event = &store.Event{Part: store.Object, Bytes: []byte("head"), Riders: []store.Rider{ride(secondPiece, eve), ride(partPiece, []byte("no request"))}}
		if r := k.one(bad); r.Outcome != store.Unmet || r.Refused != 2 {
			k.Fatalf("result %+v, want rider 2 to refuse", r)
		}
		k.partAbsent(c, secondPiece)
		k.one(del(c))
		k.sketchIs(c, partPiece, sketchOf("eve", "bob")) // nobody has taken it away
		gone := until(count(c, 0), 1)
		gone.Event.Riders = []store.Rider{{Part: partPiece, Op: store.OpDelete}}
		k.outcome(k.one(gone), store.Applied)
		k.absent(c)
		k.partAbsent(c, partPiece)
		k.audited()
	})
	for name, open := range s.again() {
		s.law("a sketch is kept by a store that is "+name, func(k *kit) {
			cs := k.together(3)
			k.one(takeIn(cs[0], "eve"))
			k.one(takeIn(cs[0], "bob"))
			k.one(lasting(takeIn(cs[1], "eve"), 1<<40))
			k.one(put(cs[2], "text"))
			k.one(del(cs[2]))
			k.one(takeIn(cs[2], "ann"))
			at := k.read(cs[1])
			open(k)
			k.object(cs[0], sketchOf("eve", "bob"))
			k.objectUntil(cs[1], sketchOf("eve"), at.DeadlineMS)
			k.object(cs[2], sketchOf("ann"))
			open(k)
			k.told(k.one(takeIn(cs[0], "eve")), store.Result{Outcome: store.Applied, Existed: true})
			k.told(k.one(takeIn(cs[1], "ann")), store.Result{Outcome: store.Applied, Before: 1, After: 1, Existed: true, DeadlineMS: at.DeadlineMS})
			open(k)
			k.object(cs[0], sketchOf("eve", "bob"))
			k.objectUntil(cs[1], sketchOf("eve", "ann"), at.DeadlineMS)
			k.audited()
		})
		s.lawAt("a merge after the end of a key begins anew in a store that is "+name, store.Limits{}, func(k *kit, cl *clock) {
			c := cell("a")
			k.one(until(takeIn(c, "old"), cl.ms()+10))
			open(k)
			cl.move(10 * time.Millisecond)
			k.one(takeIn(c, "new"))
			k.object(c, sketchOf("new"))
			open(k)
			k.object(c, sketchOf("new"))
			k.audited()
		})
	}
}
