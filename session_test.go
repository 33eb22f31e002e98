package quipu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

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
