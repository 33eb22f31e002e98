package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// Parts that many counters share, in two slots.
var (
	partShared       = partOf(store.PartShared, 0, "0")
	partWindowShared = partOf(store.PartWindowShared, 60_000, "0")
	partOtherSlot    = partOf(store.PartWindowShared, 60_000, "3")
)

// listing returns the request to add amounts to a list of the first 10.
func listing(t interface{ Fatal(...any) }, items ...sketch.Amount) []byte {
	bytes, err := sketch.AppendTopRequest(nil, 10, items)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// picked is a rider that merges one of several requests of its event, from 1 on.
func picked(p store.Part, which int64) store.Rider {
	return store.Rider{Part: p, Op: store.OpMerge, N: which}
}

// lists checks what a list says of items.
func (k *kit) lists(c store.Cell, p store.Part, want ...sketch.Amount) {
	k.Helper()
	top, err := sketch.ParseTop(k.part(c, p).Bytes)
	if err != nil {
		k.Fatalf("part %x of %q: %v", p, c.Key, err)
	}
	var got []sketch.Amount
	for _, r := range top.List(10) {
		got = append(got, sketch.Amount{Item: r.Item, N: r.Upper})
	}
	if !slices.Equal(got, want) {
		k.Fatalf("part %x of %q lists %v, want %v", p, c.Key, got, want)
	}
}

// lane returns the lane of a cell, of a slot.
func (k *kit) lane(c store.Cell, slot int) store.Cell {
	return store.LaneCell(namespace, k.home(c), slot)
}

// lanes are the laws of what many counters share.
func lanes(s *suite) {
	listed := func(k *kit, c store.Cell, n int64) store.Delta {
		return asks(with(add(c, n), merged(partShared), merged(partWindowShared)), listing(k.t, sketch.Amount{Item: c.Key, N: n}))
	}
	s.law("counters of a partition share a lane", func(k *kit) {
		cs := k.together(3)
		a, b, c := cs[0], cs[1], cs[2]
		k.event(listed(k, a, 5), store.Applied, 0)
		k.do(listed(k, b, 2), listed(k, c, 7), listed(k, b, 9))
		for _, p := range []store.Part{partShared, partWindowShared} {
			k.lists(k.lane(a, 0), p, sketch.Amount{Item: b.Key, N: 11}, sketch.Amount{Item: c.Key, N: 7}, sketch.Amount{Item: a.Key, N: 5})
		}
		k.holds(b, 11)
		k.audited()
	})
	s.law("a scan finds the lanes of all partitions and slots", func(k *kit) {
		var want []store.PartCell
		for _, c := range k.apart() {
			other := asks(with(add(c, 1), merged(partOtherSlot)), listing(k.t, sketch.Amount{Item: c.Key, N: 1}))
			k.one(listed(k, c, 1))
			k.event(other, store.Applied, 0)
			want = append(want, store.PartCell{Cell: k.lane(c, 0), Part: partWindowShared}, store.PartCell{Cell: k.lane(c, 3), Part: partOtherSlot})
		}
		f, _ := partWindowShared.Fields()
		for _, rows := range []store.Rows{
			store.RowsUnder(namespace, store.PartFields{Kind: f.Kind, View: f.View, Epoch: f.Epoch}, ""),
			{Namespace: namespace, From: string([]byte{byte(store.PartWindowShared)})},
		} {
			es, err := k.store.ScanParts(k.ctx, rows, store.ScanMax)
			if err != nil || len(es) != len(want) {
				k.Fatalf("%d parts, want %d: %v", len(es), len(want), err)
			}
			for _, e := range es {
				if !slices.Contains(want, e.PartCell) {
					k.Fatalf("found %+v", e.PartCell)
				}
			}
		}
		es, err := k.store.Scan(k.ctx, store.Range{Namespace: namespace}, store.ScanMax)
		if err != nil || len(es) != k.parts {
			k.Fatalf("%d counters, want %d: %v", len(es), k.parts, err)
		}
	})
	s.law("a repeat and a refusal change no lane", func(k *kit) {
		c, w := k.together(1)[0], k.enlist()
		lane := k.lane(c, 0)
		d := once(listed(k, c, 1), "t")
		first := k.event(d, store.Applied, 0)
		k.repeats(k.one(d), first)
		bounded := listed(k, c, 5)
		bounded.Guard.Bound = &store.Bound{High: 3}
		k.event(bounded, store.Bounded, 0)
		refused := listed(k, c, 5)
		refused.Event.Riders = append(refused.Event.Riders, store.Rider{Part: partHeld, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: 9}})
		k.event(refused, store.Unmet, 3)
		b := k.numbered(w, 0, 1, listed(k, c, 2))
		k.reply(b)
		if again := k.reply(b); !again.Replayed {
			k.Fatalf("%+v is no repeat", again)
		}
		k.lists(lane, partShared, sketch.Amount{Item: c.Key, N: 3})
		k.lists(lane, partWindowShared, sketch.Amount{Item: c.Key, N: 3})
		k.audited()
	})
	s.law("counters that are added to at once share a lane", func(k *kit) {
		const callers, each = 6, 15
		cs := k.together(callers)
		k.parallel(callers, func(i int) error {
			for range each {
				if r, err := k.try(k.batch(listed(k, cs[i], 1))); err != nil || r.Err != nil || r.Results[0].Outcome != store.Applied {
					return fmt.Errorf("%+v: %w", r, errors.Join(err, r.Err))
				}
			}
			return nil
		})
		top, err := sketch.ParseTop(k.part(k.lane(cs[0], 0), partWindowShared).Bytes)
		if err != nil || top.Total() != callers*each || top.Len() != callers {
			k.Fatalf("%d of %d are listed, of %d counters: %v", top.Total(), callers*each, top.Len(), err)
		}
		k.audited()
	})
	s.law("a shard's event is beside the lane of its own partition", func(k *kit) {
		c := k.together(1)[0]
		if !k.store.Traits().Layouts {
			return // They are its own affair.
		}
		k.one(layout(c, 0, 3))
		shard := store.ShardCell(c, 1)
		d := laid(add(shard, 4), 0)
		k.event(asks(with(d, merged(partShared)), listing(k.t, sketch.Amount{Item: c.Key, N: 4})), store.Applied, 0)
		k.lists(k.lane(shard, 0), partShared, sketch.Amount{Item: c.Key, N: 4})
	})
	s.law("a lane is fed alone", func(k *kit) {
		c := k.lane(k.together(1)[0], 0)
		d := once(into(c, partShared, listing(k.t, sketch.Amount{Item: "x", N: 4}), merged(partWindowShared)), "t")
		first := k.event(d, store.Applied, 0)
		k.repeats(k.one(d), first)
		k.lists(c, partShared, sketch.Amount{Item: "x", N: 4})
		k.lists(c, partWindowShared, sketch.Amount{Item: "x", N: 4})
		k.audited()
	})
	s.law("a window of a lane goes with its epoch", func(k *kit) {
		c := k.together(1)[0]
		k.event(listed(k, c, 1), store.Applied, 0)
		f, _ := partWindowShared.Fields()
		floor := k.batch(add(c, 1))
		floor.Floors = []store.Floor{{Namespace: namespace, Kind: f.Kind, View: f.View, Epoch: f.Epoch + 1}}
		k.outcome(k.reply(floor).Results[0], store.Applied)
		k.partAbsent(k.lane(c, 0), partWindowShared)
		k.lists(k.lane(c, 0), partShared, sketch.Amount{Item: c.Key, N: 1})
		k.refused(k.batch(listed(k, c, 1)), store.KindLate)
		k.audited()
	})
	s.law("lanes have nothing but what many counters share", func(k *kit) {
		c := k.together(1)[0]
		lane, ask := k.lane(c, 0), listing(k.t, sketch.Amount{Item: "x", N: 1})
		f := func(d store.Delta) {
			k.Helper()
			k.refused(k.batch(d), store.KindInvalid)
		}
		f(into(c, partShared, ask))                                           // of a counter
		f(into(k.lane(c, 1), partShared, ask))                                // of another slot
		f(into(lane, partSketch, ask))                                        // of one counter
		f(into(lane, partShared, ask, plus(partHeld, 1)))                     // beside the lane
		f(with(add(c, 1), store.Rider{Part: partShared, Op: store.OpDelete})) // takes it away
		f(with(add(c, 1), store.Rider{Part: partOf(store.PartShared, 0, "8"), Op: store.OpMerge, Bytes: ask}))
		k.absent(c)
	})
	s.law("an event asks several things", func(k *kit) {
		c := k.together(1)[0]
		plan, err := store.NewPlan(applied(partWindow), picked(partSketch, 1), picked(partShared, 2), picked(partWindowShared, 2), picked(partWindowSketch, 3))
		if err != nil {
			k.Fatalf("NewPlan: %v", err)
		}
		f := func(o store.Outcome, refused uint8, asked ...[]byte) {
			k.Helper()
			d := asks(with(add(c, 1)), store.AppendAsks(nil, asked...))
			d.Event.Plan = plan
			k.event(d, o, refused)
		}
		f(store.Applied, 0, asking(precise, "eve"), listing(k.t, sketch.Amount{Item: "x", N: 2}))
		f(store.Applied, 0, nil, listing(k.t, sketch.Amount{Item: "x", N: 1}), asking(precise, "bob"))
		f(store.Applied, 0)
		f(store.Unmet, 2, []byte("none"))
		k.sketchIs(c, partSketch, sketchOf("eve"))
		k.sketchIs(c, partWindowSketch, sketchOf("bob"))
		k.lists(k.lane(c, 0), partShared, sketch.Amount{Item: "x", N: 3})
		d := asks(with(add(c, 1), picked(partSketch, 1)), asking(precise, "ann")) // not several
		k.event(d, store.Unmet, 1)
		k.holds(c, 3)
		k.audited()
	})
	s.lawWith("a lane survives", Config{}, func(k *kit) {
		cs := k.together(2)
		sums := []int64{0, 0}
		for i, again := range []func(testing.TB) store.Store{k.inst.Crash, k.inst.Reopen, k.inst.Crash, k.inst.Crash} {
			for j := range 6 {
				for n, c := range cs {
					d := once(listed(k, c, int64(1+n)), fmt.Sprintf("%d/%d", i, j))
					k.one(d)
					k.one(d)
					sums[n] += int64(1 + n)
					k.event(with(add(c, 1), applied(partWindow)), store.Applied, 0) // what follows a lane is not beside it
				}
			}
			if again != nil {
				k.replace(again(k.t))
			}
			k.lists(k.lane(cs[0], 0), partWindowShared, sketch.Amount{Item: cs[1].Key, N: sums[1]}, sketch.Amount{Item: cs[0].Key, N: sums[0]})
			k.lists(k.lane(cs[0], 0), partShared, sketch.Amount{Item: cs[1].Key, N: sums[1]}, sketch.Amount{Item: cs[0].Key, N: sums[0]})
			k.partHolds(cs[0], partWindow, sums[0])
			k.audited()
		}
	})
}
