package engine_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// asked returns the request to take some items into a sketch of uniques, by their numbers.
func asked(items ...uint64) []byte {
	for i, item := range items {
		items[i] = item * 0x9e3779b97f4a7c15
	}
	return sketch.AppendUniqueRequest(nil, sketch.PrecisionDefault, items)
}

var (
	sketchOfAll    = store.PartFields{Kind: store.PartSketch, View: 1}.Part()
	sketchOfWindow = store.PartFields{Kind: store.PartWindowSketch, View: 2, Epoch: 7, Position: 60_000}.Part()
)

// visit is an event of some users, each counted in two sketches.
func visit(c store.Cell, items ...uint64) store.Delta {
	d := add(c, 1)
	d.Event = &store.Event{
		Riders: []store.Rider{{Part: sketchOfAll, Op: store.OpMerge}, {Part: sketchOfWindow, Op: store.OpMerge}}, Bytes: asked(items...),
	}
	return d
}

// many returns the numbers of n items from one on.
func many(from, n uint64) []uint64 {
	items := make([]uint64, n)
	for i := range items {
		items[i] = from + uint64(i)
	}
	return items
}

// sketched checks that both sketches of a cell have the items up to a number.
func sketched(t *testing.T, e *engine.Engine, c store.Cell, n uint64) {
	t.Helper()
	want := string(asked(many(1, n)...))
	got := make([]store.Content, 2)
	if err := e.ReadParts(t.Context(), []store.PartCell{{Cell: c, Part: sketchOfAll}, {Cell: c, Part: sketchOfWindow}}, got); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Bytes != want {
			t.Errorf("sketch %d is %d bytes, and not that of %d items, which is %d bytes", i, len(got[i].Bytes), n, len(want))
		}
	}
}

// TestLogOfSketches checks that the log has what was asked of sketches, and not what they
// became, and that it is replayed over what a checkpoint has.
func TestLogOfSketches(t *testing.T) {
	fs := newMemDisk()
	e := open(t, fs, engine.Options{})
	do(t, e, visit(cell("a"), many(1, 3000)...))
	sketched(t, e, cell("a"), 3000)
	checkpoint(t, e)
	const more = 200
	for n := range uint64(more) {
		do(t, e, visit(cell("a"), 3001+n))
	}
	sketched(t, e, cell("a"), 3000+more)
	after := cut(fs)
	mustClose(t, e)

	bytes := 0
	if err := wal.Dump(after, dir+"/log", func(f wal.FrameInfo) error {
		bytes += len(f.Payload)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const first = 1<<sketch.PrecisionDefault + 1000
	if each := (bytes - first) / more; each > 150 {
		t.Errorf("%d bytes in the log for each event with two sketches", each)
	}
	e = open(t, after, engine.Options{})
	sketched(t, e, cell("a"), 3000+more)
	audited(t, e)
	mustClose(t, e)
}

// TestMemoryOfSketches merges into a few sketches again and again: what they were takes no
// room, so no writer waits for a checkpoint.
func TestMemoryOfSketches(t *testing.T) {
	const memory, writes = 16 << 20, 3000
	e := open(t, vfs.NewMem(), engine.Options{Memory: memory, CheckpointEvery: time.Hour})
	do(t, e, visit(cell("a"), many(1, 3000)...))
	for n := range uint64(writes) { // 48 MB of states
		do(t, e, visit(cell("a"), 3001+n))
	}
	if n := meter(t, e, "quipu_checkpoints_total"); n > 0 {
		t.Errorf("%v checkpoints for two sketches", n)
	}
	sketched(t, e, cell("a"), 3000+writes)
	mustClose(t, e)
}
