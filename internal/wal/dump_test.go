package wal_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

func dump(t *testing.T, fs vfs.FS) (all []wal.FrameInfo) {
	t.Helper()
	before := files(t, fs)
	if err := wal.Dump(fs, dir, func(f wal.FrameInfo) error {
		f.Payload = append([]byte(nil), f.Payload...)
		all = append(all, f)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if files(t, fs) != before {
		t.Fatal("Dump changed the log")
	}
	return all
}

// TestDump checks that every frame is shown, and that each says of what was
// synced before it exactly what was.
func TestDump(t *testing.T) {
	mem, all := closedLog(t)
	got := dump(t, mem)
	if len(got) != len(all)+1 {
		t.Fatalf("%d frames, want %d", len(got), len(all)+1)
	}
	for i, f := range got {
		if f.Err != "" || f.Epoch != 2 || f.Close != (i == len(all)) || f.Synced != f.Position {
			t.Errorf("frame %d: %+v", i, f)
		}
		if !f.Close && (f.Position+40 != all[i].pos || string(f.Payload) != string(all[i].bytes())) {
			t.Errorf("frame %d: %+v, want %+v", i, f, all[i])
		}
	}
}

// TestSynced checks that frames written without a sync know of none.
func TestSynced(t *testing.T) {
	mem := vfs.NewMem()
	o := options(mem)
	o.SegmentBytes = 1 << 20
	create(t, o)
	l, _, _ := open(t, o, 0)
	levels := []wal.Level{store.Written, store.Synced, store.Written, store.Written, store.Synced, store.Synced}
	knows := []int{0, 0, 2, 2, 2, 5} // how many frames were synced when each was written
	starts := []wal.Position{}
	for id, level := range levels {
		f, r := add(l, id, level)
		if err := f.Wait(t.Context(), level); err != nil {
			t.Fatal(err)
		}
		starts = append(starts, r.pos-40)
	}
	for i, f := range dump(t, mem) {
		if f.Synced != starts[knows[i]] {
			t.Errorf("frame %d at %d says that all was synced up to %d, want %d", i, f.Position, f.Synced, starts[knows[i]])
		}
	}
}

func TestDumpDamaged(t *testing.T) {
	mem, all := closedLog(t)
	path := segments(t, mem)[0]
	b := content(t, mem, path)
	b[48+4] ^= 1 // the header of the first frame
	setContent(t, mem, path, b)
	got := dump(t, mem)
	if len(got) != len(all)+1 || got[0].Err != "bad frame header" || got[0].Offset != 48 || got[0].Bytes != got[1].Offset-48 || got[1].Err != "" {
		t.Errorf("got %+v", got[:2])
	}
	b[48+4] ^= 1
	b[48+40] ^= 1 // its payload
	setContent(t, mem, path, b)
	got = dump(t, mem)
	if len(got) != len(all)+1 || got[0].Err != "bad payload" || got[0].Bytes != got[1].Offset-48 {
		t.Errorf("got %+v", got[:2])
	}
	setContent(t, mem, path, b[:20])
	got = dump(t, mem)
	if got[0].Err != "segment header cut short" || got[0].Offset != 0 || got[0].Bytes != 20 || got[1].File == path {
		t.Errorf("got %+v", got[:2])
	}
	stop := errors.New("stop")
	if err := wal.Dump(mem, dir, func(wal.FrameInfo) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// TestDumpRecycled checks that what is left of a file's earlier life is not
// shown.
func TestDumpRecycled(t *testing.T) {
	l, mem, all := recycledLog(t)
	mustClose(t, l)
	var n int
	for _, f := range dump(t, mem) {
		if f.Err != "" {
			t.Errorf("%+v", f)
		}
		if f.Position >= all[0].pos-40 && !f.Close {
			n++
		}
	}
	if n != len(all) {
		t.Errorf("%d frames, want %d", n, len(all))
	}
}
