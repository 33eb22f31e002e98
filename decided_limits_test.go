package quipu_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A namespace has about so many open reservations, and no more. A repeat is told what the first
// was.
func TestHoldsMax(t *testing.T) {
	ctx := t.Context()
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{Limits: quipu.Limits{HoldsMax: 2}})
	defer func() { _ = db.Close() }()
	if _, err := db.Set(ctx, "a", 10); err != nil {
		t.Fatal(err)
	}
	first, err := db.Reserve(ctx, "a", 1, time.Hour, quipu.Token("t"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := db.Reserve(ctx, "a", 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	full := func(is bool, opts ...quipu.WriteOption) {
		t.Helper()
		_, err := db.Reserve(ctx, "a", 1, time.Hour, opts...)
		if errors.Is(err, quipu.ErrFull) != is || !is && err != nil {
			t.Errorf("full: %v, want %v", err, is)
		}
	}
	full(true)
	full(true, quipu.Token("u"))
	if r, err := db.Reserve(ctx, "a", 1, time.Hour, quipu.Token("t")); err != nil || r.ID != first.ID || !r.Replayed {
		t.Errorf("a repeat: %+v, %v", r, err)
	}
	db.Meters(func(name, _ string, value float64) {
		if name == "quipu_holds_open" && value != 2 || name == "quipu_writes_full_total" && value != 2 {
			t.Errorf("%s is %v", name, value)
		}
	})
	if _, err := db.In("other").Reserve(ctx, "a", 1, time.Hour, quipu.Floor(-1)); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := db.Release(ctx, second.ID); err != nil {
		t.Fatal(err)
	}
	full(false, quipu.Token("u"))
	full(true)
}

// A server that comes later knows how many reservations there are, and those that expire make
// room.
func TestHoldsMaxIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		db := quipu.New(s, quipu.Options{})
		for range 3 {
			if _, err := db.Reserve(t.Context(), "a", 1, time.Minute, quipu.Floor(-10)); err != nil {
				t.Fatal(err)
			}
		}
		later := quipu.New(s, quipu.Options{Limits: quipu.Limits{HoldsMax: 3}})
		synctest.Wait()
		if _, err := later.Reserve(t.Context(), "a", 1, time.Minute, quipu.Floor(-10)); !errors.Is(err, quipu.ErrFull) {
			t.Errorf("%v", err)
		}
		<-time.After(11 * time.Minute)
		synctest.Wait()
		if _, err := later.Reserve(t.Context(), "a", 1, time.Minute, quipu.Floor(-10)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(db.Close(), later.Close()); err != nil && store.KindOf(err) != store.KindClosed {
			t.Error(err)
		}
	})
}

// Users of a namespace have about so many choices, and no more: they can still take some back.
func TestUsersMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{Limits: quipu.Limits{UsersMax: 3}})
		defer func() { _ = db.Close() }()
		all := []definition.Definition{{Pattern: "post:*", Choices: []string{"like"}}}
		if _, err := db.Define(ctx, all, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
		react := func(key, user string) error {
			_, err := db.React(ctx, key, user, "like")
			return err
		}
		if err := errors.Join(react("post:1", "ana"), react("post:2", "ana"), react("post:1", "bob")); err != nil {
			t.Fatal(err)
		}
		<-time.After(61 * time.Second)
		synctest.Wait()
		if err := react("post:1", "cy"); !errors.Is(err, quipu.ErrFull) {
			t.Errorf("%v", err)
		}
		if _, err := db.Unreact(ctx, "post:1", "bob"); err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if err := react("post:1", "cy"); err != nil {
			t.Error(err)
		}
		db.Meters(func(name, _ string, value float64) {
			if name == "quipu_members" && value != 2 || name == "quipu_writes_full_total" && value != 1 {
				t.Errorf("%s is %v", name, value)
			}
		})
	})
}
