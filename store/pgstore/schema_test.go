package pgstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// migrateAtOnce has several migrate a schema of a format. One of them does it.
func migrateAtOnce(t *testing.T, schema string, format int) {
	t.Helper()
	var wg sync.WaitGroup
	var migrated atomic.Int64
	for range 4 {
		wg.Go(func() {
			from, to, err := pgstore.Migrate(t.Context(), server.URL(), schema)
			if err != nil || from != format && from != to || to <= format {
				t.Errorf("migrated from %d to %d, %v", from, to, err)
			}
			if from == format {
				migrated.Add(1)
			}
		})
	}
	wg.Wait()
	if migrated.Load() != 1 {
		t.Errorf("%d migrated from format %d", migrated.Load(), format)
	}
}

func TestMigrate(t *testing.T) {
	schema := newSchema()
	migrateAtOnce(t, schema, 0)
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	if from, to, err := pgstore.Migrate(t.Context(), server.URL(), schema); err != nil || from != to { // again
		t.Errorf("migrated from %d to %d, %v", from, to, err)
	}
	holds(t, open(t, server.URL(), pgstore.Options{Schema: schema}), "a", 1)
}

// What a store of format 1 left is all there, and no program of its time can
// change it any more.
func TestMigrateFrom1(t *testing.T) {
	schema := newSchema()
	old, err := os.ReadFile("testdata/format1.sql")
	if err != nil {
		t.Fatal(err)
	}
	in := func(sql string) string {
		return strings.NewReplacer("quipu.", schema+".", "{{tokens}}", "1", "{{spaces}}", "2").Replace(sql)
	}
	execute(t, fmt.Sprintf(`create schema %s; %s`, schema, in(string(old))))
	b := store.Batch{Writer: 7, Seq: 1, Deltas: []store.Delta{want(add("a", 5)), add("b", 6)}}
	record := func(cells map[string]int64) string {
		var r decide.Record
		for key, n := range cells {
			r.Merge(decide.Change(at(key), uint64(n)))
		}
		return fmt.Sprintf("%d, %d, %d", len(cells), int64(r.Sum), int64(r.Check))
	}
	execute(t, in(fmt.Sprintf(`
		insert into quipu.cell values
			('default', 'a', 5, 1, 1125899906842624), ('default', 'b', 6, 2, null), ('default', 'over', 7, 3, 1);
		insert into quipu.space values ('default', 0, 0, 3);
		insert into quipu.mark values (7, 1, %d, 1, %s, null, '{1,2}', '{5,6}', '{1125899906842624,null}', '{true,true}');
		insert into quipu.tally values (40, 1, %s);
		select setval('quipu.version', 100);
		select quipu.add('b', 10, 't')`,
		int64(b.Digest()), record(map[string]int64{"a": 5, "b": 6}), record(map[string]int64{"over": 7}))))

	migrateAtOnce(t, schema, 1)
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	r, err := try(t.Context(), s, b)
	first := []store.Result{
		{Outcome: store.Applied, Replayed: true, After: 5, Version: 1, DeadlineMS: 1 << 50},
		{Outcome: store.Applied, Replayed: true, Version: 2},
	}
	if err != nil || !r.Replayed || !slices.Equal(r.Results, first) {
		t.Errorf("a batch of format 1, again: %+v, %v", r, err)
	}
	values := make([]store.Value, 3)
	if err := s.Read(t.Context(), []store.Cell{at("a"), at("b"), at("over")}, values); err != nil {
		t.Fatal(err)
	}
	if a, b, over := values[0], values[1], values[2]; a != (store.Value{N: 5, Version: 1, Exists: true, DeadlineMS: 1 << 50}) ||
		b.N != 16 || b.Version <= 100 || over.Exists {
		t.Errorf("it reads %+v", values)
	}
	if f, err := s.Lookup(t.Context(), at("b"), "t"); err != nil || f.State != store.TokenApplied {
		t.Errorf("the token is %+v, %v", f, err)
	}
	do(t, s, lay(at("b"), 0, 7))
	do(t, s, add("b", 1))
	holds(t, s, "b", 17)
	audited(t, s)
	for _, sql := range []string{
		`select deadline_ms from quipu.cell`,
		`select quipu.plain(1, 0, 1, 0, '{}', '{}', '{}', '{}', 0, 0, 0, false, false, null, '{}', '{}', 0)`,
	} {
		if _, err := conn.Exec(t.Context(), in(sql)); err == nil {
			t.Errorf("%s is answered", sql)
		}
	}
}

// A server that brings a schema up to date says so, once.
func TestMigrationIsLogged(t *testing.T) {
	schema := newSchema()
	old, err := os.ReadFile("testdata/format2.sql")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, fmt.Sprintf(`create schema %s; %s`, schema, strings.NewReplacer("quipu.", schema+".", "{{tokens}}", "1", "{{spaces}}", "2").Replace(string(old))))
	for _, want := range []int{1, 0} {
		var log strings.Builder
		open(t, server.URL(), pgstore.Options{Schema: schema, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if got := strings.Count(log.String(), "upgraded the PostgreSQL schema"); got != want || want > 0 && !strings.Contains(log.String(), "was=2 is=3") {
			t.Errorf("%s", log.String())
		}
	}
	var log strings.Builder
	open(t, server.URL(), pgstore.Options{Schema: newSchema(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if log.Len() > 0 {
		t.Errorf("a new schema: %s", log.String())
	}
}

// What a store of format 2 left is all there: totals, marks, tokens, what is pending. A
// program of its time that still runs is told to be upgraded, whatever it asks for.
func TestMigrateFrom2(t *testing.T) {
	schema := newSchema()
	old, err := os.ReadFile("testdata/format2.sql")
	if err != nil {
		t.Fatal(err)
	}
	in := func(sql string) string {
		return strings.NewReplacer("quipu.", schema+".", "{{tokens}}", "1", "{{spaces}}", "2").Replace(sql)
	}
	execute(t, fmt.Sprintf(`create schema %s; %s`, schema, in(string(old))))
	// The first batch of a writer makes its mark by the decider, the second by the function.
	first := store.Batch{Writer: 8, Seq: 1, Deltas: []store.Delta{want(add("a", 1))}}
	second := store.Batch{Writer: 7, Prev: 1, Seq: 2, Deltas: []store.Delta{want(add("a", 5)), add("b", 6)}}
	bytea := func(words ...string) string { return `array['` + strings.Join(words, `','`) + `']::bytea[]` }
	var sum decide.Record
	sum.Merge(decide.Change(at("a"), 5))
	sum.Merge(decide.Change(at("b"), 6))
	change := decide.Change(at("a"), 1)
	execute(t, in(fmt.Sprintf(`
		insert into quipu.cell values ('default', 'a', 1, 1, null);
		insert into quipu.space values ('default', 0, 0, 1), ('default', 1, 0, 2);
		insert into quipu.mark (writer, seq, digest, at_ms, deltas, total, proof, results) values
			(7, 1, 0, 1, 0, 0, 0, null), (8, 1, %[1]d, 1, 1, 1, %[2]d, '\x01060201');
		insert into quipu.token values
			(1, 'default', 'a', 's', 0, 0, false, 0, quipu.now_ms(), 0, 0, 0), (1, 'default', 'a', 'r', 1, 1, true, 1, quipu.now_ms(), 0, 1, 1);
		select setval('quipu.version', 100);
		select quipu.plain(7, 1, 2, %[3]d, %[4]s, %[5]s, '{5,6}', 1, null, 2, 11, %[6]d, true, false, null, %[7]s, '{0}', 1000000);
		select quipu.add('b', 10, 't')`,
		int64(first.Digest()), int64(change.Check), int64(second.Digest()),
		bytea("default", "default"), bytea("a", "b"), int64(sum.Check), bytea("default"))))

	migrateAtOnce(t, schema, 2)
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	for _, b := range []store.Batch{first, second} {
		if r, err := try(t.Context(), s, b); err != nil || !r.Replayed || r.Results[0].After == 0 {
			t.Errorf("a batch of format 2, again: %+v, %v", r, err)
		}
	}
	for token, state := range map[store.Cell]store.TokenState{at("b"): store.TokenApplied, at("a"): store.TokenSettled} {
		if f, err := s.Lookup(t.Context(), token, map[string]string{"a": "s", "b": "t"}[token.Key]); err != nil || f.State != state {
			t.Errorf("the token of %s is %+v, %v", token.Key, f, err)
		}
	}
	db, result := quipu.New(s, quipu.Options{}), store.Result{Outcome: store.Applied, Replayed: true, After: 1, Version: 1}
	again := func() {
		t.Helper()
		if got := do(t, s, once(add("a", 1), "r"))[0]; got != result {
			t.Errorf("a write of format 2, again: %+v, want %+v", got, result)
		}
		if r, err := db.Add(t.Context(), "b", 10, quipu.Token("t")); err != nil || !r.Replayed {
			t.Errorf("an add by SQL, again: %+v, %v", r, err)
		}
	}
	again()
	holds(t, s, "a", 6)
	holds(t, s, "b", 16)
	audited(t, s)
	do(t, s, once(add("a", 1), "u"), with(add("a", 1), viewed(t, 1, window(1, 7, 0))))
	again()
	holds(t, s, "a", 8)
	next := store.Batch{Writer: 7, Prev: 2, Seq: 3, Deltas: []store.Delta{with(add("b", 1), viewed(t, 1, window(1, 7, 0)))}}
	for _, replayed := range []bool{false, true} {
		if r, err := try(t.Context(), s, next); err != nil || r.Replayed != replayed {
			t.Errorf("the next batch: %+v, %v; want replayed %v", r, err, replayed)
		}
	}
	audited(t, s)

	conn := connect(t)
	for _, sql := range []string{
		`select quipu.plain(7, 1, 2, 0, '{}', '{}', '{}', 1, null, 0, 0, 0, true, false, null, '{}', '{}', 0)`,
		`select quipu.quietly(7, 1, 2, 0, '{}', '{}', '{}', 1, null, 0, 0, 0, true, false, null, '{}', '{}', 0)`,
		`update quipu.cell c set value = c.value + 1, version = greatest(quipu.draw(1), c.version + 1) where c.ns = 'default' and c.key = 'a'`,
		`insert into quipu.cell as c (ns, key, value, version) select 'default', 'a', 0, 0 on conflict (ns, key) do update set value = c.value where false`,
		`select value, version from quipu.cell`,
	} {
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), in(sql)); !errors.As(err, &refused) || refused.Code != "42703" && refused.Code != "42883" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	var sumOf int64 // tools go on
	if err := conn.QueryRow(t.Context(), in(`select sum(value) from quipu.cell where ns = 'default'`)).Scan(&sumOf); err != nil || sumOf != 25 {
		t.Errorf("the view has %d, %v", sumOf, err)
	}
	if _, err := conn.Exec(t.Context(), in(`insert into quipu.cell values ('default', 'x', 1, null)`)); err == nil {
		t.Error("the view takes rows")
	}
}

func TestMigrateRefuses(t *testing.T) {
	f := func(schema string, kind store.Kind, words ...string) {
		t.Helper()
		_, _, err := pgstore.Migrate(t.Context(), server.URL(), schema)
		if store.KindOf(err) != kind {
			t.Errorf("%q: %v, want kind %d", schema, err, kind)
		}
		for _, word := range words {
			if !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("%q: %v does not say %s", schema, err, word)
			}
		}
	}
	f("A", store.KindInvalid)
	f("1a", store.KindInvalid)
	f("a'b", store.KindInvalid)
	f(strings.Repeat("a", 49), store.KindInvalid)

	schema := newSchema()
	f(schema, store.KindOther) // that is: none
	execute(t, fmt.Sprintf(`update %s.meta set format = 7`, schema))
	f(schema, store.KindUnsupported, schema, "7", "3")
	execute(t, fmt.Sprintf(`delete from %s.meta`, schema))
	f(schema, store.KindCorrupt, schema)
}

func TestOpenFails(t *testing.T) {
	f := func(url string, kind store.Kind) {
		t.Helper()
		_, err := pgstore.Open(t.Context(), url, pgstore.Options{})
		if store.KindOf(err) != kind {
			t.Errorf("%s: %v, want kind %d", url, err, kind)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the password is in %v", err)
		}
	}
	f("postgres://u:secret@127.0.0.1:1/db?connect_timeout=5", store.KindUnavailable)
	f("postgres://u:secret@127.0.0.1:x/db", store.KindInvalid)
	f("postgres://u:secret@%zz/db", store.KindInvalid)
	f("host=127.0.0.1 port=1 password=secret sslmode=maybe", store.KindInvalid)
	f("postgres:///none?user=u&password=secret&host="+server.Dir(), store.KindUnavailable)
}

// Replies say what the server really does.
func TestDurability(t *testing.T) {
	schema := newSchema()
	f := func(url string, asked, given store.Durability) {
		t.Helper()
		s := open(t, url, pgstore.Options{Schema: schema})
		r, err := try(t.Context(), s, store.Batch{Durability: asked, Deltas: []store.Delta{add("a", 1)}})
		if err != nil || r.Durability != given {
			t.Errorf("asked for %v: given %v, %v", asked, r.Durability, err)
		}
		r, err = try(t.Context(), s, store.Batch{Durability: asked, Deltas: []store.Delta{{Cell: at("b"), Op: store.OpSet}}})
		if err != nil || r.Durability != given {
			t.Errorf("asked for %v of a set: given %v, %v", asked, r.Durability, err)
		}
	}
	f(server.URL(), store.Synced, store.Written) // it has fsync=off
	f(server.URL(), store.Written, store.Written)
	f(server.URL(), store.Memory, store.Memory)
	f(server.URL()+"&synchronous_commit=off", store.Synced, store.Memory)
}

func TestUnavailable(t *testing.T) {
	own := pgtest.For(t, "fsync=off")
	s := open(t, own.URL(), pgstore.Options{})
	do(t, s, add("a", 1))
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"plain": func() error {
			_, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{add("a", 1)}})
			return err
		},
		"decided": func() error {
			_, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{once(add("a", 1), "t")}})
			return err
		},
		"read":   func() error { return s.Read(t.Context(), []store.Cell{at("a")}, make([]store.Value, 1)) },
		"scan":   func() error { _, err := s.Scan(t.Context(), store.Range{Namespace: "default"}, 1); return err },
		"lookup": func() error { _, err := s.Lookup(t.Context(), at("a"), "t"); return err },
		"size":   func() error { _, err := s.Size(t.Context(), "default"); return err },
		"audit":  func() error { _, err := s.Audit(t.Context()); return err },
	} {
		// A connection that was open may be lost with what was sent.
		if err := call(); !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if err := call(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s again: %v", name, err)
		}
	}
	if err := s.Read(t.Context(), nil, nil); err != nil {
		t.Errorf("a read of nothing: %v", err)
	}
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "a", 1)
}
