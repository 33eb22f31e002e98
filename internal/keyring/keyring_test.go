package keyring_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/keyring"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A shared store is one that several servers use.
type shared struct{ store.Store }

func (s shared) Traits() store.Traits {
	t := s.Store.Traits()
	t.Shared = true
	return t
}

func anyone(*access.Roll, *access.Record) error { return nil }

func newRing(s store.Store) *keyring.Ring {
	return keyring.New(s, keyring.Options{Logger: slog.New(slog.DiscardHandler)})
}

func create(t *testing.T, r *keyring.Ring, name string) (id, key string) {
	t.Helper()
	k, key, err := r.Create(t.Context(), keyring.Wish{Name: name, Grants: []string{"read:n"}, By: "test"}, anyone)
	if err != nil {
		t.Fatal(err)
	}
	return k.ID, key
}

// A key that is made on one server is known to all within about a second, and a key that is
// revoked is refused by all.
func TestServersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared{memstore.New(memstore.Options{})}
		a, b := newRing(s), newRing(s)
		heard := 0
		b.OnChange(func() { heard++ })
		for _, r := range []*keyring.Ring{a, b} {
			if err := r.Load(t.Context()); err != nil || r.Any() {
				t.Fatalf("any: %v, %v", r.Any(), err)
			}
			r.Start()
			defer r.Close()
		}
		id, key := create(t, a, "one")
		if a.Find(key) == nil || b.Find(key) != nil {
			t.Error("only the one that made it should know it yet")
		}
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		who := b.Find(key)
		if who == nil || who.Name != "one" || who.ID != id || heard != 1 {
			t.Fatalf("found %+v, heard %d", who, heard)
		}
		create(t, b, "two")
		if b.Find(key) != who {
			t.Error("a key that stays is another principal")
		}
		if _, err := a.Revoke(t.Context(), id, anyone); err != nil {
			t.Fatal(err)
		}
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		if b.Find(key) != nil || !who.Ended(0) {
			t.Error("a key that was revoked is still taken")
		}
		if !b.Any() {
			t.Error("a store whose keys were all revoked is not open again")
		}
	})
}

// While the store can't be reached, the keys that are known are in effect.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(storetest.Hooks)
		s := shared{storetest.Wrap(memstore.New(memstore.Options{}), h)}
		r := newRing(s)
		_, key := create(t, r, "one")
		r.Start()
		defer r.Close()
		h.On(storetest.OnRead, storetest.Fail(errors.New("away")))
		<-time.After(time.Minute)
		synctest.Wait()
		if r.Find(key) == nil {
			t.Error("the key was forgotten")
		}
		var age float64
		r.Meters(func(name, _ string, value float64) {
			if name == "quipu_keys_age_seconds" {
				age = value
			}
		})
		if age < 55 {
			t.Errorf("age %g", age)
		}
	})
}

// Servers that change the list at the same time lose no change.
func TestChangesAtOnce(t *testing.T) {
	s := shared{memstore.New(memstore.Options{})}
	var done sync.WaitGroup
	for i := range 4 {
		r := newRing(s)
		done.Go(func() {
			for j := range 10 {
				if _, _, err := r.Create(t.Context(), keyring.Wish{Name: fmt.Sprint(i, "/", j), Grants: []string{"read:n"}}, anyone); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	r := newRing(s)
	if err := r.Load(t.Context()); err != nil || len(r.List()) != 40 {
		t.Errorf("%d keys, %v", len(r.List()), err)
	}
}

// The store has no key, and a list of many pages is one.
func TestStored(t *testing.T) {
	s := memstore.New(memstore.Options{})
	r := newRing(s)
	var keys []string
	grant := "read:n/" + strings.Repeat("p", 400) + "*"
	for i := range 300 {
		_, key, err := r.Create(t.Context(), keyring.Wish{Name: fmt.Sprint("key ", i), Grants: []string{grant}}, anyone)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	again := newRing(s)
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if p := again.Find(key); p == nil || p.Key("n", strings.Repeat("p", 400)) != access.Read {
			t.Fatalf("%.20s…: %+v", key, p)
		}
	}
	for _, k := range again.List() {
		if strings.Contains(fmt.Sprintf("%+v", k), keys[0][16:]) {
			t.Errorf("a secret in the store: %+v", k)
		}
	}
	if again.Find(keys[0][:len(keys[0])-1]+"a") != nil && keys[0][len(keys[0])-1] != 'a' {
		t.Error("a wrong secret was taken")
	}
}

// A refusal changes nothing, and a server that only reads changes nothing.
func TestRefused(t *testing.T) {
	s := memstore.New(memstore.Options{})
	r := newRing(s)
	no := errors.New("no")
	if _, _, err := r.Create(t.Context(), keyring.Wish{Name: "x", Grants: []string{"read:n"}}, func(*access.Roll, *access.Record) error { return no }); !errors.Is(err, no) || r.Any() {
		t.Errorf("created: %v, %v", r.Any(), err)
	}
	reader := keyring.New(s, keyring.Options{ReadOnly: true})
	if _, _, err := reader.Create(t.Context(), keyring.Wish{Name: "x", Grants: []string{"read:n"}}, anyone); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("created by a reader: %v", err)
	}
	if _, err := r.Revoke(t.Context(), "none", anyone); store.KindOf(err) != store.KindInvalid {
		t.Errorf("revoked none: %v", err)
	}
}
