package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

func lay(c store.Cell, from, to int64) store.Delta {
	return store.Delta{Cell: c, Op: store.OpLayout, N: to, Guard: store.Guard{Laid: true, Layout: from}}
}

func laid(d store.Delta, word int64) store.Delta {
	d.Guard.Laid, d.Guard.Layout = true, word
	return d
}

func want(d store.Delta) store.Delta {
	d.Want = true
	return d
}

// Adds to a split counter and to its shards go the short way, as others do. One
// that the layout refuses is decided the long way, and its neighbours are too.
func TestPlainLayouts(t *testing.T) {
	s := open(t, server.URL(), pgstore.Options{Schema: newSchema()})
	w, err := store.Enlist(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	shard := store.ShardCell(at("home"), 1)
	do(t, s, add("home", 5), lay(at("home"), 0, 7), lay(shard, 0, 3), add("other", 1))
	toShard := store.Delta{Cell: shard, Op: store.OpAdd, N: 1}
	first := store.Batch{Writer: w, Seq: 1, Apart: true, Deltas: []store.Delta{add("other", 1)}}
	if _, err := try(t.Context(), s, first); err != nil { // it has a mark now
		t.Fatal(err)
	}
	seq := uint64(1)
	f := func(plain bool, deltas []store.Delta, outcomes ...store.Outcome) {
		t.Helper()
		before := meter(t, s, "quipu_postgres_plain_total")
		b := store.Batch{Writer: w, Prev: seq, Seq: seq + 1, Apart: true, Deltas: deltas}
		seq++
		r, err := try(t.Context(), s, b)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range outcomes {
			if r.Results[i].Outcome != o {
				t.Errorf("%+v: outcome %d, want %d", deltas[i], r.Results[i].Outcome, o)
			}
		}
		if after := meter(t, s, "quipu_postgres_plain_total"); after > before != plain {
			t.Errorf("%+v went the short way: %v", deltas, after > before)
		}
		again, err := try(t.Context(), s, b)
		if err != nil || !again.Replayed {
			t.Fatalf("again: %+v, %v", again, err)
		}
		for i := range again.Results {
			if again.Results[i].Replayed = false; again.Results[i] != r.Results[i] {
				t.Errorf("again: %+v, first %+v", again.Results[i], r.Results[i])
			}
		}
	}
	const yes, unmet, split = store.Applied, store.Unmet, store.Split
	f(true, []store.Delta{add("home", 1)}, yes)
	f(true, []store.Delta{laid(toShard, 3)}, yes)
	f(true, []store.Delta{add("new", 1), laid(toShard, 3), add("home", 1), want(add("other", 1)), laid(toShard, 3)}, yes, yes, yes, yes, yes)
	f(true, []store.Delta{add("home", 1), laid(add("home", 1), 7), want(laid(add("home", 1), 7))}, yes, yes, yes)
	f(true, []store.Delta{laid(add("other", 1), 0), laid(add("newer", 1), 0), want(add("newest", 1))}, yes, yes, yes)
	f(false, []store.Delta{add("home", 1), want(add("home", 1)), add("other", 1)}, yes, split, yes)
	f(false, []store.Delta{laid(toShard, 4), add("other", 1)}, unmet, yes)
	f(false, []store.Delta{laid(add("home", 1), 0), add("home", 1)}, unmet, yes)
	f(false, []store.Delta{laid(add("home", 1), 0), laid(add("home", 1), 7)}, unmet, yes)
	f(false, []store.Delta{laid(add("absent", 1), 9), add("other", 1)}, unmet, yes)
	holds(t, s, "home", 5+1+1+3+1+1+1)
	holds(t, s, "other", 1+1+1+1+1+1+1)
	holds(t, s, "absent", 0)
	audited(t, s)
}

// A reply says how long the row of its counter was another's.
func TestWaited(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	do(t, s, add("a", 1))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.cells for update`, schema)); err != nil {
		t.Fatal(err)
	}
	said := make(chan store.Reply)
	go func() {
		r, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{add("a", 1)}})
		if err != nil {
			t.Error(err)
		}
		said <- r
	}()
	blocked(t, schema)
	if _, err := tx.Exec(t.Context(), `select pg_sleep(0.02)`); err != nil { // and keep it for so long
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-said; r.Waited < 10*time.Millisecond {
		t.Errorf("waited %s, want at least 20ms, or little less", r.Waited)
	}
}

// A reply says how often its transaction was made again for another, which in a
// database of that isolation is as often as another was first.
func TestRetries(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL()+"&default_transaction_isolation=repeatable%20read", pgstore.Options{Schema: schema}), connect(t)
	f := func(d store.Delta) {
		t.Helper()
		if r, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{d}}); err != nil || r.Retries != 0 {
			t.Errorf("alone: %+v, %v", r, err)
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), fmt.Sprintf(`update %s.cells set value = value`, schema)); err != nil {
			t.Fatal(err)
		}
		said := make(chan store.Reply)
		go func() {
			r, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{d}})
			if err != nil {
				t.Error(err)
			}
			said <- r
		}()
		blocked(t, schema)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := <-said; r.Retries != 1 {
			t.Errorf("%+v: %d retries, want 1", d, r.Retries)
		}
	}
	f(add("a", 1))
	f(store.Delta{Cell: at("a"), Op: store.OpSet, N: 7})
	holds(t, s, "a", 7)
}

// The value of a split counter is the same in SQL.
func TestValueOfShards(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	f := func(n int64) {
		t.Helper()
		var got int64
		if err := conn.QueryRow(t.Context(), fmt.Sprintf(`select %s.value('a/é')::bigint`, schema)).Scan(&got); err != nil || got != n {
			t.Errorf("value is %d, %v; want %d", got, err, n)
		}
	}
	const gen = 1<<47 - 5
	home, shard := at("a/é"), func(i int) store.Cell { return store.ShardCell(at("a/é"), i) }
	open, closed := int64(hot.Open(gen)), int64(hot.Open(gen).Fold())
	do(t, s, add("a/é", 1), lay(home, 0, int64(hot.Home(gen, 4))))
	f(1)
	for i, word := range []int64{0, open, closed, int64(hot.Open(gen + 1)), open} {
		if i > 0 {
			do(t, s, lay(shard(i), 0, word), laid(store.Delta{Cell: shard(i), Op: store.OpAdd, N: 10 << i}, word))
		}
	}
	f(1 + 10<<1 + 10<<2) // the third is of another split, and there is no fourth
	execute(t, fmt.Sprintf(`select %s.add('a/é', 1000)`, schema))
	f(1 + 10<<1 + 10<<2 + 1000)
	do(t, s, lay(home, int64(hot.Home(gen, 4)), int64(hot.Home(gen, 4).Fold())))
	f(1 + 10<<1 + 10<<2 + 1000)
	do(t, s, lay(home, int64(hot.Home(gen, 4).Fold()), 0))
	f(1 + 1000)
}
