package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/quipudb/quipu/store"
)

// requests are the laws of what a call may carry: each limit has an error of a
// clear kind, and what is within it works.
func requests(s *suite) {
	s.law("what is within the limits is taken", func(k *kit) {
		f := func(c store.Cell, token string) {
			k.Helper()
			first := k.one(once(add(c, 1), token))
			k.applied(first, 0, 1)
			k.repeats(k.one(once(add(c, 1), token)), first)
			k.holds(c, 1)
			k.state(c, token, store.TokenApplied)
			k.listed(k.scan(store.Range{Namespace: c.Namespace, Prefix: c.Key}, 2), []string{c.Key})
		}
		f(cell("k"), "t")
		f(cell(strings.Repeat("k", store.KeyBytesMax)), strings.Repeat("t", store.TokenBytesMax))
		f(cell(strings.Repeat("é", store.KeyBytesMax/2)), strings.Repeat("é", store.TokenBytesMax/2))
		f(store.Cell{Namespace: strings.Repeat("n", store.NamespaceBytesMax), Key: "k"}, "t")
		f(store.Cell{Namespace: strings.Repeat("n", store.NamespaceBytesMax), Key: strings.Repeat("\x00", store.KeyBytesMax)}, "\x00")
	})

	s.law("a bad batch is refused", func(k *kit) {
		c := cell("a")
		f := func(kind store.Kind, b store.Batch) {
			k.Helper()
			k.refused(b, kind)
			k.absent(c)
		}
		delta := func(kind store.Kind, d store.Delta) {
			k.Helper()
			b := k.batch(d)
			if d.Op == store.OpRetire {
				b.Partition = k.home(c)
			}
			f(kind, b)
		}
		for _, bad := range badCells() {
			for _, d := range []store.Delta{
				add(bad.cell, 1), set(bad.cell, 1), del(bad.cell), settle(bad.cell, "t"), get(bad.cell), expire(bad.cell, store.ExpiryClear, 0),
			} {
				delta(bad.kind, d)
			}
		}
		for _, bad := range badTokens() {
			delta(bad.kind, once(add(c, 1), bad.token))
			delta(bad.kind, settle(c, bad.token))
		}
		delta(store.KindInvalid, settle(c, ""))
		delta(store.KindInvalid, store.Delta{Cell: c})
		delta(store.KindInvalid, store.Delta{Cell: c, Op: store.OpLayout + 1})
		delta(store.KindInvalid, store.Delta{Op: store.OpRetire})
		delta(store.KindInvalid, store.Delta{Op: store.OpRetire, N: -1})
		for _, d := range badDeltas(c) {
			delta(store.KindInvalid, d)
		}
		for _, bad := range badCells() {
			f(bad.kind, given(k.batch(add(c, 1)), bad.cell, 0))
		}
		conditions := k.batch(add(c, 1))
		for range store.BatchDeltasMax + 1 {
			conditions = given(conditions, c, 0)
		}
		f(store.KindTooLarge, conditions)

		b := k.batch(add(c, 1))
		b.Durability = store.Synced + 1
		f(store.KindInvalid, b)
		b = k.batch(add(c, 1))
		b.Partition = k.parts
		f(store.KindInvalid, b)

		many := make([]store.Delta, store.BatchDeltasMax+1)
		for i := range many {
			many[i] = add(c, 1)
		}
		f(store.KindTooLarge, k.batch(many...))
		wide := make([]store.Delta, store.BatchBytesMax/store.KeyBytesMax)
		for i := range wide {
			wide[i] = add(store.Cell{Namespace: "n", Key: strings.Repeat("k", store.KeyBytesMax)}, 1)
		}
		f(store.KindTooLarge, k.batch(wide...))
	})

	s.law("replies must be as many as batches", func(k *kit) {
		c := cell("a")
		for _, n := range []int{0, 2} {
			k.kind(k.store.Apply(k.ctx, []store.Batch{k.batch(add(c, 1))}, make([]store.Reply, n)), store.KindInvalid)
		}
		k.kind(k.store.Apply(k.ctx, nil, make([]store.Reply, 1)), store.KindInvalid)
		k.absent(c)
	})

	s.law("a bad read is refused", func(k *kit) {
		c := cell("a")
		k.kind(k.store.Read(k.ctx, []store.Cell{c}, nil), store.KindInvalid)
		k.kind(k.store.Read(k.ctx, nil, make([]store.Value, 1)), store.KindInvalid)
		many := make([]store.Cell, store.ReadCellsMax+1)
		for i := range many {
			many[i] = cell(fmt.Sprint(i))
		}
		k.kind(k.store.Read(k.ctx, many, make([]store.Value, len(many))), store.KindTooLarge)
		k.readAll(many[:store.ReadCellsMax]...)
		if err := k.store.Read(k.ctx, nil, nil); err != nil {
			k.Fatalf("a read of nothing: %v", err)
		}
		for _, bad := range badCells() {
			k.kind(k.store.Read(k.ctx, []store.Cell{c, bad.cell}, make([]store.Value, 2)), bad.kind)
		}
	})

	s.law("a bad scan is refused", func(k *kit) {
		for _, n := range []int{0, -1, store.ScanMax + 1} {
			_, err := k.store.Scan(k.ctx, store.Range{Namespace: namespace}, n)
			k.kind(err, store.KindInvalid)
			if s, ok := k.store.(store.Namespacer); ok {
				_, err = s.Namespaces(k.ctx, "", n)
				k.kind(err, store.KindInvalid)
			}
		}
	})

	s.law("a bad lookup is refused", func(k *kit) {
		for _, bad := range badCells() {
			_, err := k.store.Lookup(k.ctx, bad.cell, "t")
			k.kind(err, bad.kind)
		}
		for _, bad := range badTokens() {
			_, err := k.store.Lookup(k.ctx, cell("a"), bad.token)
			k.kind(err, bad.kind)
		}
		_, err := k.store.Lookup(k.ctx, cell("a"), "")
		k.kind(err, store.KindInvalid)
	})

	s.lawAt("traits say what is in force", store.Limits{KeysMax: 5, TokenWindow: time.Minute}, func(k *kit, _ *clock) {
		t := k.store.Traits()
		if t.Name == "" || t.Partitions < 1 || t.Durability < store.Memory || t.Durability > store.Synced {
			k.Fatalf("traits %+v", t)
		}
		if want := (store.Limits{KeysMax: 5, TokenWindow: time.Minute}).WithDefaults(); t.Limits != want {
			k.Fatalf("limits %+v, want %+v", t.Limits, want)
		}
		k.one(add(cell("a"), 1))
		if k.store.Traits() != t {
			k.Fatalf("traits changed to %+v", k.store.Traits())
		}
	})
}

type badCell struct {
	cell store.Cell
	kind store.Kind
}

func badCells() []badCell {
	return []badCell{
		{cell(""), store.KindInvalid},
		{cell("\xff"), store.KindInvalid},
		{cell("a\xc3"), store.KindInvalid},
		{cell(strings.Repeat("k", store.KeyBytesMax+1)), store.KindTooLarge},
		{store.Cell{Namespace: "\xff", Key: "k"}, store.KindInvalid},
		{store.Cell{Namespace: strings.Repeat("n", store.NamespaceBytesMax+1), Key: "k"}, store.KindTooLarge},
	}
}

// badDeltas are deltas whose parts do not go together.
func badDeltas(c store.Cell) []store.Delta {
	return []store.Delta{
		expire(c, store.ExpiryKeep, 0),
		expire(c, store.ExpirySet, 0),
		expire(c, store.ExpirySet, -1),
		expire(c, store.ExpiryClear, 5),
		expire(c, store.ExpiryClear|store.ExpirySet, 5),
		expire(c, store.ExpiryClear|store.ExpiryIfSome, 0),
		expire(c, store.ExpiryIfNone, 5),
		expire(c, 128|store.ExpirySet, 5),
		expire(c, store.ExpiryAfter|store.ExpirySet, 0),
		expire(c, store.ExpiryAfter|store.ExpirySet, -1),
		expire(c, store.ExpiryAfter, 5),
		expire(c, store.ExpiryAfter|store.ExpiryClear, 0),
		expiring(add(c, 1), store.ExpiryKeep, 5),
		expiring(add(c, 1), store.ExpiryIfLater, 0),
		until(set(c, 1), 0),
		until(del(c), 5),
		expiring(del(c), store.ExpiryClear, 0),
		until(get(c), 5),
		until(settle(c, "t"), 5),
		only(add(c, 1), store.ExistsNot+1),
		within(set(c, 1), store.Bound{High: 5, Saturate: true}),
		within(del(c), store.Bound{High: 5}),
		within(get(c), store.Bound{High: 5}),
		within(expire(c, store.ExpiryClear, 0), store.Bound{High: 5}),
		within(add(c, 1), store.Bound{Low: 1, High: 0, Saturate: true}),
		once(get(c), "t"),
	}
}

type badToken struct {
	token string
	kind  store.Kind
}

func badTokens() []badToken {
	return []badToken{
		{"\xff", store.KindInvalid},
		{strings.Repeat("t", store.TokenBytesMax+1), store.KindTooLarge},
	}
}
