package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/mirror"
	"github.com/quipudb/quipu/internal/pgtest"
)

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
	dir, err := os.MkdirTemp("", "mirror")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if server, err = pgtest.Start(context.Background(), dir, "fsync=off"); err != nil {
		return 0, err
	}
	defer func() { err = server.Stop() }()
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
}

// execute runs SQL as the user of the table would.
func execute(t *testing.T, sql string) {
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

// ask returns the rows of a query of one column of text, with commas between.
func ask(t *testing.T, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	rows, _ := conn.Query(t.Context(), sql)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(all, ",")
}

// totals is a source: what a server would list.
type totals struct {
	rows []mirror.Row // sorted
	call func(ctx context.Context, cursor string) error
}

func (s *totals) page(ctx context.Context, cursor string, n int) (rows []mirror.Row, next string, err error) {
	if s.call != nil {
		if err := s.call(ctx, cursor); err != nil {
			return nil, "", err
		}
	}
	for _, r := range s.rows {
		if cursor != "" && r.Key <= cursor {
			continue
		}
		if len(rows) == n {
			return rows, rows[n-1].Key, nil
		}
		rows = append(rows, r)
	}
	return rows, "", nil
}

func options(s *totals, table string) mirror.Options {
	return mirror.Options{
		Source: s.page, URL: server.URL(), Table: mirror.Table{Name: table, Key: "key", Value: "value"},
		Rows: 2, Every: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

func open(t *testing.T, o mirror.Options) *mirror.Mirror {
	t.Helper()
	m, err := mirror.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func pass(t *testing.T, m *mirror.Mirror, want mirror.Sums) {
	t.Helper()
	if got, err := m.Pass(t.Context()); err != nil || got != want {
		t.Fatalf("a pass did %+v, %v; want %+v", got, err, want)
	}
}

func TestPass(t *testing.T) {
	execute(t, `create table pass (key text primary key, value bigint, other text default 'x')`)
	const table = `select key || '=' || coalesce(value::text, 'null') || other from pass order by key collate "C"`
	s := &totals{rows: []mirror.Row{{"a", 1}, {"b", math.MinInt64}, {"c", math.MaxInt64}, {"d'\\\"é日", 4}, {"e", 5}}}
	m := open(t, options(s, "pass"))
	pass(t, m, mirror.Sums{Written: 5})
	if got := ask(t, table); got != `a=1x,b=-9223372036854775808x,c=9223372036854775807x,d'\"é日=4x,e=5x` {
		t.Errorf("the table has %s", got)
	}

	// Only what differs is written: the others are the same rows as before.
	const versions = `select xmin::text from pass where key not in ('b', 'e') order by key`
	before := ask(t, versions)
	s.rows[1].Value = -7
	execute(t, `update pass set value = null, other = 'y' where key = 'e'`)
	pass(t, m, mirror.Sums{Written: 2, Unchanged: 3})
	if got := ask(t, table); got != `a=1x,b=-7x,c=9223372036854775807x,d'\"é日=4x,e=5y` || ask(t, versions) != before {
		t.Errorf("the table has %s", got)
	}

	// Rows of counters that are gone stay.
	s.rows = s.rows[3:]
	pass(t, m, mirror.Sums{Unchanged: 2})
	s.rows = nil
	pass(t, m, mirror.Sums{})
	if got := ask(t, `select count(*)::text from pass`); got != "5" {
		t.Errorf("the table has %s rows", got)
	}
}

// Names and types that take care.
func TestTables(t *testing.T) {
	f := func(ddl, name, key, value string, keys ...string) {
		t.Helper()
		execute(t, ddl)
		s := &totals{}
		for i, k := range keys {
			s.rows = append(s.rows, mirror.Row{Key: k, Value: int64(i)})
		}
		o := options(s, name)
		o.Table.Key, o.Table.Value = key, value
		for _, o.Grows = range []bool{false, true} {
			m := open(t, o)
			if _, err := m.Pass(t.Context()); err != nil {
				t.Errorf("%s: %v", ddl, err)
			}
			pass(t, m, mirror.Sums{Unchanged: int64(len(keys))})
			s.rows[0].Value++
			pass(t, m, mirror.Sums{Written: 1, Unchanged: int64(len(keys)) - 1})
		}
	}
	f(`create schema "S 1"; create table "S 1"."T""x; drop" ("K y" text primary key, "v'" bigint)`, `S 1.T"x; drop`, "K y", "v'", "a")
	f(`create table "select" ("from" varchar(512) unique, "where" numeric(20))`, "select", "from", "where", "a", "b")
	f(`create table "{key}" ("{value}" text primary key, "{table}" int8)`, "{key}", "{value}", "{table}", "a")
	f(`create table rawkeys (key bytea primary key, value bigint not null)`, "rawkeys", "key", "value", "\x00", "a\x00b", "\u00ff", "\U0010ffff")
	f(`create table wide (id bigserial primary key, key text not null, value numeric, made timestamptz not null default now(),
		same text generated always as (key) stored, n int generated always as identity, unique (key))`, "wide", "key", "value", "a")
	f(`create table parted (key text primary key, value bigint) partition by hash (key);
		create table parted_0 partition of parted for values with (modulus 1, remainder 0)`, "parted", "key", "value", "a", "b", "c")
	f(`create table covered (key text, value bigint); create unique index on covered (key) include (value)`, "covered", "key", "value", "a")
}

// A key that a column of text can't hold is passed over, and told.
func TestSkipped(t *testing.T) {
	execute(t, `create table skipped (key text primary key, value bigint)`)
	m := open(t, options(&totals{rows: []mirror.Row{{"a\x00", 1}, {"a\x00b", 2}, {"b", 3}}}, "skipped"))
	pass(t, m, mirror.Sums{Written: 1, Skipped: 2})
	if got := meters(m)["quipu_mirror_rows_skipped_total"]; got != 2 {
		t.Errorf("%v rows were skipped by the meter", got)
	}
}

// A table that can't be written to is refused with what to do about it, and doing
// that is enough.
func TestCheck(t *testing.T) {
	n := 0
	f := func(ddl, want string) {
		t.Helper()
		n++
		name := fmt.Sprintf("check%d", n)
		execute(t, strings.ReplaceAll(ddl, "T", name))
		o := options(&totals{}, name)
		_, err := mirror.Open(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v, want %q", ddl, err, want)
		}
		_, advice, _ := strings.Cut(err.Error(), ": ")
		if strings.HasPrefix(advice, "want") {
			_, advice, _ = strings.Cut(advice, ": ")
		}
		execute(t, advice)
		open(t, o)
	}
	f(``, "there is no table")
	f(`create table T (value bigint)`, `has no column "key"`)
	f(`create table T (key text primary key)`, `has no column "value"`)
	f(`create table T (key int primary key, value bigint)`, "is int4: want text, varchar or bytea")
	f(`create table T (key char(3) primary key, value bigint)`, "is bpchar: want text, varchar or bytea")
	f(`create table T (key text primary key, value int)`, "is int4: want bigint or numeric")
	f(`create table T (key text primary key, value float8)`, "is float8: want bigint or numeric")
	f(`create table T (key text, value bigint)`, "is not unique")
	f(`create table T (key text, value bigint, primary key (key, value))`, "is not unique")
	f(`create table T (key text, value bigint); create unique index on T (key) where value > 0`, "is not unique")
	f(`create table T (key text, value bigint); create unique index on T (lower(key))`, "is not unique")
	f(`create table T (key text unique deferrable, value bigint)`, "is not unique")
	f(`create collation c_T (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		create table T (key text collate c_T primary key, value bigint)`, "different keys for the same")
	f(`create table T (key text primary key, value bigint, who text not null)`, `column "who" of table`)

	execute(t, `create table computed (key text primary key, value bigint generated always as (1) stored)`)
	if _, err := mirror.Open(t.Context(), options(&totals{}, "computed")); err == nil || !strings.Contains(err.Error(), "is computed") {
		t.Errorf("a computed column: %v", err)
	}
	o := options(&totals{}, "check")
	o.URL = "postgres:///postgres?host=/nonexistent&password=secret"
	if _, err := mirror.Open(t.Context(), o); err == nil {
		t.Error("a server that is not there was reached")
	}
	o.URL = "postgres://%zz:secret@"
	if _, err := mirror.Open(t.Context(), o); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a bad URL: %v", err)
	}
}

func TestValidate(t *testing.T) {
	f := func(name, key, value string, ok bool) {
		t.Helper()
		if err := (mirror.Table{Name: name, Key: key, Value: value}).Validate(); (err == nil) != ok {
			t.Errorf("table %q with %q and %q: %v", name, key, value, err)
		}
	}
	f("t", "k", "v", true)
	f("s.t", "k", "v", true)
	f("a.s.t", "k", "v", false)
	f(".t", "k", "v", false)
	f("t.", "k", "v", false)
	f("", "k", "v", false)
	f("t", "", "v", false)
	f("t", "k", "", false)
	f("t", "k", "k", false)
	f("t\x00", "k", "v", false)
	f("t", "k\x00", "v", false)
}

// A lower value of a counter that only grows is refused, and said.
func TestGrows(t *testing.T) {
	for _, kind := range []string{"text", "bytea"} {
		name := "grows_" + kind
		execute(t, fmt.Sprintf(`create table %s (key %s primary key, value numeric)`, name, kind))
		s := &totals{rows: []mirror.Row{{"a", 10}, {"b", 10}, {"c", 10}}}
		o := options(s, name)
		o.Grows = true
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		m := open(t, o)
		pass(t, m, mirror.Sums{Written: 3})
		s.rows[0].Value, s.rows[1].Value = 9, 11
		for n := 1; n <= 2; n++ {
			pass(t, m, mirror.Sums{Written: int64(2 - n), Unchanged: int64(n), Lower: 1})
			if got := meters(m)["quipu_mirror_rows_lower_total"]; got != float64(n) {
				t.Errorf("%v lower values by the meter, want %d", got, n)
			}
		}
		if got := ask(t, `select value::text from `+name+` order by key`); got != "10,11,10" {
			t.Errorf("the table has %s", got)
		}
		if !strings.Contains(log.String(), "a has 10, is 9") {
			t.Errorf("the log says %s", log.String())
		}
		execute(t, `update `+name+` set value = null where key = 'c'`)
		pass(t, m, mirror.Sums{Written: 1, Unchanged: 1, Lower: 1})
		o.Grows = false // and without the promise the lower one is written
		pass(t, open(t, o), mirror.Sums{Written: 1, Unchanged: 2})
	}
}

// A pass that failed goes on where it stopped, and its lag counts from when it
// began.
func TestResume(t *testing.T) {
	execute(t, `create table resumed (key text primary key, value bigint)`)
	var asked []string
	down := errors.New("down")
	s := &totals{rows: []mirror.Row{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}}}
	s.call = func(_ context.Context, cursor string) error {
		asked = append(asked, cursor)
		if len(asked) == 2 {
			return down
		}
		return nil
	}
	m := open(t, options(s, "resumed"))
	if sums, err := m.Pass(t.Context()); !errors.Is(err, down) || sums.Written != 2 {
		t.Fatalf("a pass that fails did %+v, %v", sums, err)
	}
	pass(t, m, mirror.Sums{Written: 5})
	pass(t, m, mirror.Sums{Unchanged: 5})
	if got := strings.Join(asked, ","); got != ",b,b,d,,b,d" {
		t.Errorf("asked for the pages after %s", got)
	}
	got := meters(m)
	if got["quipu_mirror_passes_total"] != 2 || got["quipu_mirror_errors_total"] != 1 ||
		got["quipu_mirror_rows_written_total"] != 5 || got["quipu_mirror_rows_unchanged_total"] != 5 {
		t.Errorf("the meters say %v", got)
	}
}

// The lag is the age of the data: it counts from the beginning of a pass, also of
// one that took two attempts, and grows while passes fail.
func TestLag(t *testing.T) {
	execute(t, `create table lag (key text primary key, value bigint)`)
	fail := true
	var read time.Time
	s := &totals{rows: []mirror.Row{{"a", 1}, {"b", 1}, {"c", 1}}}
	s.call = func(_ context.Context, cursor string) error {
		if cursor == "" {
			read = time.Now()
		} else if fail {
			return errors.New("down")
		}
		return nil
	}
	m := open(t, options(s, "lag"))
	since := func(at time.Time) {
		t.Helper()
		age := time.Since(at).Seconds()
		if lag := meters(m)["quipu_mirror_lag_seconds"]; lag < age {
			t.Errorf("the lag is %v s, want at least %v s", lag, age)
		}
	}
	opened := time.Now()
	if _, err := m.Pass(t.Context()); err == nil {
		t.Fatal("a pass did not fail")
	}
	since(opened)
	first := read
	fail = false
	if _, err := m.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	since(first)
}

// The batch under way is written when the mirror is told to end.
func TestEnd(t *testing.T) {
	execute(t, `create table ended (key text primary key, value bigint)`)
	ctx, cancel := context.WithCancel(t.Context())
	s := &totals{rows: []mirror.Row{{"a", 1}, {"b", 1}, {"c", 1}}}
	s.call = func(context.Context, string) error { cancel(); return nil }
	m := open(t, options(s, "ended"))
	if sums, err := m.Pass(ctx); !errors.Is(err, context.Canceled) || sums.Written != 2 {
		t.Errorf("a pass that was ended did %+v, %v", sums, err)
	}
	if got := ask(t, `select key from ended order by key`); got != "a,b" {
		t.Errorf("the table has %s", got)
	}
	if got := meters(m)["quipu_mirror_errors_total"]; got != 0 {
		t.Errorf("%v errors", got)
	}
}

// A pooler between may give every statement another connection.
func TestBouncer(t *testing.T) {
	execute(t, `create table bounced (key text primary key, value bigint)`)
	b, err := server.Bounce(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}()
	o := options(&totals{rows: []mirror.Row{{"a", 1}, {"b", 1}, {"c", 1}}}, "bounced")
	o.URL = b.URL()
	m, err := mirror.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	pass(t, m, mirror.Sums{Written: 3})
	pass(t, m, mirror.Sums{Unchanged: 3})
}

// Run makes passes, and gets over a database that is gone for a while.
func TestRun(t *testing.T) {
	execute(t, `create table run (key text primary key, value bigint)`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &totals{rows: []mirror.Row{{"a", 1}, {"b", 1}, {"c", 1}}}
	var pages atomic.Int64
	s.call = func(_ context.Context, _ string) error {
		switch pages.Add(1) {
		case 3: // the first batch of the second pass can't be written
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		case 4:
			if err := server.Restart(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		case 20:
			cancel()
		}
		s.rows[0].Value++
		return nil
	}
	m := open(t, options(s, "run"))
	m.Run(ctx)
	got := meters(m)
	if got["quipu_mirror_passes_total"] < 8 || got["quipu_mirror_errors_total"] < 1 {
		t.Errorf("the meters say %v", got)
	}
	if got := ask(t, `select key || (value > 5) from run order by key`); got != "atrue,bfalse,cfalse" {
		t.Errorf("the table has %s", got)
	}
}

func meters(m *mirror.Mirror) map[string]float64 {
	all := make(map[string]float64)
	m.Meters(func(name, _ string, value float64) { all[name] = value })
	return all
}
