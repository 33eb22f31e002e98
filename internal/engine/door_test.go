package engine_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// names returns what is in a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A directory that is refused is left as it was.
func TestRefusedDirectoryIsLeft(t *testing.T) {
	f := func(kind store.Kind, word, name, text string) {
		t.Helper()
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := names(t, dir)
		_, err := engine.Open(dir, engine.Options{})
		if store.KindOf(err) != kind || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", name, err)
		}
		if after := names(t, dir); strings.Join(after, " ") != strings.Join(before, " ") {
			t.Errorf("%s: there was %q, and is %q", name, before, after)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s is now %q, %v", name, now, err)
		}
	}
	f(store.KindInvalid, "neither empty nor a store", "notes.txt", "mine")
	f(store.KindLost, "is missing", "log/0.wal", "")
	f(store.KindCorrupt, "not the identity of a store", "QUIPU", "something else")
	f(store.KindUnsupported, "made by a newer Quipu, with format 99", "QUIPU", "quipu store\nformat 99\nid 00\nsum 00\n")
}

// What a store makes is for its owner alone; a directory that others may read stays
// so, and is warned about.
func TestDirectoryMode(t *testing.T) {
	f := func(dir, mode string, warns bool) {
		t.Helper()
		var log bytes.Buffer
		e, err := engine.Open(dir, engine.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, e)
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm().String() != mode {
			t.Errorf("%v, %v, want %s", info.Mode(), err, mode)
		}
		if strings.Contains(log.String(), "chmod 700") != warns {
			t.Errorf("log: %s", &log)
		}
	}
	dir := t.TempDir()
	made, restored := filepath.Join(dir, "made"), filepath.Join(dir, "restored")
	f(made, "-rwx------", false)
	e, err := engine.Open(made, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var backup bytes.Buffer
	if err := e.Snapshot(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	if err := engine.Restore(vfs.Default, &backup, restored); err != nil {
		t.Fatal(err)
	}
	f(restored, "-rwx------", false)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(dir, "wide")
	if err := os.Mkdir(wide, 0o755); err != nil {
		t.Fatal(err)
	}
	f(wide, "-rwxr-xr-x", true)
}
