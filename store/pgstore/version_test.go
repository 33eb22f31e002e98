package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// meanwhile applies adds to a and b, lets f run when they have drawn their versions
// and wait for a, and returns the version of the add to b.
func meanwhile(t *testing.T, s *pgstore.Store, schema string, f func()) uint64 {
	t.Helper()
	tx, err := connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.cells where key = 'a' for update`, schema)); err != nil {
		t.Fatal(err)
	}
	said := make(chan store.Reply)
	go func() {
		r, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{add("a", 1), add("b", 1)}})
		if err != nil {
			t.Error(err)
		}
		said <- r
	}()
	blocked(t, schema)
	f()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := <-said
	if len(r.Results) != 2 || r.Results[1].Outcome != store.Applied {
		t.Fatalf("the batch that waited returned %+v", r)
	}
	return r.Results[1].Version
}

// The versions of a counter rise, whoever draws first and whoever changes it first,
// and over its removal too.
func TestVersionsRise(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	drop := func(key string) { do(t, s, store.Delta{Cell: at(key), Op: store.OpDelete}) }
	highest := uint64(0)
	rises := func(what string, v uint64) {
		t.Helper()
		if v <= highest {
			t.Errorf("%s has version %d after %d", what, v, highest)
		}
		highest = v
	}
	f := func(what string, d store.Delta) {
		t.Helper()
		rises(what, do(t, s, d)[0].Version)
	}
	set := store.Delta{Cell: at("b"), Op: store.OpSet, N: 1}
	do(t, s, add("a", 1))
	rises("a new one that had drawn before", meanwhile(t, s, schema, func() {
		f("the first that ever came and went", add("b", 1))
		drop("b")
	}))
	for range 3 {
		rises("an add that had drawn before", meanwhile(t, s, schema, func() { f("an add", add("b", 1)) }))
	}
	f("a set", set)
	for range 3 {
		rises("an add that had drawn before", meanwhile(t, s, schema, func() { f("an add", add("b", 1)) }))
	}
	drop("b")
	f("a new one", add("b", 1))
	rises("an add that had drawn before", meanwhile(t, s, schema, func() { f("an add", add("b", 1)) }))
	drop("b")
	for _, what := range []string{"a new one", "an old one"} {
		for i, r := range do(t, s, add("b", 1), add("b", 2), add("b", 3)) {
			rises(fmt.Sprintf("%s, by the add %d", what, i), r.Version)
		}
	}
	drop("b")
	f("a new one by a set", set)
	rises("a new one that had drawn before", meanwhile(t, s, schema, func() {
		drop("b")
		f("one that came and went", add("b", 1))
		drop("b")
	}))
	audited(t, s)
}
