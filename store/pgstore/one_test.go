package pgstore_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/pgstore"
)

// A row is a writer's batches, one after the other.
type row struct {
	testing.TB
	store  store.Store
	writer store.Writer
	seq    uint64
}

// newRow returns a row that has a mark: it has made the counter a.
func newRow(t testing.TB, s store.Store) *row {
	t.Helper()
	w, err := store.Enlist(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	r := &row{t, s, w, 0}
	r.do(add("a", 0))
	return r
}

func (r *row) next(ds ...store.Delta) store.Batch {
	r.seq++
	return store.Batch{Writer: r.writer, Prev: r.seq - 1, Seq: r.seq, Apart: true, Deltas: ds}
}

// do applies the next batch, and once more, which must be told the same.
func (r *row) do(ds ...store.Delta) []store.Result {
	r.Helper()
	b := r.next(ds...)
	first, err := try(r.Context(), r.store, b)
	if err != nil {
		r.Fatalf("%+v: %v", ds, err)
	}
	r.again(b, first)
	return first.Results
}

// again sends a batch again, which must be told what it was told first.
func (r *row) again(b store.Batch, first store.Reply) {
	r.Helper()
	again, err := try(r.Context(), r.store, b)
	if err != nil || !again.Replayed {
		r.Fatalf("%+v again: %+v, %v", b.Deltas, again, err)
	}
	for i := range again.Results {
		again.Results[i].Replayed = first.Results[i].Replayed
	}
	if !slices.Equal(first.Results, again.Results) || first.Mark != b.Seq {
		r.Errorf("%+v: told %+v, mark %d, and again %+v", b.Deltas, first.Results, first.Mark, again.Results)
	}
}

// A batch of one counter that is there is one statement, and whatever it meets, it
// says what the reference says.
func TestOne(t *testing.T) {
	ms := int64(1_700_000_000_000)
	now := func() time.Time { return time.UnixMilli(ms) }
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema, Now: now})
	s.Still()
	ref := memstore.New(memstore.Options{Now: now})
	ours, theirs := newRow(t, s), newRow(t, ref)
	f := func(one bool, ds ...store.Delta) {
		t.Helper()
		s.Usual()
		before := meter(t, s, "quipu_postgres_round_trips_total")
		b := ours.next(ds...)
		r, err := try(t.Context(), s, b)
		if err != nil {
			t.Fatalf("%+v: %v", ds, err)
		}
		trips := meter(t, s, "quipu_postgres_round_trips_total") - before
		ours.again(b, r)
		if one != (trips == 1) {
			t.Errorf("%+v took %v round trips", ds, trips)
		}
		want := theirs.do(ds...)
		for i := range want {
			got := r.Results[i]
			if got.Version != 0 && want[i].Version != 0 {
				got.Version, want[i].Version = 0, 0
			}
			if got != want[i] {
				t.Errorf("%+v: %+v, want %+v", ds[i], got, want[i])
			}
		}
	}
	f(true, add("a", 5))
	f(true, want(add("a", -7)))
	f(true, add("a", 1), want(add("a", 2)), add("a", 3), want(add("a", 4)))
	f(true, laid(add("a", 1), 0))
	f(false, laid(add("a", 1), 9))
	f(false, want(add("new", 1)))
	f(true, want(add("new", 1)))
	f(false, lay(at("a"), 0, 7))
	f(true, add("a", 1))
	f(true, want(laid(add("a", 1), 7)))
	f(false, want(add("a", 1)))
	f(false, lay(at("a"), 7, 0))
	f(false, store.Delta{Cell: at("a"), Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: ms + 50})
	f(true, want(add("a", 1)))
	ms += 100
	f(false, want(add("a", 1))) // it starts from nothing
	f(true, want(add("a", 1)))
	f(false, add("b", math.MaxInt64))
	f(false, want(add("b", 1)))
	audited(t, s)

	// The version of a cell may be ahead of the sequence, and rises all the same.
	execute(t, fmt.Sprintf(`update %s.cells set version = 1000000`, schema))
	s.Usual()
	if r := ours.do(add("a", 1)); r[0].Version <= 1000000 {
		t.Errorf("version %d after 1000000", r[0].Version)
	}
}

// A value counts what became pending while it waited for the row: whoever read it
// by SQL meanwhile has seen that, and not the add that is told the value.
func TestOnePending(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	s.Still()
	r := newRow(t, s)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.cells for update`, schema)); err != nil {
		t.Fatal(err)
	}
	said := make(chan store.Reply)
	go func() {
		told, err := try(t.Context(), s, r.next(want(add("a", 1))))
		if err != nil {
			t.Error(err)
		}
		said <- told
	}()
	blocked(t, schema)
	execute(t, fmt.Sprintf(`select %s.add('a', 100)`, schema))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told := <-said; told.Results[0].Before != 100 || told.Results[0].After != 101 {
		t.Errorf("told %+v, want 101", told.Results[0])
	}
	audited(t, s)
}

// Writers at two stores who add to one counter, one statement each, are told values
// without a gap, and versions that rise with them.
func TestOneRaces(t *testing.T) {
	schema := newSchema()
	const writers, times = 6, 100
	stores := []*pgstore.Store{
		open(t, server.URL(), pgstore.Options{Schema: schema}), open(t, server.URL(), pgstore.Options{Schema: schema}),
	}
	var rows [writers]*row
	for i := range rows {
		rows[i] = newRow(t, stores[i%2])
	}
	var told [writers][]store.Result
	var wg sync.WaitGroup
	for i, r := range rows {
		wg.Go(func() {
			for range times {
				reply, err := insist(t.Context(), r.store, r.next(want(add("a", 1))))
				if err != nil || reply.Mark != r.seq {
					t.Errorf("%+v, %v", reply, err)
					return
				}
				told[i] = append(told[i], reply.Results[0])
			}
		})
	}
	wg.Wait()
	all := slices.Concat(told[:]...)
	slices.SortFunc(all, func(a, b store.Result) int { return int(a.After - b.After) })
	for i, r := range all {
		if r.After != int64(i+1) || r.Before != int64(i) || i > 0 && r.Version <= all[i-1].Version {
			t.Fatalf("after %+v: %+v", all[max(i-1, 0)], r)
		}
	}
	holds(t, stores[0], "a", writers*times)
	audited(t, stores[0])
}

// The cell is found by its index, also with a plan that was made when there was none.
func TestOneByIndex(t *testing.T) {
	schema := newSchema()
	open(t, server.URL(), pgstore.Options{Schema: schema})
	conn := connect(t)
	if _, err := conn.PgConn().Exec(t.Context(), `set plan_cache_mode = force_generic_plan; prepare one as `+pgstore.One(schema)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `explain execute one(1, 0, 1, 2, 'n', 'k', 1, 1, -1, 1, 1, 1, true, null, 'n', 0, 0, 9)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if all := fmt.Sprint(plan); err != nil || !strings.Contains(all, "Index Scan using cells_pkey") || strings.Contains(all, "Seq Scan") {
		t.Errorf("the plan is %q, %v", plan, err)
	}
}
