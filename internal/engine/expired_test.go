package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// An expired cell counts for a second or two, not until a checkpoint has written its
// deadline: neither if it is one of many, nor if it was changed while the others were
// looked through.
func TestExpiredLeaveSizeSoon(t *testing.T) {
	const many = 20_000
	clock := newClock()
	o := clock.options()
	o.CheckpointEvery = time.Hour
	e := open(t, vfs.NewMem(), o)
	expiring := func(key string, in time.Duration) store.Delta {
		return store.Delta{Cell: cell(key), Op: store.OpSet, N: 1, Expiry: store.ExpirySet, DeadlineMS: clock.now().Add(in).UnixMilli()}
	}
	var deltas []store.Delta
	for i := range many {
		deltas = append(deltas, expiring(fmt.Sprint(i), time.Duration(1+i%3)*time.Minute))
	}
	for i := 0; i < many; i += 1000 {
		do(t, e, deltas[i:i+1000]...)
	}
	do(t, e, store.Delta{Cell: cell("forever"), Op: store.OpSet, N: 1, Want: true})
	for minutes, left := range []int64{many + 1, many - many/3, many/3 + 1, 1} {
		if minutes > 0 {
			clock.advance(time.Minute)
		}
		becomes(t, e, left)
	}
	do(t, e, expiring("later", time.Minute))
	becomes(t, e, 2)
	clock.advance(time.Minute)
	becomes(t, e, 1)
	audited(t, e)
}

// becomes waits for a store to have so many cells.
func becomes(t *testing.T, e *engine.Engine, want int64) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	got := int64(-1)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-tick.C {
		var err error
		if got, err = e.Size(bg, cell("").Namespace); err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
	}
	t.Fatalf("%d cells, want %d", got, want)
}
