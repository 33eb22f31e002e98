package total

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/policy"
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
		ts := New(Options{Store: h, Under: h, Policies: func() *policy.Set { return nil }})
		read := func(ctx context.Context, key string, i int) error {
			cell := store.Cell{Namespace: "default", Key: fmt.Sprint(key, i)}
			return ts.Read(ctx, &Read{Cells: []store.Cell{cell}, Values: make([]store.Value, 1), Staleness: time.Second})
		}
		size := func() (n int) {
			for i := range ts.memory.stripes {
				ts.memory.stripes[i].mu.Lock()
				n += len(ts.memory.stripes[i].cells)
				ts.memory.stripes[i].mu.Unlock()
			}
			return n
		}
		most := ts.memory.max * totalStripes
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 2 * most {
			if read(ctx, "gone", i) == nil {
				t.Fatal("read")
			}
		}
		if n := size(); n > most {
			t.Errorf("%d totals for callers who were gone before they asked", n)
		}
		for i := range 2 * most {
			go func() { _ = read(t.Context(), "waits", i) }()
		}
		synctest.Wait()
		close(h.open)
		synctest.Wait()
		for i := range 2 * most {
			if err := read(t.Context(), "then", i); err != nil {
				t.Fatal(err)
			}
		}
		if n := size(); n > most {
			t.Errorf("%d totals, and %d may be", n, most)
		}
		ts.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}
