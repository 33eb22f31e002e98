package engine_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// compactFS tells when a compaction makes its first table, and lets it go on when
// the gate is opened.
type compactFS struct {
	vfs.FS
	made  atomic.Int32
	first chan struct{}
	gate  <-chan struct{}
}

func (c *compactFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == "pebble-compaction" && c.made.Add(1) == 1 {
		close(c.first)
		<-c.gate
	}
	return c.FS.Create(name, category)
}

// TestCloseGivesUpCompaction closes a store while Pebble merges its tables: what
// is under way is given up after the table at hand, and nothing is lost.
func TestCloseGivesUpCompaction(t *testing.T) {
	const cells, rounds = 40_000, 4
	mem := newMemDisk()
	gate, release := newGate()
	defer release()
	fs := &compactFS{FS: mem, first: make(chan struct{}), gate: gate}
	e := open(t, fs, engine.Options{})
	for range rounds {
		b := store.Batch{Durability: store.Memory}
		for i := range cells {
			// Long keys that can't be compressed to a few: one table is too small for them.
			var key strings.Builder
			for rng := rand.New(rand.NewPCG(1, uint64(i))); key.Len() < 400; {
				fmt.Fprintf(&key, "%016x", rng.Uint64())
			}
			b.Deltas = append(b.Deltas, add(cell(key.String()), 1))
			if len(b.Deltas) == 1000 {
				doBatch(t, e, b)
				b.Deltas = b.Deltas[:0]
			}
		}
		checkpoint(t, e)
	}
	within(t, "a compaction", func() { <-fs.first })
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	within(t, "Close refuses others", func() {
		for e.Read(bg, []store.Cell{cell("a")}, make([]store.Value, 1)) == nil {
			runtime.Gosched()
		}
	})
	release()
	within(t, "Close", func() {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
	if n := fs.made.Load(); n > 1 {
		t.Errorf("the compaction made %d tables, want it to be given up after the first", n)
	}
	e = open(t, mem, engine.Options{})
	if a := audited(t, e); a.Cells != cells {
		t.Errorf("%d cells, want %d", a.Cells, cells)
	}
}
