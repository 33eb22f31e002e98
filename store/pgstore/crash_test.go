package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// The server is killed under load, twice. What was acknowledged is there, and
// when everything has been sent again until it was answered, every write has
// counted once.
func TestServerCrashes(t *testing.T) {
	own := pgtest.For(t)
	stores := []*pgstore.Store{open(t, own.URL(), pgstore.Options{}), open(t, own.URL(), pgstore.Options{})}
	if d := stores[0].Traits().Durability; d != store.Synced {
		t.Fatalf("the server offers %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	const writers, batches = 4, 120
	var acked atomic.Int64
	crash := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for g := range writers {
		s := stores[g%2]
		w, err := store.Enlist(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			last := int64(0)
			for i := range uint64(batches) {
				b := store.Batch{Writer: w, Prev: i, Seq: i + 1, Deltas: []store.Delta{
					{Cell: at(fmt.Sprint("own", g)), Op: store.OpAdd, N: 1, Want: true}, add("all", 1),
				}}
				if g%2 == 1 { // by token, in a batch without a number
					b = store.Batch{Deltas: []store.Delta{once(add(fmt.Sprint("own", g), 1), fmt.Sprint(i)), once(add("all", 1), fmt.Sprint(g, i))}}
				}
				r, err := insist(ctx, s, b)
				if err != nil {
					t.Error(err)
					return
				}
				if r.Results[0].After != last+1 {
					t.Errorf("writer %d went from %d to %+v", g, last, r.Results[0])
				}
				last = r.Results[0].After
				if n := acked.Add(1); n == writers*batches/3 || n == writers*batches*2/3 {
					crash <- struct{}{}
				}
			}
		})
	}
	for range 2 {
		<-crash
		if err := own.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		if err := own.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	holds(t, stores[0], "all", writers*batches)
	for g := range writers {
		holds(t, stores[1], fmt.Sprint("own", g), batches)
	}
	audited(t, stores[0])
}
