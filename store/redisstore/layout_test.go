package redisstore

import (
	"math"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// Slots are as Redis has them, and partitions are spread over them.
func TestTags(t *testing.T) {
	for tag, want := range map[string]uint16{"123456789": 0x31c3, "": 0, "foo": 12182, "user1000": 3443} {
		if got := slot(tag); got != want {
			t.Errorf("slot of %q is %d, want %d", tag, got, want)
		}
	}
	for _, n := range []int{1, 2, 3, 12, 64, 100, partitionsMax} {
		ts := tags(n)
		for i, p := range partitions("p", n) {
			if got := int(slot(ts[i])); got < i*slots/n || got > (i+1)*slots/n {
				t.Fatalf("partition %d of %d is in slot %d", i, n, got)
			}
			if want := "p:{" + ts[i] + "}:head"; p.head != want {
				t.Fatalf("partition %d has %q, want %q", i, p.head, want)
			}
		}
	}
	// They are where what was stored is looked for: fixed for ever.
	if got := tags(8); !slices.Equal(got, []string{"3", "43", "2", "42", "1", "41", "0", "40"}) {
		t.Errorf("tags are %q", got)
	}
}

// What add.lua takes is what it serves.
func TestServes(t *testing.T) {
	storetest.Serves(t, plan.RidersServe, func(b *store.Batch) bool {
		_, ok := planOf(b)
		return ok
	})
}

func TestTokenText(t *testing.T) {
	for _, want := range []decide.Token{
		{Settled: true},
		{Op: store.OpAdd, N: -5, Digest: math.MaxUint64, Result: store.Result{Outcome: store.Applied, Version: 9}},
		{Op: store.OpSet, N: math.MinInt64, Want: true, Result: store.Result{Outcome: store.Applied, Version: math.MaxUint64, Before: math.MaxInt64, After: math.MinInt64}},
		{Op: store.OpDelete, Want: true, Result: store.Result{Outcome: store.Applied, Before: -1}},
		{Op: store.OpPut, Want: true, Digest: 7, Result: store.Result{Outcome: store.Unmet, Refused: 64, Before: math.MinInt64, After: math.MinInt64}},
		{Op: store.OpMax, N: 3, Result: store.Result{Outcome: store.Bounded}},
	} {
		want.AtMS = 1<<50 + 7
		got, err := parseToken("1125899906842631 " + tokenText(want))
		if err != nil || got != want {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
	}
}

func TestMarkText(t *testing.T) {
	b := &store.Batch{Writer: 1, Prev: 3, Seq: math.MaxUint64}
	want := decide.Mark{Seq: b.Seq, Digest: 1 << 63, Results: []store.Result{
		{Outcome: store.Applied, Before: math.MinInt64, After: math.MaxInt64, Version: math.MaxUint64, Existed: true, DeadlineMS: math.MaxInt64},
		{Outcome: store.Bounded, Replayed: true},
		{Outcome: store.Untimely, Refused: 64, Forgotten: true, Existed: true},
		{},
	}}
	got, err := parseMark(markText(&want), b, want.Digest)
	if err != nil || got.Seq != want.Seq || got.Digest != want.Digest || !slices.Equal(got.Results, want.Results) {
		t.Errorf("%+v is read as %+v, %v", want, got, err)
	}
	if got, err := parseMark(markText(&want), b, 5); err != nil || got.Seq != want.Seq || got.Results != nil {
		t.Errorf("the mark of another batch is read as %+v, %v", got, err)
	}
}

func TestStamp(t *testing.T) {
	for _, want := range []store.Value{
		{Version: 1}, {Version: 1 << 53, DeadlineMS: math.MaxInt64}, {Version: 9, Layout: 1}, {Version: 9, Layout: math.MaxInt64},
	} {
		want.N, want.Exists = -7, true
		if got, err := cellValue(stamp(want), "-7"); err != nil || got != want {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
	}
}

func TestDueCell(t *testing.T) {
	for member, want := range map[string]store.Cell{
		"1:nk": {Namespace: "n", Key: "k"}, "0:k": {Key: "k"}, "2:1:2:": {Namespace: "1:", Key: "2:"},
	} {
		if got, err := dueCell(member); err != nil || got != want {
			t.Errorf("%q is %+v, %v", member, got, err)
		}
	}
}

// Whatever is in the server, reading it ends with a value or an error.
func FuzzStored(f *testing.F) {
	for _, s := range []string{
		"", "5", "5 1700000000000", "5 l9", "1 a 2 3 1 4 1 5 6 7", "1 s", "9 8 f7 1  5 6", "9 8 r\x04\x00\x00\x01\x00", "1:nk", "9 8 r\xff", "9 8 ", "-1:", "a 8 f",
	} {
		f.Add(s)
	}
	d := store.Delta{Cell: store.Cell{Namespace: "n", Key: "k"}, Op: store.OpAdd, N: 1, Want: true}
	b := &store.Batch{Writer: 1, Prev: 8, Seq: 9, Deltas: []store.Delta{d, d}}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := cellValue(s, "7"); err == nil && s != "" && v.Exists != true {
			t.Errorf("stamp %q is %+v", s, v)
		}
		if token, err := parseToken(s); err == nil {
			if again, err := parseToken("0 " + tokenText(token)); err != nil || again.Result != token.Result {
				t.Errorf("token %q is %+v, and then %+v, %v", s, token, again, err)
			}
		}
		if m, err := parseMark(s, b, 8); err == nil && m.Results != nil && m.Seq != b.Seq {
			t.Errorf("mark %q is %+v", s, m)
		}
		if c, err := dueCell(s); err == nil && len(c.Namespace)+len(c.Key) > len(s) {
			t.Errorf("deadline %q is of %+v", s, c)
		}
	})
}
