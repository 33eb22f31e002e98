package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// tablesFS counts the tables that checkpoints make, and refuses one of them.
type tablesFS struct {
	vfs.FS
	made, refused atomic.Int32
}

func (f *tablesFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), "checkpoint-") && f.made.Add(1) == f.refused.Load() {
		return nil, errors.New("no more tables")
	}
	return f.FS.Create(name, category)
}

// TestManyTables makes a checkpoint that is more than one table. It is seen as a
// whole, or, if one of the tables can't be made, not at all, and then leaves none.
func TestManyTables(t *testing.T) {
	const cells = 2<<17 + 1000
	mem := newMemDisk()
	fs := &tablesFS{FS: mem}
	e := open(t, fs, engine.Options{})
	b := store.Batch{Durability: store.Memory}
	for i := range cells {
		b.Deltas = append(b.Deltas, add(cell(fmt.Sprint(i)), 1))
		if len(b.Deltas) == store.BatchDeltasMax || i == cells-1 {
			doBatch(t, e, b)
			b.Deltas = b.Deltas[:0]
		}
	}
	fs.made.Store(0)
	fs.refused.Store(3)
	if err := e.Checkpoint(bg); err == nil {
		t.Fatal("a checkpoint without its third table")
	}
	for _, path := range files(t, mem, dir) {
		if strings.Contains(path, "checkpoint-") {
			t.Errorf("%s is left", path)
		}
	}
	crashed := open(t, cut(mem), engine.Options{})
	holds(t, crashed, cell("0"), 1)
	audited(t, crashed)

	fs.refused.Store(0)
	fs.made.Store(0)
	checkpoint(t, e)
	if n := fs.made.Load(); n != 4 { // the one that failed is finished first, with three
		t.Errorf("the checkpoints made %d tables, want 4", n)
	}
	e = open(t, cut(mem), engine.Options{})
	if a := audited(t, e); a.Cells != cells {
		t.Errorf("%d cells, want %d", a.Cells, cells)
	}
}
