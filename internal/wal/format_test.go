package wal

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func goldenOptions(fs vfs.FS) Options {
	return Options{FS: fs, Dir: "wal", StoreID: [16]byte([]byte("0123456789abcdef")), SegmentBytes: 256, FillBytes: 1}
}

var goldenPayloads = []string{"one", "two records", "", "of sixteen bytes", strings.Repeat("long ", 40), "the last one"}

// TestGolden checks that the bytes written are those of testdata, and that
// those of testdata are read. They stay readable in all later versions.
func TestGolden(t *testing.T) {
	mem := vfs.NewMem()
	o := goldenOptions(mem)
	if err := Create(o, 0, 1); err != nil {
		t.Fatal(err)
	}
	l, _, err := Open(o, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range goldenPayloads {
		f := l.Begin()
		f.Payload = append(f.Payload, p...)
		l.End(store.Synced)
		if err := f.Wait(t.Context(), store.Synced); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "v1")
	for _, name := range names {
		got, err := mem.UnsafeGetFileDataBuffer(mem.PathJoin("wal", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(golden, name)
		if *rewrite {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x, want\n%x", name, got, want)
		}
	}
	checkGolden(t, golden, len(names))
}

// checkGolden opens a copy of a golden directory.
func checkGolden(t *testing.T, golden string, files int) {
	t.Helper()
	mem := vfs.NewMem()
	if _, err := vfs.Clone(vfs.Default, mem, golden, "wal"); err != nil {
		t.Fatal(err)
	}
	var got []string
	l, r, err := Open(goldenOptions(mem), 0, func(_ Position, p []byte) error {
		got = append(got, string(p))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want := strings.Join(goldenPayloads, "|")
	if strings.Join(got, "|") != strings.ReplaceAll(want, "||", "|") || !r.Clean || r.Segments != files {
		t.Errorf("%s: replayed %q, found %+v", golden, got, r)
	}
}

// TestHeaderBytes spells out where everything stands.
func TestHeaderBytes(t *testing.T) {
	s := segmentHeader{recycled: true, storeID: [16]byte{1, 2, 3}, epoch: 0x1122, start: 0x3344}
	b := s.encode()
	want := []byte("quipuwal\x01\x00\x01\x00....\x01\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x22\x11\x00\x00\x00\x00\x00\x00\x44\x33\x00\x00\x00\x00\x00\x00")
	copy(want[12:], []byte{0, 0, 0, 0})
	sum := crc32.Checksum(want, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(want[12:], sum)
	if !bytes.Equal(b, want) {
		t.Errorf("got  %x\nwant %x", b, want)
	}
	if got, err := decodeSegmentHeader(b); err != nil || got != s {
		t.Errorf("got %+v, %v", got, err)
	}

	f := frameHeader{epoch: 0x1122, position: 0x3344, synced: 0x0102}
	b = sealFrame(append(make([]byte, frameHeaderBytes), "payload"...), f, 42)
	want = []byte("QF\x00\x00\x07\x00\x00\x00\x22\x11\x00\x00\x00\x00\x00\x00\x44\x33\x00\x00\x00\x00\x00\x00" +
		"\x02\x01\x00\x00\x00\x00\x00\x00bodyheadpayload\x00")
	binary.LittleEndian.PutUint32(want[32:], crc32.Checksum([]byte("payload\x00"), crc32.MakeTable(crc32.Castagnoli)))
	binary.LittleEndian.PutUint32(want[36:], crc32.Update(42, crc32.MakeTable(crc32.Castagnoli), want[:36]))
	if !bytes.Equal(b, want) {
		t.Errorf("got  %x\nwant %x", b, want)
	}
}

func TestNewerVersion(t *testing.T) {
	h := segmentHeader{epoch: 1}
	b := h.encode()
	binary.LittleEndian.PutUint16(b[8:], 2)
	clear(b[12:16])
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b, castagnoli))
	mem := vfs.NewMem()
	writeFile(t, mem, 0, b)
	_, _, err := Open(Options{FS: mem, Dir: "wal"}, 0, nil)
	if store.KindOf(err) != store.KindUnsupported || !strings.Contains(err.Error(), "made by a newer Quipu, with format 2") ||
		!strings.Contains(err.Error(), "0000000000000000.wal") {
		t.Errorf("got %v", err)
	}
	// Without its checksum it is not newer, but damaged.
	b[12] ^= 1
	writeFile(t, mem, 0, b)
	if _, _, err := Open(Options{FS: mem, Dir: "wal"}, 0, nil); store.KindOf(err) != store.KindCorrupt {
		t.Errorf("got %v", err)
	}
}

// TestMisplacedFrames checks frames with good checksums that are of another
// place or another time, and what a later one vouches for.
func TestMisplacedFrames(t *testing.T) {
	h := segmentHeader{epoch: 5, start: 1000}
	head := h.encode()
	frame := func(f frameHeader, payload string) []byte {
		return sealFrame(append(make([]byte, frameHeaderBytes), payload...), f, h.checksum)
	}
	good := frame(frameHeader{epoch: 5, position: 1000, synced: 1000}, "12345678") // up to 1048
	f := func(name, wantErr string, cut int64, second ...[]byte) {
		t.Helper()
		mem := vfs.NewMem()
		content := bytes.Join([][]byte{head, good, bytes.Join(second, nil)}, nil)
		writeFile(t, mem, 1000, content)
		frames := 0
		l, r, err := Open(Options{FS: mem, Dir: "wal"}, 1000, func(Position, []byte) error { frames++; return nil })
		if err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if wantErr != "" {
			if store.KindOf(err) != store.KindCorrupt || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%s: got %v", name, err)
			}
			return
		}
		if err != nil || frames != 1 || r.Cut == nil || r.Cut.Offset != cut {
			t.Errorf("%s: %d frames, cut %+v, %v", name, frames, r.Cut, err)
		}
	}
	f("older epoch", "", 96, frame(frameHeader{epoch: 4, position: 1048}, "x"))
	f("newer epoch", "", 96, frame(frameHeader{epoch: 6, position: 1048}, "x"))
	f("lower position", "", 96, frame(frameHeader{epoch: 5, position: 1040}, "x"))
	f("higher position", "", 96, frame(frameHeader{epoch: 5, position: 1056}, "x"))
	f("empty frame", "", 96, frame(frameHeader{epoch: 5, position: 1048}, ""))
	f("closing frame with a payload", "", 96, frame(frameHeader{epoch: 5, position: 1048, flags: flagClose}, "x"))
	f("unknown flag", "", 96, frame(frameHeader{epoch: 5, position: 1048, flags: 2}, "x"))
	f("synced beyond itself", "", 96, frame(frameHeader{epoch: 5, position: 1048, synced: 1049}, "x"))
	f("of another segment", "", 96, sealFrame(append(make([]byte, frameHeaderBytes), 'x'), frameHeader{epoch: 5, position: 1048}, h.checksum+1))

	torn := frame(frameHeader{epoch: 5, position: 1048, synced: 1000}, "torn....") // up to 1096
	torn[45] ^= 1
	headless := bytes.Clone(torn)
	headless[9] ^= 1
	f("torn", "", 96, torn)
	f("torn, then one that knew of nothing", "", 96, torn, frame(frameHeader{epoch: 5, position: 1096, synced: 1048}, "x"))
	f("torn, then one that knew", "offset 96: bad payload at position 1048, but the frame at offset 144 says that all was synced up to 1096", 0,
		torn, frame(frameHeader{epoch: 5, position: 1096, synced: 1096}, "x"))
	f("headless, then one that knew", "offset 96: bad frame header", 0,
		headless, frame(frameHeader{epoch: 5, position: 1096, synced: 1096}, "x"))
	f("headless, then one that knew of nothing", "", 96, headless, frame(frameHeader{epoch: 5, position: 1096, synced: 1048}, "x"))
	f("torn, then a stale one that lies", "", 96, torn, frame(frameHeader{epoch: 4, position: 1096, synced: 1096}, "x"))
	f("torn, then a torn one that knew", "offset 96", 0, torn, frame(frameHeader{epoch: 5, position: 1096, synced: 1096}, "x")[:40])
	f("torn, then closed", "offset 96", 0, torn, closingFrame(h, 1096))
	f("headless, then closed", "offset 96", 0, headless, closingFrame(h, 1096))

	// A payload that looks like a frame is not looked at when the length of its
	// own frame is known.
	inner := frame(frameHeader{epoch: 5, position: 1088, synced: 1088}, "x")
	outer := frame(frameHeader{epoch: 5, position: 1048, synced: 1000}, string(inner))
	outer[len(outer)-1] ^= 1
	f("torn, with a payload that lies", "", 96, outer)
}

func writeFile(t testing.TB, fs vfs.FS, start Position, b []byte) {
	t.Helper()
	d := directory{fs, "wal"}
	if err := fs.MkdirAll("wal", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.store(start, bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
}

// FuzzHeader checks that whatever is decoded is what it would be encoded to.
func FuzzHeader(f *testing.F) {
	h := segmentHeader{recycled: true, storeID: [16]byte{1}, epoch: 2, start: 3}
	f.Add(h.encode(), uint32(0))
	f.Add(sealFrame(append(make([]byte, frameHeaderBytes), "payload"...), frameHeader{epoch: 1, position: 2, synced: 1}, 7), uint32(7))
	f.Add(closingFrame(h, 8), h.checksum)
	f.Fuzz(func(t *testing.T, b []byte, seed uint32) {
		if h, err := decodeSegmentHeader(b); err == nil && !bytes.Equal(h.encode(), b[:segmentHeaderBytes]) {
			t.Errorf("%x decodes to %+v", b, h)
		}
		h, ok := decodeFrameHeader(b, seed)
		if !ok {
			return
		}
		if !bytes.Equal(h.encode(seed), b[:frameHeaderBytes]) {
			t.Errorf("%x decodes to %+v", b, h)
		}
		if p, ok := h.payload(b); ok && len(p) != int(h.length) {
			t.Errorf("%x has a payload of %d bytes", b, len(p))
		}
	})
}

// FuzzOpen opens a log whose last segment is arbitrary, or what is in it, or
// what its frames say under good checksums. All that is replayed has to stand
// in the file, in order, and a log that was opened goes on.
func FuzzOpen(f *testing.F) {
	h := segmentHeader{epoch: 2, start: 48}
	head := h.encode()
	first := sealFrame(append(make([]byte, frameHeaderBytes), "8 bytes."...), frameHeader{epoch: 2, position: 48, synced: 48}, h.checksum)
	second := sealFrame(append(make([]byte, frameHeaderBytes), "more"...), frameHeader{epoch: 2, position: 96, synced: 96}, h.checksum)
	f.Add(rawFile, bytes.Join([][]byte{head, first, second, closingFrame(h, 144)}, nil))
	f.Add(rawFile, head[:20])
	f.Add(rawFrames, bytes.Join([][]byte{first, second}, nil))
	f.Add(signedFrames, bytes.Join([][]byte{first, second, closingFrame(h, 144)}, nil))
	f.Add(signedFrames, bytes.Join([][]byte{first, second, second, first}, nil))
	f.Add(rawFrames, bytes.Join([][]byte{first, second[:41]}, nil))
	f.Add(rawFrames, bytes.Join([][]byte{first[8:], second}, nil))
	f.Add(rawFrames, bytes.Join([][]byte{make([]byte, 48), second}, nil))
	f.Add(rawFrames, []byte{})
	f.Fuzz(func(t *testing.T, mode uint8, b []byte) {
		if mode != rawFile {
			b = append(bytes.Clone(head), b...)
		}
		if mode == signedFrames {
			sign(b, h.checksum)
		}
		mem := vfs.NewMem()
		before := segmentHeader{epoch: 1}
		writeFile(t, mem, 0, append(before.encode(),
			sealFrame(append(make([]byte, frameHeaderBytes), "inner..."...), frameHeader{epoch: 1}, before.checksum)...))
		writeFile(t, mem, h.start, b)
		frames := openFuzzed(t, mem, b, "")
		if frames >= 0 {
			if again := openFuzzed(t, mem, nil, "new"); again != frames+1 {
				t.Errorf("replayed %d frames, then %d", frames, again)
			}
		}
	})
}

// What FuzzOpen makes up; any other mode is like rawFrames.
const (
	rawFile uint8 = iota
	rawFrames
	signedFrames
)

// sign gives good checksums to whatever may be a frame.
func sign(b []byte, seed uint32) {
	for at := segmentHeaderBytes; at+frameHeaderBytes <= len(b); {
		frame := b[at:]
		size := frameBytes(int(binary.LittleEndian.Uint32(frame[4:]) & 0xffff))
		if size <= len(frame) {
			binary.LittleEndian.PutUint32(frame[32:], crc32.Checksum(frame[frameHeaderBytes:size], castagnoli))
		}
		binary.LittleEndian.PutUint32(frame[36:], crc32.Update(seed, castagnoli, frame[:36]))
		at += size
	}
}

// openFuzzed opens, appends and closes. It returns the number of frames
// replayed, or -1 if the log was refused.
func openFuzzed(t *testing.T, fs vfs.FS, b []byte, last string) int {
	end, frames, got := Position(0), 0, ""
	l, r, err := Open(Options{FS: fs, Dir: "wal"}, 0, func(pos Position, p []byte) error {
		if pos < end {
			t.Errorf("replayed position %d after %d", pos, end)
		}
		end, got = pos+Position(len(p)), string(p)
		frames++
		if at := segmentHeaderBytes + int(pos) - 48; b != nil && pos >= 48 && string(b[at:][:len(p)]) != got {
			t.Errorf("replayed %q at %d, there is %q", p, pos, b[at:][:len(p)])
		}
		return nil
	})
	if err != nil {
		if last != "" || store.KindOf(err) != store.KindCorrupt && store.KindOf(err) != store.KindUnsupported {
			t.Errorf("refused: %v", err)
		}
		return -1
	}
	if last != "" && (got != last || !r.Clean) {
		t.Errorf("the last frame is %q, found %+v", got, r)
	}
	f := l.Begin()
	f.Payload = append(f.Payload, "new"...)
	l.End(store.Synced)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return frames
}
