package engine_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// snapshot returns a snapshot of a store.
func snapshot(t testing.TB, e *engine.Engine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := e.Snapshot(bg, &b); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return b.Bytes()
}

// TestSnapshotUnderLoad takes snapshots of a store while it is written to. Each
// must be the store at one moment, on any file system.
func TestSnapshotUnderLoad(t *testing.T) {
	e := open(t, vfs.NewMem(), engine.Options{SegmentBytes: 4096})
	const writers = 4
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex // guards acked
	var acked [writers]int64
	rows := make([]store.Writer, writers)
	for w := range writers {
		var err error
		if rows[w], err = store.Enlist(bg, e); err != nil {
			t.Fatal(err)
		}
	}
	send := func(w int, n int64) store.Batch {
		return numbered(rows[w], uint64(n), uint64(n+1),
			add(cell(fmt.Sprintf("a/%d/%d", w, n%50)), 1), add(cell(fmt.Sprintf("b/%d", w)), 1),
			add(cell(fmt.Sprintf("c/%d/%d", w, n)), 1), once(add(cell("tokens"), 1), fmt.Sprintf("%d/%d", w, n)))
	}
	for w := range writers {
		wg.Go(func() {
			for n := int64(0); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := try(e, send(w, n)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[w] = n + 1
				mu.Unlock()
			}
		})
	}
	check := func(r *engine.Engine, least, most [writers]int64) {
		t.Helper()
		audited(t, r)
		var all int64
		for w := range writers {
			b := value(t, r, cell(fmt.Sprintf("b/%d", w))).N
			if b < least[w] || b > most[w]+1 {
				t.Fatalf("writer %d: %d batches, want %d to %d", w, b, least[w], most[w])
			}
			all += b
			for _, kind := range []string{"a", "c"} {
				var sum int64
				for page := (store.Range{Namespace: "test", Prefix: fmt.Sprintf("%s/%d/", kind, w)}); ; {
					entries, err := r.Scan(bg, page, store.ScanMax)
					if err != nil {
						t.Fatal(err)
					}
					for _, entry := range entries {
						sum += entry.Value.N
						page.After = entry.Key
					}
					if len(entries) < store.ScanMax {
						break
					}
				}
				if sum != b {
					t.Fatalf("writer %d: %d of %s, but %d of b", w, sum, kind, b)
				}
			}
			if b == 0 {
				continue
			}
			reply, err := try(r, send(w, b-1)) // its last batch, again
			if err != nil || !reply.Replayed || reply.Mark != uint64(b) {
				t.Fatalf("writer %d: %+v, %v", w, reply, err)
			}
			doBatch(t, r, send(w, b)) // and the next
			all++
		}
		holds(t, r, cell("tokens"), all)
		audited(t, r)
	}
	poll(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Min(acked[:]) > 0
	})
	for round := range 4 {
		mu.Lock()
		least := acked
		mu.Unlock()
		b := snapshot(t, e)
		mu.Lock()
		most := acked
		mu.Unlock()
		mem := vfs.NewMem()
		fs, to := vfs.FS(mem), dir
		if round%2 == 1 {
			fs, to = vfs.Default, filepath.Join(t.TempDir(), "new", "data")
		}
		if err := engine.Restore(fs, bytes.NewReader(b), to); err != nil {
			t.Fatalf("restore: %v", err)
		}
		r, err := engine.Open(to, engine.Options{FS: fs})
		if err != nil {
			t.Fatalf("open what was restored: %v", err)
		}
		check(r, least, most)
		mustClose(t, r)
	}
	close(stop)
	wg.Wait()
	audited(t, e)
}

// TestRestoreDurable checks that a restored store survives a power loss.
func TestRestoreDurable(t *testing.T) {
	s := newShop(t, true)
	b := snapshot(t, open(t, cut(s.fs), engine.Options{}))
	mem := newMemDisk()
	if err := engine.Restore(mem, bytes.NewReader(b), "/some/where/new"); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open("/some/where/new", engine.Options{FS: cut(mem)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.compare(t, e); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
}

// TestDamagedSnapshot cuts a snapshot short, and flips bits in it, at many
// places. It must be refused, and leave nothing behind; or what is restored is
// right.
func TestDamagedSnapshot(t *testing.T) {
	s := newShop(t, true)
	good := snapshot(t, open(t, cut(s.fs), engine.Options{}))
	stride := 97
	if *long {
		stride = 1
	}
	whole := bytes.LastIndex(good, []byte("\n")) + 1 // what follows is padding
	for n := 0; n < len(good); n += stride {
		mem := vfs.NewMem()
		err := engine.Restore(mem, bytes.NewReader(good[:n]), dir)
		if n >= whole && err == nil {
			continue
		}
		wantKind(t, err, store.KindCorrupt)
		wantNothing(t, mem)
	}
	refused := 0
	for at := 0; at < len(good); at += stride {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		mem := vfs.NewMem()
		if err := engine.Restore(mem, bytes.NewReader(bad), dir); err != nil {
			refused++
			wantKind(t, err, store.KindCorrupt)
			wantNothing(t, mem)
			continue
		}
		e, err := engine.Open(dir, engine.Options{FS: mem})
		if err != nil {
			t.Fatalf("flip at %d: restored, but not opened: %v", at, err)
		}
		if err := s.compare(t, e); err != nil {
			t.Fatal(err)
		}
		mustClose(t, e)
		if t.Failed() {
			t.Fatalf("bit %d of byte %d was flipped", at%8, at)
		}
	}
	t.Logf("%d of %d flips were refused", refused, len(good)/stride)
}

// wantNothing checks that nothing is left where a store was to be restored.
func wantNothing(t testing.TB, fs vfs.FS) {
	t.Helper()
	if names, err := fs.List("/"); err != nil || len(names) > 0 {
		t.Fatalf("left behind: %v, %v", names, err)
	}
}

// TestHostileSnapshot restores what someone made up.
func TestHostileSnapshot(t *testing.T) {
	f := func(name string, headers ...tar.Header) {
		t.Helper()
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg && h.Size == 0 {
				h.Size = 3
			}
			h.Mode = 0o644
			if err := tw.WriteHeader(&h); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := tw.Write([]byte("abc")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		mem := vfs.NewMem()
		err := engine.Restore(mem, &b, dir)
		if store.KindOf(err) != store.KindCorrupt {
			t.Errorf("%s: %v", name, err)
		}
		wantNothing(t, mem)

		root := t.TempDir()
		err = engine.Restore(nil, bytes.NewReader(b.Bytes()), filepath.Join(root, "data"))
		if err == nil {
			t.Errorf("%s: restored", name)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
	}
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	f("nothing")
	f("only checksums", file("SHA256SUMS"))
	for _, name := range []string{
		"../evil", "/evil", "log/../../evil", "disk/../../evil", "disk/..", "disk/.", "disk/a/b", "evil", "LOCK",
		"QUIPU/evil", "./QUIPU", "log//evil", `disk\..\..\evil`, "disk/\u0001", "log/LOCK/../..", "snapshot.tmp1",
	} {
		f(name, file("QUIPU"), file(name))
	}
	f("directory", tar.Header{Name: "disk/", Typeflag: tar.TypeDir})
	f("symbolic link", tar.Header{Name: "disk/x", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, file("disk/x/passwd"))
	f("hard link", tar.Header{Name: "disk/x", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"})
	f("device", tar.Header{Name: "disk/x", Typeflag: tar.TypeChar})
}

// TestSparseSnapshot checks that a few bytes can't claim to be a large file.
func TestSparseSnapshot(t *testing.T) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	sparse := "1\n0\n1\n" // one piece of one byte
	sparse += strings.Repeat("\x00", 512-len(sparse)) + "x"
	if err := tw.WriteHeader(&tar.Header{
		Name: "disk/GNUSparseFile.0/x", Size: int64(len(sparse)), Mode: 0o644, Format: tar.FormatPAX,
		PAXRecords: map[string]string{
			"QUIPU.sparse.major": "1", "QUIPU.sparse.minor": "0", "QUIPU.sparse.name": "disk/x", "QUIPU.sparse.realsize": fmt.Sprint(1 << 50),
		},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(tw, sparse); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	// The writer refuses these names, so they get there afterwards: a record is
	// its length, its name and its value, and GNU is two letters shorter.
	raw := bytes.ReplaceAll(b.Bytes(), []byte("QUIPU.sparse"), []byte("GNU.sparse\x00\x00"))
	raw = fixRecords(t, raw)
	within(t, "a sparse file", func() {
		mem := vfs.NewMem()
		wantKind(t, engine.Restore(mem, bytes.NewReader(raw), dir), store.KindCorrupt)
		wantNothing(t, mem)
	})
}

// fixRecords writes the extended header anew, without the zeros that stand in
// for missing letters.
func fixRecords(t *testing.T, raw []byte) []byte {
	t.Helper()
	r := bytes.NewReader(raw[512:1024])
	var records []byte
	for {
		var n int
		if _, err := fmt.Fscanf(r, "%d ", &n); err != nil {
			break
		}
		rest := make([]byte, n-len(fmt.Sprint(n))-1)
		if _, err := io.ReadFull(r, rest); err != nil {
			t.Fatal(err)
		}
		body := strings.ReplaceAll(string(rest), "\x00", "")
		size := len(body) + 1
		for size != len(fmt.Sprint(size))+1+len(body) {
			size = len(fmt.Sprint(size)) + 1 + len(body)
		}
		records = fmt.Appendf(records, "%d %s", size, body)
	}
	out := slices.Clone(raw)
	clear(out[512:1024])
	copy(out[512:], records)
	copy(out[124:136], fmt.Sprintf("%011o\x00", len(records)))
	copy(out[148:156], "        ")
	sum := 0
	for _, c := range out[:512] {
		sum += int(c)
	}
	copy(out[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return out
}

// TestRestoreInto checks where a snapshot can be restored.
func TestRestoreInto(t *testing.T) {
	s := newShop(t, true)
	b := snapshot(t, open(t, cut(s.fs), engine.Options{}))
	root := t.TempDir()
	restore := func(name string) error {
		return engine.Restore(nil, bytes.NewReader(b), filepath.Join(root, name))
	}
	reopen := func(name string) {
		t.Helper()
		e, err := engine.Open(filepath.Join(root, name), engine.Options{})
		if err != nil {
			t.Fatalf("open %s: %v", name, err)
		}
		if err := s.compare(t, e); err != nil {
			t.Fatal(err)
		}
		mustClose(t, e)
	}
	if err := restore("new"); err != nil {
		t.Fatal(err)
	}
	reopen("new")
	if err := os.Mkdir(filepath.Join(root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := restore("empty/"); err != nil {
		t.Fatal(err)
	}
	reopen("empty")
	wantKind(t, restore("new"), store.KindInvalid)
	reopen("new")
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantKind(t, restore("file"), store.KindInvalid)
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Fatalf("the file that was in the way: %q, %v", got, err)
	}
	if err := restore("file/below"); err == nil || store.KindOf(err) == store.KindOther {
		t.Fatalf("restore below a file: %v", err)
	}
	t.Chdir(root)
	if err := engine.Restore(nil, bytes.NewReader(b), "relative"); err != nil {
		t.Fatal(err)
	}
	reopen("relative")
}

// TestFaultsInRestore fails every operation of a restore: it fails and leaves
// nothing behind, or is complete.
func TestFaultsInRestore(t *testing.T) {
	s := newShop(t, true)
	b := snapshot(t, open(t, cut(s.fs), engine.Options{}))
	for _, how := range []faultHow{{write: true}, {write: true, short: true}, {}} {
		for n := 0; ; n++ {
			mem := newMemDisk()
			fs := &faultFS{faultHow: how, n: n}
			err := engine.Restore(fs.wrap(mem), bytes.NewReader(b), dir)
			if fs.failed == nil {
				break
			}
			if err == nil {
				if err := s.check(t, mem); err != nil {
					t.Fatalf("%+v, operation %d: %v", how, n, err)
				}
				continue
			}
			if store.KindOf(err) == store.KindOther {
				t.Errorf("%v has no kind", err)
			}
			// Another try makes it.
			if err := engine.Restore(mem, bytes.NewReader(b), dir); err != nil && store.KindOf(err) != store.KindInvalid {
				t.Fatalf("%s %s failed; then: %v", opName(fs.failed.Kind), fs.failed.Path, err)
			}
			if err := s.check(t, mem); err != nil {
				t.Fatalf("%s %s failed; then: %v", opName(fs.failed.Kind), fs.failed.Path, err)
			}
		}
	}
}

var errFull = errors.New("full")

// A fullWriter takes n bytes.
type fullWriter struct{ n int }

func (w *fullWriter) Write(b []byte) (int, error) {
	if w.n -= len(b); w.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestSnapshotFails checks that a snapshot that can't be written to its end
// leaves nothing behind, and is no obstacle to the next one.
func TestSnapshotFails(t *testing.T) {
	s := newShop(t, true)
	mem := cut(s.fs)
	e := open(t, mem, engine.Options{})
	before := len(files(t, mem, dir))
	for n := range len(snapshot(t, e)) / 2000 { // a later one may be shorter
		n *= 1000
		if err := e.Snapshot(bg, &fullWriter{n}); !errors.Is(err, errFull) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := e.Snapshot(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	if names, err := mem.List(dir); err != nil || len(names) > 4 {
		t.Fatalf("left behind: %v, %v", names, err)
	}
	if n := len(files(t, mem, dir)); n > before+10 {
		t.Fatalf("%d files, there were %d", n, before)
	}
	snapshot(t, e)
	mustClose(t, e)

	// What a power loss leaves of one goes when the store is opened.
	setContentIn(t, mem, dir+"/snapshot.tmp7/disk", "x", []byte("x"))
	e = open(t, mem, engine.Options{})
	if names, err := mem.List(dir); err != nil || len(names) > 4 {
		t.Fatalf("left behind: %v, %v", names, err)
	}
	if err := s.compare(t, e); err != nil {
		t.Fatal(err)
	}
}

func setContentIn(t testing.TB, fs vfs.FS, under, name string, b []byte) {
	t.Helper()
	if err := fs.MkdirAll(under, 0o755); err != nil {
		t.Fatal(err)
	}
	setContent(t, fs, fs.PathJoin(under, name), b)
}
