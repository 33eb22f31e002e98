package redisstore_test

import (
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// A server that has lost its data says so of what it had, to those who have not
// seen it too.
func TestSessionsFindLoss(t *testing.T) {
	s := server(t)
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
