package pgstore_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// Who asks for the value is told what is pending too, whatever else his write has.
func TestPendingIsTold(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	want := int64(1)
	do(t, s, add("a", 1), add("other", 1))
	for i := range 6 {
		execute(t, fmt.Sprintf(`select %s.add('a', 1000)`, schema))
		d := add("a", 1)
		if d.Want = true; i%2 == 1 {
			d.Guard.Token = fmt.Sprint("t", i)
		}
		want += 1001
		if r := do(t, s, d)[0]; r.Before != want-1 || r.After != want {
			t.Fatalf("%+v, want %d after", r, want)
		}
	}
	audited(t, s)
}

// However much is pending, all of it is read and told, although one transaction does
// not fold it.
func TestPendingIsToldWhole(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	s.Still()
	const n = 2*pgstore.PendingMax + 1
	for _, key := range []string{"read", "told", "set"} {
		execute(t, fmt.Sprintf(`insert into %s.pending (ns, key, delta, at_ms) select 'default', '%s', 1, 0 from generate_series(1, %d)`,
			schema, key, n))
	}
	holds(t, s, "read", n)
	set := store.Delta{Cell: at("set"), Op: store.OpSet, N: 5, Want: true}
	for _, r := range do(t, s, want(add("told", 0)), set) {
		if r.Before != n {
			t.Errorf("%+v, want %d before", r, n)
		}
	}
	holds(t, s, "set", 5)
	audited(t, s)
}

// An order and its stock are one transaction of the user's.
func TestAddInTransaction(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	execute(t, fmt.Sprintf(`create table %s.orders (id int primary key)`, schema))
	order := func(id int, end func(tx pgx.Tx) error) {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{`insert into %s.orders values ($1)`, `select %s.add('stock', -$1::bigint)`, `select %s.add('new', 1)`} {
			args := []any{id}
			if sql == `select %s.add('new', 1)` {
				args = nil
			}
			if _, err := tx.Exec(t.Context(), fmt.Sprintf(sql, schema), args...); err != nil {
				t.Fatal(err)
			}
		}
		// Nobody waits for the transaction, and nobody sees it.
		holds(t, s, "new", 0)
		do(t, s, add("stock", 0), store.Delta{Cell: at("new"), Op: store.OpGet})
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	do(t, s, add("stock", 100))
	order(7, func(tx pgx.Tx) error { return tx.Rollback(t.Context()) })
	holds(t, s, "stock", 100)
	order(5, func(tx pgx.Tx) error { return tx.Commit(t.Context()) })
	var value int64
	if err := conn.QueryRow(t.Context(), fmt.Sprintf(`select %s.value('stock')::bigint`, schema)).Scan(&value); err != nil || value != 95 {
		t.Errorf("value of stock is %d, %v; want 95", value, err)
	}
	holds(t, s, "stock", 95)
	es, err := s.Scan(t.Context(), store.Range{Namespace: "default"}, 10)
	if err != nil || len(es) != 2 || es[0].Key != "new" || es[0].Value.N != 1 || es[0].Value.Version == 0 || es[1].Value.N != 95 {
		t.Errorf("scan lists %+v, %v", es, err)
	}
	holds(t, s, "new", 1)
	audited(t, s)
}

// What is pending is met by whatever comes first.
func TestPendingIsFolded(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	f := func(name string, meet func(key string)) {
		t.Helper()
		execute(t, fmt.Sprintf(`select %[1]s.add('%[2]s', 5), %[1]s.add('%[2]s', -2)`, schema, name))
		meet(name)
		holds(t, s, name, 3)
		audited(t, s)
	}
	result := func(d store.Delta, want store.Result) {
		t.Helper()
		d.Want = true
		r := do(t, s, d)[0]
		if want.Version = r.Version; r != want {
			t.Errorf("%+v returns %+v, want %+v", d, r, want)
		}
	}
	f("upkeep", func(string) {
		if err := s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	f("read", func(string) {})
	f("get", func(key string) {
		result(store.Delta{Cell: at(key), Op: store.OpGet}, store.Result{Outcome: store.Applied, Before: 3, After: 3, Existed: true})
	})
	f("delete", func(key string) {
		result(store.Delta{Cell: at(key), Op: store.OpDelete}, store.Result{Outcome: store.Applied, Before: 3, Existed: true})
		do(t, s, add(key, 3))
	})
	f("bound", func(key string) {
		d := add(key, 1)
		d.Guard.Bound = &store.Bound{High: 3}
		result(d, store.Result{Outcome: store.Bounded, Before: 3, After: 3, Existed: true})
	})
	f("plain", func(key string) { do(t, s, add(key, 0)) }) // and the read after it
	var left int
	if err := connect(t).QueryRow(t.Context(), fmt.Sprintf(`select count(*) from %s.pending`, schema)).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d adds are pending, %v", left, err)
	}
	if n, err := s.Size(t.Context(), "default"); err != nil || n != 6 {
		t.Errorf("%d keys, %v; want 6", n, err)
	}
}

// A namespace that has nothing but what is pending is one, in its place.
func TestPendingNamespaces(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	execute(t, fmt.Sprintf(`select %[1]s.add('a', 1, null, 'b'), %[1]s.add('b', 1, null, 'b'), %[1]s.add('a', 1, null, 'é'), %[1]s.add('a', 1)`, schema))
	f := func(after string, n int, want ...string) {
		t.Helper()
		if got, err := s.Namespaces(t.Context(), after, n); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d namespaces after %q are %q, %v; want %q", n, after, got, err, want)
		}
	}
	f("", 10, "b", "default", "é")
	f("", 2, "b", "default")
	f("b", 1, "default")
	f("default", 10, "é")
	f("é", 10)
}

func TestPendingRefused(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema, Limits: store.Limits{KeysMax: 1}})
	do(t, s, store.Delta{Cell: at("a"), Op: store.OpSet, N: math.MaxInt64 - 1})
	execute(t, fmt.Sprintf(`select %[1]s.add('a', 1, 't'), %[1]s.add('a', 1, 'u'), %[1]s.add('b', 1)`, schema))
	// A write with the token of an add that can't be counted is a new one.
	u := once(add("a", -1), "u")
	if r := do(t, s, u)[0]; r.Outcome != store.Applied || r.Replayed || r.Before != math.MaxInt64 {
		t.Errorf("a write with a token that was refused: %+v", r)
	}
	do(t, s, add("a", 1))
	execute(t, fmt.Sprintf(`select %[1]s.add('a', 1, 'v')`, schema))
	holds(t, s, "a", math.MaxInt64)
	holds(t, s, "b", 0)
	for token, state := range map[string]store.TokenState{"t": store.TokenApplied, "u": store.TokenApplied, "v": store.TokenUnknown} {
		if f, err := s.Lookup(t.Context(), at("a"), token); err != nil || f.State != state {
			t.Errorf("token %s is %+v, %v", token, f, err)
		}
	}
	if a := audited(t, s); a.Tokens != 2 {
		t.Errorf("%d tokens, want 2", a.Tokens)
	}
	var got []int16
	rows, err := connect(t).Query(t.Context(), fmt.Sprintf(`select outcome from %s.pending_refused order by id`, schema))
	if err == nil {
		got, err = pgx.CollectRows(rows, pgx.RowTo[int16])
	}
	if err != nil || !slices.Equal(got, []int16{int16(store.Overflow), int16(store.Full), int16(store.Overflow)}) {
		t.Errorf("refused with %v, %v", got, err)
	}
	if n := meter(t, s, "quipu_postgres_pending_refused_total"); n != 3 {
		t.Errorf("%v refused are metered", n)
	}
}

// A token of an add by SQL is the same token everywhere.
func TestAddOnce(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	sql := func(key string, n int64, token string) error {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`select %s.add($1, $2, $3)`, schema), key, n, token)
		return err
	}
	fails := func(err error, code string) {
		t.Helper()
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != code {
			t.Errorf("error %v, want %s", err, code)
		}
	}
	for range 3 {
		if err := sql("a", 5, "t"); err != nil {
			t.Fatal(err)
		}
		audited(t, s)
		holds(t, s, "a", 5)
	}
	fails(sql("a", 6, "t"), "QP003")
	if err := sql("b", 6, "t"); err != nil { // a token is its counter's
		t.Fatal(err)
	}
	db := quipu.New(s, quipu.Options{})
	for _, n := range []int64{5, 1, -1, 63, 64, -64, -65, math.MaxInt64, math.MinInt64} {
		key := fmt.Sprint("n", n)
		if err := sql(key, n, "u"); err != nil {
			t.Fatal(err)
		}
		if r, err := db.Add(t.Context(), key, n, quipu.Token("u")); err != nil || !r.Replayed {
			t.Errorf("an add of %d by SQL, then by the library: %+v, %v", n, r, err)
		}
		holds(t, s, key, n)
		if _, err := db.Add(t.Context(), key, 7, quipu.Token("u")); !errors.Is(err, store.ErrToken) {
			t.Errorf("another payload: %v", err)
		}
	}
	if f, err := s.Lookup(t.Context(), at("a"), "t"); err != nil || f.State != store.TokenApplied || f.Op != store.OpAdd || f.N != 5 {
		t.Errorf("fate %+v, %v", f, err)
	}
	if _, err := db.Add(t.Context(), "c", 5, quipu.Token("v")); err != nil {
		t.Fatal(err)
	}
	if err := sql("c", 5, "v"); err != nil { // the other way round
		t.Fatal(err)
	}
	holds(t, s, "c", 5)
	do(t, s, store.Delta{Cell: at("d"), Op: store.OpSettle, Guard: store.Guard{Token: "w"}})
	fails(sql("d", 5, "w"), "QP002")
	fails(sql("", 5, "w"), "22023")
	fails(sql("d", 5, ""), "22023")
	holds(t, s, "d", 0)
	audited(t, s)
}

// Adds by SQL and by the store, with tokens that both have, count once each.
func TestAddRaces(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	db := quipu.New(s, quipu.Options{})
	const tokens = 40
	var wg sync.WaitGroup
	for g := range 4 {
		conn := connect(t)
		wg.Go(func() {
			for i := range tokens {
				var err error
				if g%2 == 0 {
					_, err = conn.Exec(t.Context(), fmt.Sprintf(`select %s.add('a', 1, $1)`, schema), fmt.Sprint(i))
				} else {
					_, err = db.Add(t.Context(), "a", 1, quipu.Token(fmt.Sprint(i)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	holds(t, s, "a", tokens)
	if a := audited(t, s); a.Tokens != tokens {
		t.Errorf("%d tokens, want %d", a.Tokens, tokens)
	}
}

// A write whose token is in a transaction of somebody else waits for it, and is
// then its repeat.
func TestAddMeetsTransaction(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	db := quipu.New(s, quipu.Options{})
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select %s.add('a', 1, 't')`, schema)); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		quipu.Receipt
		error
	}
	said := make(chan answer)
	go func() {
		r, err := db.Add(t.Context(), "a", 1, quipu.Token("t"))
		said <- answer{r, err}
	}()
	blocked(t, schema)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-said; a.error != nil || !a.Replayed {
		t.Errorf("the write returned %+v, %v", a.Receipt, a.error)
	}
	holds(t, s, "a", 1)
	audited(t, s)
}

// A large add by SQL to a counter that is split, and committed, counts: its own
// cell takes it.
func TestPendingLarge(t *testing.T) {
	for _, n := range []int64{store.AddMax, store.AddMax + 1, -store.AddMax - 1} {
		schema := newSchema()
		s := open(t, server.URL(), pgstore.Options{Schema: schema})
		s.Still()
		do(t, s, add("a", 1))
		do(t, s, store.Delta{Cell: at("a"), Op: store.OpLayout, N: 1<<16 | 2, Guard: store.Guard{Laid: true}})
		execute(t, fmt.Sprintf(`select %s.add('a', %d)`, schema, n))
		var v [1]store.Value
		if err := s.Read(t.Context(), []store.Cell{at("a")}, v[:]); err != nil || v[0].N != 1+n {
			t.Errorf("%d was added to 1: %+v, %v", n, v[0], err)
		}
	}
}
