package quipu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Where an exact read is as cheap as a total, no policy and no allowance makes it
// older: every preset reads exactly over a store in this process.
func TestNearReadsAreExact(t *testing.T) {
	var policies []quipu.Policy
	for _, p := range policy.Presets() {
		p.Policy.Pattern = p.Name + ":*"
		policies = append(policies, p.Policy)
	}
	policies = append(policies, quipu.Policy{Pattern: "split:*", Shards: 4, Timing: quipu.Rollup, Interval: time.Hour})
	embedded, err := quipu.Open(t.TempDir(), quipu.Options{Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*quipu.DB{
		"embedded": embedded,
		"memory":   quipu.New(memstore.New(memstore.Options{}), quipu.Options{Policies: policies}),
	} {
		for _, p := range policies {
			key := p.Pattern[:len(p.Pattern)-1] + "k"
			for n := range int64(100) {
				if _, err := db.Add(t.Context(), key, 1); err != nil {
					t.Fatal(err)
				}
				for _, o := range [][]quipu.ReadOption{nil, {quipu.MaxStaleness(time.Hour)}} {
					c, err := db.Read(t.Context(), key, o...)
					if err != nil || c.Value != n+1 || !c.Exact || c.Staleness != 0 || c.Source != "store" {
						t.Fatalf("%s: %+v, %v after %d", name, c, err, n+1)
					}
				}
				values := make([]store.Value, 1)
				if !db.Port().Peek([]string{key}, values) && p.Shards == 0 || values[0].N != n+1 && p.Shards == 0 {
					t.Fatalf("%s: %q peeks as %+v after %d", name, key, values[0], n+1)
				}
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What a replica has is served for what it is, and not to readers who need more.
func TestReplica(t *testing.T) {
	s := newStub()
	asOf := time.Now().Add(-10 * time.Second).Truncate(time.Millisecond)
	s.value = store.Value{N: 5, Version: 7, Exists: true, AsOfMS: asOf.UnixMilli()}
	db := quipu.New(s, quipu.Options{ReadOnly: true, Policies: []quipu.Policy{{Pattern: "rolled", Timing: quipu.Rollup, Interval: time.Second}}})
	t.Cleanup(func() { _ = db.Close() })
	served := func(key string, opts ...quipu.ReadOption) {
		t.Helper()
		c, err := db.Read(t.Context(), key, opts...)
		if err != nil || c.Value != 5 || c.Exact || !c.AsOf.Equal(asOf) || c.Staleness < 10*time.Second || c.Source != "replica" || !c.Bounded {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
		if cs, err := db.ReadBatch(t.Context(), []string{key}, opts...); err != nil || cs[0].Exact || !cs[0].AsOf.Equal(asOf) {
			t.Errorf("%s in a batch: %+v, %v", key, cs, err)
		}
	}
	refused := func(opts ...quipu.ReadOption) {
		t.Helper()
		for _, key := range []string{"k", "rolled"} {
			if c, err := db.Read(t.Context(), key, opts...); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("%s: %+v, %v", key, c, err)
			}
			if cs, err := db.ReadBatch(t.Context(), []string{key}, opts...); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("%s in a batch: %+v, %v", key, cs, err)
			}
		}
	}
	session := quipu.Receipt{Key: "k", Version: 7}.Session()
	served("k")
	served("rolled")
	served("k", quipu.MaxStaleness(time.Minute))
	served("k", quipu.Session(session))
	refused(quipu.Exact())
	refused(quipu.MaxError(1))
	refused(quipu.MaxStaleness(0))
	refused(quipu.MaxStaleness(5 * time.Second))
	refused(quipu.MaxStaleness(5*time.Second), quipu.MaxStaleness(time.Minute))
	refused(quipu.Session(session), quipu.MaxStaleness(5*time.Second))

	s.value.AsOfMS = 0 // it was promoted
	if c, err := db.Read(t.Context(), "k", quipu.Exact()); err != nil || !c.Exact || c.Staleness != 0 || c.Source != "store" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestSession(t *testing.T) {
	f := func(version uint64, want string) {
		t.Helper()
		got := quipu.Receipt{Namespace: "default", Key: "a", Version: version}.Session()
		if got != want {
			t.Errorf("the session of version %d is %q, want %q", version, got, want)
		}
		if _, err := quipu.New(newStub(), quipu.Options{}).Read(t.Context(), "a", quipu.Session(got)); err != nil {
			t.Errorf("read with session %q: %v", got, err)
		}
	}
	f(0, "s0.1xbrrsx")
	f(35, "sz.1xbrrsx")
	f(1<<64-1, "s3w5e11264sgsf.1xbrrsx")
}

// A store that forgets everything when its process ends says so to those who had
// seen it, whatever was counted since.
func TestSessionOfAnotherProcess(t *testing.T) {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	start := func() *quipu.DB {
		at = at.Add(time.Second)
		at := at
		db := quipu.New(memstore.New(memstore.Options{Now: func() time.Time { return at }}), quipu.Options{})
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	}
	add := func(db *quipu.DB) string {
		r, err := db.Add(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		return r.Session()
	}
	before := add(start())
	db := start()
	for range 3 {
		if _, err := db.Read(t.Context(), "a", quipu.Session(before)); !errors.Is(err, quipu.ErrSessionLost) {
			t.Errorf("with the session of another process: %v, want it lost", err)
		}
		if _, err := db.Read(t.Context(), "a", quipu.Session(add(db))); err != nil {
			t.Errorf("with a session of this process: %v", err)
		}
	}
}

// A store that is no witness can still be seen to be behind.
func TestSessionWithoutWitness(t *testing.T) {
	f := func(version uint64, v store.Value, lost bool) {
		t.Helper()
		s := newStub()
		s.value = v
		session := quipu.Receipt{Namespace: "default", Key: "a", Version: version}.Session()
		if _, err := quipu.New(s, quipu.Options{}).Read(t.Context(), "a", quipu.Session(session)); errors.Is(err, quipu.ErrSessionLost) != lost {
			t.Errorf("version %d of %+v: %v, want it lost: %v", version, v, err, lost)
		}
	}
	f(5, store.Value{}, false)
	f(5, store.Value{Exists: true, Version: 5}, false)
	f(5, store.Value{Exists: true, Version: 4}, true)
	f(0, store.Value{Exists: true, Version: 4}, false)
	f(5, store.Value{Exists: true, Version: 4, Layout: 1}, false)
	f(1<<62+5, store.Value{Exists: true, Version: 4}, false) // of a shard
}

// FuzzSession reads with arbitrary sessions: they are refused as invalid, or are
// as good as those of a receipt.
func FuzzSession(f *testing.F) {
	f.Add("s0.1xbrrsx")
	f.Add("sz.1xbrrsx")
	f.Add("s3w5e11264sgsf.1xbrrsx")
	f.Add("szik0zj.")
	f.Add("s.")
	f.Add("s-1.1xbrrsx")
	f.Add("s1.1xbrrsx.1")
	f.Fuzz(func(t *testing.T, text string) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		defer func() { _ = db.Close() }()
		_, err := db.Read(t.Context(), "a", quipu.Session(text))
		if err != nil && !errors.Is(err, quipu.ErrInvalid) && !errors.Is(err, quipu.ErrSessionLost) {
			t.Errorf("session %q: %v", text, err)
		}
	})
}
