package engine_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// long makes the tests of crashes, faults and damage try every place instead
// of some.
var long = flag.Bool("long", false, "try every crash point, fault and flip, and more seeds")

const dir = "/data"

// bg is for calls that are to end by themselves.
var bg = context.Background()

func cell(key string) store.Cell { return store.Cell{Namespace: "test", Key: key} }

func add(c store.Cell, n int64) store.Delta { return store.Delta{Cell: c, Op: store.OpAdd, N: n} }
func set(c store.Cell, n int64) store.Delta { return store.Delta{Cell: c, Op: store.OpSet, N: n} }
func del(c store.Cell) store.Delta          { return store.Delta{Cell: c, Op: store.OpDelete} }

func settle(c store.Cell, token string) store.Delta {
	return store.Delta{Cell: c, Op: store.OpSettle, Guard: store.Guard{Token: token}}
}

func want(d store.Delta) store.Delta {
	d.Want = true
	return d
}

func once(d store.Delta, token string) store.Delta {
	d.Want = true
	d.Guard.Token, d.Guard.Digest = token, uint64(d.N)
	return d
}

func batch(ds ...store.Delta) store.Batch { return store.Batch{Deltas: ds} }

func numbered(w store.Writer, prev, seq uint64, ds ...store.Delta) store.Batch {
	return store.Batch{Writer: w, Prev: prev, Seq: seq, Deltas: ds}
}

// try applies one batch. The error is that of the call or that of the batch.
func try(s store.Store, b store.Batch) (store.Reply, error) {
	return tryContext(bg, s, b)
}

func tryContext(ctx context.Context, s store.Store, b store.Batch) (store.Reply, error) {
	replies := make([]store.Reply, 1)
	if err := s.Apply(ctx, []store.Batch{b}, replies); err != nil {
		return replies[0], err
	}
	return replies[0], replies[0].Err
}

// do applies one batch that must be accepted, and every delta of it.
func do(t testing.TB, s store.Store, ds ...store.Delta) []store.Result {
	t.Helper()
	return doBatch(t, s, batch(ds...))
}

func doBatch(t testing.TB, s store.Store, b store.Batch) []store.Result {
	t.Helper()
	r, err := try(s, b)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	for i, res := range r.Results {
		if res.Outcome != store.Applied {
			t.Fatalf("delta %d: %v", i, res.Outcome.Err())
		}
	}
	return r.Results
}

// value reads one cell.
func value(t testing.TB, s store.Store, c store.Cell) store.Value {
	t.Helper()
	vs := make([]store.Value, 1)
	if err := s.Read(bg, []store.Cell{c}, vs); err != nil {
		t.Fatalf("read %v: %v", c, err)
	}
	return vs[0]
}

func holds(t testing.TB, s store.Store, c store.Cell, n int64) {
	t.Helper()
	if v := value(t, s, c); !v.Exists || v.N != n {
		t.Fatalf("%v is %+v, want %d", c, v, n)
	}
}

func open(t testing.TB, fs vfs.FS, o engine.Options) *engine.Engine {
	t.Helper()
	o.FS = fs
	e, err := engine.Open(dir, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func mustClose(t testing.TB, e *engine.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func checkpoint(t testing.TB, e *engine.Engine) {
	t.Helper()
	if err := e.Checkpoint(bg); err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
}

// audited checks that a store finds nothing wrong with itself.
func audited(t testing.TB, e *engine.Engine) store.Audit {
	t.Helper()
	a, err := e.Audit(bg)
	if err != nil {
		t.Fatalf("audit: %v", err)
	}
	if len(a.Drift) > 0 {
		t.Fatalf("drift: %+v", a.Drift)
	}
	return a
}

func wantKind(t testing.TB, err error, kinds ...store.Kind) {
	t.Helper()
	if err == nil || !slices.Contains(kinds, store.KindOf(err)) {
		t.Fatalf("got error %v of kind %d, want kind %v", err, store.KindOf(err), kinds)
	}
}

// within fails the test if f does not end soon, with the stacks of all
// goroutines: a store may fail, but must never hang.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		stacks := make([]byte, 1<<20)
		t.Fatalf("%s hangs\n%s", what, stacks[:runtime.Stack(stacks, true)])
	}
}

// notify tells one who waits, if someone does.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// newGate returns what is closed by release. A test defers release too: if it
// fails before, nobody waits at the gate for ever.
func newGate() (gate <-chan struct{}, release func()) {
	ch := make(chan struct{})
	return ch, sync.OnceFunc(func() { close(ch) })
}

// cut returns what a power loss at this moment would leave, in the worst case:
// nothing that was not synced.
func cut(fs *memDisk) *memDisk { return fs.CrashClone(vfs.CrashCloneCfg{}) }

// copyOf returns a copy of everything on a file system.
func copyOf(t testing.TB, fs vfs.FS) *memDisk {
	t.Helper()
	to := newMemDisk()
	if _, err := vfs.Clone(fs, to, "/", "/"); err != nil {
		t.Fatal(err)
	}
	return to
}

func content(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func setContent(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(b)); err != nil { // Write may modify what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// files returns the paths of all files below a directory, in order.
func files(t testing.TB, fs vfs.FS, under string) (paths []string) {
	t.Helper()
	names, err := fs.List(under)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		path := fs.PathJoin(under, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			paths = append(paths, files(t, fs, path)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}
