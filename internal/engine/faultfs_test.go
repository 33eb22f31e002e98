package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func opName(k errorfs.OpKind) string {
	names := [...]string{
		"create", "link", "open", "open directory", "remove", "remove all", "rename", "reuse", "make directory", "lock", "list",
		"preallocate", "stat", "disk usage", "close", "read", "read at", "write", "write at", "stat file", "sync", "sync data",
		"sync to", "flush",
	}
	return names[k]
}

// faultHow says which operations fail: those that write, or those that read;
// the n-th, or also those after it; or only a write, and only its second half.
type faultHow struct {
	write, sticky, short bool
}

// A faultFS fails the n-th operation.
type faultFS struct {
	faultHow

	mu     sync.Mutex // guards the fields below
	n      int
	failed *errorfs.Op
	off    bool // no more faults
}

func (f *faultFS) String() string { return "n-th" }

// MaybeError implements errorfs.Injector.
func (f *faultFS) MaybeError(op errorfs.Op) error {
	if f.fails(op) {
		return fmt.Errorf("%w: %w", errorfs.ErrInjected, syscall.ENOSPC)
	}
	return nil
}

func (f *faultFS) fails(op errorfs.Op) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.off, op.Kind == errorfs.OpGetDiskUsage, (op.Kind.ReadOrWrite() == errorfs.OpIsWrite) != f.write:
	case f.short && op.Kind != errorfs.OpFileWrite:
	case f.n > 0:
		f.n--
	case f.failed == nil:
		f.failed = &op
		return true
	case f.sticky:
		return true
	}
	return false
}

func (f *faultFS) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
}

// wrap returns a file system with faults.
func (f *faultFS) wrap(fs vfs.FS) vfs.FS {
	if f.short {
		return &shortFS{fs, f}
	}
	return errorfs.Wrap(fs, f)
}

// A shortFS cuts the n-th write short, as a full disk does.
type shortFS struct {
	vfs.FS
	f *faultFS
}

func (s *shortFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(s.FS.Create(name, c))
}

func (s *shortFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(s.FS.ReuseForWrite(from, to, c))
}

func (s *shortFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &shortFile{f, s.f}, nil
}

type shortFile struct {
	vfs.File
	f *faultFS
}

func (s *shortFile) Write(b []byte) (int, error) { return s.cut(b, s.File.Write) }

func (s *shortFile) WriteAt(b []byte, offset int64) (int, error) {
	return s.cut(b, func(b []byte) (int, error) { return s.File.WriteAt(b, offset) })
}

func (s *shortFile) cut(b []byte, write func([]byte) (int, error)) (int, error) {
	if !s.f.fails(errorfs.Op{Kind: errorfs.OpFileWrite}) {
		return write(b)
	}
	n, err := write(b[:len(b)/2])
	return n, errors.Join(err, syscall.ENOSPC)
}

// failing returns a file system on which the operations that match fail while
// the switch is on.
func failing(fs vfs.FS, match func(errorfs.Op) bool) (vfs.FS, *atomic.Bool) {
	f := failed{new(atomic.Bool), match}
	return errorfs.Wrap(fs, f), f.on
}

type failed struct {
	on    *atomic.Bool
	match func(errorfs.Op) bool
}

func (failed) String() string { return "switched" }

// MaybeError implements errorfs.Injector.
func (f failed) MaybeError(op errorfs.Op) error {
	if f.on.Load() && f.match(op) {
		return errorfs.ErrInjected
	}
	return nil
}

func writesTo(part string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, part)
	}
}
