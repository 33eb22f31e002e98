package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// query runs a statement at a server.
func query(t testing.TB, s *pgtest.Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func valueOf(t testing.TB, s store.Store, key string) store.Value {
	t.Helper()
	var v [1]store.Value
	if err := s.Read(t.Context(), []store.Cell{at(key)}, v[:]); err != nil {
		t.Fatalf("Read: %v", err)
	}
	return v[0]
}

// await reads a counter until it is as it should be.
func await(t testing.TB, s store.Store, key string, ok func(store.Value) bool) store.Value {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		v := valueOf(t, s, key)
		if ok(v) {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %+v", key, v)
		}
	}
}

func is(n int64) func(store.Value) bool { return func(v store.Value) bool { return v.N == n } }

// What a standby has is as of what it has replayed, and it says so until it is
// promoted.
func TestStandby(t *testing.T) {
	primary := pgtest.For(t, "fsync=off")
	w := open(t, primary.URL(), pgstore.Options{})
	do(t, w, once(add("a", 1), "known"))
	standby := primary.Follow(t)
	if v := valueOf(t, open(t, standby.URL(), pgstore.Options{Existing: true}), "a"); v.N != 1 || v.AsOfMS == 0 {
		t.Fatalf("a standby that has replayed no commit yet has %+v", v)
	}
	if _, err := pgstore.Open(t.Context(), standby.URL(), pgstore.Options{}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("a standby is opened for writing: %v", err)
	}
	// A URL with both finds the primary, whichever comes first.
	both := "postgres:///postgres?user=postgres&host=" + standby.Dir() + "," + primary.Dir()
	do(t, open(t, both, pgstore.Options{}), add("a", 1))

	r := open(t, standby.URL(), pgstore.Options{Existing: true})
	await(t, r, "a", is(2))
	query(t, standby, `select pg_wal_replay_pause()`)
	before := time.Now().UnixMilli()
	do(t, w, once(add("a", 1), "late"))
	f := func(v store.Value) {
		t.Helper()
		if v.N != 2 || v.AsOfMS == 0 || v.AsOfMS > before {
			t.Errorf("a standby that is behind since %d has %+v", before, v)
		}
	}
	f(valueOf(t, r, "a"))
	found, err := r.Scan(t.Context(), store.Range{Namespace: "default"}, 10)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	f(found[0].Value)
	if v := valueOf(t, r, "none"); v.Exists || v.AsOfMS == 0 || v.AsOfMS > before {
		t.Errorf("a counter that it may lack is %+v", v)
	}
	if _, err := r.Lookup(t.Context(), at("a"), "late"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a token that it may lack: %v", err)
	}
	if fate, err := r.Lookup(t.Context(), at("a"), "known"); err != nil || fate.State != store.TokenApplied {
		t.Errorf("a token that it has: %+v, %v", fate, err)
	}
	query(t, standby, `select pg_wal_replay_resume()`)
	// As of when a value is was asked before it was read, so it may be older at first.
	await(t, r, "a", func(v store.Value) bool { return v.N == 3 && v.AsOfMS >= before })

	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := valueOf(t, r, "a"); v.N != 3 || v.AsOfMS != 0 {
		t.Errorf("after it was promoted: %+v", v)
	}
}

// A store that only reads removes nothing and folds nothing: what has expired is
// absent, and what is pending is said to be missing.
func TestReaderWritesNothing(t *testing.T) {
	schema := newSchema()
	w := open(t, server.URL(), pgstore.Options{Schema: schema})
	w.Still()
	now := time.Now().UnixMilli()
	for _, key := range []string{"a", "b", "c"} {
		d := add(key, 1)
		d.Want, d.Expiry, d.DeadlineMS = true, store.ExpirySet, now+600
		if key == "c" {
			d = add(key, 1)
		}
		do(t, w, d)
	}
	r := open(t, server.URL(), pgstore.Options{Schema: schema, Existing: true})
	if v := valueOf(t, r, "a"); v.N != 1 && time.Now().UnixMilli() < now+600 {
		t.Fatalf("before it expires: %+v", v)
	}
	if v := await(t, r, "a", func(v store.Value) bool { return !v.Exists }); v != (store.Value{}) {
		t.Errorf("expired: %+v", v)
	}
	await(t, r, "b", func(v store.Value) bool { return !v.Exists })
	found, err := r.Scan(t.Context(), store.Range{Namespace: "default"}, 1)
	if err != nil || len(found) != 1 || found[0].Key != "c" {
		t.Errorf("after the expired ones comes %+v, %v", found, err)
	}
	before := time.Now().UnixMilli()
	execute(t, `select `+schema+`.add('c', 1)`)
	if v := valueOf(t, r, "c"); v.N != 1 || v.AsOfMS < before || v.AsOfMS > time.Now().UnixMilli() {
		t.Errorf("with an add pending since %d: %+v", before, v)
	}
	holds(t, w, "c", 2)
	if v := valueOf(t, r, "c"); v.N != 2 || v.AsOfMS != 0 {
		t.Errorf("when it was folded: %+v", v)
	}
}

// An audit after a failover says what the new primary has lost.
func TestAuditFindsLostCommits(t *testing.T) {
	primary := pgtest.For(t, "fsync=off")
	s := open(t, primary.URL(), pgstore.Options{})
	do(t, s, add("a", 1))
	audited(t, s)
	if _, err := s.Audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	dump, err := primary.Run(t.Context(), "pg_dump", "-h", primary.Dir(), "-U", pgtest.User, "-n", "quipu", "-f", primary.Path("dump.sql"), "postgres")
	if err != nil {
		t.Fatalf("%v %s", err, dump)
	}
	for range 40 { // more than a sequence may be ahead
		do(t, s, add("a", 1))
	}
	s.Still()
	query(t, primary, `drop schema quipu cascade`)
	if _, err := primary.Run(t.Context(), "psql", "-q", "-h", primary.Dir(), "-U", pgtest.User, "-f", primary.Path("dump.sql"), "postgres"); err != nil {
		t.Fatal(err)
	}
	a, err := s.Audit(t.Context())
	if err != nil || len(a.Drift) != 1 || a.Drift[0].What != "last version" {
		t.Errorf("%+v, %v", a, err)
	}
}
