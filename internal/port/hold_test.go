package port_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// unheard returns a server that hears of nothing by itself.
func unheard(t *testing.T, s store.Store) *quipu.DB {
	t.Helper()
	db := quipu.New(s, quipu.Options{})
	db.Port().Due().Close()
	return db
}

// apply gives a delta to the store as the Redis door does.
func apply(db *quipu.DB, d store.Delta) error {
	results := make([]store.Result, 1)
	return errors.Join(db.Port().Apply(context.Background(), []store.Delta{d}, results), results[0].Outcome.Err())
}

// TestHoldsOfOutdatedServers has servers that have not heard that a namespace has reservations
// take away what one would be given back to: none can, not even with what was on its way when
// the first reservation was made.
func TestHoldsOfOutdatedServers(t *testing.T) {
	ctx := t.Context()
	key := store.Cell{Key: "s"}
	ways := map[string]func(db *quipu.DB) error{
		"delete": func(db *quipu.DB) error { _, err := db.Delete(ctx, "s"); return err },
		"reset":  func(db *quipu.DB) error { _, err := db.Reset(ctx, "s"); return err },
		"lifetime": func(db *quipu.DB) error {
			_, err := db.Add(ctx, "s", 1, quipu.TTL(time.Minute))
			return err
		},
		"DEL": func(db *quipu.DB) error { return apply(db, store.Delta{Cell: key, Op: store.OpDelete}) },
		"SET EX": func(db *quipu.DB) error {
			return apply(db, store.Delta{Cell: key, Op: store.OpSet, Expiry: store.ExpirySet, DeadlineMS: 1 << 45})
		},
		"EXPIRE": func(db *quipu.DB) error {
			return apply(db, store.Delta{Cell: key, Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: 1 << 45})
		},
		"GETDEL": func(db *quipu.DB) error {
			return apply(db, store.Delta{Cell: key, Op: store.OpDelete, Want: true, Guard: store.Guard{Exists: store.ExistsMust}})
		},
	}
	for _, partitions := range []int{1, 7} {
		for name, write := range ways {
			for _, moment := range []string{"before", "on its way"} {
				t.Run(fmt.Sprint(name, " in ", partitions, ", ", moment), func(t *testing.T) {
					s, hooks := memstore.New(memstore.Options{Partitions: partitions}), new(storetest.Hooks)
					db, other := unheard(t, s), unheard(t, storetest.Wrap(s, hooks))
					if _, err := other.Set(ctx, "s", 10); err != nil {
						t.Fatal(err)
					}
					reserve := func() {
						if _, err := db.Reserve(ctx, "s", 3, time.Hour); err != nil {
							t.Error(err)
						}
					}
					if moment == "before" {
						reserve()
					} else {
						hooks.On(storetest.OnApply, storetest.Nth(0, 1, storetest.Before(reserve)))
					}
					if err := write(other); !errors.Is(err, port.ErrHeld) && !errors.Is(err, store.Barred.Err()) {
						t.Errorf("%v", err)
					}
					holds(t, db, "s", 7)
				})
			}
		}
	}
}

// TestHoldsKeepDefinitions has the first reservation of a namespace change no definition, and
// the second nothing at all.
func TestHoldsKeepDefinitions(t *testing.T) {
	s := memstore.New(memstore.Options{})
	db, other := unheard(t, s), unheard(t, s)
	floorAt(t, db, 2)
	for _, server := range []*quipu.DB{db, db, other} {
		if _, err := server.Set(t.Context(), "s", 10); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Reserve(t.Context(), "s", 3, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Add(t.Context(), "s", -6); !errors.Is(err, quipu.ErrBound) {
			t.Errorf("%v", err)
		}
		if d, err := server.Definitions(t.Context()); err != nil || d.ID != 2 || len(d.Definitions) != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	}
	floorAt(t, other, 3)
	if _, err := db.Delete(t.Context(), "s"); !errors.Is(err, port.ErrHeld) {
		t.Errorf("after another definition: %v", err)
	}
}

// TestTextAmongHolds deletes text in a namespace that has reservations.
func TestTextAmongHolds(t *testing.T) {
	db := unheard(t, memstore.New(memstore.Options{}))
	if _, err := db.Set(t.Context(), "s", 10); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Reserve(t.Context(), "s", 3, time.Hour); err != nil {
		t.Fatal(err)
	}
	text := store.Cell{Key: "text"}
	if err := apply(db, store.Delta{Cell: text, Op: store.OpPut, Event: &store.Event{Part: store.Object, Bytes: []byte("hello")}}); err != nil {
		t.Fatal(err)
	}
	if err := apply(db, store.Delta{Cell: text, Op: store.OpDelete}); err != nil {
		t.Error(err)
	}
	if err := apply(db, store.Delta{Cell: text, Op: store.OpDelete, Guard: store.Guard{Exists: store.ExistsMust}}); !errors.Is(err, store.Unmet.Err()) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestDeadlineAmongHolds has a counter get a deadline in the moment in which it is reserved: the
// reservation wins, however it ends, and takes the deadline away.
func TestDeadlineAmongHolds(t *testing.T) {
	ctx := t.Context()
	ends := map[string]struct {
		do   func(db *quipu.DB, id string, now *time.Time) error
		left int64
	}{
		"commit": {func(db *quipu.DB, id string, _ *time.Time) error {
			_, err := db.Commit(ctx, id, 1)
			again, failed := db.Commit(ctx, id, 1)
			if failed == nil && (!again.Replayed || again.Committed != 1) {
				t.Errorf("again: %+v", again)
			}
			return errors.Join(err, failed)
		}, 9},
		"release": {func(db *quipu.DB, id string, _ *time.Time) error { _, err := db.Release(ctx, id); return err }, 10},
		"extend": {func(db *quipu.DB, id string, _ *time.Time) error {
			_, err := db.Extend(ctx, id, time.Hour)
			return err
		}, 7},
		"expiry": {func(db *quipu.DB, _ string, now *time.Time) error {
			*now = now.Add(2 * time.Minute)
			for range 2 {
				if _, err := db.Port().Due().Tick(ctx); err != nil {
					return err
				}
				*now = now.Add(time.Second)
			}
			return nil
		}, 10},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
			s, hooks := memstore.New(memstore.Options{Now: func() time.Time { return now }}), new(storetest.Hooks)
			db, other := unheard(t, s), unheard(t, storetest.Wrap(s, hooks))
			for _, server := range []*quipu.DB{db, other} {
				if _, err := server.Reserve(ctx, "else", 1, time.Hour, quipu.Floor(-9)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Set(ctx, "s", 10); err != nil {
				t.Fatal(err)
			}
			var r quipu.Reservation
			hooks.On(storetest.OnApply, storetest.Nth(0, 1, storetest.Before(func() {
				var err error
				if r, err = db.Reserve(ctx, "s", 3, time.Minute); err != nil {
					t.Error(err)
				}
			})))
			expire := store.Delta{Cell: store.Cell{Key: "s"}, Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: now.Add(time.Hour).UnixMilli()}
			if err := apply(other, expire); err != nil {
				t.Fatal(err)
			}
			if err := end.do(db, r.ID, &now); err != nil {
				t.Error(err)
			}
			now = now.Add(2 * time.Hour)
			holds(t, db, "s", end.left)
		})
	}
}
