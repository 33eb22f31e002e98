package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// A change is one that somebody was told the version of.
type change struct {
	cell    store.Cell
	version uint64
}

// weakly adds to a cell without waiting for the disk.
func weakly(t testing.TB, e *engine.Engine, key string) change {
	t.Helper()
	b := batch(add(cell(key), 1))
	b.Durability = store.Memory
	return change{cell(key), doBatch(t, e, b)[0].Version}
}

// surely adds to a cell for good.
func surely(t testing.TB, e *engine.Engine, key string) change {
	t.Helper()
	return change{cell(key), do(t, e, add(cell(key), 1))[0].Version}
}

// lost checks which changes a store has lost.
func lost(t testing.TB, e *engine.Engine, want bool, changes ...change) {
	t.Helper()
	for _, c := range changes {
		is, err := e.Lost(bg, c.cell, c.version, value(t, e, c.cell))
		if err != nil {
			t.Fatal(err)
		}
		if is != want {
			t.Fatalf("version %d of %s, which is %+v: lost is %v, want %v", c.version, c.cell.Key, value(t, e, c.cell), is, want)
		}
	}
}

// TestLost loses changes that were acknowledged as less than synced. That is told
// for good, also when others have changed the same cells since.
func TestLost(t *testing.T) {
	fs := newMemDisk()
	e := open(t, fs, engine.Options{CheckpointEvery: time.Hour})
	var kept, gone []change
	for life := range 5 {
		kept = append(kept, surely(t, e, "a"), surely(t, e, fmt.Sprint("kept/", life)))
		left := cut(fs) // the power goes before the next ones are synced
		gone = append(gone, weakly(t, e, "a"), weakly(t, e, fmt.Sprint("gone/", life)), weakly(t, e, "again"))
		lost(t, e, false, gone[3*life:]...)

		fs = left
		e = open(t, fs, engine.Options{CheckpointEvery: time.Hour})
		lost(t, e, true, gone...)
		lost(t, e, false, kept...)
		kept = append(kept, surely(t, e, "a"), surely(t, e, "again"))
		switch life {
		case 1:
			checkpoint(t, e) // the next life finds the spans on disk
		case 2:
			mustClose(t, e)
			e = open(t, fs, engine.Options{CheckpointEvery: time.Hour})
		case 3:
			do(t, e, del(cell("a")), del(cell("again")))
		}
		lost(t, e, true, gone...)
		lost(t, e, false, kept...)
	}
}

// TestLostLongAgo crashes more often than is remembered. What is kept is never
// taken for lost, and neither the last losses nor what was before the store was
// made are forgotten.
func TestLostLongAgo(t *testing.T) {
	fs := newMemDisk()
	var kept, gone []change
	for range 100 {
		e := open(t, fs, engine.Options{CheckpointEvery: time.Hour})
		kept = append(kept, surely(t, e, "a"))
		left := cut(fs)
		gone = append(gone, weakly(t, e, "a"))
		fs = left
	}
	e := open(t, fs, engine.Options{})
	lost(t, e, false, kept...)
	lost(t, e, true, gone[len(gone)-60:]...)
	lost(t, e, true, change{cell("a"), 1})
	lost(t, e, false, gone[0]) // no longer known
}

// TestLostIdle crashes often without having changed anything, which must not make
// the store forget what it lost before.
func TestLostIdle(t *testing.T) {
	fs := newMemDisk()
	e := open(t, fs, engine.Options{})
	kept := surely(t, e, "a")
	left := cut(fs)
	gone := weakly(t, e, "a")
	for i := range 200 {
		fs = left
		e = open(t, fs, engine.Options{})
		if i == 100 {
			kept = surely(t, e, "a") // the least that is no idling
		}
		left = cut(fs)
	}
	lost(t, e, true, gone)
	lost(t, e, false, kept)
}

// TestLostByRestore brings back a backup. What was done after it is lost, however
// much that was, and stays so while the restored store goes on.
func TestLostByRestore(t *testing.T) {
	fs := newMemDisk()
	e := open(t, fs, engine.Options{})
	kept := []change{surely(t, e, "a"), surely(t, e, "b")}
	backup := snapshot(t, e)
	gone := []change{surely(t, e, "a"), surely(t, e, "c"), {cell("a"), kept[0].version + 1<<35}, {cell("c"), kept[0].version + 1<<35}}
	mustClose(t, e)

	fs = newMemDisk()
	if err := engine.Restore(fs, bytes.NewReader(backup), dir); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		lost(t, e, true, gone...)
		lost(t, e, false, kept...)
	}
	again := func() {
		e = open(t, fs, engine.Options{})
		check()
		kept = append(kept, surely(t, e, "a"), surely(t, e, "c"))
		check()
	}
	again()
	if last := kept[len(kept)-1].version; last < kept[0].version+1<<40 {
		t.Errorf("it gives out version %d, which the other may have given out after the backup at %d", last, kept[0].version)
	}
	if names := files(t, fs, dir); slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "RESTORED") }) {
		t.Errorf("it is taken for one that was just restored: %v", names)
	}
	fs = cut(fs)
	again()
	mustClose(t, e)
	again()
}

// TestLostByRestoreAgain brings back a backup twice: what was done in the first
// life after it is lost to the second.
func TestLostByRestoreAgain(t *testing.T) {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	o := engine.Options{Now: func() time.Time { return at }}
	e := open(t, newMemDisk(), o)
	kept := surely(t, e, "a")
	backup := snapshot(t, e)
	mustClose(t, e)
	var gone []change
	for range 3 {
		at = at.Add(time.Second)
		fs := newMemDisk()
		if err := engine.Restore(fs, bytes.NewReader(backup), dir); err != nil {
			t.Fatal(err)
		}
		e = open(t, fs, o)
		lost(t, e, true, gone...)
		lost(t, e, false, kept)
		now := []change{surely(t, e, "a"), surely(t, e, "c")}
		lost(t, e, true, gone...)
		lost(t, e, false, now...)
		gone = append(gone, now...)
		mustClose(t, e)
	}
}

// TestLostWithItsStore puts a new store in the place of an old one.
func TestLostWithItsStore(t *testing.T) {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	o := engine.Options{Now: func() time.Time { return at }}
	e := open(t, newMemDisk(), o)
	gone := []change{surely(t, e, "a"), surely(t, e, "b")}
	mustClose(t, e)
	at = at.Add(time.Second)
	e = open(t, newMemDisk(), o)
	lost(t, e, true, gone...)
	kept := surely(t, e, "a")
	lost(t, e, true, gone...)
	lost(t, e, false, kept)
}
