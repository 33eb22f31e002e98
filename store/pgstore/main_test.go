package pgstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
	"github.com/quipudb/quipu/store/storetest"
)

// server is one for all tests but those that crash it. It is told not to sync:
// most tests are about what is decided.
var server *pgtest.Server

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if err := flag.Set("rapid.checks", "25"); err != nil { // unless the command says otherwise
		return 0, err
	}
	if flag.Parse(); flag.Lookup("test.fuzz").Value.String() != "" {
		return m.Run(), nil // without a server, which would keep a worker of the fuzzer from ending
	}
	dir, err := os.MkdirTemp("", "pgstore")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if server, err = pgtest.Start(context.Background(), dir, "fsync=off", "max_connections=200", "deadlock_timeout=100ms"); err != nil {
		return 0, err
	}
	defer func() { err = server.Stop() }()
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
}

var schemas atomic.Int64

// newSchema returns the name of a schema that no other test has.
func newSchema() string { return fmt.Sprintf("t%d", schemas.Add(1)) }

// open opens a store, and closes it when the test ends.
func open(t testing.TB, url string, o pgstore.Options) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { shut(t, s) })
	return s
}

func shut(t testing.TB, s store.Store) {
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// A factory makes stores for the laws. Making a schema takes long, so it empties
// one that is no longer used if there is one.
type factory struct {
	url  string
	used []*used
}

type used struct {
	schema string
	store  store.Store
	ending sync.WaitGroup // stores that were left to crash
}

func (f *factory) schema(t testing.TB) *used {
	for _, u := range f.used {
		if _, err := u.store.Lookup(t.Context(), store.Cell{Key: "k"}, "t"); !errors.Is(err, store.ErrClosed) {
			continue
		}
		u.ending.Wait()
		execute(t, fmt.Sprintf(`delete from %[1]s.cells; delete from %[1]s.mark; delete from %[1]s.space; delete from %[1]s.token;
			delete from %[1]s.part; delete from %[1]s.part_tally; delete from %[1]s.fence;
			update %[1]s.tally set at_ms = 0, deltas = 0, total = 0, proof = 0;
			update %[1]s.meta set floor = 0, window_ms = null`, u.schema))
		return u
	}
	u := &used{schema: newSchema()}
	f.used = append(f.used, u)
	return u
}

// open is a storetest.Opener. A crash leaves the store as it is and opens another
// beside it: what the first may still do must do no harm.
func (f *factory) open(t testing.TB, c storetest.Config) *storetest.Instance {
	u := f.schema(t)
	o := pgstore.Options{Limits: c.Limits, Now: c.Now, Schema: u.schema, MaxConns: 8}
	again := func(t testing.TB) store.Store {
		u.store = open(t, f.url, o)
		return u.store
	}
	return &storetest.Instance{
		Store: again(t),
		Crash: func(t testing.TB) store.Store {
			old := u.store
			defer u.ending.Go(func() { shut(t, old) })
			return again(t)
		},
		Reopen: func(t testing.TB) store.Store {
			shut(t, u.store)
			return again(t)
		},
		Beside: func(t testing.TB, l store.Limits) (store.Store, error) {
			o := o
			o.Limits = l
			return pgstore.Open(t.Context(), f.url, o)
		},
	}
}

// execute runs SQL as the server's user would.
func execute(t testing.TB, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestLaws(t *testing.T) { storetest.Run(t, (&factory{url: server.URL()}).open) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, (&factory{url: server.URL()}).open) }
