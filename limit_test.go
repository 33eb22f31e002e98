package quipu_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// width returns a length of time as it is written.
func widthOf(t testing.TB, s string) definition.Width {
	t.Helper()
	w, err := definition.ParseWidth(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// meters returns what the meters of a DB have counted.
func metersOf(db *quipu.DB) map[string]float64 {
	all := map[string]float64{}
	db.Meters(func(name, _ string, value float64) { all[name] = value })
	return all
}

// While the store can't be reached, a limit does what its definition says, and says so.
func TestLimitsWhileTheStoreIsAway(t *testing.T) {
	f := func(name string, away definition.Away, hook storetest.Hook, check func(ask func() (quipu.Decision, error))) {
		t.Run(name, func(t *testing.T) {
			var hooks storetest.Hooks
			db := quipu.New(storetest.Far(storetest.Wrap(memstore.New(memstore.Options{}), &hooks)), quipu.Options{})
			defer func() { _ = db.Close() }()
			d := definition.Definition{Pattern: "api", Limits: []definition.Limit{{Rate: 1, Per: widthOf(t, "24h"), Burst: 4}}, Away: away}
			if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
				t.Fatal(err)
			}
			ask := func() (quipu.Decision, error) {
				return db.Allow(t.Context(), "api", "eve", 1, quipu.AllowOptions{})
			}
			if d, err := ask(); err != nil || !d.Allowed || d.Remaining != 3 || d.Source != call.SourceStore {
				t.Fatalf("%+v, %v", d, err)
			}
			hooks.On(storetest.OnApply|storetest.OnRead|storetest.OnReadParts, hook)
			check(ask)
			hooks.On(storetest.OnApply | storetest.OnRead | storetest.OnReadParts)
			deadline := time.Now().Add(10 * time.Second)
			for { // for a while nobody asks a store that was away
				d, err := ask()
				if err == nil && d.Source == call.SourceStore {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%+v, %v: the store is back", d, err)
				}
			}
			m := metersOf(db)
			decided := m["quipu_limits_open_total"] + m["quipu_limits_closed_total"] + m["quipu_limits_shared_total"]
			if (decided > 0) != (away.Then != definition.Fail) || m["quipu_limits_allowed_total"] < 1 {
				t.Errorf("meters %v", m)
			}
		})
	}
	down := storetest.Fail(store.ErrUnavailable)
	fails := func(ask func() (quipu.Decision, error)) {
		if _, err := ask(); !errors.Is(err, quipu.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	}
	open := func(ask func() (quipu.Decision, error)) {
		for range 9 {
			if d, err := ask(); err != nil || !d.Allowed || d.Source != call.SourceOpen {
				t.Errorf("%+v, %v", d, err)
			}
		}
	}
	closed := func(ask func() (quipu.Decision, error)) {
		if d, err := ask(); err != nil || d.Allowed || d.Source != call.SourceClosed || d.RetryAfter <= 0 {
			t.Errorf("%+v, %v", d, err)
		}
	}
	share := func(ask func() (quipu.Decision, error)) {
		for i := range 4 { // half of 4 is 2
			if d, err := ask(); err != nil || d.Allowed != (i < 2) || d.Source != call.SourceShare {
				t.Errorf("%d: %+v, %v", i, d, err)
			}
		}
	}
	f("fail", definition.Away{}, down, fails)
	f("open", definition.Away{Then: definition.FailOpen}, down, open)
	f("closed", definition.Away{Then: definition.FailClosed}, down, closed)
	f("share", definition.Away{Then: definition.Share, Servers: 2}, down, share)
	f("hanging", definition.Away{Then: definition.FailOpen}, storetest.Hang(nil, store.KindUnknown), func(ask func() (quipu.Decision, error)) {
		began := time.Now()
		open(ask)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("nine calls waited %s for a store that hangs", took)
		}
	})
}

// A limit has as many clients as its definition lets it have, and those who are reset make
// room.
func TestClientsOfALimit(t *testing.T) {
	db, err := quipu.Open(t.TempDir(), quipu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	d := definition.Definition{Pattern: "api", Limits: []definition.Limit{{Rate: 1, Per: widthOf(t, "24h"), Burst: 4}}, Clients: 3}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	ask := func(who string) error {
		_, err := db.Allow(t.Context(), "api", who, 1, quipu.AllowOptions{})
		return err
	}
	for range 2 {
		for i := range 3 {
			if err := ask(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := ask("3"); !errors.Is(err, quipu.ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
	if n := metersOf(db)["quipu_limits_crowded_total"]; n != 1 {
		t.Errorf("%v crowded", n)
	}
	if err := db.ResetLimit(t.Context(), "api", "0"); err != nil {
		t.Fatal(err)
	}
	if err := ask("3"); err != nil {
		t.Error(err)
	}
	if a, err := db.Verify(t.Context()); err != nil || len(a.Drift) > 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// Servers that share a store allow together what the limit says, also those that have not
// heard that it has changed.
func TestServersShareALimit(t *testing.T) {
	for _, partitions := range []int{1, 7} {
		s := memstore.New(memstore.Options{Partitions: partitions, Shared: true})
		var all []*quipu.DB
		for range 3 {
			var hooks storetest.Hooks
			hooks.On(storetest.OnClose, storetest.Ignore)
			all = append(all, quipu.New(storetest.Wrap(s, &hooks), quipu.Options{}))
		}
		define := func(burst int64) {
			d := definition.Definition{Pattern: "api", Limits: []definition.Limit{{Rate: 1, Per: widthOf(t, "24h"), Burst: burst}}}
			if _, err := all[0].Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var allowed atomic.Int64
		round := func() {
			done := make(chan error, len(all))
			for _, db := range all {
				go func() {
					for i := range 60 {
						d, err := db.Allow(context.WithoutCancel(t.Context()), "api", fmt.Sprint(i%2), 1, quipu.AllowOptions{})
						if err != nil {
							done <- err
							return
						}
						if d.Allowed {
							allowed.Add(1)
						}
					}
					done <- nil
				}()
			}
			for range all {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		define(20)
		if round(); allowed.Load() != 40 {
			t.Errorf("%d partitions: %d were allowed, want 20 for each of 2", partitions, allowed.Load())
		}
		define(25)
		if round(); allowed.Load() != 50 {
			t.Errorf("%d partitions: %d were allowed, want 25 for each of 2", partitions, allowed.Load())
		}
		for _, db := range all {
			_ = db.Close()
		}
		_ = s.Close()
	}
}
