package pgstore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// says checks that an error is that the store is unavailable, and has each of the
// words once.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want %v", err, store.ErrUnavailable)
	}
	for _, word := range words {
		if n := strings.Count(fmt.Sprint(err), word); n != 1 {
			t.Errorf("%v: says %s %d times", err, word, n)
		}
	}
}

// Who only reads makes nothing, wherever he was sent.
func TestOpenExisting(t *testing.T) {
	o := pgstore.Options{Schema: newSchema(), Existing: true}
	refused := func(words ...string) {
		t.Helper()
		s, err := pgstore.Open(t.Context(), server.URL(), o)
		if err == nil {
			shut(t, s)
		}
		says(t, err, append(words, `"postgres"`, o.Schema, "quipu migrate", "a server that writes")...)
	}
	refused("no schema")
	conn, schemas, windows := connect(t), 0, 0
	count := func(into *int, sql string) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), fmt.Sprintf(sql, o.Schema)).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	if count(&schemas, `select count(*) from pg_namespace where nspname = '%s'`); schemas != 0 {
		t.Error("a schema was made")
	}

	if _, _, err := pgstore.Migrate(t.Context(), server.URL(), o.Schema); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.URL(), o)
	holds(t, s, "a", 0)
	if count(&windows, `select count(window_ms) from %s.meta`); windows != 0 {
		t.Error("the window of tokens was set")
	}

	execute(t, fmt.Sprintf(`drop function %s.%s`, o.Schema, pgstore.Newest))
	refused("an older release")
}

func TestDenied(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	s.Still()
	execute(t, fmt.Sprintf(`create role nobody_%s login`, schema))
	url := strings.Replace(server.URL(), "user=postgres", "user=nobody_"+schema, 1)
	hints := []string{"42501", "docs/stores.md", "quipu migrate"}
	_, err := pgstore.Open(t.Context(), url, pgstore.Options{Schema: schema})
	says(t, err, hints...)
	_, err = pgstore.Open(t.Context(), url, pgstore.Options{Schema: newSchema()})
	says(t, err, hints...)

	// It is enough for a reader.
	execute(t, fmt.Sprintf(`
		grant usage on schema %[1]s to nobody_%[1]s;
		grant select on all tables in schema %[1]s to nobody_%[1]s`, schema))
	holds(t, open(t, url, pgstore.Options{Schema: schema, Existing: true}), "a", 1)
}

// What is told of a connection that failed is what the server said, not that it was
// asked for TLS before.
func TestConnectFails(t *testing.T) {
	f := func(url string, words ...string) {
		t.Helper()
		_, err := pgstore.Open(t.Context(), url, pgstore.Options{})
		says(t, err, words...)
		if text := fmt.Sprint(err); strings.Contains(strings.ToLower(text), "tls") || strings.Contains(text, "secret") {
			t.Errorf("it says %s", text)
		}
	}
	f("postgres://u:secret@127.0.0.1:1/db", "127.0.0.1:1", "refused", `"db"`, `"u"`)
	f("postgres://u:secret@127.0.0.1:1,127.0.0.1:2/db", "127.0.0.1:1", "127.0.0.1:2")
	address := throughTCP(t)
	f("postgres://postgres:secret@"+address+"/none", `PostgreSQL: FATAL: database "none" does not exist`, address)
	f("postgres://nobody:secret@"+address+"/postgres", `PostgreSQL: FATAL: role "nobody" does not exist`, address)
}

// What callers are told of a server that is away, the words before the first colon,
// says what is wrong; and the cause is the operating system's.
func TestAway(t *testing.T) {
	own := pgtest.For(t)
	s := open(t, own.URL(), pgstore.Options{})
	do(t, s, add("a", 1))
	holds(t, s, "a", 1)
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	for connected := true; connected; { // until all connections of before are noticed to be broken
		err := s.Read(t.Context(), []store.Cell{at("a")}, make([]store.Value, 1))
		says(t, err)
		if text := fmt.Sprint(err); !strings.HasPrefix(text, "quipu: no connection to PostgreSQL: ") {
			if !strings.HasPrefix(text, "quipu: the connection to PostgreSQL failed: ") {
				t.Fatal(text)
			}
			continue
		}
		if _, ok := errors.AsType[syscall.Errno](err); !ok {
			t.Errorf("%v has no cause", err)
		}
		connected = false
	}
}

// throughTCP returns where the server can be reached by TCP, the way on which
// drivers ask for TLS first.
func throughTCP(t testing.TB) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			relays.Go(func() {
				defer func() { _ = client.Close() }()
				there, err := net.Dial("unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port))
				if err != nil {
					t.Error(err)
					return
				}
				relays.Go(func() {
					_, _ = io.Copy(there, client)
					_ = there.Close()
				})
				_, _ = io.Copy(client, there)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		relays.Wait()
	})
	return l.Addr().String()
}

// A URL that leads to another server fails soon, and says what is there.
func TestNoPostgres(t *testing.T) {
	f := func(answer string, words ...string) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					in := bufio.NewReader(conn)
					if _, err := in.ReadString('\n'); err == nil && answer != "" {
						_, _ = io.WriteString(conn, answer)
					}
					_, _ = io.Copy(io.Discard, in)
					_ = conn.Close()
				}()
			}
		}()
		began := time.Now()
		_, err = pgstore.Open(t.Context(), "postgres://u@"+l.Addr().String()+"/db", pgstore.Options{})
		says(t, err, words...)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%q: it took %v", answer, took)
		}
	}
	f("", "no PostgreSQL: it takes connections")
	f("+PONG\r\n", "a Redis server answers there")
	f("HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server answers there")
}

// A schema of a newer release is not corrupt, at the start or while it is in use.
func TestNewerSchema(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	s.Still()
	do(t, s, add("a", 1))
	execute(t, fmt.Sprintf(`update %[1]s.meta set format = 99; drop function %[1]s.plain; alter table %[1]s.cells rename to counters`, schema))
	f := func(err error, word string) {
		t.Helper()
		if store.KindOf(err) != store.KindUnsupported || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %s", err, word)
		}
	}
	_, err := pgstore.Open(t.Context(), server.URL(), pgstore.Options{Schema: schema})
	f(err, "made by a newer Quipu, with format 99")
	_, err = try(t.Context(), s, store.Batch{Deltas: []store.Delta{add("a", 1)}})
	f(err, "upgrade this server")
	f(s.Read(t.Context(), []store.Cell{at("a")}, make([]store.Value, 1)), "upgrade this server")
}
