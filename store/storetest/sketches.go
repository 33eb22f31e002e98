package storetest

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

var (
	partSketch       = partOf(store.PartSketch, 0, "")
	partWindowSketch = partOf(store.PartWindowSketch, 60_000, "")
)

// asking returns the request to take items into a sketch of uniques of a precision.
func asking(precision int, items ...string) []byte {
	hashes := make([]uint64, len(items))
	for i, item := range items {
		hashes[i] = sketch.Hash(item)
	}
	return sketch.AppendUniqueRequest(nil, precision, hashes)
}

// someItems returns n items whose names begin alike.
func someItems(name string, n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf("%s%d", name, i)
	}
	return items
}

// sketchOf returns the state of a sketch of some items, as precise as the laws have it.
func sketchOf(items ...string) string { return string(asking(precise, items...)) }

// merged is a rider that takes what the event asks into a sketch.
func merged(p store.Part) store.Rider { return store.Rider{Part: p, Op: store.OpMerge} }

// asks has an event ask something.
func asks(d store.Delta, bytes []byte) store.Delta {
	d.Event.Bytes = bytes
	return d
}

// into is a merge that leads.
func into(c store.Cell, p store.Part, bytes []byte, riders ...store.Rider) store.Delta {
	return asks(led(store.Delta{Cell: c, Op: store.OpMerge}, p, riders...), bytes)
}

// sketchIs checks that a part is a sketch of some items, to the last byte.
func (k *kit) sketchIs(c store.Cell, p store.Part, want string) {
	k.Helper()
	got := k.part(c, p)
	if got.Bytes != want || got.N != store.PartSketch.Number([]byte(want)) || !got.Exists {
		k.Fatalf("part %x of %q is %d bytes %.32x, number %d; want %d bytes %.32x", p, c.Key, len(got.Bytes), got.Bytes, got.N, len(want), want)
	}
}

const precise = 6 // of the sketches of laws: a list of 10 items, then registers

// sketches are the laws of merges into sketches.
func sketches(s *suite) {
	s.law("what an event asks is merged into its sketches", func(k *kit) {
		c := cell("a")
		plan, err := store.NewPlan(applied(partWindow), merged(partSketch), merged(partWindowSketch))
		if err != nil {
			k.Fatalf("NewPlan: %v", err)
		}
		visit := func(bytes []byte) store.Result {
			k.Helper()
			d := want(asks(with(add(c, 1)), bytes))
			d.Event.Plan = plan
			return k.event(d, store.Applied, 0)
		}
		k.applied(visit(asking(precise, "eve")), 0, 1)
		k.applied(visit(asking(precise, "bob")), 1, 2)
		k.applied(visit(asking(precise, "eve")), 2, 3)
		k.applied(visit(nil), 3, 4) // of nobody
		k.partHolds(c, partWindow, 4)
		k.sketchIs(c, partSketch, sketchOf("eve", "bob"))
		k.sketchIs(c, partWindowSketch, sketchOf("eve", "bob"))
		own := merged(partSketch)
		own.Bytes = asking(precise, "ann")
		k.event(asks(with(add(c, 1), own, merged(partWindowSketch)), asking(precise, "joe")), store.Applied, 0)
		k.sketchIs(c, partSketch, sketchOf("eve", "bob", "ann"))
		k.sketchIs(c, partWindowSketch, sketchOf("eve", "bob", "joe"))
		k.audited()
	})
	s.law("an event that asks nothing makes no sketch", func(k *kit) {
		c := cell("a")
		k.event(with(add(c, 1), merged(partSketch)), store.Applied, 0)
		k.event(asks(with(add(c, 1), when(merged(partSketch), store.MetEqual, 0)), asking(precise, "eve")), store.Applied, 0)
		k.partAbsent(c, partSketch)
		k.holds(c, 2)
	})
	s.law("a merge that leads says whether it changed something", func(k *kit) {
		c := cell("a")
		f := func(before int64, fresh int, existed bool, items ...string) { // fresh is how many items are new
			k.Helper()
			r := k.event(want(into(c, partSketch, asking(precise, items...), plus("", before))), store.Applied, 0)
			if got := bits.OnesCount64(uint64(r.After)); got != fresh {
				k.Fatalf("%d of %q were new (%b), want %d", got, items, r.After, fresh)
			}
			k.told(r, store.Result{Outcome: store.Applied, Before: int64(min(fresh, 1)), After: r.After, Existed: existed})
		}
		f(0, 2, false, "eve", "bob")
		f(0, 0, true, "bob")
		k.holds(c, 0)
		f(5, 0, true)
		f(0, 1, true, "ann", "bob")
		k.holds(c, 5)
		k.sketchIs(c, partSketch, sketchOf("eve", "bob", "ann"))
	})
	s.law("the order of merges does not matter", func(k *kit) {
		items := someItems("user", 60)
		whole := sketchOf(items...)
		for i, size := range []int{1, 7, 60} {
			c := cell(fmt.Sprint(i))
			for from := 0; from < len(items); from += size {
				at := (from*37 + i) % len(items)
				some := append(append([]string(nil), items[at:]...), items[:at]...)[:min(size+1, len(items))]
				k.event(asks(with(add(c, 1), merged(partSketch)), asking(precise, some...)), store.Applied, 0)
			}
			k.event(asks(with(add(c, 1), merged(partSketch)), asking(precise, items...)), store.Applied, 0)
			k.sketchIs(c, partSketch, whole)
		}
		a, b, both := cell("left"), cell("right"), cell("both")
		k.one(into(a, partSketch, asking(precise, items[:40]...)))
		k.one(into(b, partSketch, asking(precise, items[20:]...)))
		for _, from := range []store.Cell{b, a} { // a state is a request
			k.event(into(both, partSketch, []byte(k.part(from, partSketch).Bytes)), store.Applied, 0)
		}
		k.sketchIs(both, partSketch, whole)
		k.audited()
	})
	s.law("a request that does not fit refuses the event", func(k *kit) {
		c := cell("a")
		k.one(into(c, partSketch, asking(precise, "eve")))
		v := k.read(c)
		for _, bytes := range [][]byte{{}, {99, 1, 2}, []byte("hello"), asking(precise, "eve")[:7]} {
			k.event(into(c, partSketch, bytes), store.Unmet, 0)
			k.event(asks(with(add(c, 1), plus(partHeld, 1), merged(partWindowSketch)), bytes), store.Unmet, 2)
		}
		put := led(store.Delta{Cell: c, Op: store.OpPut}, partWindowSketch)
		k.one(asks(put, []byte("no sketch")))
		k.event(asks(with(add(c, 1), merged(partSketch), merged(partWindowSketch)), asking(precise, "bob")), store.Unmet, 2)
		k.partAbsent(c, partHeld)
		k.holds(c, v.N)
		k.sketchIs(c, partSketch, sketchOf("eve"))
	})
	s.law("a repeat merges nothing", func(k *kit) {
		c, w := cell("a"), k.enlist()
		visit := func(item string) store.Delta {
			return asks(with(add(c, 1), merged(partSketch)), asking(precise, item))
		}
		d := once(visit("eve"), "t")
		first := k.event(d, store.Applied, 0)
		d.Event = visit("bob").Event
		k.repeats(k.one(d), first)
		b := k.numbered(w, 0, 1, visit("ann"))
		k.outcome(k.reply(b).Results[0], store.Applied)
		b.Deltas[0] = visit("joe") // its writer says the same: who it was is not part of that
		if again := k.reply(b); !again.Replayed {
			k.Fatalf("%+v is no repeat", again)
		}
		k.sketchIs(c, partSketch, sketchOf("eve", "ann"))
		k.holds(c, 2)
	})
	s.law("a shard has sketches of its own", func(k *kit) {
		c := cell("a")
		if !k.store.Traits().Layouts {
			return // They are its own affair.
		}
		k.one(layout(c, 0, 3))
		shard := store.ShardCell(c, 1)
		k.event(asks(with(laid(add(shard, 1), 0), merged(partSketch)), asking(precise, "eve")), store.Applied, 0)
		k.event(asks(with(add(c, 1), merged(partSketch)), asking(precise, "bob")), store.Applied, 0)
		k.event(into(c, partSketch, asking(precise, "ann")), store.Split, 0)
		k.sketchIs(shard, partSketch, sketchOf("eve"))
		k.sketchIs(c, partSketch, sketchOf("bob"))
	})
	s.law("a merge below a floor is late", func(k *kit) {
		c := cell("a")
		f, _ := partWindowSketch.Fields()
		d := asks(with(add(c, 1), merged(partWindowSketch)), asking(precise, "eve"))
		k.event(d, store.Applied, 0)
		floor := k.batch(add(c, 1))
		floor.Floors = []store.Floor{{Namespace: namespace, Kind: f.Kind, View: f.View, Epoch: f.Epoch + 1}}
		k.outcome(k.reply(floor).Results[0], store.Applied)
		k.partAbsent(c, partWindowSketch)
		k.refused(k.batch(d), store.KindLate)
		k.audited()
	})
	s.law("only sketches are merged by riders", func(k *kit) {
		c := cell("a")
		k.refused(k.batch(asks(with(add(c, 1)), asking(precise, "eve"))), store.KindInvalid)
		k.refused(k.batch(asks(with(add(c, 1), merged(partHeld)), asking(precise, "eve"))), store.KindInvalid)
		k.refused(k.batch(asks(with(add(c, 1), merged(partEntries)), asking(precise, "eve"))), store.KindInvalid)
		k.refused(k.batch(asks(with(add(c, 1), merged(partSketch)), make([]byte, store.PartBytesMax+1))), store.KindTooLarge)
		k.absent(c)
	})
	lanes(s)
	sketchesSurvive(s)
}

func sketchesSurvive(s *suite) {
	chunk := func(n int64) store.Part { return partOf(store.PartSketch, n, "") }
	s.lawWith("a sketch survives", Config{}, func(k *kit) {
		c := cell("a")
		var all, ones, others []string
		for i, again := range []func(testing.TB) store.Store{k.inst.Crash, k.inst.Reopen, k.inst.Crash, k.inst.Crash} {
			for j := range 12 { // a list becomes registers
				some := someItems(fmt.Sprintf("%d/%d/", i, j), j)
				all = append(all, some...)
				k.event(asks(with(add(c, 1), merged(partSketch), applied(partWindow), merged(partWindowSketch)), asking(precise, some...)), store.Applied, 0)
			}
			// Requests of one length, and several into one sketch.
			one, other := fmt.Sprintf("one %d", i), fmt.Sprintf("two %d", i)
			own, second := merged(chunk(1)), merged(chunk(3))
			own.Bytes, second.Bytes = asking(precise, one), asking(precise, one)
			k.event(asks(with(add(c, 1), own, merged(chunk(2)), merged(chunk(3)), second), asking(precise, other)), store.Applied, 0)
			ones, others = append(ones, one), append(others, other)
			if again != nil {
				k.replace(again(k.t))
			}
			k.sketchIs(c, partSketch, sketchOf(all...))
			k.sketchIs(c, partWindowSketch, sketchOf(all...))
			k.sketchIs(c, chunk(1), sketchOf(ones...))
			k.sketchIs(c, chunk(2), sketchOf(others...))
			k.sketchIs(c, chunk(3), sketchOf(append(slices.Clip(ones), others...)...))
			k.audited()
		}
	})
}
