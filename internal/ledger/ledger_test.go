package ledger_test

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

func dims(texts ...string) (all []call.Dimension) {
	for i := 0; i < len(texts); i += 2 {
		all = append(all, call.Dimension{Name: texts[i], Value: texts[i+1]})
	}
	return all
}

// The bytes are stored: what is here must not change.
func TestGolden(t *testing.T) {
	f := func(l ledger.Line, want string) {
		t.Helper()
		b, err := l.Append(nil)
		if err != nil || hex.EncodeToString(b) != want {
			t.Errorf("%+v is %x, %v; want %s", l, b, err, want)
		}
		e, err := ledger.ParseEntry("\x05\x00" + string(b))
		if err != nil || len(e.Lines) != 1 || !reflect.DeepEqual(e.Lines[0], l) || e.MS != 5 {
			t.Errorf("%x has %+v, %v", b, e, err)
		}
	}
	f(ledger.Line{Kind: ledger.Add, Amount: 1}, "04"+"010100"+"02")
	f(ledger.Line{Kind: ledger.Add, Amount: -3, AtMS: 300, Token: "t"}, "08"+"010103"+"05"+"ac02"+"0174")
	f(ledger.Line{Kind: ledger.Adjust, Amount: -1, Actor: "eve", Reason: "fraud", Source: "rest"},
		"13"+"01021c"+"01"+"03657665"+"056672617564"+"0472657374")
	f(ledger.Line{Kind: ledger.Undo, Undoes: ledger.Position{Version: 300, Line: 2, Shard: 1}, Dims: dims("country", "DE", "x", "")},
		"17"+"010360"+"00"+"02"+"07636f756e747279"+"024445"+"0178"+"00"+"ac02"+"02"+"01")
	f(ledger.Line{Kind: ledger.Set, Amount: 7, Erased: true}, "04"+"010480"+"0e")
	f(ledger.Line{Kind: ledger.Reset}, "04"+"010500"+"00")
	f(ledger.Line{Kind: ledger.Delete}, "04"+"010600"+"00")
	f(ledger.Line{Kind: ledger.React, Actor: "u", Dims: dims("choice", "like")}, "13"+"010724"+"00"+"0175"+"01"+"0663686f696365"+"046c696b65")
	f(ledger.Line{Kind: ledger.Unreact, Actor: "u"}, "06"+"010804"+"00"+"0175")
}

// Several lines of one entry keep their order, and say by how much each has changed the
// counter.
func TestEntry(t *testing.T) {
	e := ledger.Entry{Stamp: store.Stamp{MS: 9, Known: true, Value: 12, Change: 7}, Lines: []ledger.Line{
		{Kind: ledger.Add, Amount: 3}, {Kind: ledger.Add, Amount: 4, Actor: "bob"},
	}}
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ledger.ParseEntry(string(b))
	if err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("%+v, %v; want %+v", got, err, e)
	}
	f := func(e ledger.Entry, line int, want int64, known bool) {
		t.Helper()
		if n, ok := e.Delta(line); ok != known || known && n != want {
			t.Errorf("line %d of %+v: %d, %v", line, e, n, ok)
		}
	}
	f(e, 0, 3, true)
	f(e, 1, 4, true)
	saturated := ledger.Entry{Stamp: store.Stamp{Known: true, Value: 5, Change: 2}, Lines: []ledger.Line{{Kind: ledger.Add, Amount: 9}}}
	f(saturated, 0, 2, true)
	f(ledger.Entry{Lines: []ledger.Line{{Kind: ledger.Set, Amount: 9}}}, 0, 0, false)
	f(ledger.Entry{Lines: []ledger.Line{{Kind: ledger.Adjust, Amount: 9}}}, 0, 9, true)
}

func TestRefused(t *testing.T) {
	f := func(want string, kind error, l ledger.Line) {
		t.Helper()
		if _, err := l.Append(nil); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", l, err, want)
		}
	}
	f("unknown kind", store.ErrInvalid, ledger.Line{})
	f("unknown kind", store.ErrInvalid, ledger.Line{Kind: ledger.Commit + 1})
	f("1970", store.ErrInvalid, ledger.Line{Kind: ledger.Add, AtMS: -1})
	f("takes back", store.ErrInvalid, ledger.Line{Kind: ledger.Undo})
	f("takes back", store.ErrInvalid, ledger.Line{Kind: ledger.Add, Undoes: ledger.Position{Version: 1}})
	f("erased", store.ErrInvalid, ledger.Line{Kind: ledger.Add, Actor: "x", Erased: true})
	f("reason is not UTF-8", store.ErrInvalid, ledger.Line{Kind: ledger.Add, Reason: "\xff"})
	f("in order", store.ErrInvalid, ledger.Line{Kind: ledger.Add, Dims: dims("b", "", "a", "")})
	f("in order", store.ErrInvalid, ledger.Line{Kind: ledger.Add, Dims: dims("a", "1", "a", "2")})
	f("at most 4096", store.ErrTooLarge, ledger.Line{Kind: ledger.Adjust, Reason: strings.Repeat("x", ledger.LineBytesMax)})

	if _, err := ledger.ParseEntry("\x05\x00\x04\x02\x01\x00\x02"); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a line of a later format: %v", err)
	}
}

func TestPosition(t *testing.T) {
	f := func(p ledger.Position, text string) {
		t.Helper()
		if got, err := ledger.ParsePosition(text); p.String() != text || err != nil || got != p {
			t.Errorf("%+v is %s; %q is %+v, %v", p, p, text, got, err)
		}
	}
	f(ledger.Position{}, "0.0")
	f(ledger.Position{Version: 1<<64 - 1, Line: 3}, "18446744073709551615.3")
	f(ledger.Position{Version: 7, Shard: 8}, "7.0.8")
	for _, bad := range []string{"", "7", "7.", ".0", "7.0.0", "7.0.1.1", "7.0.", "07.0", "7.-1", "7.65536", "18446744073709551616.0"} {
		if p, err := ledger.ParsePosition(bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q is %+v, %v", bad, p, err)
		}
	}
	if line, ok := ledger.Undone(ledger.UndoName(3)); line != 3 || !ok {
		t.Errorf("%d, %v", line, ok)
	}
	for _, bad := range []string{"", "undo:", "undo:03", "undo:65536", "done:3"} {
		if _, ok := ledger.Undone(bad); ok {
			t.Errorf("%q says that a line was taken back", bad)
		}
	}
}

// Lines come back as they were written, however many are in an entry.
func TestRoundTrip(t *testing.T) {
	text := rapid.StringN(0, 20, 40)
	line := rapid.Custom(func(t *rapid.T) ledger.Line {
		var values []call.Dimension
		for _, name := range rapid.SliceOfNDistinct(text, 0, 3, rapid.ID).Draw(t, "dims") {
			values = append(values, call.Dimension{Name: name, Value: text.Draw(t, "value")})
		}
		l := ledger.Line{
			Kind: ledger.Kind(rapid.IntRange(1, int(ledger.Delete)).Draw(t, "kind")), Amount: rapid.Int64().Draw(t, "amount"),
			AtMS: rapid.Int64Range(0, 1<<50).Draw(t, "at"), Token: text.Draw(t, "token"), Actor: text.Draw(t, "actor"),
			Reason: text.Draw(t, "reason"), Source: text.Draw(t, "source"), Dims: ledger.Sorted(values),
		}
		if l.Kind == ledger.Undo {
			l.Undoes = ledger.Position{Version: rapid.Uint64Min(1).Draw(t, "version"), Line: rapid.Uint16().Draw(t, "line"), Shard: rapid.Uint16().Draw(t, "shard")}
		}
		l.Erased = l.Actor == "" && rapid.Bool().Draw(t, "erased")
		return l
	})
	rapid.Check(t, func(t *rapid.T) {
		e := ledger.Entry{Stamp: store.Stamp{MS: rapid.Int64Range(0, 1<<50).Draw(t, "ms")}}
		e.Lines = rapid.SliceOfN(line, 1, 5).Draw(t, "lines")
		b, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ledger.ParseEntry(string(b)); err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v, %v; want %+v", got, err, e)
		}
	})
}

// FuzzEntry checks that whatever is taken for an entry is one, byte for byte.
func FuzzEntry(f *testing.F) {
	e := ledger.Entry{Stamp: store.Stamp{MS: 1, Known: true, Value: 2, Change: 3}, Lines: []ledger.Line{
		{Kind: ledger.Add, Amount: 1, AtMS: 5, Token: "t", Actor: "a", Dims: dims("x", "y")},
		{Kind: ledger.Undo, Reason: "r", Undoes: ledger.Position{Version: 9, Line: 1, Shard: 2}},
	}}
	b, err := e.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add("\x05\x00\x05\x01\x01\x00\x80\x00") // an amount that is too long
	f.Fuzz(func(t *testing.T, content string) {
		e, err := ledger.ParseEntry(content)
		if err != nil {
			return
		}
		_, rest, _ := store.CutStamp(content)
		var again []byte
		for i := range e.Lines {
			if again, err = e.Lines[i].Append(again); err != nil {
				t.Fatal(err)
			}
		}
		if string(again) != rest {
			t.Errorf("%x was taken for %x", rest, again)
		}
	})
}

// FuzzPosition checks that a position has one text.
func FuzzPosition(f *testing.F) {
	for _, seed := range []string{"0.0", "1.2", "1.2.3", "1.2.0", "01.2", "1", "", "1.2.3.4", "18446744073709551615.65535.65535", "-1.0", "1.65536"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ledger.ParsePosition(text); err == nil && p.String() != text {
			t.Errorf("%q was taken for %v", text, p)
		}
	})
}
