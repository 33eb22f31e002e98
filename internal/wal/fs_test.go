package wal_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A blockingFS can hold up the syncing of data.
type blockingFS struct {
	vfs.FS
	blocked chan struct{} // receives when a sync is held up

	mu   sync.Mutex // guards the field below
	gate chan struct{}
}

func newBlockingFS(fs vfs.FS) *blockingFS {
	b := &blockingFS{blocked: make(chan struct{}, 1)}
	b.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData {
			b.pass()
		}
		return nil
	}))
	return b
}

// pass returns when syncs are not held up.
func (b *blockingFS) pass() {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		b.blocked <- struct{}{}
		<-gate
	}
}

func (b *blockingFS) block() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = make(chan struct{})
}

func (b *blockingFS) unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.gate)
	b.gate = nil
}

// A shortFS cuts the n-th write short, and reports that as a count alone.
type shortFS struct {
	vfs.FS
	n int
}

func (s *shortFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	return &shortFile{f, s}, err
}

func (s *shortFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.ReuseForWrite(from, to, c)
	return &shortFile{f, s}, err
}

type shortFile struct {
	vfs.File
	fs *shortFS
}

func (f *shortFile) Write(b []byte) (int, error) { return f.File.Write(f.cut(b)) }

func (f *shortFile) WriteAt(b []byte, offset int64) (int, error) {
	return f.File.WriteAt(f.cut(b), offset)
}

func (f *shortFile) cut(b []byte) []byte {
	f.fs.n--
	if f.fs.n == 0 {
		b = b[:len(b)/2]
	}
	return b
}

var errUnreadable = errors.New("unreadable")

// An unreadableFS has a file that can't be read beyond n bytes.
type unreadableFS struct {
	vfs.FS
	path string
	n    int
}

func (u *unreadableFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := u.FS.Open(name, opts...)
	if err != nil || name != u.path {
		return f, err
	}
	return &unreadableFile{f, u.n}, nil
}

type unreadableFile struct {
	vfs.File
	left int
}

func (f *unreadableFile) Read(b []byte) (int, error) {
	if f.left == 0 {
		return 0, errUnreadable
	}
	n, err := f.File.Read(b[:min(len(b), f.left)])
	f.left -= n
	return n, err
}

// files returns the names and contents of everything in the log's directory.
func files(t testing.TB, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var s strings.Builder
	for _, name := range names {
		fmt.Fprintf(&s, "%s %x\n", name, content(t, fs, fs.PathJoin(dir, name)))
	}
	return s.String()
}

func content(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

func setContent(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(b)); err != nil { // Write may modify what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
