package quipu_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// TestHistory asks one counter all that its definition can tell.
func TestHistory(t *testing.T) {
	v := openViewed(t, 3)
	t.Cleanup(func() { _ = v.Close() })
	month := definition.Keep(720 * time.Hour)
	v.define(definition.Definition{
		Pattern:    "views:*",
		Windows:    []definition.Window{{Every: width("1m"), Keep: month}, {Every: width("1h"), Keep: month}},
		Dimensions: []definition.Dimension{{By: []string{"country"}}},
		Ledger:     definition.Ledger{Record: definition.All},
	})
	ctx, now := t.Context(), time.Now().Truncate(time.Hour)
	add := func(key string, n int64, ago time.Duration, opts ...quipu.WriteOption) {
		t.Helper()
		if _, err := v.Add(ctx, key, n, append(opts, quipu.At(now.Add(-ago)))...); err != nil {
			t.Fatal(err)
		}
	}
	add("views:a", 1, 3*time.Hour, quipu.Dim("country", "DE"), quipu.Token("first"), quipu.Who("eve"))
	add("views:a", 2, 2*time.Hour, quipu.Dim("country", "PE"), quipu.Who("bob"))
	add("views:b", 4, 2*time.Hour)
	add("views:a", 8, 0, quipu.Dim("country", "DE"))

	hours := func(o quipu.RangeOptions, key string, want ...int64) {
		t.Helper()
		o.From, o.To, o.Step = now.Add(-3*time.Hour), now.Add(time.Hour), width("1h")
		s, err := v.Range(ctx, key, o)
		if err != nil || len(s.Points) != len(want) || !s.Exact {
			t.Fatalf("%+v, %v", s, err)
		}
		for i, p := range s.Points {
			if p.Value != want[i] {
				t.Errorf("hour %d of %s is %d, want %d", i, key, p.Value, want[i])
			}
		}
	}
	hours(quipu.RangeOptions{}, "views:a", 1, 2, 0, 8)
	hours(quipu.RangeOptions{Prefix: true}, "views:", 1, 6, 0, 8)
	b, err := v.By(ctx, "views:a", "country", quipu.ByOptions{})
	if err != nil || b.Sum != 11 || len(b.Values) != 2 || b.Values[0].Value != "DE" || b.Values[0].Count != 9 {
		t.Errorf("%+v, %v", b, err)
	}
	n, err := v.Read(ctx, "views:a", quipu.AsOf(now.Add(-time.Hour)))
	if err != nil || n.Value != 3 || !n.AsOf.Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v, %v", n, err)
	}

	if _, err := v.Undo(ctx, "views:a", "first", quipu.Correction{Reason: "fraud", Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	hours(quipu.RangeOptions{}, "views:a", 0, 2, 0, 8)
	p, err := v.Ledger(ctx, "views:a", quipu.LedgerOptions{})
	if err != nil || len(p.Lines) != 4 {
		t.Fatalf("%+v, %v", p, err)
	}
	undo, first := p.Lines[0], p.Lines[3]
	if undo.Kind != "undo" || undo.Delta != -1 || undo.Reason != "fraud" || undo.Undoes != first.Position || !first.Undone || first.Actor != "eve" || first.Delta != 1 {
		t.Errorf("%+v of %+v", undo, first)
	}

	for i := range 2 {
		e, err := v.Erase(ctx, "eve", "")
		if err != nil || !e.Complete || e.Lines != int64(1-i) || e.Counters != int64(1-i) || e.Looked != 5 && e.Looked != 6 {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if p, err = v.Ledger(ctx, "views:a", quipu.LedgerOptions{}); err != nil || p.Lines[3].Actor != "" || !p.Lines[3].Erased || p.Lines[2].Actor != "bob" || p.Lines[3].Token != "first" {
		t.Errorf("%+v, %v", p, err)
	}
	hours(quipu.RangeOptions{}, "views:a", 0, 2, 0, 8)
}

// Erasing does not bring back a counter that was deleted.
func TestEraseDeleted(t *testing.T) {
	v := openViewed(t, 1)
	t.Cleanup(func() { _ = v.Close() })
	v.define(definition.Definition{Pattern: "*", Ledger: definition.Ledger{Record: definition.All}})
	for i := range 300 {
		if _, err := v.Add(t.Context(), fmt.Sprint("k", i), 1, quipu.Who("eve")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.Delete(t.Context(), "k7"); err != nil {
		t.Fatal(err)
	}
	e, err := v.Erase(t.Context(), "eve", "")
	if err != nil || !e.Complete || e.Lines != 300 || e.Counters != 300 {
		t.Errorf("%+v, %v", e, err)
	}
	if n, err := v.Read(t.Context(), "k7"); err != nil || n.Exists {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := v.Size(t.Context()); err != nil || n != 299 {
		t.Errorf("%d counters, %v", n, err)
	}
	if _, err := v.Erase(t.Context(), "", ""); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	if _, err := v.Erase(t.Context(), "eve", "*"); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

func TestHistoryRefused(t *testing.T) {
	v := openViewed(t, 1)
	t.Cleanup(func() { _ = v.Close() })
	f := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	_, err := v.Range(t.Context(), "a", quipu.RangeOptions{})
	f(err, store.ErrInvalid)
	_, err = v.By(t.Context(), "a", "country", quipu.ByOptions{})
	f(err, store.ErrInvalid)
	_, err = v.Read(t.Context(), "a", quipu.AsOf(time.Now().Add(-time.Hour)))
	f(err, store.ErrInvalid)
	_, err = v.Read(t.Context(), "a", quipu.AsOf(time.Now()), quipu.Exact())
	f(err, store.ErrInvalid)
	_, err = v.ReadBatch(t.Context(), []string{"a"}, quipu.AsOf(time.Now()))
	f(err, store.ErrInvalid)
	_, err = v.Ledger(t.Context(), "a", quipu.LedgerOptions{})
	f(err, nil)
	_, err = v.In("a/b").Range(t.Context(), "a", quipu.RangeOptions{})
	f(err, store.ErrInvalid)
}

// Verify looks at windows too.
func TestVerifyViews(t *testing.T) {
	v := openViewed(t, 3)
	t.Cleanup(func() { _ = v.Close() })
	ns := v.In("ns")
	if _, err := ns.Define(t.Context(), []definition.Definition{days("a*")}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := ns.Add(t.Context(), fmt.Sprint("a", i), 5); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := v.Verify(t.Context()); err != nil || len(a.Drift) != 0 || len(a.Unproved) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	c := store.Cell{Namespace: "ns", Key: "a1"}
	part := store.PartFields{Kind: store.PartOutside, View: 1}.Part()
	b := store.Batch{Partition: store.PartitionOf(c, 3), Books: []store.Book{{Namespace: "ns", ID: 1}}, Deltas: []store.Delta{
		{Cell: c, Op: store.OpAdd, N: 1, Event: &store.Event{Part: part}},
	}}
	var r [1]store.Reply
	if err := v.store.Apply(t.Context(), []store.Batch{b}, r[:]); err != nil || r[0].Err != nil {
		t.Fatal(err, r[0].Err)
	}
	want := store.Drift{What: `counter "a1" of namespace "ns": windows of 1d, and what is outside of it: the total`, Have: "6", Want: "5"}
	if a, err := v.Verify(t.Context()); err != nil || len(a.Drift) != 1 || a.Drift[0] != want {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestVerifyOfEnded has definitions end while they are verified: their views miss what comes
// later, and that is no drift.
func TestVerifyOfEnded(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memstore.New(memstore.Options{}), h)
	db, other := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})
	defer func() {
		if err := errors.Join(db.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	}()
	define := func(d definition.Definition) {
		t.Helper()
		if _, err := other.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	noted := definition.Definition{Pattern: "k", Ledger: definition.Ledger{Record: definition.All}}
	by := definition.Definition{Pattern: "k", Dimensions: []definition.Dimension{{By: []string{"country"}}}}
	add := func() {
		t.Helper()
		if _, err := other.Add(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	verify := func() quipu.Audit {
		t.Helper()
		a, err := db.Verify(t.Context())
		if err != nil || len(a.Drift) > 0 {
			t.Errorf("%+v, %v", a.Drift, err)
		}
		return a
	}
	left := 0 // how often they still change
	h.On(storetest.OnScanParts, storetest.Before(func() {
		if left > 0 {
			left--
			define([]definition.Definition{by, noted}[left%2])
			add()
		}
	}))
	define(noted)
	add()
	verify()
	left = 1
	if a := verify(); len(a.Unproved) > 0 {
		t.Errorf("unproved: %q", a.Unproved)
	}
	define(noted)
	add()
	left = 1000
	if a := verify(); len(a.Unproved) == 0 {
		t.Error("it is proved")
	}
}

// FuzzCursors checks that a cursor that nobody was given is refused, or leads to lines of
// the ledger, and that an erasure that begins anywhere erases no other name.
func FuzzCursors(f *testing.F) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	f.Cleanup(func() { _ = db.Close() })
	d := days("*")
	d.Ledger = definition.Ledger{Record: definition.All}
	if _, err := db.Define(f.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		f.Fatal(err)
	}
	for i := range 9 {
		if _, err := db.Add(f.Context(), "a", 1, quipu.Who(fmt.Sprint("u", i))); err != nil {
			f.Fatal(err)
		}
	}
	for _, seed := range []string{"", "AAAA", "=", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "____", "_____w"} {
		f.Add(seed)
	}
	for o := (quipu.LedgerOptions{Limit: 4}); ; {
		p, err := db.Ledger(f.Context(), "a", o)
		if err != nil {
			f.Fatal(err)
		}
		if o.Cursor = p.Next; o.Cursor == "" {
			break
		}
		f.Add(o.Cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		p, err := db.Ledger(t.Context(), "a", quipu.LedgerOptions{Limit: 4, Cursor: cursor})
		if err != nil && !errors.Is(err, quipu.ErrInvalid) {
			t.Errorf("%q: %v", cursor, err)
		}
		for _, l := range p.Lines {
			if l.Kind != "add" || l.Delta != 1 || l.Erased {
				t.Errorf("%q leads to %+v", cursor, l)
			}
		}
		done, err := db.Erase(t.Context(), "nobody", cursor)
		if err != nil && !errors.Is(err, quipu.ErrInvalid) || done.Lines != 0 {
			t.Errorf("%q: erased %+v, %v", cursor, done, err)
		}
	})
}
