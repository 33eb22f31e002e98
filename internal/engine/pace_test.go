package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

// TestPace works in small steps, and looks how long the work takes with its rests.
func TestPace(t *testing.T) {
	f := func(pressed bool, work, want time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			p := pace{pressed: func() bool { return pressed }, strode: began, restedAt: began}
			for range work / (stride / 2) {
				<-time.After(stride / 2) // it is work
				p.breathe()
			}
			if took := time.Since(began); took != want {
				t.Errorf("pressed: %v; %v of work took %v, want %v", pressed, work, took, want)
			}
		})
	}
	f(false, burst/2, burst/2)
	f(false, burst, 2*burst)
	f(false, 10*burst, 20*burst)
	f(true, 10*burst, 10*burst)
}

// TestWaitersGoFirst has somebody wait for the lock again and again while a
// checkpoint copies cells: he gets it after each portion, not when all are copied.
func TestWaitersGoFirst(t *testing.T) {
	const cells = 100 * lockedCells
	e, err := Open("/data", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	b := store.Batch{Durability: store.Memory}
	for i := range cells {
		b.Deltas = append(b.Deltas, store.Delta{Cell: store.Cell{Namespace: "test", Key: fmt.Sprint(i)}, Op: store.OpAdd, N: 1})
	}
	for some := range slices.Chunk(b.Deltas, store.BatchDeltasMax) {
		b.Deltas = some
		if err := e.Apply(context.Background(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
			t.Fatal(err)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the order is the scheduler's, not chance
	c := e.newCheckpoint()
	e.mu.Lock()
	e.begin(c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.copyCells(c)
	}()
	most, last := 0, 0
	for last < cells {
		e.mu.Unlock()
		runtime.Gosched() // the other one runs, until he gives the lock away
		e.mu.Lock()
		most, last = max(most, len(c.copies)-last), len(c.copies)
	}
	e.mu.Unlock()
	<-done
	if most > 2*lockedCells {
		t.Errorf("%d cells were copied while somebody waited for the lock, want %d at a time", most, lockedCells)
	}
	if err := e.finish(context.Background(), c, false); err != nil {
		t.Error(err)
	}
}
