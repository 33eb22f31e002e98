package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// A shop is a store, a DB over it, and a user of its database.
type shop struct {
	*testing.T
	schema string
	store  *pgstore.Store
	db     *quipu.DB
	conn   *pgx.Conn
}

func openShop(t *testing.T, definitions ...definition.Definition) *shop {
	t.Helper()
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	h := &shop{t, schema, s, quipu.New(s, quipu.Options{}), connect(t)}
	h.define(definitions...)
	return h
}

func (h *shop) define(definitions ...definition.Definition) {
	h.Helper()
	if _, err := h.db.Define(h.Context(), definitions, quipu.DefineOptions{}); err != nil {
		h.Fatal(err)
	}
}

func (h *shop) set(key string, n int64) {
	h.Helper()
	if _, err := h.db.Set(h.Context(), key, n); err != nil {
		h.Fatal(err)
	}
}

// A queryer is a connection, or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// take calls a function that begins with take, and returns what is left, nil for null.
func (h *shop) take(q queryer, call string, args ...any) (left *int64, err error) {
	err = q.QueryRow(h.Context(), "select "+h.schema+"."+call, args...).Scan(&left)
	return left, err
}

// left checks what is left after taking.
func (h *shop) left(want int64, call string) {
	h.Helper()
	if left, err := h.take(h.conn, call); err != nil || left == nil || *left != want {
		h.Errorf("%s: %v, %v; want %d", call, left, err, want)
	}
}

// fails checks the code of an error, and that it says something.
func (h *shop) fails(code, says, call string) {
	h.Helper()
	_ = h.failed(code, says, call)
}

// failed is fails, and returns the details.
func (h *shop) failed(code, says, call string) (detail string) {
	h.Helper()
	_, err := h.take(h.conn, call)
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || e.Code != code || !strings.Contains(e.Message, says) {
		h.Fatalf("%s: %v, want %s and %q", call, err, code, says)
	}
	return e.Detail
}

// whole checks a counter, and that everything adds up, before and after what SQL has
// counted was gathered.
func (h *shop) whole(key string, want int64) {
	h.Helper()
	holds(h, h.store, key, want)
	was := audited(h, h.store)
	if err := h.store.Step(h.Context()); err != nil {
		h.Fatal(err)
	}
	holds(h, h.store, key, want)
	if is := audited(h, h.store); is.Deltas != was.Deltas || is.Tokens != was.Tokens {
		h.Errorf("%+v was made of %+v", is, was)
	}
}

func stocked() definition.Definition {
	return definition.Definition{Pattern: "stock:*", Floor: new(int64(0)), Ceiling: new(int64(100))}
}

// TestTake sells in the transaction that has the order.
func TestTake(t *testing.T) {
	h := openShop(t, stocked())
	h.set("stock:lamp", 10)
	h.left(7, `take('stock:lamp', 3)`)
	h.whole("stock:lamp", 7)
	execute(t, fmt.Sprintf(`create table %s.orders (id int primary key)`, h.schema))
	order := func(id int, end func(tx pgx.Tx) error) {
		t.Helper()
		tx, err := h.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), fmt.Sprintf(`insert into %s.orders values ($1)`, h.schema), id); err != nil {
			t.Fatal(err)
		}
		for want := int64(5); want > 3; want-- { // It sees what it has taken itself.
			if left, err := h.take(tx, `take('stock:lamp', $1)`, 6-want); err != nil || *left != 6-(6-want)*(7-want)/2+1 {
				t.Fatalf("%v, %v", left, err)
			}
		}
		holds(t, h.store, "stock:lamp", 7)
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	order(1, func(tx pgx.Tx) error { return tx.Rollback(t.Context()) })
	h.whole("stock:lamp", 7)
	order(2, func(tx pgx.Tx) error { return tx.Commit(t.Context()) })
	h.whole("stock:lamp", 4)

	detail := h.failed("QP004", "quipu: taking 5 from 'stock:lamp', which has 4, would end below the floor of 0", `take('stock:lamp', 5)`)
	var told struct {
		Key                 string
		Value, Asked, Floor int64
	}
	if err := json.Unmarshal([]byte(detail), &told); err != nil || told.Key != "stock:lamp" || told.Value != 4 || told.Asked != -5 || told.Floor != 0 {
		t.Errorf("%s: %+v, %v", detail, told, err)
	}
	if left, err := h.take(h.conn, `take('stock:lamp', 5, or_null => true)`); err != nil || left != nil {
		t.Errorf("%v, %v; want null", left, err)
	}
	h.fails("QP004", "would end below the floor of 2", `take('stock:lamp', 3, floor => 2)`)
	h.fails("QP004", "would end below the floor of 0", `take('stock:lamp', 5, floor => -9)`) // A call can't loosen it.
	h.fails("QP004", "would end above the ceiling of 100", `take('stock:lamp', -97)`)
	h.left(100, `take('stock:lamp', -96)`)
	h.left(99, `take('stock:lamp', 1)`)
	if _, err := h.db.Add(t.Context(), "stock:lamp", -100); !errors.Is(err, quipu.ErrBound) {
		t.Error(err)
	}
	h.whole("stock:lamp", 99)
	r, err := h.db.Add(t.Context(), "stock:lamp", -1, quipu.WantValue())
	if err != nil || r.Value != 98 {
		t.Errorf("%+v, %v", r, err)
	}

	// Without a definition the floor is 0, or what the call says.
	h.set("free", 2)
	execute(t, fmt.Sprintf(`select %s.add('free', 3)`, h.schema))
	h.left(1, `take('free', 4)`)
	h.fails("QP004", "which has 1, would end below the floor of 0", `take('free', 2)`)
	h.left(-8, `take('free', 9, floor => -8)`)
	h.whole("free", -8)
}

// TestTakeOnce has takes with tokens be repeated by SQL and by servers, and the other way
// round.
func TestTakeOnce(t *testing.T) {
	h := openShop(t, stocked())
	h.set("stock:lamp", 10)
	for range 2 {
		h.left(7, `take('stock:lamp', 3, 't')`)
		h.left(5, `take('stock:lamp', 2, 'u', floor => 1)`)
	}
	h.whole("stock:lamp", 5)
	f := func(token string, n, value int64, opts ...quipu.WriteOption) {
		t.Helper()
		r, err := h.db.Add(t.Context(), "stock:lamp", n, append(opts, quipu.Token(token), quipu.WantValue())...)
		if err != nil || !r.Replayed || r.Value != value || r.Applied != n {
			t.Errorf("%s: %+v, %v", token, r, err)
		}
	}
	f("t", -3, 7)
	f("u", -2, 5, quipu.Floor(1))
	if fate, err := h.db.Lookup(t.Context(), "stock:lamp", "t"); err != nil || fate.State != quipu.TokenApplied || fate.Receipt.Value != 7 {
		t.Errorf("%+v, %v", fate, err)
	}
	if _, err := h.db.Add(t.Context(), "stock:lamp", -1, quipu.Token("server"), quipu.WantValue()); err != nil {
		t.Fatal(err)
	}
	h.left(4, `take('stock:lamp', 1, 'server')`)
	if _, err := h.db.Settle(t.Context(), "stock:lamp", "settled"); err != nil {
		t.Fatal(err)
	}
	h.fails("QP002", "was settled", `take('stock:lamp', 1, 'settled')`)
	h.fails("QP003", "another payload", `take('stock:lamp', 2, 't')`)
	h.fails("QP003", "another payload", `take('stock:lamp', 3, 't', floor => 0)`)

	// A refusal by SQL is not remembered. One by a server is.
	h.fails("QP004", "", `take('stock:lamp', 5, 'large')`)
	h.left(9, `take('stock:lamp', -5)`)
	h.left(4, `take('stock:lamp', 5, 'large')`)
	if _, err := h.db.Add(t.Context(), "stock:lamp", -5, quipu.Token("no")); !errors.Is(err, quipu.ErrBound) {
		t.Error(err)
	}
	h.left(9, `take('stock:lamp', -5)`)
	h.fails("QP004", "which has 4", `take('stock:lamp', 5, 'no')`)
	h.define()
	h.fails("QP004", "", `add('stock:lamp', -5, 'no')::text::bigint`)
	h.whole("stock:lamp", 9)
}

// TestTakeRefuses has take and add refuse what SQL can't decide.
func TestTakeRefuses(t *testing.T) {
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	h := openShop(t, stocked(), definition.Definition{
		Pattern: "seen", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(48 * 3600 * 1e9)}}, Ledger: definition.Ledger{Record: definition.All},
	}, definition.Definition{Pattern: "s*"})
	for _, key := range []string{"stock:a", "seen", "some", "large"} {
		h.set(key, 5)
	}
	h.fails("QP005", "'seen' has ledger, windows: only a server can write it", `take('seen', 1)`)
	h.fails("QP005", "use take", `add('stock:a', 1)::text::bigint`)
	h.left(4, `take('some', 1)`)
	h.fails("QP005", "'stock:none' does not exist", `take('stock:none', -1)`)
	h.fails("QP004", "which has 0", `take('stock:none', 1)`)
	h.fails("22023", "want an amount above 0", `take('stock:a', 0)`)
	h.fails("22023", "a key has 1 to 512 bytes", `take('', 1)`)
	h.fails("22023", "a namespace 1 to 64", `take('a', 1, null, 'a/b')`)
	h.fails("22003", "out of range", `take('large', 9223372036854775807, floor => -9223372036854775807 - 1)::int`)
	h.fails("QP004", "which has 0", `take('stock:a', 1, null, 'other')`)

	tx, err := h.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.take(tx, `take('stock:a', 1)`)
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "0A000" {
		t.Errorf("%v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	split := store.Delta{Cell: at("split"), Op: store.OpLayout, N: 1 << 16, Guard: store.Guard{Laid: true}}
	members := store.Delta{Cell: at("liked"), Op: store.OpAdd, N: 3, Event: &store.Event{Riders: []store.Rider{
		{Part: store.PartFields{Kind: store.PartMembers, Position: 1}.Part(), Op: store.OpAdd, N: 3},
	}}}
	b := store.Batch{Books: []store.Book{{Namespace: "default", ID: 1}}, Deltas: []store.Delta{split, members}}
	if r, err := try(t.Context(), h.store, b); err != nil || r.Results[0].Outcome != store.Applied || r.Results[1].Outcome != store.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
	h.fails("QP005", "'split' is split", `take('split', 1)`)
	h.fails("QP005", "'liked' has members or reservations", `take('liked', 1)`)
	h.whole("stock:a", 5)
}

// TestTakeByNewDefinitions has definitions change while a transaction is open.
func TestTakeByNewDefinitions(t *testing.T) {
	h := openShop(t, stocked())
	h.set("stock:lamp", 10)
	tx, err := h.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.take(tx, `take('stock:lamp', 1)`); err != nil {
		t.Fatal(err)
	}
	d := stocked()
	d.Floor = new(int64(5))
	h.define(d) // It waits for nobody.
	_, err = h.take(tx, `take('stock:lamp', 5)`)
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "QP004" || !strings.Contains(e.Message, "which has 9, would end below the floor of 5") {
		t.Errorf("%v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.left(5, `take('stock:lamp', 5)`)

	// A book that is published and not in force yet is waited for.
	execute(t, fmt.Sprintf(`update %s.fence set least = least - 1`, h.schema))
	h.fails("40001", "being changed", `take('stock:lamp', 1)`)
	h.fails("40001", "being changed", `add('free', 1)::text::bigint`)
	execute(t, fmt.Sprintf(`update %s.fence set least = least + 1`, h.schema))
	h.whole("stock:lamp", 5)

	// One that comes while the counter is locked by another is noticed.
	h.left(8, `take('stock:lamp', -3)`)
	tx, err = connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.take(tx, `take('stock:lamp', -1)`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := h.take(h.conn, `take('stock:lamp', 1)`)
		done <- err
	}()
	h.waits()
	d.Floor = new(int64(6))
	h.define(d)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = <-done
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "40001" {
		t.Errorf("%v", err)
	}
	h.fails("QP004", "floor of 6", `take('stock:lamp', 4)`)
	h.whole("stock:lamp", 9)
}

// waits waits until somebody waits for a lock to take.
func (h *shop) waits() {
	h.Helper()
	waiting := fmt.Sprintf(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%%s.take%%'`, h.schema)
	for watch, n := connect(h), 0; n == 0; {
		if err := watch.QueryRow(h.Context(), waiting).Scan(&n); err != nil {
			h.Fatal(err)
		}
	}
}

// TestTakeWaits has the last one be taken in a transaction that is open: who comes next
// learns how it ends.
func TestTakeWaits(t *testing.T) {
	h := openShop(t, stocked())
	h.set("stock:lamp", 1)
	for _, commits := range []bool{false, true} {
		tx, err := connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left, err := h.take(tx, `take('stock:lamp', 1, 't')`); err != nil || *left != 0 {
			t.Fatalf("%v, %v", left, err)
		}
		done := make(chan *int64, 1)
		go func() {
			left, err := h.take(h.conn, `take('stock:lamp', 1, or_null => true)`)
			if err != nil {
				t.Error(err)
			}
			done <- left
		}()
		h.waits()
		if commits {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if left := <-done; err != nil || (left == nil) != commits {
			t.Errorf("%v, %v", left, err)
		}
		if !commits {
			h.left(1, `take('stock:lamp', -1)`)
		}
	}
	h.left(0, `take('stock:lamp', 1, 't')`)
	h.whole("stock:lamp", 0)
}

// TestTakeRaces has several sell the same stock by SQL and by two servers: all of it is
// sold, and no more.
func TestTakeRaces(t *testing.T) {
	h := openShop(t, stocked())
	const stock, each = 100, 30
	h.set("stock:lamp", stock)
	other := quipu.New(open(t, server.URL(), pgstore.Options{Schema: h.schema}), quipu.Options{})
	var sold, refused atomic.Int64
	var wg sync.WaitGroup
	count := func(refusal bool, err error) {
		switch {
		case err != nil:
			t.Error(err)
		case refusal:
			refused.Add(1)
		default:
			sold.Add(1)
		}
	}
	for w := range 4 {
		conn, db := connect(t), []*quipu.DB{h.db, other}[w%2]
		wg.Go(func() {
			for i := range each {
				left, err := h.take(conn, `take('stock:lamp', 1, $1, or_null => true)`, fmt.Sprint("sql", w, "-", i))
				count(left == nil, err)
			}
		})
		wg.Go(func() {
			for i := range each {
				_, err := db.Add(t.Context(), "stock:lamp", -1, quipu.Token(fmt.Sprint("go", w, "-", i)))
				if errors.Is(err, quipu.ErrBound) {
					count(true, nil)
				} else {
					count(false, err)
				}
			}
		})
	}
	wg.Wait()
	if sold.Load() != stock || refused.Load() != 8*each-stock {
		t.Errorf("%d sold, %d refused", sold.Load(), refused.Load())
	}
	h.whole("stock:lamp", 0)
}
