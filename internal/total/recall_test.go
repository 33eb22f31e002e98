package total_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A faraway is a store whose reads can be cut off: they fail, or hang.
type faraway struct {
	store.Store
	cut, hang atomic.Bool
}

func (f *faraway) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if f.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.cut.Load() {
		return store.Errorf(store.KindUnavailable, "cut off")
	}
	return f.Store.Read(ctx, cells, values)
}

// TestRecall reads while the store can't be reached: what policies and callers
// allow is served as it was, and says so; anything else fails.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := &faraway{Store: memstore.New(memstore.Options{})}
		db := quipu.New(s, quipu.Options{Recall: 100, Policies: []quipu.Policy{{Pattern: "page.*", Stale: time.Minute}}})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		add := func(key string, n int64) (session string) {
			t.Helper()
			r, err := db.Add(ctx, key, n)
			if err != nil {
				t.Fatal(err)
			}
			return r.Session()
		}
		source := func(opts []quipu.ReadOption) string {
			if len(opts) > 0 { // The caller asks for no more: the store is left alone.
				return "rollup"
			}
			return "recalled"
		}
		f := func(key string, want int64, age time.Duration, opts ...quipu.ReadOption) {
			t.Helper()
			began := time.Now()
			c, err := db.Read(ctx, key, opts...)
			if err != nil || c.Value != want || c.Exact || !c.Complete || c.Source != source(opts) {
				t.Errorf("%s: %+v, %v", key, c, err)
			}
			if got := c.Staleness - time.Since(began); got != age || !c.AsOf.Equal(began.Add(-age)) {
				t.Errorf("%s: %s stale as of %s, want %s", key, got, c.AsOf, age)
			}
			if !c.Bounded || c.Lower != want || c.Upper != want {
				t.Errorf("%s: between %d and %d", key, c.Lower, c.Upper)
			}
		}
		fails := func(key string, opts ...quipu.ReadOption) {
			t.Helper()
			if c, err := db.Read(ctx, key, opts...); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("%s: %+v, %v", key, c, err)
			}
		}
		add("page.a", 5)
		add("other", 7)
		for _, key := range []string{"page.a", "page.none", "other"} {
			if c, err := db.Read(ctx, key); err != nil || !c.Exact || c.Source != "store" {
				t.Fatalf("%s: %+v, %v", key, c, err)
			}
		}
		session := add("page.a", 1) // nobody has read it since

		s.cut.Store(true)
		<-time.After(time.Second)
		f("page.a", 5, time.Second)
		f("page.none", 0, time.Second)
		fails("page.unread")
		fails("page.a", quipu.Exact())
		fails("page.a", quipu.Session(session))
		fails("other")
		f("other", 7, time.Second, quipu.MaxStaleness(2*time.Second))
		fails("other", quipu.MaxStaleness(time.Second/2))
		f("page.a", 5, time.Second, quipu.MaxStaleness(2*time.Second))
		fails("page.a", quipu.MaxStaleness(time.Second/2)) // the caller knows better than the policy
		fails("page.a", quipu.MaxStaleness(0))
		fails("page.a", quipu.MaxStaleness(time.Hour), quipu.Exact())
		counts, err := db.ReadBatch(ctx, []string{"page.a", "page.none"})
		if err != nil || counts[0].Value != 5 || counts[0].Exact || counts[1].Exists {
			t.Errorf("%+v, %v", counts, err)
		}
		if _, err := db.ReadBatch(ctx, []string{"page.a", "other"}); !errors.Is(err, quipu.ErrUnavailable) {
			t.Errorf("a batch with one that may not be stale: %v", err)
		}
		values := make([]store.Value, 1)
		if err := db.Port().Values(ctx, []string{"page.a"}, values); err != nil || values[0].N != 5 {
			t.Errorf("%+v, %v", values, err)
		}

		s.hang.Store(true) // nobody waits long for what may be stale
		began := time.Now()
		c, err := db.Read(ctx, "page.a")
		if err != nil || c.Value != 5 || time.Since(began) != time.Second {
			t.Errorf("%+v, %v after %s", c, err, time.Since(began))
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := db.Read(ended, "page.a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who has gone: %v", err)
		}
		s.hang.Store(false)

		<-time.After(time.Minute)
		fails("page.a")
		s.cut.Store(false)
		if c, err := db.Read(ctx, "page.a"); err != nil || c.Value != 6 || !c.Exact {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestRecallForgets reads more counters than are remembered.
func TestRecallForgets(t *testing.T) {
	s := &faraway{Store: memstore.New(memstore.Options{})}
	db := quipu.New(s, quipu.Options{Recall: 64, Policies: []quipu.Policy{{Pattern: "*", Stale: time.Hour}}})
	for i := range 1000 {
		if _, err := db.Read(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	s.cut.Store(true)
	kept := 0
	for i := range 1000 {
		if _, err := db.Read(t.Context(), fmt.Sprint(i)); err == nil {
			kept++
		}
	}
	if kept < 32 || kept > 64 {
		t.Errorf("%d of 1000 are remembered, want about 64", kept)
	}
}
