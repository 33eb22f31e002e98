package quipu

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Two writes told their values, at ticks 5 and 9, and the later one is noted first.
// A total that was asked for in between counts the first alone, and must not be
// served to those who write here.
func TestNotedOutOfOrder(t *testing.T) {
	var e total
	d, r := store.Delta{Op: store.OpAdd, N: 1, Want: true}, store.Result{Outcome: store.Applied, Version: 1}
	e.note(&d, &r, 8, 9)
	e.note(&d, &r, 4, 5)
	if e.written != 9 {
		t.Errorf("written at %d, want 9", e.written)
	}
}

// hung is a store that does not answer until it is opened.
type hung struct {
	store.Store
	open chan struct{}
}

func (h *hung) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	select {
	case <-h.open:
		return h.Store.Read(ctx, cells, values)
	case <-ctx.Done():
		return store.ErrUnavailable
	}
}

// Totals that are being read are not forgotten. When a store that did not answer
// does again, there are soon no more of them than there may be.
func TestTotalsShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hung{memstore.New(memstore.Options{}), make(chan struct{})}
		db := New(h, Options{})
		size := func() (n int) {
			for i := range db.totals.stripes {
				db.totals.stripes[i].mu.Lock()
				n += len(db.totals.stripes[i].cells)
				db.totals.stripes[i].mu.Unlock()
			}
			return n
		}
		most := db.totals.max * totalStripes
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 2 * most {
			if _, err := db.Read(ctx, fmt.Sprint("gone", i), MaxStaleness(time.Second)); err == nil {
				t.Fatal("read")
			}
		}
		if n := size(); n > most {
			t.Errorf("%d totals for callers who were gone before they asked", n)
		}
		for i := range 2 * most {
			go func() { _, _ = db.Read(t.Context(), fmt.Sprint("waits", i), MaxStaleness(time.Second)) }()
		}
		synctest.Wait()
		close(h.open)
		synctest.Wait()
		for i := range 2 * most {
			if _, err := db.Read(t.Context(), fmt.Sprint("then", i), MaxStaleness(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		if n := size(); n > most {
			t.Errorf("%d totals, and %d may be", n, most)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
