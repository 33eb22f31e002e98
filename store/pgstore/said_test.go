package pgstore_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/definition"
)

// books returns which books were taken apart, as how many rows each.
func (h *shop) books() (all string) {
	h.Helper()
	sql := fmt.Sprintf(`select coalesce(string_agg(book || ':' || n, ' ' order by book), '')
		from (select book, count(*) as n from %s.said group by book) b`, h.schema)
	if err := h.conn.QueryRow(h.Context(), sql).Scan(&all); err != nil {
		h.Fatal(err)
	}
	return all
}

func (h *shop) said(want string) {
	h.Helper()
	if got := h.books(); got != want {
		h.Errorf("taken apart are %q, want %q", got, want)
	}
}

// TestSaid takes and adds by definitions that were taken apart once, and by none that are old.
func TestSaid(t *testing.T) {
	free := definition.Definition{Pattern: "free:*", Ledger: definition.Ledger{Record: definition.All}}
	h := openShop(t, free, stocked())
	h.set("stock:lamp", 10)
	h.set("plain", 10)
	h.said("")
	h.left(9, `take('plain', 1)`)
	h.said("1:3") // what it says of two patterns, and that this is all
	h.left(7, `take('stock:lamp', 3)`)
	h.fails("QP005", "ledger", `take('free:1', 1)`)
	h.fails("QP005", "use take", `add('stock:lamp', 1)`)
	h.said("1:3")

	low := stocked()
	low.Floor = new(int64(6))
	h.define(low)
	h.fails("QP004", "below the floor of 6", `take('stock:lamp', 2)`)
	h.said("1:3") // The refusal took back what it had learned.
	h.left(6, `take('stock:lamp', 1)`)
	h.said("2:2")
	h.fails("QP004", "below the floor of 6", `take('stock:lamp', 1)`)

	// An open transaction that has learned a book holds nobody up, nor does one that sees an
	// earlier moment.
	h.define(free)
	open, err := h.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.take1(open, 5, `take('stock:lamp', 1)`)
	other := connect(t)
	h.take1(other, 9-1, `take('plain', 1)`)
	tx, err := other.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select %s.add('stock:lamp', 1)`, h.schema)); err != nil {
		t.Error(err)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select %s.add('stock:lamp', 1)`, h.schema)); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.said("3:2")
	if err := h.store.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.whole("stock:lamp", 7)
}

// TestAddsOfNobody adds by SQL to counters whose users are counted: there is nobody to count.
func TestAddsOfNobody(t *testing.T) {
	day, err := definition.ParseWidth("1d")
	if err != nil {
		t.Fatal(err)
	}
	h := openShop(t,
		definition.Definition{Pattern: "view:*", Once: definition.Once{Every: day}},
		definition.Definition{Pattern: "post:*", Choices: []string{"like"}},
	)
	for _, key := range []string{"view:1", "post:1"} {
		h.fails("QP005", "only a server can write it", fmt.Sprintf(`add('%s', 1)`, key))
	}
	if err := h.store.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"view:1", "post:1"} {
		if c, err := h.db.Read(t.Context(), key); err != nil || c.Exists {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
	}
}

// take1 takes by a connection or a transaction.
func (h *shop) take1(q queryer, want int64, call string) {
	h.Helper()
	if left, err := h.take(q, call); err != nil || left == nil || *left != want {
		h.Fatalf("%s: %v, %v; want %d", call, left, err, want)
	}
}
