package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

// pages reads a ledger page by page, with more events between them.
func (w *world) pages(key string, o call.LedgerOptions, between func()) (lines []call.Line) {
	w.t.Helper()
	for {
		p, err := w.reader().Ledger(w.ctx(), key, o)
		if err != nil {
			w.t.Fatal(err)
		}
		if o.Limit > 0 && len(p.Lines) > o.Limit {
			w.t.Fatalf("%d lines", len(p.Lines))
		}
		if lines = append(lines, p.Lines...); p.Next == "" {
			return lines
		}
		o.Cursor = p.Next
		between()
	}
}

// TestLedger compares pages of a ledger with what was written down, over epochs and shards,
// while more is written.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		d := three()
		d.Ledger.Keep = definition.Keep(rapid.SampledFrom([]time.Duration{0, 20 * 24 * time.Hour}).Draw(t, "keep"))
		w.define(d)
		for i := range rapid.IntRange(0, 40).Draw(t, "lines") {
			w.now += rapid.SampledFrom([]int64{0, 1, minute, hour, 9 * hour}).Draw(t, "passed")
			l := ledger.Line{Kind: ledger.Add, Amount: int64(i), Token: fmt.Sprint("t", i), Actor: rapid.SampledFrom([]string{"", "eve"}).Draw(t, "actor")}
			w.add("k1", rapid.IntRange(0, shardsMax).Draw(t, "shard"), l)
		}
		o := call.LedgerOptions{Limit: rapid.IntRange(1, 9).Draw(t, "limit"), Actor: rapid.SampledFrom([]string{"", "eve"}).Draw(t, "who")}
		if rapid.Bool().Draw(t, "between") {
			o.From, o.To = at(noon+rapid.Int64Range(0, day).Draw(t, "from")), at(w.now-rapid.Int64Range(0, day).Draw(t, "to"))
		}
		var want []string
		for _, e := range slices.Backward(w.events) {
			if (o.Actor == "" || e.line.Actor == o.Actor) && (o.From.IsZero() || e.ms >= o.From.UnixMilli() && e.ms < o.To.UnixMilli()) {
				want = append(want, e.line.Token)
			}
		}
		lines := w.pages("k1", o, func() {
			if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
				w.add("k1", rapid.IntRange(0, shardsMax).Draw(t, "shard"), ledger.Line{Kind: ledger.Add, Actor: "eve", Token: "later"})
			}
		})
		var got []string
		for i, l := range lines {
			got = append(got, l.Token)
			if i > 0 && lines[i-1].Recorded.Before(l.Recorded) {
				t.Fatalf("%s before %s", lines[i-1].Recorded, l.Recorded)
			}
			if e := w.events[l.Delta]; !l.DeltaKnown || e.line.Token != l.Token || l.Recorded != at(e.ms) || l.At != at(e.at) || l.Kind != "add" || l.Actor != e.line.Actor {
				t.Fatalf("%+v, want %+v", l, e)
			}
		}
		slices.Sort(got) // those of one moment may be in any order
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// Adjustments are written down also if the definition has no ledger, or there is none.
func TestLedgerKinds(t *testing.T) {
	w := newWorld(t)
	d := three()
	d.Ledger = definition.Ledger{}
	w.define(d)
	w.add("k1", 0, add(5))
	w.add("k1", 0, ledger.Line{Kind: ledger.Adjust, Amount: -2, Actor: "eve", Reason: "fraud", AtMS: noon - hour}, call.Dimension{Name: "country", Value: "DE"})
	d.Ledger = definition.Ledger{Record: definition.Adjustments}
	w.now += hour
	w.define(d)
	w.now += hour
	w.add("k1", 0, add(1))
	w.set("k1", ledger.Line{Kind: ledger.Set, Amount: 50, Source: "cli"})
	p, err := w.reader().Ledger(w.ctx(), "k1", call.LedgerOptions{})
	if err != nil || len(p.Lines) != 2 || p.Next != "" || p.CompleteFrom != at(noon+hour+1) {
		t.Fatalf("%+v, %v", p, err)
	}
	set, adjust := p.Lines[0], p.Lines[1]
	if set.Kind != "set" || set.Delta != 46 || !set.DeltaKnown || set.Value != 50 || !set.ValueKnown || set.Source != "cli" || set.Recorded != at(w.now) {
		t.Errorf("%+v", set)
	}
	if adjust.Kind != "adjust" || adjust.Delta != -2 || adjust.Value != 3 || adjust.Actor != "eve" || adjust.Reason != "fraud" || adjust.At != at(noon-hour) || len(adjust.Dims) != 1 || adjust.Undone {
		t.Errorf("%+v", adjust)
	}
	if p, err = w.reader().Ledger(w.ctx(), "other", call.LedgerOptions{}); err != nil || len(p.Lines) != 0 || !p.CompleteFrom.IsZero() {
		t.Errorf("%+v, %v", p, err)
	}
	// A mark beside the entry says that a line was taken back.
	at, err := ledger.ParsePosition(adjust.Position)
	if err != nil {
		t.Fatal(err)
	}
	mark := store.PartFields{Kind: store.PartEntries, Epoch: store.EpochForever, Position: int64(at.Version), Name: ledger.UndoName(at.Line)}
	w.apply("k1", 0, store.Delta{Op: store.OpPut, Event: &store.Event{Part: mark.Part(), Bytes: []byte("x")}})
	if p, err = w.reader().Ledger(w.ctx(), "k1", call.LedgerOptions{Actor: "eve"}); err != nil || len(p.Lines) != 1 || !p.Lines[0].Undone {
		t.Errorf("%+v, %v", p, err)
	}
}

// Several lines of one step come one by one, the last first, also over pages.
func TestLedgerSteps(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	for step := range 3 {
		var lines []byte
		var err error
		for i := range 5 {
			l := ledger.Line{Kind: ledger.Add, Amount: 1, Token: fmt.Sprint(step, i)}
			if lines, err = l.Append(lines); err != nil {
				t.Fatal(err)
			}
		}
		part, _ := w.views("k1").Line(w.now, false)
		w.apply("k1", 0, store.Delta{Op: store.OpAdd, N: 5, Event: &store.Event{Riders: []store.Rider{{Part: part.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: lines}}}})
	}
	for limit := 1; limit < 17; limit++ {
		lines := w.pages("k1", call.LedgerOptions{Limit: limit}, func() {})
		if len(lines) != 15 {
			t.Fatalf("%d lines, with pages of %d", len(lines), limit)
		}
		for i, l := range lines {
			last := i%5 == 0
			if want := fmt.Sprint(2-i/5, 4-i%5); l.Token != want || l.ValueKnown != last || last && l.Value != int64(15-i) || l.Delta != 1 {
				t.Errorf("line %d is %+v, want %s", i, l, want)
			}
		}
	}
}

func TestLedgerRefused(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	for range 3 {
		w.add("k1", 0, add(1))
	}
	p, err := w.reader().Ledger(w.ctx(), "k1", call.LedgerOptions{Limit: 1})
	if err != nil || p.Next == "" {
		t.Fatal(err)
	}
	f := func(want string, kind error, key string, o call.LedgerOptions) {
		t.Helper()
		if _, err := w.reader().Ledger(w.ctx(), key, o); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f("key is empty", store.ErrInvalid, "", call.LedgerOptions{})
	f("limit -1", store.ErrInvalid, "k1", call.LedgerOptions{Limit: -1})
	f("at most 1000", store.ErrTooLarge, "k1", call.LedgerOptions{Limit: 1001})
	f("does not belong to this ledger", store.ErrInvalid, "k2", call.LedgerOptions{Cursor: p.Next})
	f("does not belong to this ledger", store.ErrInvalid, "k1", call.LedgerOptions{Cursor: p.Next, Actor: "x"})
	f("does not belong to this ledger", store.ErrInvalid, "k1", call.LedgerOptions{Cursor: p.Next + "AA"})
	f("does not belong to this ledger", store.ErrInvalid, "k1", call.LedgerOptions{Cursor: "*"})
	w.now -= 100 * day // It is of an epoch that has not come yet.
	f("does not belong to this ledger", store.ErrInvalid, "k1", call.LedgerOptions{Cursor: p.Next})
}

// A store may decide on an event before it writes down its token: the line is older then.
func TestFindOlder(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	l := add(5)
	l.Token = "t"
	w.add("k1", 0, l)
	c := store.Cell{Namespace: "ns", Key: "k1"}
	var v [1]store.Value
	if err := w.store.Read(w.ctx(), []store.Cell{c}, v[:]); err != nil {
		t.Fatal(err)
	}
	fate := store.Fate{State: store.TokenApplied, AtMS: w.now + 200, Result: store.Result{Version: v[0].Version}}
	found, ok, err := w.reader().Find(w.ctx(), "k1", "t", &fate)
	if err != nil || !ok || found.Delta != 5 {
		t.Errorf("%+v, %v, %v", found, ok, err)
	}
}
