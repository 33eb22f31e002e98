package storetest

import (
	"fmt"

	"github.com/quipudb/quipu/store"
)

// under names the book of the laws' namespace that a batch was made under.
func under(b store.Batch, id int64) store.Batch {
	b.Books = []store.Book{{Namespace: namespace, ID: id}}
	return b
}

func eventBooks(s *suite) {
	s.law("a batch under an older book is refused", func(k *kit) {
		c, w := cell("a"), k.enlist()
		k.reply(under(k.batch(add(c, 1)), 3))
		for _, b := range []store.Batch{k.batch(add(c, 1)), under(k.batch(add(c, 1)), 2), under(k.batch(with(add(c, 1))), 2), k.batch(settle(c, "t"))} {
			k.refused(b, store.KindOutdated)
		}
		k.reply(under(k.batch(add(c, 1)), 3))
		k.holds(c, 2)
		// Its numbers may be used again, and what was applied is a repeat under any book.
		first := under(k.numbered(w, 0, 1, add(c, 1)), 3)
		k.reply(first)
		if r := k.refused(under(k.numbered(w, 1, 2, add(c, 5)), 2), store.KindOutdated); r.Mark != 1 {
			k.Fatalf("the mark is %d, want 1", r.Mark)
		}
		k.reply(under(k.numbered(w, 1, 2, add(c, 1)), 4))
		if r := k.reply(under(k.numbered(w, 1, 2, add(c, 1)), 2)); !r.Replayed {
			k.Fatalf("%+v is no repeat", r)
		}
		k.refused(first, store.KindMark)
		k.holds(c, 4)
	})
	s.law("a book is of one namespace in one partition, with its shards", func(k *kit) {
		c := cell("a")
		raise := store.Batch{Partition: k.home(c), Books: []store.Book{{Namespace: namespace, ID: 3}}}
		if r := k.reply(raise); len(r.Results) != 0 {
			k.Fatalf("%+v of no deltas", r)
		}
		lower := raise
		lower.Books = []store.Book{{Namespace: namespace, ID: 2}}
		k.reply(lower)
		k.refused(under(k.batch(add(c, 1)), 2), store.KindOutdated)
		k.refused(k.batch(add(c, 1)), store.KindOutdated)
		other := k.find(1, func(home int, _ []store.Cell) bool { return home != k.home(c) || k.parts == 1 })[0]
		if k.parts > 1 {
			k.one(add(other, 1))
		}
		for i := 1; i <= k.parts; i++ {
			shard := store.ShardCell(c, i)
			if b := k.batch(add(shard, 1)); b.Partition == raise.Partition {
				k.refused(b, store.KindOutdated)
				k.reply(under(b, 3))
			}
		}
		for i := 0; ; i++ {
			if o := (store.Cell{Namespace: "other", Key: fmt.Sprint(i)}); k.home(o) == raise.Partition {
				k.one(add(o, 1))
				break
			}
		}
	})
	s.law("a batch that is refused raises no book", func(k *kit) {
		c := cell("a")
		k.refused(given(under(k.batch(add(c, 1)), 3), c, 9), store.KindChanged)
		k.one(add(c, 1))
		k.refused(under(k.batch(add(c, 1)), 0), store.KindInvalid)
		twice := under(k.batch(add(c, 1)), 3)
		twice.Books = append(twice.Books, twice.Books[0])
		k.refused(twice, store.KindInvalid)
		k.one(add(c, 1))
	})
}

// floored raises the floor of the windows of view 1 in the laws' namespace.
func floored(b store.Batch, e store.Epoch) store.Batch {
	b.Floors = []store.Floor{{Namespace: namespace, Kind: store.PartWindow, View: 1, Epoch: e}}
	return b
}

// windowIn is a window in an epoch, of a view.
func windowIn(e store.Epoch, view uint16) store.Part {
	return store.PartFields{Kind: store.PartWindow, View: view, Epoch: e, Position: 60_000}.Part()
}

func eventFloors(s *suite) {
	s.law("what is below a floor is gone, and nothing is added to it", func(k *kit) {
		c, w := cell("a"), k.enlist()
		old, young, forever, other := windowIn(7, 1), windowIn(8, 1), windowIn(store.EpochForever, 1), windowIn(7, 2)
		first := k.numbered(w, 0, 1, with(add(c, 5), applied(old), applied(young), applied(forever), applied(other)))
		k.reply(first)
		raise := store.Batch{Partition: k.home(c)}
		if r := k.reply(floored(raise, 8)); len(r.Results) != 0 {
			k.Fatalf("%+v of no deltas", r)
		}
		k.partAbsent(c, old)
		for _, p := range []store.Part{young, forever, other} {
			k.partHolds(c, p, 5)
		}
		es, err := k.store.ScanParts(k.ctx, store.Rows{Namespace: namespace}, store.ScanMax)
		if err != nil || len(es) != 3 {
			k.Fatalf("%d parts, %v, want 3", len(es), err)
		}
		late := []store.Delta{
			with(add(c, 1), applied(old)),
			with(add(c, 1), applied(young), applied(old)),
			with(add(c, 1), when(applied(old), store.MetEqual, 77)),
			led(add(c, 1), old),
		}
		for _, d := range late {
			k.refused(k.batch(add(c, 1), d), store.KindLate)
			if r := k.refused(k.numbered(w, 1, 2, d), store.KindLate); r.Mark != 1 {
				k.Fatalf("the mark is %d, want 1", r.Mark)
			}
		}
		k.reply(floored(raise, 7)) // it never falls
		k.refused(k.batch(late[0]), store.KindLate)
		if r := k.reply(first); !r.Replayed {
			k.Fatalf("%+v is no repeat", r)
		}
		// The numbers of a batch that was late may be used again.
		k.reply(k.numbered(w, 1, 2, with(add(c, 1), applied(young))))
		k.holds(c, 6)
		k.partHolds(c, young, 6)
		k.partAbsent(c, old)
		k.audited()
		// A floor may rise in the step that still adds above it.
		k.reply(floored(k.batch(with(add(c, 1), applied(windowIn(9, 1)))), 9))
		k.partAbsent(c, young)
		k.partHolds(c, windowIn(9, 1), 1)
		k.audited()
	})
	s.law("a floor is of one view of a namespace in one partition, with its shards", func(k *kit) {
		c := cell("a")
		raise := floored(store.Batch{Partition: k.home(c)}, 8)
		k.reply(raise)
		for i := 0; i <= k.parts; i++ {
			shard := store.ShardCell(c, i)
			if b := k.batch(with(add(shard, 1), applied(windowIn(7, 1)))); b.Partition == raise.Partition {
				k.refused(b, store.KindLate)
			} else {
				k.reply(b)
				k.partHolds(shard, windowIn(7, 1), 1)
			}
		}
		for i := 0; ; i++ {
			if o := (store.Cell{Namespace: "other", Key: fmt.Sprint(i)}); k.home(o) == raise.Partition {
				k.one(with(add(o, 1), applied(windowIn(7, 1))))
				k.partHolds(o, windowIn(7, 1), 1)
				break
			}
		}
		values := store.PartFields{Kind: store.PartWindowDim, View: 1, Epoch: 7, Name: "x"}.Part()
		k.one(with(add(c, 1), applied(values)))
		k.partHolds(c, values, 1)
	})
	s.law("a batch that is refused raises no floor", func(k *kit) {
		c := cell("a")
		k.refused(given(floored(k.batch(add(c, 1)), 8), c, 9), store.KindChanged)
		k.refused(floored(k.batch(with(add(c, 1), applied(windowIn(7, 1)))), 9<<28), store.KindInvalid)
		k.refused(floored(k.batch(with(add(c, 1), applied(windowIn(7, 1)))), 8), store.KindInvalid)
		k.refused(floored(k.batch(led(add(store.ShardCell(c, k.parts), 1), windowIn(7, 1))), 8), store.KindInvalid)
		wrong := floored(k.batch(), 8)
		wrong.Floors[0].Kind = store.PartHeld
		k.refused(wrong, store.KindInvalid)
		k.one(with(add(c, 1), applied(windowIn(7, 1))))
		k.partHolds(c, windowIn(7, 1), 1)
	})
	s.law("books are judged before floors, and floors before conditions", func(k *kit) {
		c := cell("a")
		k.reply(floored(under(store.Batch{Partition: k.home(c)}, 3), 8))
		late := with(add(c, 1), applied(windowIn(7, 1)))
		k.refused(under(k.batch(late), 2), store.KindOutdated)
		k.refused(given(under(k.batch(late), 3), c, 9), store.KindLate)
	})
	s.kept("parts, books and floors", func(k *kit, _ *clock, reopen func()) {
		c := cell("a")
		line := store.Rider{Part: partEntries, Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte("line")}
		k.reply(under(k.batch(with(add(c, 5), applied(windowIn(7, 1)), applied(windowIn(8, 1)), plus(partHeld, 2), line)), 3))
		for range 2 {
			reopen()
			k.partHolds(c, windowIn(8, 1), 5)
			k.partHolds(c, partHeld, 2)
			if es := k.entries(c); len(es) != 1 {
				k.Fatalf("%d entries", len(es))
			}
			k.refused(under(k.batch(add(c, 1)), 2), store.KindOutdated)
			k.audited()
		}
		k.partHolds(c, windowIn(7, 1), 5)
		k.reply(floored(store.Batch{Partition: k.home(c)}, 8))
		for range 2 {
			reopen()
			k.partAbsent(c, windowIn(7, 1))
			k.partHolds(c, windowIn(8, 1), 5)
			k.refused(under(k.batch(with(add(c, 1), applied(windowIn(7, 1)))), 3), store.KindLate)
			k.audited()
		}
	})
}
