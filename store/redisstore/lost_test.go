package redisstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// A server that has lost its data says so of what it had, to those who have not
// seen it too.
func TestSessionsFindLoss(t *testing.T) {
	s := redisproc.For(t)
	o := redisstore.Options{Partitions: 2}
	k := kit{t, open(t, "redis://"+s.Addr, o)}
	a := k.reply(k.batch(add("a", 1))).Results[0].Version
	gone := k.reply(k.batch(add("gone", 1))).Results[0].Version
	k.reply(k.batch(store.Delta{Cell: cell("gone"), Op: store.OpDelete}))
	f := func(key string, version uint64, want bool) {
		t.Helper()
		var v [1]store.Value
		if err := k.Read(t.Context(), []store.Cell{cell(key)}, v[:]); err != nil {
			t.Fatal(err)
		}
		lost, err := k.Store.(store.Witness).Lost(t.Context(), cell(key), version, v[0])
		if err != nil || lost != want {
			t.Errorf("version %d of %s, which is %+v: lost is %v, want %v; %v", version, key, v[0], lost, want, err)
		}
	}
	f("a", a, false)
	f("a", a+1, true)
	f("gone", gone, false)
	command(t, s, "flushall")
	k = kit{t, open(t, "redis://"+s.Addr, o)}
	f("a", a, true)
	f("gone", gone, true)
}

// An audit says what the server has lost, as long as this store lives: also if a
// caller was told already, or what is left adds up.
func TestAuditFindsLoss(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2})}
	w := k.enlist()
	k.reply(k.numbered(w, 0, 1, add("a", 1)))
	k.reply(k.batch(add("b", 1)))
	k.clean()
	lost := func(words ...string) {
		t.Helper()
		a, err := k.Store.(store.Auditor).Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !slices.ContainsFunc(a.Drift, func(d store.Drift) bool { return strings.Contains(d.What, word) && d.Have != d.Want }) {
				t.Errorf("drift %+v, want %s", a.Drift, word)
			}
		}
	}
	marks := command(t, s, "--raw", "keys", "*marks*")
	command(t, s, append([]string{"del"}, strings.Fields(marks)...)...)
	lost("mark of writer")
	command(t, s, "flushall")
	for range 2 {
		lost("id of the store", "version of partition", "mark of writer")
	}
	if err := k.Read(t.Context(), []store.Cell{cell("a")}, make([]store.Value, 1)); !errors.Is(err, store.ErrLost) {
		t.Errorf("the first read: %v", err)
	}
	k.holds("a", 0)
	lost("found to be behind")

	// Another server that comes now knows nothing of it, and says so.
	k = kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2})}
	a, err := k.Store.(store.Auditor).Audit(t.Context())
	if err != nil || len(a.Drift) > 0 || len(a.Unproved) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// A failover may take a book or a floor with it. An audit says so, and the next batch
// under the book, or that raises the floor, brings it back.
func TestFencesLost(t *testing.T) {
	p := prefix()
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: p, Partitions: 1})}
	under := func(id int64) store.Batch {
		b := k.batch(add("a", 1))
		b.Books = []store.Book{{Namespace: "n", ID: id}}
		b.Floors = []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 8}}
		return b
	}
	late := k.batch(with(add("a", 1), rides(window(7, 0), 1)))
	late.Books = under(3).Books
	k.reply(under(3))
	k.clean()
	k.refused(under(2), store.KindOutdated)
	k.refused(late, store.KindLate)
	command(t, single, "hdel", p+":{0}:head", "b:n", "f:810001:n")
	a, err := k.Store.(store.Auditor).Audit(t.Context())
	if err != nil || len(a.Drift) != 2 {
		t.Fatalf("%+v, %v", a.Drift, err)
	}
	for _, d := range a.Drift {
		if d.Have != "0" || !strings.Contains(d.What, "in the head of partition 0") {
			t.Errorf("drift %+v", d)
		}
	}
	k.reply(under(3))
	k.clean()
	k.refused(under(2), store.KindOutdated)
	k.refused(late, store.KindLate)
}

// A store of a newer release is not corrupt.
func TestNewerLayout(t *testing.T) {
	s := redisproc.For(t)
	command(t, s, "hset", "quipu:store", "layout", "99")
	_, err := redisstore.Open(t.Context(), "redis://"+s.Addr, redisstore.Options{})
	if store.KindOf(err) != store.KindUnsupported || !strings.Contains(err.Error(), "made by a newer Quipu, with format 99") {
		t.Errorf("%v", err)
	}
}
