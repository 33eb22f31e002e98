package pgstore_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// sqlOf returns the SQL of docs/stores.md that names a role.
func sqlOf(t *testing.T, role string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(text, -1) {
		if bytes.Contains(m[1], []byte(role)) {
			return string(m[1])
		}
	}
	t.Fatalf("no SQL for %s", role)
	return ""
}

// A lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The documented roles can do what is said of them, and the upkeep of one that may
// only write fails aloud.
func TestDocumentedGrants(t *testing.T) {
	own := pgtest.For(t, "fsync=off")
	as := func(role string) string { return strings.Replace(own.URL(), "user=postgres", "user="+role, 1) }
	query(t, own, sqlOf(t, "quipu_writer"))
	o := pgstore.Options{Limits: store.Limits{TokenWindow: 300 * time.Millisecond}} // so that a table of tokens is due soon
	w := open(t, as("quipu_writer"), o)
	do(t, w, once(add("a", 1), "t"))
	w.Still()
	<-time.After(o.Limits.TokenWindow)
	if err := w.Rotate(t.Context()); err != nil {
		t.Errorf("the upkeep of the owner: %v", err)
	}

	query(t, own, "create role only_writes login; create role reader login; create role sells login;"+
		sqlOf(t, "only_writes")+sqlOf(t, "to reader")+sqlOf(t, "to sells"))
	for role, allowed := range map[string]bool{"sells": true, "reader": false} {
		conn, err := pgx.Connect(t.Context(), as(role))
		if err != nil {
			t.Fatal(err)
		}
		var left int64
		err = conn.QueryRow(t.Context(), `select quipu.take('a', 1, 'sold')`).Scan(&left)
		if allowed != (err == nil) || allowed && left != 0 {
			t.Errorf("%s takes: %d, %v", role, left, err)
		}
		if _, err := conn.Exec(t.Context(), `update quipu.cells set value = 9`); err == nil {
			t.Errorf("%s changes a cell", role)
		}
		_ = conn.Close(context.WithoutCancel(t.Context()))
	}
	<-time.After(o.Limits.TokenWindow)
	var log lines
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, as("only_writes"), o)
	do(t, s, once(add("a", 1), "u"))
	holds(t, s, "a", 1)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); meter(t, s, "quipu_postgres_upkeep_errors_total") == 0; <-tick.C {
		if time.Now().After(end) {
			t.Fatal("its upkeep does not fail")
		}
	}
	s.Still()
	if text := log.String(); strings.Count(text, "the cleanup of the PostgreSQL schema failed") != 1 || !strings.Contains(text, "42501") {
		t.Errorf("log: %s", text)
	}
	holds(t, open(t, as("reader"), pgstore.Options{Existing: true}), "a", 1)
}
