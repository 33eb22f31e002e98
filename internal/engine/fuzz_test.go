package engine

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// seedRecords returns payloads with every kind of record.
func seedRecords() [][]byte {
	cell := appendCell(nil, store.Cell{Namespace: "n", Key: "key"})
	own := appendCell(nil, store.Cell{Key: "writers"})
	varint, uvarint := binary.AppendVarint, binary.AppendUvarint
	token := func(kind byte) []byte {
		key := appendToken(nil, cell, "token")
		t := decide.Token{Op: store.OpAdd, N: 1, AtMS: 5, Result: store.Result{After: 1, Version: 9}}
		return appendTokenRecord(append(uvarint([]byte{kind}, uint64(len(key))), key...), &t)
	}
	mark := appendResults(binary.LittleEndian.AppendUint64(uvarint([]byte{recMark}, 4), 77), []store.Result{
		{Outcome: store.Applied, Before: -1, After: 5, Version: 100}, {Outcome: store.Full},
	})
	window := store.PartFields{Kind: store.PartWindow, View: 1, Epoch: 7, Position: 60_000}.Part()
	entries := store.PartFields{Kind: store.PartEntries, View: 2, Epoch: store.EpochForever, Position: 9}.Part()
	sketch, asked := store.PartFields{Kind: store.PartSketch}.Part(), []byte{1, 1, 10, 0, 0, 0, 0, 0, 0, 1} // one item
	all := [][]byte{
		uvarint([]byte{recTime}, 1_700_000_000_000),
		varint(appendCellRecord(nil, recAdd, cell), 5),
		varint([]byte{recAgain}, -7),
		varint(appendCellRecord(nil, recAdd, own), 1),
		varint(appendCellRecord(nil, recSet, cell), math.MinInt64),
		appendCellRecord(nil, recDelete, cell),
		uvarint(appendCellRecord(nil, recDeadline, cell), 1_700_000_000_000),
		uvarint(appendCellRecord(nil, recLayout, cell), math.MaxInt64),
		token(recToken),
		token(recTokenAgain),
		uvarint([]byte{recBegin}, 3),
		mark,
		uvarint([]byte{recRetire}, 2),
		varint(appendCellRecord(nil, recAdd, cell), 5),
		appendPartRecord(nil, window, partAdd, 5),
		appendPartRecord(nil, window, partDelete, 5),
		append(appendPartRecord(nil, entries, partPut, 0), 2, 'h', 'i'),
		appendAsk(nil, asked),
		appendPartRecord(nil, sketch, partMerge, store.PartSketch.Number(asked)),
		appendPartRecord(nil, sketch, partMerge, 0),
		appendPlan(nil, []store.Part{window, store.PartFields{Kind: store.PartDim, Name: "DE"}.Part()}),
		varint(uvarint(appendCellRecord(nil, recEvent, cell), 0), 5),
		varint([]byte{recEventAgain}, -7),
		appendBook(nil, store.Book{Namespace: "n", ID: 3}),
		appendFloor(nil, store.Floor{Namespace: defaultNamespace, Kind: store.PartWindow, View: 1, Epoch: 7}),
	}
	registers := []byte{1, 1, 3, 1, 8, 0, 0, 0, 0, 0, 0, 0}
	all = append(all, bytes.Join([][]byte{
		appendObject(nil, cell, 0), appendPartRecord(nil, store.Object, partPut, 0),
		{byte(len(registers))},
		registers,
		appendObject(nil, cell, 0), appendAsk(nil, []byte{1, 1, 3, 0, 0xf0, 0, 0, 0, 0, 1}), appendPartRecord(nil, store.Object, partTake, 8),
	}, nil))
	return append(all, bytes.Join(all, nil), nil, []byte{0}, bytes.Repeat([]byte{0xff}, 40),
		varint(appendCellRecord(nil, recAdd, bytes.Repeat([]byte{1}, 2000)), 1), uvarint(appendCellRecord(nil, recLayout, cell), 1<<63))
}

// emptied returns an engine with nothing in memory, over the disk of another.
func emptied(e *Engine) *Engine {
	return &Engine{
		o: e.o, id: e.id, db: e.db, base: e.base, timer: time.NewTimer(time.Hour),
		cells: newTable(0), tokens: newTable(tokenBytes), marks: newMarks(), names: namespaces{}, extras: map[uint32]extra{},
		blobs: map[uint32]string{}, live: live{}, epochs: tallies{}, fences: newFences(), views: newViews(),
		dirtyBit: dirty0,
	}
}

// FuzzReplay replays arbitrary bytes, part of which may be in the checkpoint.
// They are applied, or refused as corrupt; the dump of the log agrees.
func FuzzReplay(f *testing.F) {
	for i, payload := range seedRecords() {
		f.Add(payload, uint16(i))
	}
	e, err := Open("/data", Options{FS: vfs.NewMem()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = e.Close() })
	f.Fuzz(func(t *testing.T, payload []byte, from uint16) {
		fresh := emptied(e)
		err := fresh.replayer(wal.Position(from))(0, payload)
		if err != nil && store.KindOf(err) != store.KindCorrupt {
			t.Fatalf("%v, of kind %d", err, store.KindOf(err))
		}
		var text strings.Builder
		if err := dumpRecords(&text, wal.FrameInfo{Payload: payload}); err != nil {
			t.Fatal(err)
		}
		if err == nil && strings.Contains(text.String(), "can't be decoded") {
			t.Fatalf("replayed, but not dumped:\n%s", text.String())
		}
		if err != nil {
			return
		}
		for _, id := range fresh.views.slots.some(0, make([]uint32, fresh.views.slots.count)) {
			fresh.settle(id, 0, store.Memory)
		}
		fresh.tallyViews()
		// What was replayed adds up: the tallies are the sums over the cells that
		// were made here.
		var cells, marks tally
		for _, id := range fresh.dirty.some(0, make([]uint32, fresh.dirty.count)) {
			cells.cell(e.weightOf(fresh.cells.keyOf(id)), fresh.cells.slot(id).value)
		}
		for _, m := range fresh.marks.of {
			marks.add(m.tally)
		}
		for _, t := range fresh.epochs {
			marks.add(t.tally)
		}
		replaces := strings.Contains(text.String(), "its part") && strings.Contains(text.String(), ", was ") // what no record put there
		if !replaces && (cells.sum != marks.sum || cells.check != marks.check) {
			t.Fatalf("cells %+v, marks %+v", cells, marks)
		}
		var keys int64
		for _, id := range fresh.dirty.some(0, make([]uint32, fresh.dirty.count)) {
			if fresh.cells.slot(id).meta.state() != absent && !isPart(fresh.cells.keyOf(id)) {
				keys++
			}
		}
		for _, ns := range fresh.names {
			keys -= ns.keys + ns.unread
		}
		if keys != 0 {
			t.Fatalf("%d cells are not counted", keys)
		}
	})
}

// TestRowBytes checks that rows are what they always were.
func TestRowBytes(t *testing.T) {
	f := func(r row, want ...byte) {
		t.Helper()
		r.exists = true
		if got := r.append(nil); !bytes.Equal(got, want) {
			t.Errorf("%+v is %x, want %x", r, got, want)
		}
		if got, ok := decodeRow(want); !ok || got != r {
			t.Errorf("%x is %+v, want %+v", want, got, r)
		}
	}
	f(row{value: -3, version: 300}, 5, 0xac, 2)
	f(row{value: 3, version: 1, extra: 300}, 6, 1, 0xac, 2)
	f(row{value: 3, version: 1, extra: -300}, 6, 1, 0, 0xac, 2)
	f(row{extra: -math.MaxInt64}, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
	for _, bad := range [][]byte{{6, 1, 0}, {6, 1, 0, 0}, {6, 1, 0, 1, 1}, {6, 1, 1, 1}, append([]byte{6, 1, 0}, binary.AppendUvarint(nil, 1<<63)...)} {
		if r, ok := decodeRow(bad); ok {
			t.Errorf("%x is %+v", bad, r)
		}
	}
}

// FuzzRow decodes arbitrary bytes as every kind of row. What can be decoded is
// the same when it is encoded and decoded again.
func FuzzRow(f *testing.F) {
	f.Add((&row{value: -5, version: 1 << 50, extra: 7}).append(nil))
	f.Add((&row{value: 5, version: 1 << 50, extra: -7}).append(nil))
	f.Add(appendCell(nil, store.Cell{Namespace: "n", Key: "key"}))
	f.Add(appendCell(nil, store.Cell{Namespace: defaultNamespace, Key: "k"}))
	f.Add(appendCell(nil, store.Cell{Key: "k"}))
	f.Add(appendTokenRecord(nil, &decide.Token{Settled: true, Op: store.OpSettle, Want: true, N: -1, Digest: 1 << 63}))
	f.Add((&mark{seq: 4, digest: 5, tally: tally{deltas: 1, sum: 2, check: 3}}).row())
	f.Add((&namespace{keys: 5, tokens: -6}).appendRow(nil))
	f.Add(appendToken(nil, []byte("\x00key"), "token"))
	f.Add(appendSpans(nil, []span{{0, 1 << 50}, {1<<50 + 100, 1<<50 + 1<<30}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := decodeRow(b); ok {
			again, ok := decodeRow(r.append(nil))
			if !ok || again != r {
				t.Errorf("cell row %+v became %+v", r, again)
			}
		}
		if deadline, cell, ok := decodeDeadline(b); ok && !bytes.Equal(appendDeadline(nil, deadline, cell), b) {
			t.Errorf("deadline row %d %q was %q", deadline, cell, b)
		}
		if token, ok := decodeToken(b); ok {
			same := appendTokenRecord(nil, &token)
			if again, ok := decodeToken(same); !ok || again != token || !bytes.Equal(same, b[:tokenBytes]) {
				t.Errorf("token %+v became %+v", token, again)
			}
		}
		if m, ok := decodeMark(b); ok {
			again, ok := decodeMark(m.row())
			if !ok || !reflect.DeepEqual(again, m) {
				t.Errorf("mark %+v became %+v", m, again)
			}
			r := reader{b: m.results}
			results := r.results()
			r = reader{b: appendResults(nil, results)}
			if again := r.results(); r.bad || !reflect.DeepEqual(again, results) {
				t.Errorf("results %+v became %+v", results, again)
			}
		}
		if ns, ok := decodeNamespace(b); ok {
			if again, ok := decodeNamespace(ns.appendRow(nil)); !ok || *again != *ns {
				t.Errorf("namespace %+v became %+v", ns, again)
			}
		}
		r := reader{b: b}
		if spans := r.spans(); !r.bad {
			r = reader{b: appendSpans(nil, spans)}
			if again := r.spans(); r.bad || !slices.Equal(again, spans) {
				t.Errorf("spans %v became %v", spans, again)
			}
		}
		if n := namespaceLen(b); n > 0 {
			c := decodeCell(b)
			if len(c.Namespace) <= store.NamespaceBytesMax && c.Namespace != "" && c.Namespace != defaultNamespace {
				if got := appendCell(nil, c); !bytes.Equal(got, b) {
					t.Errorf("cell %x became %x", b, got)
				}
			}
		}
		if cell, ok := tokenCell(b); ok {
			if prefix := appendToken(nil, cell, ""); bytes.HasPrefix(b, prefix) { // its length is not written too long
				if got := appendToken(nil, cell, string(b[len(prefix):])); !bytes.Equal(got, b) {
					t.Errorf("token key %x became %x", b, got)
				}
			}
		}
	})
}

// FuzzSnapshot restores arbitrary bytes: they are refused and leave nothing
// behind, or are the files of a store.
func FuzzSnapshot(f *testing.F) {
	// What Restore looks at is the form of it: small files will do.
	var good bytes.Buffer
	out := tarWriter{tw: tar.NewWriter(&good)}
	fs := vfs.NewMem()
	for _, name := range []string{identityFile, logDir + "/1", diskDir + "/2"} {
		path := fs.PathJoin("/snapshot", name)
		if err := fs.MkdirAll(fs.PathDir(path), 0o755); err != nil {
			f.Fatal(err)
		}
		file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			f.Fatal(err)
		}
		if err := file.Close(); err != nil {
			f.Fatal(err)
		}
	}
	if err := errors.Join(out.tree(f.Context(), fs, "/snapshot", ""), out.close()); err != nil {
		f.Fatal(err)
	}
	if err := Restore(vfs.NewMem(), bytes.NewReader(good.Bytes()), "/data"); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(good.Bytes()[:good.Len()/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		err := Restore(fs, bytes.NewReader(b), "/data")
		if err != nil {
			if store.KindOf(err) != store.KindCorrupt {
				t.Fatalf("%v, of kind %d", err, store.KindOf(err))
			}
			if names, err := fs.List("/"); err != nil || len(names) > 0 {
				t.Fatalf("left behind: %v, %v", names, err)
			}
			return
		}
		if names, err := fs.List("/data"); err != nil || len(names) != 4 {
			t.Fatalf("restored: %v, %v", names, err)
		}
	})
}
