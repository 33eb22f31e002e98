package engine

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestGoldenRecords writes every kind of log record, in a history, and compares
// the bytes with those of testdata. What is there is replayed, too.
func TestGoldenRecords(t *testing.T) {
	fs := vfs.NewCrashableMem()
	now := time.UnixMilli(1_700_000_000_000)
	o := Options{Now: func() time.Time { return now }}
	start := func() *Engine {
		o.FS = fs
		e, err := Open("/data", o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	e := start()
	apply := func(b store.Batch) {
		t.Helper()
		replies := make([]store.Reply, 1)
		if err := e.Apply(t.Context(), []store.Batch{b}, replies); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies[0].Err)
		}
	}
	do := func(ds ...store.Delta) { t.Helper(); apply(store.Batch{Deltas: ds}) }
	a, b := store.Cell{Namespace: "n", Key: "a"}, store.Cell{Namespace: defaultNamespace, Key: "bé"}
	token := store.Guard{Token: "token", Digest: 0xfedcba9876543210}
	settled := store.Delta{Cell: a, Op: store.OpSettle, Guard: store.Guard{Token: "late"}}

	do(store.Delta{Cell: a, Op: store.OpAdd, N: 5}, store.Delta{Cell: a, Op: store.OpAdd, N: -7}, store.Delta{Cell: b, Op: store.OpAdd, N: math.MaxInt64})
	do(store.Delta{Cell: b, Op: store.OpSet, N: math.MinInt64}, store.Delta{Cell: b, Op: store.OpDelete})
	do(store.Delta{Cell: b, Op: store.OpSet, N: 3, Expiry: store.ExpirySet, DeadlineMS: now.UnixMilli() + 1}, store.Delta{Cell: b, Op: store.OpExpire, Expiry: store.ExpiryClear})
	do(store.Delta{Cell: b, Op: store.OpLayout, N: 1<<40 + 1, Guard: store.Guard{Laid: true}})
	do(store.Delta{Cell: a, Op: store.OpAdd, N: 1, Want: true, Guard: token}, settled)
	now = now.Add(2 * e.o.Limits.TokenWindow)
	do(store.Delta{Cell: a, Op: store.OpAdd, N: 2, Guard: token})
	w, err := store.Enlist(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	apply(store.Batch{Writer: w, Seq: 1 << 33, Deltas: []store.Delta{
		{Cell: a, Op: store.OpAdd, N: 1, Want: true, Expiry: store.ExpirySet, DeadlineMS: now.UnixMilli() + 1},
		{Cell: a, Op: store.OpAdd, N: math.MaxInt64},
		{Cell: a, Op: store.OpAdd, N: 300},
	}})
	do(store.Delta{Op: store.OpRetire, N: int64(w)})
	seen := store.Cell{Namespace: "m", Key: "seen"}
	window := store.PartFields{Kind: store.PartWindow, View: 1, Epoch: 7, Position: 60_000}
	member := store.PartFields{Kind: store.PartMember, Position: 2, Name: "eve"}.Part()
	line := store.Rider{Part: store.PartFields{Kind: store.PartEntries, View: 2, Epoch: store.EpochForever}.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte("line")}
	apply(store.Batch{
		Books:  []store.Book{{Namespace: "m", ID: 300}},
		Floors: []store.Floor{{Namespace: "m", Kind: store.PartWindow, View: 1, Epoch: 7}},
		Deltas: []store.Delta{
			{Cell: seen, Op: store.OpAdd, N: 5, Event: &store.Event{Riders: []store.Rider{{Part: window.Part(), Op: store.OpAdd, Amount: store.AmountApplied}, line}}},
			{Cell: seen, Op: store.OpSet, N: 1, Event: &store.Event{Part: member}},
			{Cell: seen, Op: store.OpDelete, Event: &store.Event{Part: member}},
			{Cell: seen, Op: store.OpDelete, Event: &store.Event{Riders: []store.Rider{{Part: window.Part(), Op: store.OpAdd, N: -300}}}},
		},
	})
	plan, err := store.NewPlan(
		store.Rider{Part: store.PartFields{Kind: store.PartBook}.Part(), Op: store.OpMax, N: 300},
		store.Rider{Part: window.Part(), Op: store.OpAdd, Amount: store.AmountApplied},
		store.Rider{Part: store.PartFields{Kind: store.PartDim, View: 3, Name: "DE"}.Part(), Op: store.OpAdd, Amount: store.AmountApplied},
	)
	if err != nil {
		t.Fatal(err)
	}
	planned := store.Delta{Cell: seen, Op: store.OpAdd, N: 300, Event: &store.Event{Plan: plan}}
	for _, deltas := range [][]store.Delta{{planned}, {planned, planned}} { // the first leaves the book
		apply(store.Batch{Books: []store.Book{{Namespace: "m", ID: 300}}, Deltas: deltas})
	}
	unique := store.PartFields{Kind: store.PartSketch, View: 4}.Part()
	apply(store.Batch{Books: []store.Book{{Namespace: "m", ID: 300}}, Deltas: []store.Delta{{Cell: seen, Op: store.OpAdd, N: 1, Event: &store.Event{
		Bytes: sketch.AppendUniqueRequest(nil, 10, []uint64{sketch.Hash("eve"), sketch.Hash("bob")}),
		Riders: []store.Rider{
			{Part: unique, Op: store.OpMerge},
			{Part: store.PartFields{Kind: store.PartWindowSketch, View: 5, Epoch: 7, Position: 60_000}.Part(), Op: store.OpMerge},
		},
	}}}})
	text := store.Delta{Cell: store.Cell{Namespace: "n", Key: "text"}, Op: store.OpPut, Event: &store.Event{Part: store.Object, Bytes: []byte("text")}}
	text.Expiry, text.DeadlineMS = store.ExpirySet, now.UnixMilli()+300
	do(text)
	for _, hashes := range [][]uint64{{1 << 63, 1 << 62, 1 << 61}, {7 << 61}, {7 << 61}} { // One more than it lists; one more; none.
		do(store.Delta{Cell: store.Cell{Namespace: "n", Key: "few"}, Op: store.OpMerge, Event: &store.Event{
			Part: store.Object, Bytes: sketch.AppendUniqueRequest(nil, sketch.PrecisionMin, hashes),
		}})
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{})
	e = start() // it leaves out versions
	do(store.Delta{Cell: a, Op: store.OpAdd, N: 1})

	var all []byte
	var pieces []storetest.Piece
	kinds := make(map[byte]bool)
	if err := wal.Dump(fs, "/data/"+logDir, func(f wal.FrameInfo) error {
		for r := (reader{b: f.Payload}); len(r.b) > 0; {
			from := r.b
			text := describe(&r)
			record := from[:len(from)-len(r.b)]
			if r.bad {
				return fmt.Errorf("%x can't be decoded", from)
			}
			kinds[record[0]] = true
			all = append(all, record...)
			pieces = append(pieces, storetest.Piece{Name: text, Bytes: record})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	storetest.Golden(t, filepath.Join("testdata", "records.golden"), *rewrite, pieces)
	for kind := byte(recTime); kind <= recObject; kind++ {
		if !kinds[kind] {
			t.Errorf("there is no record of kind %d", kind)
		}
	}
	replayed := emptied(e)
	if err := replayed.replayer(0)(0, all); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[store.Cell]store.Value{
		a: {N: 303, DeadlineMS: now.UnixMilli() + 1},
		b: {N: 3, Layout: 1<<40 + 1},
	} {
		key := appendCell(nil, c)
		id := replayed.locate(xxh3.HashSeed(key, e.id.seed()), key)
		s, x := replayed.cells.slot(id), replayed.extra(id)
		if s.value != want.N || x.deadline() != want.DeadlineMS || x.layout() != want.Layout {
			t.Errorf("%q was replayed as %d, %d, want %+v", c.Key, s.value, x, want)
		}
	}
}

// TestGoldenRows compares the bytes of rows with those of testdata, and reads
// them.
func TestGoldenRows(t *testing.T) {
	cell := appendCell(nil, store.Cell{Namespace: "n", Key: "key"})
	var pieces []storetest.Piece
	f := func(name string, key, value []byte, decoded, want any, ok bool) {
		t.Helper()
		if !ok || !reflect.DeepEqual(decoded, want) {
			t.Errorf("%s was read as %+v, %t, want %+v", name, decoded, ok, want)
		}
		pieces = append(pieces, storetest.Piece{Name: name + ", key", Bytes: key}, storetest.Piece{Name: name, Bytes: value})
	}
	for _, c := range []struct {
		name string
		row  row
	}{
		{"cell", row{exists: true, value: -300, version: 1 << 40}},
		{"cell with a deadline", row{exists: true, value: math.MaxInt64, version: 1, extra: 1_700_000_000_000}},
		{"cell with a layout", row{exists: true, value: math.MinInt64, version: 300, extra: -(1<<40 + 1)}},
	} {
		value := c.row.append(nil)
		got, ok := decodeRow(value)
		f(c.name, append([]byte{rowCell}, cell...), value, got, c.row, ok)
	}
	for _, c := range []struct {
		name  string
		token decide.Token
	}{
		{"token", decide.Token{
			Op: store.OpAdd, N: -2, Want: true, Digest: 0xfedcba9876543210, AtMS: 1_700_000_000_000,
			Result: store.Result{Outcome: store.Applied, Before: 5, After: 3, Version: 1 << 40},
		}},
		{"token that was settled", decide.Token{Settled: true, Op: store.OpSettle, AtMS: 1_700_000_000_000, Result: store.Result{Outcome: store.Settled}}},
	} {
		value := appendTokenRecord(nil, &c.token)
		got, ok := decodeToken(value)
		f(c.name, appendToken([]byte{rowToken}, cell, "token"), value, got, c.token, ok)
	}
	m := &mark{seq: 300, digest: 1 << 63, tally: tally{deltas: 1, sum: 2, check: math.MaxUint64}, results: appendResults(nil, []store.Result{
		{Outcome: store.Applied, Before: -1, After: 300, Version: 1 << 40, Existed: true, DeadlineMS: 1_700_000_000_000},
		{Outcome: store.Applied, Version: 1<<40 + 5},
		{Outcome: store.Split},
	})}
	got, ok := decodeMark(m.row())
	f("mark", binary.BigEndian.AppendUint64([]byte{rowMark}, 258), m.row(), got, m, ok)
	namespaceRow := func(name string, ns *namespace) {
		t.Helper()
		counts, ok := decodeNamespace(ns.appendRow(nil))
		f(name, appendNamespace([]byte{rowNamespace}, "n"), ns.appendRow(nil), counts, ns, ok)
	}
	namespaceRow("namespace", &namespace{keys: 300, tokens: 2})
	meta := metaRow{
		id: storeID([]byte("0123456789abcdef")), position: 1 << 33, timeMS: 1_700_000_000_000, floor: 3, skipped: 1 << 50,
		lost: []span{{0, 1 << 50}, {1<<50 + 100, 1<<50 + 1<<30}}, gaps: clock.Gaps{{AtMS: 1_600_000_000_000, ByMS: 5000}},
	}
	state, ok := decodeMeta(meta.append(nil))
	f("meta", []byte{rowMeta}, meta.append(nil), state, meta, ok)
	ms, due, ok := decodeDeadline(appendDeadline(nil, 1_700_000_000_000, cell))
	f("deadline", appendDeadline([]byte{rowDeadline}, 1_700_000_000_000, cell), nil, fmt.Sprint(ms, string(due)), fmt.Sprint(int64(1_700_000_000_000), string(cell)), ok)

	// Those of format 2.
	namespaceRow("namespace with refusals", &namespace{keys: 300, tokens: 2, refused: 1})
	refusal := decide.Token{
		Op: store.OpPut, Digest: 1, AtMS: 1_700_000_000_000, Result: store.Result{Outcome: store.Unmet, Refused: 64, Before: 5, After: 5},
	}
	again, ok := decodeToken(appendTokenRecord(nil, &refusal))
	f("token of an event that was refused", appendToken([]byte{rowToken}, cell, "token"), appendTokenRecord(nil, &refusal), again, refusal, ok)
	refused := []store.Result{{Outcome: store.Bounded, Refused: 64, Forgotten: true, Before: 1, After: 1}, {Outcome: store.Applied, Version: 9}}
	rd := reader{b: appendResults(nil, refused)}
	f("results of events", nil, appendResults(nil, refused), rd.results(), refused, !rd.bad)
	of := store.Cell{Namespace: "n", Key: "key"}
	window := store.PartFields{Kind: store.PartWindow, View: 258, Epoch: 7, Position: 60_000}.Part()
	number, ok := decodePartRow(appendPart(nil, of, window), []byte{0xd7, 0x04})
	f("part", appendRowKey(nil, appendPart(nil, of, window)), []byte{0xd7, 0x04}, number, row{exists: true, value: -300}, ok)
	page := store.PartFields{Kind: store.PartPage, Position: 2}.Part()
	bytes := "bytes"
	text, ok := decodePartRow(appendPart(nil, of, page), []byte(bytes))
	f("part with bytes", appendRowKey(nil, appendPart(nil, of, page)), []byte(bytes), text, row{exists: true, value: page.Kind().Number([]byte(bytes)), bytes: &bytes}, ok)
	shelf := decide.Shelf{Namespace: "n", Kind: store.PartWindow, View: 258}
	sums := tally{sum: 3, check: math.MaxUint64}
	tallied, ok := decodeEpochTally(sums.appendEpoch(nil))
	f("tally of an epoch", append([]byte{rowEpoch}, appendEpoch(nil, shelf, 7)...), sums.appendEpoch(nil), tallied, sums, ok)
	storetest.Golden(t, filepath.Join("testdata", "rows.golden"), *rewrite, pieces)
}
