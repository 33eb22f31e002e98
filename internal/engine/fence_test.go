package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

// TestFloorFreesDisk checks that what is below a floor is gone from the disk after the
// next checkpoint, whether it was there before or was to be written by it, and that what
// is above is not.
func TestFloorFreesDisk(t *testing.T) {
	e, err := Open("/data", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	apply := func(b store.Batch) {
		t.Helper()
		replies := make([]store.Reply, 1)
		if err := e.Apply(t.Context(), []store.Batch{b}, replies); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies[0].Err)
		}
	}
	event := func(epoch store.Epoch, n int64) {
		t.Helper()
		window := store.PartFields{Kind: store.PartWindow, View: 1, Epoch: epoch}.Part()
		rider := store.Rider{Part: window, Op: store.OpSet, N: n}
		apply(store.Batch{Deltas: []store.Delta{{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, N: 1, Event: &store.Event{Riders: []store.Rider{rider}}}}})
	}
	rows := func(kind byte) (n int) {
		t.Helper()
		if err := e.rows(kind, func([]byte, []byte) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	save := func(parts, near, tallies int) {
		t.Helper()
		if err := e.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, n, s := rows(rowPart), rows(rowNear), rows(rowEpoch); p != parts || n != near || s != tallies {
			t.Errorf("%d parts, %d near, %d tallies, want %d, %d, %d", p, n, s, parts, near, tallies)
		}
	}
	event(5, 1<<62+1)
	event(7, 1<<62+1)
	save(2, 2, 2)
	event(6, 1)
	apply(store.Batch{Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 7}}})
	save(1, 1, 3)
	event(8, 1)
	save(2, 1, 4)
	if a, err := e.Audit(t.Context()); err != nil || len(a.Drift) > 0 {
		t.Errorf("%+v, %v", a, err)
	}
}
