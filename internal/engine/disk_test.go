package engine_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// TestDiskFull checks that writes are refused, and nothing else is, while the
// disk is nearly full, and that they are taken again when it is not.
func TestDiskFull(t *testing.T) {
	mem := vfs.NewMem()
	full := func(yes bool) {
		usage := vfs.DiskUsage{AvailBytes: 10 << 30, TotalBytes: 20 << 30, UsedBytes: 10 << 30}
		if yes {
			usage.AvailBytes = 100 << 20
		}
		mem.TestingSetDiskUsage(usage)
	}
	full(false)
	e := open(t, mem, engine.Options{Memory: 64 << 20})
	do(t, e, once(add(cell("a"), 1), "token"))
	full(true)
	// It is noticed after some megabytes.
	key := strings.Repeat("k", 500)
	refused := func() error {
		b := store.Batch{Durability: store.Memory}
		for i := range 1000 {
			b.Deltas = append(b.Deltas, add(cell(fmt.Sprint(i, key)), 1))
		}
		for range 100 {
			if _, err := try(e, b); err != nil {
				return err
			}
		}
		return nil
	}
	check := func(err error) {
		t.Helper()
		wantKind(t, err, store.KindUnavailable)
		if !strings.Contains(err.Error(), "100 MiB free, 128 MiB are kept") {
			t.Fatalf("not clear: %v", err)
		}
	}
	check(refused())
	_, err := try(e, batch(add(cell("a"), 1)))
	check(err)
	holds(t, e, cell("a"), 1)
	if f, err := e.Lookup(bg, cell("a"), "token"); err != nil || f.State != store.TokenApplied {
		t.Fatalf("look up: %+v, %v", f, err)
	}
	checkpoint(t, e)
	audited(t, e)
	full(false)
	poll(t, func() bool {
		_, err := try(e, batch(add(cell("a"), 1)))
		return err == nil
	})
	holds(t, e, cell("a"), 2)
	mustClose(t, e)

	full(true)
	e = open(t, mem, engine.Options{Memory: 64 << 20})
	_, err = try(e, batch(add(cell("a"), 1)))
	check(err)
	holds(t, e, cell("a"), 2)
	full(false)
	poll(t, func() bool {
		_, err := try(e, batch(add(cell("a"), 1)))
		return err == nil
	})
}

// poll waits for something that comes by itself.
func poll(t *testing.T, f func() bool) {
	t.Helper()
	within(t, "what should come by itself", func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !f() {
			<-tick.C
		}
	})
}

// TestSecondOpen checks that a store can't be opened twice, whatever its
// directory is called.
func TestSecondOpen(t *testing.T) {
	root := t.TempDir()
	target := filepath.Join(root, "data")
	link := filepath.Join(root, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	e, err := engine.Open(target, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 1))
	for _, name := range []string{target, target + "/", "data", "./data/../data", link, "link"} {
		second, err := engine.Open(name, engine.Options{})
		if err == nil {
			_ = second.Close()
		}
		if store.KindOf(err) != store.KindUnavailable || !strings.Contains(err.Error(), "this process has it open; stop it first, or use another directory") {
			t.Errorf("second open as %s: %v", name, err)
		}
	}
	do(t, e, add(cell("a"), 1))
	mustClose(t, e)
	e, err = engine.Open(link, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, e, cell("a"), 2)
	audited(t, e)
	mustClose(t, e)
}

// TestBadDirectories checks that what can't be a store is refused with a clear
// error and left as it was.
func TestBadDirectories(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	other := filepath.Join(root, "other")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(name string, kind store.Kind, words string) {
		t.Helper()
		_, err := engine.Open(name, engine.Options{})
		if store.KindOf(err) != kind || !strings.Contains(err.Error(), words) {
			t.Errorf("open %s: %v, of kind %d", name, err, store.KindOf(err))
		}
	}
	f(file, store.KindUnavailable, "not a directory")
	f(filepath.Join(file, "below"), store.KindUnavailable, "not a directory")
	f(other, store.KindInvalid, "neither empty nor a store")
	for path, want := range map[string]string{file: "mine", filepath.Join(other, "notes.txt"): "mine"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}

	// A directory that can't be written to, with a store in it and without.
	for _, made := range []bool{false, true} {
		mem := vfs.NewMem()
		if made {
			mustClose(t, open(t, mem, engine.Options{}))
		}
		readOnly := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return &fs.PathError{Op: "write", Path: op.Path, Err: fs.ErrPermission}
			}
			return nil
		}))
		_, err := engine.Open(dir, engine.Options{FS: readOnly})
		if store.KindOf(err) != store.KindUnavailable || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("open a directory that can't be written to: %v", err)
		}
	}
}

// TestMemoryLimit counts many more cells than may be in memory.
func TestMemoryLimit(t *testing.T) {
	const memory, keys = 16 << 20, 200_000
	e, err := engine.Open(t.TempDir(), engine.Options{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { mustClose(t, e) }()
	name := strings.Repeat("long name ", 10) // fewer cells are as many bytes
	key := func(i int) store.Cell { return cell(fmt.Sprintf("%s%07d", name, i)) }
	most := 0.0
	for step := 1; step <= 10; step += 9 { // all of them, then some of them again
		b := store.Batch{Durability: store.Memory}
		for i := 0; i < keys; i += step {
			b.Deltas = append(b.Deltas, add(key(i), int64(i)))
			if len(b.Deltas) < store.BatchDeltasMax {
				continue
			}
			doBatch(t, e, b)
			b.Deltas = b.Deltas[:0]
			e.Meters(func(name, _ string, v float64) {
				if name == "quipu_memory_cell_bytes" {
					most = max(most, v)
				}
			})
		}
	}
	// A batch is let in as a whole: one that finds room may go beyond the limit by its cells. On a busy
	// machine cells that have just been saved are still there beside them. All cells would take 38 MB.
	const batch = store.BatchDeltasMax * 200 // a key of 107 bytes, and what its cell takes
	if held := e.HeldBytes(); most > memory+2*batch || held > 2*memory {
		t.Errorf("cells took up to %.0f bytes, and the table holds %d, of a limit of %d", most, held, memory)
	}
	cells, values := make([]store.Cell, 10_000), make([]store.Value, 10_000)
	for from := 0; from < keys; from += 5 * len(cells) { // Audit sums up all of them
		for i := range cells {
			cells[i] = key(from + i)
		}
		if err := e.Read(bg, cells, values); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			want := int64(from + i)
			if want%10 == 0 {
				want *= 2
			}
			if v.N != want {
				t.Fatalf("%s is %+v, want %d", cells[i].Key, v, want)
			}
		}
	}
	if a := audited(t, e); a.Cells != int64(keys) {
		t.Errorf("%d cells, want %d", a.Cells, keys)
	}
}

// TestBackPressure checks that writers wait while too much is not on disk yet,
// give up at their deadline having changed nothing, and go on when there is
// room.
func TestBackPressure(t *testing.T) {
	entered := make(chan struct{}, 100)
	gate, release := newGate()
	defer release()
	slow, on := failing(vfs.NewMem(), func(op errorfs.Op) bool {
		if strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate {
			notify(entered)
			<-gate
		}
		return false
	})
	e := open(t, slow, engine.Options{Memory: 16 << 20})
	on.Store(true)
	const writers, batches = 4, 30
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for n := range batches {
				b := store.Batch{Durability: store.Memory}
				for i := range 2000 {
					b.Deltas = append(b.Deltas, add(cell(fmt.Sprint(w, " ", n*2000+i)), 1))
				}
				if _, err := try(e, b); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	<-entered
	within(t, "the limit", e.AwaitOverfull)
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	_, err := tryContext(ctx, e, batch(add(cell("late"), 1)))
	wantKind(t, err, store.KindUnavailable)
	if !strings.Contains(err.Error(), "keep up") {
		t.Fatalf("not clear: %v", err)
	}
	if v := value(t, e, cell("late")); v.Exists {
		t.Fatalf("what was refused is there: %+v", v)
	}
	release()
	within(t, "the writers", func() {
		for range writers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
	if a := audited(t, e); a.Cells != writers*batches*2000 {
		t.Fatalf("%d cells, want %d", a.Cells, writers*batches*2000)
	}
}
