package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// cutLog cuts the log of a store at the boundary before its last frame.
func cutLog(t *testing.T, dir string) {
	t.Helper()
	var last wal.FrameInfo
	err := wal.Dump(vfs.Default, filepath.Join(dir, "log"), func(f wal.FrameInfo) error {
		if f.Err == "" && !f.Close {
			last = f
		}
		return nil
	})
	if err != nil || last.File == "" {
		t.Fatalf("no frame: %v", err)
	}
	if err := os.Truncate(last.File, last.Offset); err != nil {
		t.Fatal(err)
	}
}

func audit(t *testing.T, e *engine.Engine) store.Audit {
	t.Helper()
	a, err := e.Audit(bg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A server that runs knows what it has acknowledged, and misses it in its log.
func TestAuditMissesTheEndOfTheLog(t *testing.T) {
	dir := t.TempDir()
	e, err := engine.Open(dir, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 1))
	do(t, e, add(cell("a"), 1))
	if a := audit(t, e); len(a.Drift)+len(a.Unproved) > 0 {
		t.Errorf("before: %+v", a)
	}
	do(t, e, add(cell("a"), 1))
	cutLog(t, dir)
	for range 2 { // The checkpoint of the first one does not cover it up: after a crash now, the log would be refused.
		if a := audit(t, e); len(a.Drift) != 1 || a.Drift[0].What != "log" || !strings.Contains(a.Drift[0].Have, "was synced") {
			t.Errorf("after the log was cut: %+v", a)
		}
	}
	mustClose(t, e)
}

// A log that was not closed can't tell that its end is gone, and says so; one that
// was closed is vouched for, and refused without its end.
func TestAuditSaysWhatItCantKnow(t *testing.T) {
	dir := t.TempDir()
	e, err := engine.Open(dir, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 1))
	do(t, e, add(cell("a"), 1))
	crashed := filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	if e, err = engine.Open(dir, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	if a := audit(t, e); len(a.Drift)+len(a.Unproved) > 0 {
		t.Errorf("a store that was closed: %+v", a)
	}
	mustClose(t, e)

	cutLog(t, crashed)
	for _, word := range []string{"checked up to position", "1 times at least"} {
		if e, err = engine.Open(crashed, engine.Options{}); err != nil {
			t.Fatal(err)
		}
		if a := audit(t, e); len(a.Drift) > 0 || len(a.Unproved) != 1 || !strings.Contains(a.Unproved[0], word) {
			t.Errorf("a store that was not closed: %+v, want %q", a, word)
		}
		mustClose(t, e)
	}
	if e, err = engine.Open(dir, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 1))
	mustClose(t, e)
	cutLog(t, dir)
	if _, err := engine.Open(dir, engine.Options{}); store.KindOf(err) != store.KindLost {
		t.Errorf("a log that was closed, and cut: %v", err)
	}
}
