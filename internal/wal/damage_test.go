package wal_test

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// closedLog returns a log of several segments that was closed.
func closedLog(t *testing.T) (mem *vfs.MemFS, all []record) {
	t.Helper()
	mem = vfs.NewMem()
	o := options(mem)
	create(t, o)
	l, _, _ := open(t, o, 0)
	all = commitMany(t, l, 0, 11)
	mustClose(t, l)
	if n := len(segments(t, mem)); n < 3 {
		t.Fatalf("only %d segments", n)
	}
	return mem, all
}

// killedLog returns a log of several segments that was not closed. All but its
// last frame are vouched for.
func killedLog(t *testing.T) (mem *vfs.MemFS, all []record) {
	t.Helper()
	mem = vfs.NewCrashableMem()
	o := options(mem)
	create(t, o)
	l, _, _ := open(t, o, 0)
	all = commitMany(t, l, 0, 11)
	return mem.CrashClone(vfs.CrashCloneCfg{}), all
}

// wantRefused checks that a log is refused, naming a file and an offset in it,
// and is left as it was.
func wantRefused(t *testing.T, fs vfs.FS, from wal.Position, kind store.Kind, file string) {
	t.Helper()
	before := files(t, fs)
	l, _, _, err := tryOpen(options(fs), from)
	if err == nil {
		mustClose(t, l)
	}
	wantKind(t, err, kind)
	if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "offset") {
		t.Fatalf("does not name file %s and an offset: %v", file, err)
	}
	if files(t, fs) != before {
		t.Fatalf("changed what it refused: %v", err)
	}
}

// TestFlipsInClosedLog flips a bit in every byte of a log that was closed. It
// has to be refused, or the flip does not matter: only that of the closing
// frame itself does not.
func TestFlipsInClosedLog(t *testing.T) {
	mem, all := closedLog(t)
	paths := segments(t, mem)
	for i, path := range paths {
		good := content(t, mem, path)
		harmless := 0
		for at := range good {
			bad := slices.Clone(good)
			bad[at] ^= 1 << (at % 8)
			setContent(t, mem, path, bad)
			if i == len(paths)-1 && at >= len(good)-40 {
				harmless++
				copied := copyFS(t, mem)
				l, r, got := open(t, options(copied), 0)
				wantRecords(t, got, all)
				if r.Clean || r.Cut == nil || r.Cut.File != path || r.Cut.Offset != int64(len(good)-40) || r.Cut.Bytes != 40 {
					t.Fatalf("flip at %d of %s: found %+v, cut %+v", at, path, r, r.Cut)
				}
				mustClose(t, l)
				continue
			}
			wantRefused(t, mem, 0, store.KindCorrupt, path)
		}
		setContent(t, mem, path, good)
	}
}

// TestFlipsInKilledLog does the same to a log that was killed: only its last
// frame is vouched for by nothing, and is cut.
func TestFlipsInKilledLog(t *testing.T) {
	mem, all := killedLog(t)
	paths := segments(t, mem)
	path := paths[len(paths)-1]
	good := content(t, mem, path)
	last := all[len(all)-1]
	frame := 40 + (len(last.bytes())+7)/8*8
	for at := range good {
		bad := slices.Clone(good)
		bad[at] ^= 1 << (at % 8)
		setContent(t, mem, path, bad)
		if at < len(good)-frame {
			wantRefused(t, mem, 0, store.KindCorrupt, path)
			continue
		}
		// The checkpoint vouches for what is before it.
		wantRefused(t, mem, last.end(), store.KindCorrupt, path)
		l, r, got := open(t, options(copyFS(t, mem)), 0)
		wantRecords(t, got, all[:len(all)-1])
		if r.Cut == nil || r.Cut.Offset != int64(len(good)-frame) || r.Cut.Bytes != int64(frame) {
			t.Fatalf("flip at %d: cut %+v", at, r.Cut)
		}
		mustClose(t, l)
	}
}

// TestTruncated cuts the last segment of a log at every length.
func TestTruncated(t *testing.T) {
	mem, all := killedLog(t)
	paths := segments(t, mem)
	path := paths[len(paths)-1]
	good := content(t, mem, path)
	for n := range len(good) {
		setContent(t, mem, path, good[:n])
		if n < 48 {
			wantRefused(t, mem, 0, store.KindCorrupt, path)
			continue
		}
		l, r, got := open(t, options(copyFS(t, mem)), 0)
		wantRecords(t, got, all[:len(got)])
		if last := got[len(got)-1].end(); r.End < last {
			t.Fatalf("ends at %d, before %d", r.End, last)
		}
		commit(t, l, 77)
		mustClose(t, l)
		if len(got) < len(all) {
			l, _, _, err := tryOpen(options(mem), all[len(all)-1].end())
			if err == nil {
				mustClose(t, l)
				t.Fatalf("cut at %d: the end is missing and was not missed", n)
			}
		}
	}
}

// TestMissing removes each segment.
func TestMissing(t *testing.T) {
	mem, all := closedLog(t)
	paths := segments(t, mem)
	end := all[len(all)-1].end()
	for i, path := range paths {
		fs := copyFS(t, mem)
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		switch i {
		case 0:
			_, _, _, err := tryOpen(options(fs), 0)
			wantKind(t, err, store.KindLost)
			if !strings.Contains(err.Error(), paths[1]) {
				t.Fatal(err)
			}
		case len(paths) - 1:
			wantRefused(t, fs, end, store.KindLost, paths[i-1])
		default:
			wantRefused(t, fs, 0, store.KindLost, paths[i-1])
		}
	}
	for _, path := range paths {
		if err := mem.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	_, _, _, err := tryOpen(options(mem), 0)
	wantKind(t, err, store.KindLost)
}

// TestGapBeforeCheckpoint checks that segments that are of no more use may be
// missing or damaged: a power loss can undo the removal of some of them.
func TestGapBeforeCheckpoint(t *testing.T) {
	mem, all := closedLog(t)
	paths := segments(t, mem)
	if err := mem.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	b := content(t, mem, paths[0])
	b[100] ^= 1
	setContent(t, mem, paths[0], b)
	saved := all[len(all)-1].end()
	l, _, got := open(t, options(mem), saved)
	if len(got) != 0 {
		t.Fatalf("replayed %v", got)
	}
	if err := l.Release(saved); err != nil {
		t.Fatal(err)
	}
	if n := len(segments(t, mem)); n > 2 {
		t.Fatalf("%d segments are left", n)
	}
}

func TestOtherStore(t *testing.T) {
	mem, _ := closedLog(t)
	other := options(mem)
	other.StoreID[0]++
	_, _, _, err := tryOpen(other, 0)
	wantKind(t, err, store.KindCorrupt)
	if !strings.Contains(err.Error(), segments(t, mem)[0]) {
		t.Fatal(err)
	}
}

// TestSwappedSegments puts segments under each other's names.
func TestSwappedSegments(t *testing.T) {
	mem, _ := closedLog(t)
	paths := segments(t, mem)
	a, b := content(t, mem, paths[1]), content(t, mem, paths[2])
	setContent(t, mem, paths[1], b)
	setContent(t, mem, paths[2], a)
	wantRefused(t, mem, 0, store.KindCorrupt, paths[1])
}

// TestStaleFrames puts frames where they do not belong at the end of a log:
// they end it.
func TestStaleFrames(t *testing.T) {
	mem, all := killedLog(t)
	paths := segments(t, mem)
	path := paths[len(paths)-1]
	good := content(t, mem, path)
	for name, stale := range map[string][]byte{
		"the same frame twice":            good[48:],
		"frames of another segment":       content(t, mem, paths[0])[48:],
		"zeros and ones":                  append(make([]byte, 1000), 1),
		"ones":                            bytes.Repeat([]byte{0xff}, 1001),
		"a segment within a segment":      content(t, mem, paths[0]),
		"less than a frame header":        good[48:60],
		"a frame header without its rest": good[48:88],
	} {
		setContent(t, mem, path, append(slices.Clone(good), stale...))
		l, r, got := open(t, options(copyFS(t, mem)), 0)
		wantRecords(t, got, all)
		if r.Cut == nil || r.Cut.Offset != int64(len(good)) || r.Cut.Bytes != int64(len(stale)) {
			t.Fatalf("%s: cut %+v", name, r.Cut)
		}
		mustClose(t, l)
	}
}

// TestFilled flips a bit in every byte of a log that was killed and whose
// segments have zeros after their last frames. Among the zeros a flip is found
// and does no harm; without any, or with all of them gone, there is nothing to
// be found.
func TestFilled(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := options(mem)
	o.SegmentBytes, o.FillBytes = 2048, 1024
	create(t, o)
	l, _, _ := open(t, o, 0)
	all := commitMany(t, l, 0, 20)
	mem = mem.CrashClone(vfs.CrashCloneCfg{})
	paths := segments(t, mem)
	path := paths[len(paths)-1]
	good := content(t, mem, path)
	end := len(bytes.TrimRight(good, "\x00")) + 1
	end = 48 + (end-48+7)/8*8 // where the last frame ends
	if len(paths) < 2 || len(good)-end < 100 {
		t.Fatalf("%d segments, the last with %d zeros", len(paths), len(good)-end)
	}
	last := all[len(all)-1]
	frame := end - 40 - (len(last.bytes())+7)/8*8
	for at := range good {
		bad := slices.Clone(good)
		bad[at] ^= 1 << (at % 8)
		setContent(t, mem, path, bad)
		if at < frame {
			wantRefused(t, mem, 0, store.KindCorrupt, path)
			continue
		}
		l, r, got := open(t, options(copyFS(t, mem)), 0)
		if at < end {
			wantRecords(t, got, all[:len(all)-1])
		} else {
			wantRecords(t, got, all)
		}
		if r.Cut == nil || r.Cut.Offset != int64(frame) && r.Cut.Offset != int64(end) {
			t.Fatalf("flip at %d: cut %+v", at, r.Cut)
		}
		mustClose(t, l)
	}
	for _, size := range []int{len(good), len(good) - 1, end + 1, end} {
		setContent(t, mem, path, good[:size])
		l, r, got := open(t, options(copyFS(t, mem)), 0)
		wantRecords(t, got, all)
		if r.Cut != nil {
			t.Fatalf("%d bytes: cut %+v", size, r.Cut)
		}
		mustClose(t, l)
	}
	// A segment before the last that ends too soon has lost something.
	first := content(t, mem, paths[0])
	setContent(t, mem, paths[0], append(slices.Clone(first[:48]), make([]byte, len(first)-48)...))
	wantRefused(t, mem, 0, store.KindLost, paths[0])
}

// TestCutIsGone checks that what was cut once never comes back.
func TestCutIsGone(t *testing.T) {
	mem, all := killedLog(t)
	paths := segments(t, mem)
	path := paths[len(paths)-1]
	b := content(t, mem, path)
	b[len(b)-1] ^= 1
	setContent(t, mem, path, b)
	l, r, _ := open(t, options(mem), 0)
	if r.Cut == nil {
		t.Fatal("nothing was cut")
	}
	if got := content(t, mem, path); len(got) != int(r.Cut.Offset) {
		t.Fatalf("cut at %d, but the file has %d bytes", r.Cut.Offset, len(got))
	}
	all = append(all[:len(all)-1], commit(t, l, 50))
	mustClose(t, l)
	_, r, got := open(t, options(mem), 0)
	wantRecords(t, got, all)
	if r.Cut != nil || !r.Clean {
		t.Fatalf("found %+v", r)
	}
}

// TestHugeLength checks that a length is not believed before the bytes are
// there.
func TestHugeLength(t *testing.T) {
	mem, _ := killedLog(t)
	paths := segments(t, mem)
	last := paths[len(paths)-1]
	b := wal.AppendTestFrame(content(t, mem, last), 1<<30)
	setContent(t, mem, last, b)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, r, _ := open(t, options(mem), 0)
	runtime.ReadMemStats(&after)
	if r.Cut == nil || r.Cut.Reason != "frame cut short" {
		t.Fatalf("cut %+v", r.Cut)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Fatalf("%d bytes were allocated for a file of %d", n, len(b))
	}
}

// copyFS returns a copy of the log's directory.
func copyFS(t *testing.T, fs vfs.FS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	if _, err := vfs.Clone(fs, to, dir, dir); err != nil {
		t.Fatal(err)
	}
	return to
}
