package engine

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

// TestReplayOfMerges checks that a merge is refused that comes to something else than what it
// came to, or that nobody asked for in its frame.
func TestReplayOfMerges(t *testing.T) {
	e, err := Open("/data", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	cell := append(appendCellRecord(nil, recAdd, appendCell(nil, store.Cell{Namespace: "n", Key: "a"})), 2)
	unique := store.PartFields{Kind: store.PartSketch}.Part()
	asks := []byte{1, 1, 10, 0, 0, 0, 0, 0, 0, 1}
	merge := func(n int64) []byte { return appendPartRecord(nil, unique, partMerge, n) }
	f := func(ok bool, records ...[]byte) {
		t.Helper()
		err := emptied(e).replayer(0)(0, bytes.Join(records, nil))
		if ok != (err == nil) || err != nil && store.KindOf(err) != store.KindCorrupt {
			t.Errorf("%x: %v", records, err)
		}
	}
	f(true, cell, appendAsk(nil, asks), merge(store.PartSketch.Number(asks)))
	f(true, cell, appendAsk(nil, asks), merge(store.PartSketch.Number(asks)), cell, appendAsk(nil, asks))
	f(false, cell, appendAsk(nil, asks), merge(store.PartSketch.Number(asks)+1))
	f(false, cell, appendAsk(nil, asks), merge(0))
	f(false, cell, appendAsk(nil, []byte("no request")), merge(0))
	f(false, cell, merge(store.PartSketch.Number(asks)))
	f(false, appendAsk(nil, asks), merge(store.PartSketch.Number(asks)))

	object := appendObject(nil, appendCell(nil, store.Cell{Namespace: "n", Key: "b"}), 0)
	registers := []byte{1, 1, 3, 1, 8, 0, 0, 0, 0, 0, 0, 0}
	more := []byte{1, 1, 3, 0, 0xf0, 0, 0, 0, 0, 1}
	put := append(append(appendPartRecord(nil, store.Object, partPut, 0), byte(len(registers))), registers...)
	take := func(rise int64) []byte { return appendPartRecord(nil, store.Object, partTake, rise) }
	f(true, object, put, object, appendAsk(nil, more), take(8))
	f(true, object, put, object, appendAsk(nil, more), take(8), object, put)
	f(false, object, put, object, appendAsk(nil, more), take(9))
	f(false, object, put, object, appendAsk(nil, more), take(8), object, appendAsk(nil, more), take(0))
	f(false, object, put, object, take(8))
	f(false, object, put, object, appendAsk(nil, registers), take(0))
	f(false, object, appendAsk(nil, more), take(8))
	f(false, object, put, cell, appendAsk(nil, more), appendPartRecord(nil, unique, partTake, 8))

	f(false, cell, appendAsk(nil, asks), appendPartRecord(nil, store.PartFields{Kind: store.PartPage}.Part(), partMerge, store.PartSketch.Number(asks)))
}
