package wal_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "wal"

// options returns those of a log in dir with segments of a few frames, which end
// where their files do.
func options(fs vfs.FS) wal.Options {
	return wal.Options{FS: fs, Dir: dir, StoreID: [16]byte([]byte("store-of-a-test!")), SegmentBytes: 512, FillBytes: 1}
}

func create(t testing.TB, o wal.Options) {
	t.Helper()
	if err := wal.Create(o, 0, 1); err != nil {
		t.Fatal(err)
	}
}

// open opens the log and returns the records it replayed.
func open(t testing.TB, o wal.Options, from wal.Position) (*wal.Log, wal.Recovery, []record) {
	t.Helper()
	l, r, got, err := tryOpen(o, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, r, got
}

func tryOpen(o wal.Options, from wal.Position) (*wal.Log, wal.Recovery, []record, error) {
	var got []record
	l, r, err := wal.Open(o, from, func(pos wal.Position, p []byte) error {
		records, err := parse(pos, p)
		got = append(got, records...)
		return err
	})
	return l, r, got, err
}

func mustClose(t testing.TB, l *wal.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A record is what the tests append: a length, an id, and bytes that the id
// determines.
type record struct {
	pos wal.Position
	id  int
}

func (r record) bytes() []byte {
	n := 8 + r.id*37%100
	b := binary.LittleEndian.AppendUint32(nil, uint32(n))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.id))
	for len(b) < 4+n {
		b = append(b, byte(r.id))
	}
	return b
}

func (r record) end() wal.Position { return r.pos + wal.Position(len(r.bytes())) }

func parse(pos wal.Position, p []byte) (got []record, err error) {
	for len(p) > 0 {
		if len(p) < 12 {
			return got, errors.New("half a record")
		}
		r := record{pos: pos, id: int(binary.LittleEndian.Uint64(p[4:]))}
		want := r.bytes()
		if len(p) < len(want) || string(p[:len(want)]) != string(want) {
			return got, fmt.Errorf("not a record at %d: %x", pos, p)
		}
		got, pos, p = append(got, r), r.end(), p[len(want):]
	}
	return got, nil
}

// add appends the record of an id.
func add(l *wal.Log, id int, need wal.Level) (*wal.Frame, record) {
	f := l.Begin()
	r := record{pos: f.Pos(), id: id}
	f.Payload = append(f.Payload, r.bytes()...)
	l.End(need)
	return f, r
}

// commit appends the record of an id and waits until it is synced.
func commit(t testing.TB, l *wal.Log, id int) record {
	t.Helper()
	f, r := add(l, id, store.Synced)
	if err := f.Wait(t.Context(), store.Synced); err != nil {
		t.Fatal(err)
	}
	return r
}

// commitMany commits the records from id on, each in its own frame.
func commitMany(t testing.TB, l *wal.Log, id, n int) (all []record) {
	t.Helper()
	for i := range n {
		all = append(all, commit(t, l, id+i))
	}
	return all
}

func wantRecords(t testing.TB, got, want []record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d\n got %v\nwant %v", len(got), len(want), got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("record %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func wantKind(t testing.TB, err error, want store.Kind) {
	t.Helper()
	if err == nil || store.KindOf(err) != want {
		t.Fatalf("got error %v of kind %d, want kind %d", err, store.KindOf(err), want)
	}
}

// segments returns the paths of the segments, oldest first.
func segments(t testing.TB, fs vfs.FS) (paths []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if len(name) == len("0000000000000000.wal") {
			paths = append(paths, fs.PathJoin(dir, name))
		}
	}
	slices.Sort(paths)
	return paths
}
