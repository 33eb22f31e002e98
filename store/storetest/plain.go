package storetest

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/store"
)

// A store may have a fast path for adds that need little: a SQL function, a script,
// a few lines without a map. What it takes must become what decide.Cell would make
// of it, whatever was done to the cells before; what it does not serve it must not
// take.

// plain runs one random history that is mostly of adds, which need all that some
// fast path serves, or a part of it.
func plain(t *testing.T, r *rapid.T, open Opener) {
	m := newMachine(t, r, open)
	defer m.close()
	m.doEnlist(r)
	adds := func(r *rapid.T) { m.send(m.drawAdds(r)) }
	m.run(t, r, map[string]func(*rapid.T){
		"adds": adds, "more adds": adds, "others": adds, "lane": m.doAdds, "again": m.doAgain,
		"apply": m.doApply, "read": m.doRead, "time": m.doTime,
		"audit": func(*rapid.T) { m.audited() },
	})
}

// drawAdds returns a batch of adds that share what they need: the fast paths differ
// in what they serve.
func (m *machine) drawAdds(r *rapid.T) store.Batch {
	share := store.Needs(rapid.Uint16().Draw(r, "needs"))
	first := m.drawCell(r)
	b := store.Batch{Partition: m.home(first), Apart: rapid.Bool().Draw(r, "apart")}
	for range rapid.IntRange(1, 4).Draw(r, "deltas") {
		c := m.drawCell(r)
		if m.home(c) != b.Partition {
			c = first
		}
		d := add(c, rapid.SampledFrom([]int64{1, 1, 2, -1, 0, store.AddMax, store.AddMax + 1, 1 << 62, math.MaxInt64, math.MinInt64}).Draw(r, "n"))
		if share&store.NeedToken != 0 {
			d = once(d, m.drawToken(r))
		}
		d.Want = share&store.NeedValue != 0
		if share&store.NeedBound != 0 && rapid.Bool().Draw(r, "bounded") {
			d = within(d, drawBound(r))
		}
		if share&store.NeedLayout != 0 && m.store.Traits().Layouts {
			d = laid(d, m.drawLayout(r, c))
		}
		b.Deltas = append(b.Deltas, d)
	}
	if share&store.NeedMark != 0 {
		m.drawNumber(r, &b)
	}
	return b
}

// Serves checks that a fast path takes what it says it serves, and nothing else:
// batches of one add to cell k in namespace n, one that has all the needs that are
// served, and one for each other need.
func Serves(t testing.TB, serves store.Needs, takes func(*store.Batch) bool) {
	t.Helper()
	one := func() store.Batch {
		return store.Batch{Deltas: []store.Delta{{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, N: 1}}}
	}
	served := one()
	for _, need := range []func(*store.Batch, *store.Delta){
		func(_ *store.Batch, d *store.Delta) { d.Op = store.OpSet },
		func(_ *store.Batch, d *store.Delta) { d.Want = true },
		func(_ *store.Batch, d *store.Delta) { d.Expiry, d.DeadlineMS = store.ExpirySet, math.MaxInt64 },
		func(_ *store.Batch, d *store.Delta) { d.Guard.Token, d.Guard.Digest = "t", 7 },
		func(_ *store.Batch, d *store.Delta) { d.Guard.Match, d.Guard.Version = true, 1 },
		func(_ *store.Batch, d *store.Delta) { d.Guard.Laid = true },
		func(_ *store.Batch, d *store.Delta) { d.Guard.Exists = store.ExistsMust },
		func(_ *store.Batch, d *store.Delta) { d.Guard.Bound = &store.Bound{High: 5} },
		func(_ *store.Batch, d *store.Delta) { d.Event = &store.Event{} },
		func(_ *store.Batch, d *store.Delta) { d.Event = &store.Event{Part: partMember} },
		func(b *store.Batch, _ *store.Delta) { b.Writer, b.Seq = 1, 1 },
		func(b *store.Batch, d *store.Delta) { b.If = []store.Condition{{Cell: d.Cell, Version: 1}} },
	} {
		b := one()
		need(&b, &b.Deltas[0])
		switch {
		case b.Needs()&^serves == 0:
			need(&served, &served.Deltas[0])
		case takes(&b):
			t.Errorf("a fast path that serves %b takes %+v, which needs %b", serves, b, b.Needs())
		}
	}
	if b := one(); !takes(&b) {
		t.Errorf("%+v is not taken", b)
	}
	if !takes(&served) {
		t.Errorf("%+v is not taken", served)
	}
}
