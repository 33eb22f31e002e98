package total_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// TestBesideBad has many read a counter together with one that can't be read, which
// fails or hangs. Who reads the good one alone is served.
func TestBesideBad(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := &way{Store: memstore.New(memstore.Options{})}
			db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 100 * time.Millisecond})
			mustAdd(t, db, "good", 7)
			w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
				if !slices.ContainsFunc(cells, func(c store.Cell) bool { return c.Key == "bad" }) {
					return w.Store.Read(ctx, cells, values)
				}
				var soon <-chan time.Time
				if !hangs {
					soon = time.After(800 * time.Millisecond)
				}
				select {
				case <-soon:
				case <-ctx.Done():
				}
				return store.ErrUnavailable
			})
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					<-time.After(time.Duration(i) * 50 * time.Millisecond)
					for ctx.Err() == nil {
						within, cancel := context.WithTimeout(ctx, 3*time.Second)
						_, _ = db.ReadBatch(within, []string{"good", "bad"}) // it fails, or is cut short
						cancel()
					}
				})
			}
			for range 100 {
				<-time.After(37 * time.Millisecond)
				within, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				if c, err := db.Read(within, "good"); err != nil || c.Value != 7 {
					t.Errorf("hangs %v: %+v, %v", hangs, c, err)
				}
				cancel()
			}
			stop()
			wg.Wait()
		})
	}
}

// TestLeftBehind has readers go while the store does not answer: their calls end
// soon after them, though they had no deadline.
func TestLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 100 * time.Millisecond})
		var mu sync.Mutex
		under := 0
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			under += n
		}
		w.onRead(func(ctx context.Context, _ []store.Cell, _ []store.Value) error {
			add(1)
			defer add(-1)
			<-ctx.Done()
			return store.ErrUnavailable
		})
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			gone := time.AfterFunc(1100*time.Millisecond, cancel)
			if _, err := db.Read(ctx, "a"); err == nil {
				t.Error("read")
			}
			gone.Stop()
			cancel()
		}
		<-time.After(10 * time.Minute)
		if add(0); under > 0 {
			t.Errorf("%d calls are under way", under)
		}
	})
}

// TestRecallSlow reads from a store that is slow, when what was read before is just
// old enough not to do: there is time left, and it is used.
func TestRecallSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := remembering(t, w, quipu.Policy{Pattern: "*", Stale: 5 * time.Second})
		mustAdd(t, db, "a", 7)
		mustRead(t, db, "a")
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			select {
			case <-time.After(1500 * time.Millisecond):
				return w.Store.Read(ctx, cells, values)
			case <-ctx.Done():
				return store.ErrUnavailable
			}
		})
		<-time.After(4500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if c, err := db.Read(ctx, "a"); err != nil || c.Value != 7 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
