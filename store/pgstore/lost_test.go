package pgstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// A database that has gone back says so of what it had, also when a counter is
// gone; and a counter that is ahead of the sequence is there.
func TestLost(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	trips := func() float64 { return meter(t, s, "quipu_postgres_round_trips_total") }
	f := func(key string, version uint64, want bool, costs float64) {
		t.Helper()
		var v [1]store.Value
		if err := s.Read(t.Context(), []store.Cell{at(key)}, v[:]); err != nil {
			t.Fatal(err)
		}
		cost := -1.0
		for range 5 { // What the store does in the background takes trips too.
			before := trips()
			lost, err := s.Lost(t.Context(), at(key), version, v[0])
			if err != nil || lost != want {
				t.Errorf("version %d of %s, which is %+v: lost is %v, want %v; %v", version, key, v[0], lost, want, err)
			}
			if cost = trips() - before; cost == costs {
				return
			}
		}
		t.Errorf("version %d of %s cost %v round trips, want %v", version, key, cost, costs)
	}
	f("a", 1, true, 1) // nothing was drawn yet
	do(t, s, add("other", 1))
	a, b, split := do(t, s, add("a", 1))[0].Version, do(t, s, add("b", 1))[0].Version, do(t, s, add("split", 1))[0].Version
	do(t, s, store.Delta{Cell: at("b"), Op: store.OpDelete})
	laid := store.Delta{Cell: at("split"), Op: store.OpLayout, N: 5}
	laid.Guard.Laid = true
	split = max(split, do(t, s, laid)[0].Version)
	f("a", a, false, 0)
	f("a", a-1, false, 0)
	f("a", a+1, true, 0)
	f("b", b, false, 1)
	f("split", split, false, 1)
	f("b", 1<<62, true, 1)
	f("b", 1<<63, true, 0)

	execute(t, fmt.Sprintf("select setval('%s.version', %d)", schema, a-1))
	f("a", a, false, 0)
	f("b", b, true, 1)
	f("split", split, false, 1)
	f("split", split+1, true, 1)
}

// One who may only read can be told too.
func TestLostToReader(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	version := do(t, s, add("a", 1))[0].Version
	do(t, s, store.Delta{Cell: at("a"), Op: store.OpDelete})
	execute(t, strings.ReplaceAll(`
		create role reader_quipu login;
		grant usage on schema quipu to reader_quipu;
		grant select on all tables in schema quipu to reader_quipu;
		grant select on all sequences in schema quipu to reader_quipu`, "quipu", schema))
	r := open(t, strings.Replace(server.URL(), "user=postgres", "user=reader_"+schema, 1), pgstore.Options{Schema: schema})
	for version, want := range map[uint64]bool{version: false, version + 100: true} {
		if lost, err := r.Lost(t.Context(), at("a"), version, store.Value{}); err != nil || lost != want {
			t.Errorf("version %d: lost is %v, want %v; %v", version, lost, want, err)
		}
	}
}
