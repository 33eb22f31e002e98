package pgstore_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// Tokens are known in every generation, counted, and dropped by the table.
func TestGenerations(t *testing.T) {
	const window = time.Hour
	var nowMS atomic.Int64
	nowMS.Store(time.Now().Add(time.Minute).UnixMilli()) // after the schema was made
	move := func(d time.Duration) { nowMS.Add(d.Milliseconds()) }
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{
		Schema: schema, Limits: store.Limits{TokenWindow: window},
		Now: func() time.Time { return time.UnixMilli(nowMS.Load()) },
	})
	conn := connect(t)
	rotated := func(want ...int32) {
		t.Helper()
		if err := s.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), fmt.Sprintf(`select gen from %s.generation order by gen`, schema))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := pgx.CollectRows(rows, pgx.RowTo[int32]); err != nil || !slices.Equal(got, want) {
			t.Fatalf("generations %v, %v; want %v", got, err, want)
		}
	}
	tokens := func(want int64) {
		t.Helper()
		if a := audited(t, s); a.Tokens != want {
			t.Errorf("%d tokens, want %d", a.Tokens, want)
		}
	}
	rotated(1)
	first := do(t, s, once(add("a", 1), "t"))[0]
	again := func(token string, outcome store.Outcome) {
		t.Helper()
		if r := do(t, s, once(add("a", 1), token))[0]; r.Outcome != outcome {
			t.Errorf("token %s: %+v, want %d", token, r, outcome)
		}
	}
	move(window)
	rotated(1, 2)
	rotated(1, 2) // nothing to do
	again("t", store.Expired)
	again("u", store.Applied)
	move(window - time.Millisecond)
	rotated(1, 2)
	if r := do(t, s, once(add("a", 1), "u"))[0]; !r.Replayed || r.After != 2 {
		t.Errorf("repeat across generations: %+v", r)
	}
	again("t", store.Expired)
	tokens(2)
	move(time.Millisecond)
	rotated(1, 2, 3)
	again("t", store.Applied) // forgotten, though its row was there
	tokens(2)
	if f, err := s.Lookup(t.Context(), at("a"), "t"); err != nil || f.Result.Version <= first.Version {
		t.Errorf("lookup finds %+v, %v; the first was %+v", f, err, first)
	}
	again("v", store.Applied)
	move(window)
	rotated(2, 3, 4)
	again("t", store.Expired)
	again("u", store.Applied)
	move(window)
	rotated(3, 4, 5)
	tokens(3)
	move(3 * window)
	rotated(5, 6) // a token may have been added to 5 just now
	tokens(0)
	again("t", store.Applied)
	holds(t, s, "a", 6)
	tokens(1)
}

// A generation does not begin beside a transaction that may add a token to the
// last one: the token would be new to both.
func TestGenerationWaits(t *testing.T) {
	var nowMS atomic.Int64
	nowMS.Store(time.Now().UnixMilli())
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema, Now: func() time.Time { return time.UnixMilli(nowMS.Load()) }})
	conn := connect(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select %s.add('a', 1, 't')`, schema)); err != nil {
		t.Fatal(err)
	}
	last := func() (gen int) {
		t.Helper()
		if err := s.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := connect(t).QueryRow(t.Context(), fmt.Sprintf(`select max(gen) from %s.generation`, schema)).Scan(&gen); err != nil {
			t.Fatal(err)
		}
		return gen
	}
	nowMS.Add((25 * time.Hour).Milliseconds())
	if gen := last(); gen != 1 {
		t.Errorf("generation %d began beside a transaction", gen)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if gen := last(); gen != 2 {
		t.Errorf("generation %d is the last one", gen)
	}
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(`select %s.add('a', 1, 't')`, schema)); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "a", 1)
	audited(t, s)
}
