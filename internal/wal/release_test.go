package wal_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// TestRelease checks after every record that exactly the segments are gone that
// hold nothing from the position on.
func TestRelease(t *testing.T) {
	mem := vfs.NewMem()
	o := options(mem)
	create(t, o)
	l, _, _ := open(t, o, 0)
	all := commitMany(t, l, 0, 60)
	for i, r := range all {
		if err := l.Release(r.pos); err != nil {
			t.Fatal(err)
		}
		paths := segments(t, mem)
		if n := l.Stats().Segments; n != len(paths) {
			t.Fatalf("%d segments, the stats say %d", len(paths), n)
		}
		clone := copyFS(t, mem)
		copied, _, got := open(t, options(clone), r.pos)
		wantRecords(t, got, all[i:])
		mustClose(t, copied)
		if len(paths) > 1 {
			// Without its first segment it is not the log from here on.
			if err := mem.Rename(paths[0], "away"); err != nil {
				t.Fatal(err)
			}
			_, _, _, err := tryOpen(o, r.pos)
			wantKind(t, err, store.KindLost)
			if err := mem.Rename("away", paths[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Release(1 << 60); err != nil {
		t.Fatal(err)
	}
	if got := segments(t, mem); len(got) != 1 {
		t.Fatalf("the current segment alone should be left, not %v", got)
	}
	commit(t, l, 100)
}

// TestReleaseTriesAgain checks that a Release that failed is made up for.
func TestReleaseTriesAgain(t *testing.T) {
	for n := range 4 {
		mem := vfs.NewMem()
		fault := failNth(n, func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpRename && !strings.HasSuffix(op.Path, ".tmp") || op.Kind == errorfs.OpRemove
		})
		o := options(errorfs.Wrap(mem, fault))
		create(t, o)
		l, _, _ := open(t, o, 0)
		saved := commitMany(t, l, 0, 40)[39].pos
		if err := l.Release(saved); err == nil {
			t.Fatal("the fault went unnoticed")
		}
		if err := l.Release(saved); err != nil {
			t.Fatal(err)
		}
		if got := segments(t, mem); len(got) > 2 {
			t.Fatalf("left: %v", got)
		}
		commit(t, l, 100)
	}
}

// recycledLog returns a log whose current segment has had an earlier life, and
// is not full.
func recycledLog(t *testing.T) (l *wal.Log, mem *vfs.MemFS, all []record) {
	t.Helper()
	mem = vfs.NewCrashableMem()
	o := options(mem)
	o.SegmentBytes = 4 << 10
	create(t, o)
	l, _, _ = open(t, o, 0)
	id := 0
	for len(segments(t, mem)) < 3 {
		commit(t, l, id)
		id++
	}
	if err := l.Release(l.Next()); err != nil {
		t.Fatal(err)
	}
	for len(segments(t, mem)) < 2 {
		all = append(all, commit(t, l, id))
		id++
	}
	all = append(all, commitMany(t, l, id, 5)...)
	paths := segments(t, mem)
	if n := len(content(t, mem, paths[1])); n < 3<<10 {
		t.Fatalf("the current segment has %d bytes: it was not recycled", n)
	}
	return l, mem, all
}

// TestRecycledEnd checks that what is left from the earlier life of a segment
// is no damage, and is neither replayed nor reported.
func TestRecycledEnd(t *testing.T) {
	l, mem, all := recycledLog(t)
	l, r, got := reopenAfterKill(t, l, mem, all[0].pos)
	wantRecords(t, got, all)
	if r.Cut != nil || r.Clean {
		t.Fatalf("found %+v, cut %+v", r, r.Cut)
	}
	mustClose(t, l)

	l, mem, all = recycledLog(t)
	mustClose(t, l)
	_, r, got = open(t, options(mem), all[0].pos)
	wantRecords(t, got, all)
	if r.Cut != nil || !r.Clean {
		t.Fatalf("found %+v, cut %+v", r, r.Cut)
	}
}

func reopenAfterKill(t *testing.T, l *wal.Log, mem *vfs.MemFS, from wal.Position) (*wal.Log, wal.Recovery, []record) {
	t.Helper()
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, l)
	return open(t, options(clone), from)
}

// TestRecycledDamage checks that damage in a recycled segment is told from what
// is left of its earlier life.
func TestRecycledDamage(t *testing.T) {
	l, mem, all := recycledLog(t)
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, l)
	path := segments(t, clone)[1]
	good := content(t, clone, path)
	var offsets []int64
	if err := wal.Dump(clone, dir, func(f wal.FrameInfo) error {
		if f.File == path {
			offsets = append(offsets, f.Offset)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	last := int(offsets[len(offsets)-1])
	end := last + 40 + (len(all[len(all)-1].bytes())+7)/8*8
	for at := 48; at < end; at++ {
		good[at] ^= 4
		setContent(t, clone, path, good)
		good[at] ^= 4
		if at < last {
			wantRefused(t, clone, all[0].pos, store.KindCorrupt, path)
			continue
		}
		fs := copyFS(t, clone)
		l, r, got := open(t, options(fs), all[0].pos)
		wantRecords(t, got, all[:len(all)-1])
		// A bad header is like the bytes of the earlier life; a bad payload
		// under a good header is not.
		if cut := r.Cut != nil; cut != (at >= last+40) {
			t.Fatalf("flip at %d: cut %+v", at-last, r.Cut)
		}
		mustClose(t, l)
	}
}

// TestRecycledFailure checks that a segment is only overwritten when it is
// durable that it is one no more. TestPowerLoss finds that too, by chance.
func TestRecycledFailure(t *testing.T) {
	mem := vfs.NewCrashableMem()
	dirSyncs := failNth(0, func(op errorfs.Op) bool { return op.Kind == errorfs.OpOpenDir })
	toggle := &errorfs.Toggle{Injector: dirSyncs}
	o := options(errorfs.Wrap(mem, toggle))
	create(t, o)
	l, _, _ := open(t, o, 0)
	commitMany(t, l, 0, 20)
	toggle.On()
	if err := l.Release(l.Next()); err == nil {
		t.Fatal("the directory could not be synced, and Release did not say so")
	}
	toggle.Off()
	f := l.Begin()
	f.Payload = append(f.Payload, make([]byte, 600)...) // for a new segment
	l.End(store.Synced)
	if err := f.Wait(t.Context(), store.Synced); err != nil {
		t.Fatal(err)
	}
	// Starting that segment has synced the directory. A moment before, a power
	// loss would have brought back the names of those released.
	spares := 0
	names, err := mem.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".spare") {
			spares++
		}
	}
	if spares == 0 {
		t.Fatalf("a file was overwritten that may still be a segment: %v", names)
	}
}
