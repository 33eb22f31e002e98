package store_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

// TestPartBytes keeps the bytes of parts and of their rows: they are stored.
func TestPartBytes(t *testing.T) {
	f := func(c store.Cell, fields store.PartFields, part, namespace, row string) {
		t.Helper()
		p := fields.Part()
		if got := hex.EncodeToString([]byte(p)); got != part {
			t.Errorf("part %s, want %s", got, part)
		}
		if got, ok := p.Fields(); !ok || got != fields {
			t.Errorf("fields %+v, %t, want %+v", got, ok, fields)
		}
		ns, got := store.AppendRow([]byte{}, c, p)
		if ns != namespace || hex.EncodeToString(got) != row {
			t.Errorf("row %x in %q, want %s in %q", got, ns, row, namespace)
		}
		if back, of, ok := store.PartOfRow(ns, got); !ok || back != c || of != p {
			t.Errorf("part %x of %+v, %t, want %+v", of, back, ok, c)
		}
	}
	home := store.Cell{Namespace: "n", Key: "k"}
	shard := store.ShardCell(home, 3)
	hour := store.EpochAt(500_000*3_600_000, 30*24*time.Hour) // 64 hours long
	f(home, store.PartFields{Kind: store.PartOutside, View: 258},
		"01"+"0102"+"8000000000000000", "n", "01"+"6b"+"ff"+"0000"+"0102"+"8000000000000000")
	f(home, store.PartFields{Kind: store.PartMember, Position: 7, Name: "eve"},
		"05"+"0000"+"8000000000000007"+"657665", "n", "05"+"6b"+"ff"+"0000"+"0000"+"8000000000000007"+"657665")
	f(shard, store.PartFields{Kind: store.PartHold, Position: -1, Name: "id"},
		"07"+"0000"+"7fffffffffffffff"+"6964", "n", "07"+"6b"+"ff"+"0003"+"0000"+"7fffffffffffffff"+"6964")
	f(home, store.PartFields{Kind: store.PartDue, Position: 1_800_000_000_000_000, Name: "id"},
		"0e"+"0000"+"8006651728988000"+"6964", "n", "0e"+"6b"+"ff"+"0000"+"0000"+"8006651728988000"+"6964")
	f(home, store.PartFields{Kind: store.PartWindow, View: 1, Epoch: hour, Position: 1_800_000_000_000},
		"81"+"0001"+"30001e84"+"800001a3185c5000", "n", "81"+"0001"+"30001e84"+"6b"+"ff"+"0000"+"800001a3185c5000")
	f(shard, store.PartFields{Kind: store.PartEntries, View: 2, Epoch: store.EpochForever, Position: math.MaxInt64},
		"83"+"0002"+"f0000000"+"ffffffffffffffff", "n", "83"+"0002"+"f0000000"+"6b"+"ff"+"0003"+"ffffffffffffffff")
	f(store.LaneCell("n", 3, 0), store.PartFields{Kind: store.PartShared, View: 2, Name: "0"},
		"10"+"0002"+"8000000000000000"+"30", "n", "10"+"ff"+"0003"+"0002"+"8000000000000000"+"30")
	f(store.LaneCell("n", 3, 5), store.PartFields{Kind: store.PartWindowShared, View: 2, Epoch: hour, Position: 60_000, Name: "5"},
		"86"+"0002"+"30001e84"+"800000000000ea60"+"35", "n", "86"+"0002"+"30001e84"+"ff"+"a003"+"800000000000ea60"+"35")
	f(store.Cell{Key: "shard/x"}, store.PartFields{Kind: store.PartBook},
		"02"+"0000"+"8000000000000000", "", "02"+hex.EncodeToString([]byte("shard/x"))+"ff"+"0000"+"0000"+"8000000000000000")
}

// someParts returns parts in the order of their fields.
func someParts() (parts []store.PartFields) {
	for _, view := range []uint16{0, 1, 256, math.MaxUint16} {
		for _, position := range []int64{math.MinInt64, -1, 0, 1, 256, math.MaxInt64} {
			for _, name := range []string{"", "a", "aa", "b", "é"} {
				parts = append(parts, store.PartFields{Kind: store.PartMember, View: view, Position: position, Name: name})
			}
		}
	}
	return parts
}

// TestRowOrder checks that rows are in the order that the contract says.
func TestRowOrder(t *testing.T) {
	var rows [][]byte
	add := func(c store.Cell, f store.PartFields) {
		ns, row := store.AppendRow(nil, c, f.Part())
		if ns != "n" {
			t.Fatalf("%+v is in namespace %q", c, ns)
		}
		rows = append(rows, row)
	}
	keys := []string{"\x00", "a\x00", "a/b", "ab", "a", "\U0010ffff"} // a key comes after those that begin with it
	check := func() {
		t.Helper()
		if !slices.IsSortedFunc(rows, bytes.Compare) {
			t.Error("rows are not in order")
		}
		if len(slices.CompactFunc(slices.Clone(rows), bytes.Equal)) != len(rows) {
			t.Error("two parts have one row")
		}
		rows = nil
	}
	for _, key := range keys {
		for _, shard := range []int{0, 1, 2, 63, 256, 65535} {
			for _, f := range someParts() {
				add(store.ShardCell(store.Cell{Namespace: "n", Key: key}, shard), f)
			}
		}
	}
	check()
	// An epoch is one range, and in it the keys of a prefix are.
	for _, view := range []uint16{1, 2} {
		for _, epoch := range []store.Epoch{0, 1, 1 << 28, store.EpochForever} {
			for _, key := range keys {
				for _, shard := range []int{0, 9} {
					for _, at := range []int64{0, 60_000, 1 << 40} {
						add(store.ShardCell(store.Cell{Namespace: "n", Key: key}, shard),
							store.PartFields{Kind: store.PartWindow, View: view, Epoch: epoch, Position: at})
					}
				}
			}
		}
	}
	check()
}

func TestPartFieldsRefuse(t *testing.T) {
	f := func(part string) {
		t.Helper()
		if got, ok := store.Part(part).Fields(); ok {
			t.Errorf("%x is a part: %+v", part, got)
		}
	}
	good := string(store.PartFields{Kind: store.PartMember, Name: "x"}.Part())
	f("")
	f(good[:10])
	f("\x00" + good[1:])
	f("\x10" + good[1:])
	f("\x86" + good[1:] + "xxxx")
	f(good + "\xff")
	f(good + strings.Repeat("x", store.PartNameBytesMax))
	window := string(store.PartFields{Kind: store.PartWindow}.Part())
	f(window[:3] + "\x90\x00\x00\x00" + window[7:]) // no class of epochs
	f(window[:3] + "\xf0\x00\x00\x01" + window[7:]) // for ever has one
	f(window[:14])
}

func TestPartAt(t *testing.T) {
	for _, f := range someParts() {
		p := f.Part()
		f.Position = 42
		if p.At(42) != f.Part() {
			t.Errorf("%x at 42 is %x", p, p.At(42))
		}
	}
}

// TestEpochs checks that every time is in one epoch of a length that fits what is kept.
func TestEpochs(t *testing.T) {
	f := func(keep time.Duration, hours int64) {
		t.Helper()
		const ms = 1_800_000_000_000
		from, to := store.EpochAt(ms, keep).Span()
		if from > ms || ms >= to || (to-from) != hours*3_600_000 {
			t.Errorf("kept for %v: from %d to %d, want %d hours", keep, from, to, hours)
		}
		if last, next := store.EpochAt(to-1, keep), store.EpochAt(to, keep); last != store.EpochAt(ms, keep) || next != last+1 {
			t.Errorf("kept for %v: epochs %x, %x", keep, last, next)
		}
	}
	const day = 24 * time.Hour
	f(time.Minute, 1)
	f(24*time.Hour, 1)
	f(32*time.Hour-1, 1)
	f(32*time.Hour, 4)
	f(30*day, 64)
	f(5*365*day, 4096)
	f(100*365*day, 65536)
	if from, to := store.EpochAt(5, 0).Span(); from != 0 || to != math.MaxInt64 {
		t.Errorf("for ever is from %d to %d", from, to)
	}
	if e := store.EpochAt(-1, day); e != store.EpochAt(0, day) {
		t.Errorf("before 1970 is %x", e)
	}
}

// TestNoPart checks that rows that AppendRow does not make are of no part: a cell has one
// address.
func TestNoPart(t *testing.T) {
	_, book := store.AppendRow(nil, store.Cell{Namespace: "n", Key: "k"}, store.PartFields{Kind: store.PartBook}.Part())
	f := func(namespace, row string) {
		t.Helper()
		if c, p, ok := store.PartOfRow(namespace, []byte(row)); ok {
			t.Errorf("row %x in %q is of part %x of %+v", row, namespace, p, c)
		}
	}
	tail := string(book[2:])
	f("", "")
	f("n", string(book[:len(book)-1]))
	f("", "\x02shard/3/n/k"+tail)                            // it is in n
	f("n/m", "\x02k\xff\x00\x03"+tail[3:])                   // shard 3 of m/k in n
	f("n", "\x02"+tail)                                      // no key
	f("n", "\x02\xc3"+tail)                                  // no UTF-8
	f("n", strings.Replace(string(book), "\xff", "\xfe", 1)) // no end
}

func FuzzPartOfRow(f *testing.F) {
	for i, fields := range someParts() {
		c := store.ShardCell(store.Cell{Namespace: "n", Key: "k"}, i)
		ns, row := store.AppendRow(nil, c, fields.Part())
		f.Add(ns, row)
	}
	_, row := store.AppendRow(nil, store.Cell{Key: "k"}, store.PartFields{Kind: store.PartWindow, Epoch: 5}.Part())
	f.Add("", row)
	f.Fuzz(func(t *testing.T, namespace string, row []byte) {
		c, p, ok := store.PartOfRow(namespace, row)
		if !ok {
			return
		}
		if err := store.CheckPart(c, p); err != nil {
			t.Errorf("row %x is of %+v: %v", row, c, err)
		}
		if ns, again := store.AppendRow(nil, c, p); ns != namespace || !bytes.Equal(again, row) {
			t.Errorf("row %x in %q becomes %x in %q", row, namespace, again, ns)
		}
		fields, _ := p.Fields()
		if fields.Part() != p {
			t.Errorf("part %x becomes %x", p, fields.Part())
		}
	})
}

func TestStamp(t *testing.T) {
	f := func(s store.Stamp, bytes string) {
		t.Helper()
		b := append(s.Append(nil), "rest"...)
		if hex.EncodeToString(b) != bytes {
			t.Errorf("%+v is %x, want %s", s, b, bytes)
		}
		if got, rest, ok := store.CutStamp(string(b)); !ok || got != s || rest != "rest" {
			t.Errorf("%x has %+v, %q, %t", b, got, rest, ok)
		}
		for i := range len(b) - len("rest") {
			if _, _, ok := store.CutStamp(string(b[:i])); ok {
				t.Errorf("%x has a stamp", b[:i])
			}
		}
	}
	f(store.Stamp{MS: 1_800_000_000_000}, "80a0f1c2b134"+"00"+"72657374")
	f(store.Stamp{MS: 5, Known: true, Value: -2, Change: 3}, "05"+"01"+"03"+"06"+"72657374")
	if _, _, ok := store.CutStamp("\x05\x02"); ok {
		t.Error("there are two kinds of stamps")
	}
}

// TestNumber checks that what stands for bytes is what stores have kept: by the kind of
// the part, and byte for byte.
func TestNumber(t *testing.T) {
	f := func(k store.PartKind, bytes string, want uint64) {
		t.Helper()
		if got := uint64(k.Number([]byte(bytes))); got != want {
			t.Errorf("kind %#x, %q: %#x, want %#x", uint8(k), bytes, got, want)
		}
	}
	f(store.PartPage, "", 0xcbf29ce484222325)
	f(store.PartPage, "0123456789", 0x50c0aafd8b4330b2)
	f(store.PartEntries, "0123456789", 0x50c0aafd8b4330b2)
	f(store.PartLimit, "0123456789", 0x50c0aafd8b4330b2)
	f(store.PartSketch, "0123456789", 0x37f6d35d8270152b)
	f(store.PartWindowSketch, "0123456789", 0x37f6d35d8270152b)
	f(store.PartObject, "", 0xcbf29ce484222325)
	f(store.PartObject, "01234567", 0x923ea2a782701b08)
}
