package quipu_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A viewed is a DB over a store that has events.
type viewed struct {
	*testing.T
	*quipu.DB
	store store.Store // nil if no other DB can use it
}

// eachViewed runs a test on stores that have events.
func eachViewed(t *testing.T, test func(t *testing.T, v *viewed)) {
	for _, partitions := range []int{1, 7} {
		t.Run(fmt.Sprint("memory of ", partitions), func(t *testing.T) { test(t, openViewed(t, partitions)) })
	}
	t.Run("embedded", func(t *testing.T) {
		db, err := quipu.Open(t.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		test(t, &viewed{T: t, DB: db})
	})
}

// openLimited returns a DB over a store with limits.
func openLimited(t *testing.T, l quipu.Limits) *viewed {
	t.Helper()
	v := &viewed{T: t, store: memstore.New(memstore.Options{Limits: l})}
	v.DB = v.other()
	return v
}

// openViewed returns a DB over a store of some partitions.
func openViewed(t *testing.T, partitions int) *viewed {
	t.Helper()
	v := &viewed{T: t, store: memstore.New(memstore.Options{Partitions: partitions})}
	v.DB = v.other()
	return v
}

// other returns one more DB over the store, as another server has it, if there can be one.
func (v *viewed) other() *quipu.DB {
	if v.store == nil {
		return v.DB
	}
	return quipu.New(v.store, quipu.Options{})
}

func width(s string) definition.Width {
	w, err := definition.ParseWidth(s)
	if err != nil {
		panic(err)
	}
	return w
}

// days is a definition with windows of a day, kept for a month.
func days(pattern string) definition.Definition {
	return definition.Definition{Pattern: pattern, Windows: []definition.Window{{Every: width("1d"), Keep: definition.Keep(720 * time.Hour)}}}
}

// define makes definitions those of the DB's namespace.
func (v *viewed) define(definitions ...definition.Definition) quipu.Change {
	v.Helper()
	c, err := v.Define(v.Context(), definitions, quipu.DefineOptions{})
	if err != nil {
		v.Fatal(err)
	}
	return c
}

// parts returns what the parts of a counter hold, by kind, view and name.
func (v *viewed) parts(key string) map[string]int64 {
	v.Helper()
	found := map[string]int64{}
	for _, kind := range []store.PartKind{
		store.PartOutside, store.PartBook, store.PartDim, store.PartAdmitted, store.PartWindow, store.PartWindowDim, store.PartEntries,
	} {
		rows := store.Rows{Namespace: "default", From: string([]byte{byte(kind)}), To: string([]byte{byte(kind) + 1})}
		entries, err := v.Port().Store().ScanParts(v.Context(), rows, 1000)
		if err != nil {
			v.Fatal(err)
		}
		for _, e := range entries {
			if f, _ := e.Part.Fields(); e.Cell.Key == key {
				name := map[store.PartKind]string{
					store.PartOutside: "outside", store.PartBook: "book", store.PartDim: "by", store.PartAdmitted: "admitted",
					store.PartWindow: "window", store.PartWindowDim: "window by", store.PartEntries: "entries",
				}[kind]
				if f.View != 0 {
					name += fmt.Sprint(" ", f.View)
				}
				if f.Name != "" {
					name += " " + f.Name
				}
				if kind == store.PartEntries {
					found[name]++
				} else {
					found[name] += e.Content.N
				}
			}
		}
	}
	return found
}

// holds checks the value of a counter, and what its parts hold: "outside 1=5 window 1=2".
func (v *viewed) holds(key string, value int64, want string) {
	v.Helper()
	c, err := v.Read(v.Context(), key)
	if err != nil || c.Value != value {
		v.Errorf("%s is %d, %v; want %d", key, c.Value, err, value)
	}
	parts := map[string]int64{}
	for field := range strings.SplitSeq(want, ", ") {
		name, text, _ := strings.Cut(field, "=")
		n := int64(0)
		if _, err := fmt.Sscan(text, &n); err != nil && field != "" {
			v.Fatal(err)
		}
		if name != "" {
			parts[name] = n
		}
	}
	if got := v.parts(key); fmt.Sprint(got) != fmt.Sprint(parts) {
		v.Errorf("%s has %v, want %v", key, got, parts)
	}
}

func must[T any](v *viewed) func(T, error) T {
	return func(got T, err error) T {
		v.Helper()
		if err != nil {
			v.Error(err)
		}
		return got
	}
}

// TestViews has one add change the total, its windows and what was before them.
func TestViews(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ok := must[quipu.Receipt](v)
		ctx := t.Context()
		ok(v.Add(ctx, "a1", 5))
		other := v.other()
		if c := v.define(days("a*")); c.ID != 1 || len(c.Changes) != 1 {
			t.Errorf("%+v", c)
		}
		ok(v.Add(ctx, "a1", 2))
		v.holds("a1", 7, "book=1, outside 1=5, window 1=2")
		ok(other.Add(ctx, "a1", 3)) // it has not heard of the book
		v.holds("a1", 10, "book=1, outside 1=5, window 1=5")
		ok(other.Add(ctx, "b", 3))
		v.holds("b", 3, "")
		at := quipu.At(time.Now().Add(-48 * time.Hour))
		for _, replayed := range []bool{false, true} {
			r := ok(v.Add(ctx, "a2", 1, quipu.Token("t"), at))
			if r.Replayed != replayed {
				t.Errorf("%+v", r)
			}
		}
		v.holds("a2", 1, "book=1, window 1=1")
		ok(v.Add(ctx, "a2", 4, quipu.At(time.Now().Add(-9999*time.Hour)))) // too late for the window
		v.holds("a2", 5, "book=1, outside 1=4, window 1=1")

		ok(v.Set(ctx, "a1", 1))
		v.holds("a1", 1, "book=1, outside 1=-4, window 1=5")
		ok(v.Reset(ctx, "a1"))
		v.holds("a1", 0, "book=1, outside 1=-5, window 1=5")
		ok(v.Add(ctx, "a1", 1))
		ok(v.Delete(ctx, "a1"))
		v.holds("a1", 0, "book=1, outside 1=-6, window 1=6")

		rs, err := v.AddBatch(ctx, []quipu.Event{{Key: "a3", Delta: 1}, {Key: "b", Delta: 1}, {Key: "a3", Delta: 2, At: time.Now().Add(-24 * time.Hour)}})
		if err != nil || rs[0].Err != nil || rs[1].Err != nil || rs[2].Err != nil {
			t.Errorf("%v, %v", rs, err)
		}
		v.holds("a3", 3, "book=1, window 1=3")

		// A second book: the view that comes later has a base of its own.
		d := days("a*")
		d.Ledger.Record = definition.All
		v.define(d)
		ok(other.Add(ctx, "a3", 4))
		v.holds("a3", 7, "book=2, window 1=7, outside 2=3, entries 2=1")
		ok(other.Set(ctx, "a3", 1))
		v.holds("a3", 1, "book=2, outside 1=-6, window 1=7, outside 2=-3, entries 2=2")
	})
}

// A counter that has views has no deadline, however it is asked for.
func TestViewsHaveNoDeadline(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		must[quipu.Receipt](v)(v.Add(ctx, "a-old", 1, quipu.TTL(time.Hour)))
		v.define(days("a*"))
		for _, db := range []*quipu.DB{v.DB, v.other()} {
			_, err := db.Add(ctx, "a", 1, quipu.TTL(time.Hour))
			if !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), "can't have a deadline") {
				t.Errorf("%v", err)
			}
			rs, err := db.AddBatch(ctx, []quipu.Event{{Key: "a", Delta: 1}, {Key: "a", Delta: 1, TTL: time.Hour}, {Key: "b", Delta: 1, TTL: time.Hour}})
			if err != nil || rs[0].Err != nil || !errors.Is(rs[1].Err, quipu.ErrInvalid) || rs[2].Err != nil {
				t.Errorf("%v, %v", rs, err)
			}
			if _, err := db.Add(ctx, "a-old", 1); !errors.Is(err, store.ErrUnmet) || !strings.Contains(err.Error(), "deadline") {
				t.Errorf("one that had one before: %v", err)
			}
		}
		v.holds("a", 2, "book=1, window 1=2")
	})
}

// A repeat is one, whatever became of the definitions in between.
func TestRepeatsAfterDefinitions(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Receipt](v)
		d := days("a*")
		d.Dimensions = []definition.Dimension{{By: []string{"country"}, Windows: []definition.Width{}}}
		v.define(d)
		add := func(value string) (quipu.Receipt, error) {
			return v.Add(ctx, "a", 1, quipu.Token("t"), quipu.Dim("country", value))
		}
		ok(add("DE"))
		ok(v.Add(ctx, "a", 1, quipu.Token("u"), quipu.WantValue()))
		v.holds("a", 2, "admitted 2=1, admitted 2 DE=1, book=1, by 2=1, by 2 DE=1, window 1=2")
		if _, err := add("FR"); !errors.Is(err, quipu.ErrToken) {
			t.Errorf("another payload: %v", err)
		}
		v.define(days("a*"))
		if r := ok(add("DE")); !r.Replayed {
			t.Errorf("%+v", r)
		}
		if _, err := v.Add(ctx, "a", 1, quipu.Token("v"), quipu.Dim("country", "DE")); !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), "the counter has none") {
			t.Errorf("a dimension that is gone: %v", err)
		}
		v.define()
		if r := ok(v.Add(ctx, "a", 1, quipu.Token("u"), quipu.WantValue())); !r.Replayed || r.Value != 2 {
			t.Errorf("%+v", r)
		}
		// The token that was barred may still be used.
		v.define(d)
		if r := ok(v.Add(ctx, "a", 1, quipu.Token("v"), quipu.Dim("country", "DE"))); r.Replayed {
			t.Errorf("%+v", r)
		}
	})
}

// TestDimensions counts events by what they bring, up to the limit of values.
func TestDimensions(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Receipt](v)
		d := definition.Definition{Pattern: "a*", Dimensions: []definition.Dimension{
			{By: []string{"country"}, Limit: 2}, {By: []string{"country", "platform"}},
		}}
		v.define(d)
		de, ios := quipu.Dim("country", "DE"), quipu.Dim("platform", "iOS")
		ok(v.Add(ctx, "a", 1, de))
		ok(v.other().Add(ctx, "a", 2, ios, de))
		v.holds("a", 3, "admitted 1=1, admitted 1 DE=1, admitted 2=2, admitted 2 DE\x1f=1, admitted 2 DE\x1fiOS=1, book=1, by 1 DE=3, by 2 DE\x1f=1, by 2 DE\x1fiOS=2")

		// A third value is other, in every event and for every server.
		var events []quipu.Event
		for _, country := range []string{"FR", "IT", "FR", "DE", "ES"} {
			events = append(events, quipu.Event{Key: "a2", Delta: 1, Dims: []quipu.Dimension{{Name: "country", Value: country}}})
		}
		for _, db := range []*quipu.DB{v.DB, v.other()} {
			rs, err := db.AddBatch(ctx, events)
			for _, r := range rs {
				err = errors.Join(err, r.Err)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		v.holds("a2", 10, "admitted 1=2, admitted 1 FR=1, admitted 1 IT=1, admitted 2=4, admitted 2 DE\x1f=1, admitted 2 ES\x1f=1, admitted 2 FR\x1f=1, admitted 2 IT\x1f=1, book=1, "+
			"by 1 FR=4, by 1 IT=2, by 1 \x1e=4, by 2 DE\x1f=2, by 2 ES\x1f=2, by 2 FR\x1f=4, by 2 IT\x1f=2")

		// A higher limit lets more in.
		d.Dimensions[0].Limit = 3
		v.define(d)
		ok(v.Add(ctx, "a2", 1, de))
		if got := v.parts("a2")["by 1 DE"]; got != 1 {
			t.Errorf("by DE: %d", got)
		}
		f := func(want string, opts ...quipu.WriteOption) {
			t.Helper()
			if _, err := v.Add(ctx, "a", 1, opts...); !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		f(`unknown dimension "city": want country or platform`, quipu.Dim("city", "Cusco"))
		f("control characters", quipu.Dim("country", "\n"))
		f("is more than 1d ahead of the store's clock", quipu.At(time.Now().Add(25*time.Hour)))
		f("an event at 9999-12-31T00:00:00Z is more than 1d ahead", quipu.At(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)))
		if _, err := v.Add(ctx, "b", 1, de); !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), "the counter has none") {
			t.Error(err)
		}
		if _, err := v.In("none").Add(ctx, "a", 1, de); !errors.Is(err, quipu.ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestManyEvents sends more riders than fit into a batch: all are counted, each receipt is
// in its place.
func TestManyEvents(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		v.define(days("a*"))
		events := make([]quipu.Event, 20_000)
		for i := range events {
			events[i] = quipu.Event{Key: fmt.Sprint("a", i%3), Delta: 1, WantValue: true}
		}
		rs, err := v.AddBatch(t.Context(), events)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rs {
			if r.Err != nil || r.Value != int64(i/3+1) {
				t.Fatalf("event %d: %+v", i, r)
			}
		}
		v.holds("a0", 6667, "book=1, window 1=6667")
	})
}

// TestOutdated changes the definitions under writers that have not heard of it.
func TestOutdated(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		other := v.other()
		var wg sync.WaitGroup
		var defined atomic.Bool // all of it: each counter is written to once more after it
		const writers = 4
		var added [5]atomic.Int64
		for w := range writers {
			db := []*quipu.DB{v.DB, other}[w%2]
			wg.Go(func() {
				for i, after := 0, 0; i < 20 || after < 5; i++ {
					if defined.Load() {
						after++
					}
					added[i%5].Add(1)
					if _, err := db.Add(ctx, fmt.Sprint("a", i%5), 1, quipu.Token(fmt.Sprint(w, ".", i))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i := range 12 {
			d := days("a*")
			d.Windows[0].Keep += definition.Keep(i) * definition.Keep(time.Hour)
			d.Ledger.Record = definition.Record(i % 3)
			if _, err := v.Define(ctx, []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
				t.Error(err)
			}
		}
		defined.Store(true)
		wg.Wait()
		for i := range 5 {
			key := fmt.Sprint("a", i)
			c, err := v.Read(ctx, key)
			p := v.parts(key)
			if err != nil || c.Value != added[i].Load() || p["outside 1"]+p["window 1"] != c.Value {
				t.Errorf("%s is %d, %v: %v", key, c.Value, err, p)
			}
		}
	})
}

// TestLate has the store drop a window between the making of an event and its arrival.
func TestLate(t *testing.T) {
	v := openViewed(t, 1)
	ctx := t.Context()
	v.define(days("a*"))
	at := time.Now().Add(-20 * 24 * time.Hour)
	raise := func(epoch store.Epoch) {
		b := store.Batch{Floors: []store.Floor{{Namespace: "default", Kind: store.PartWindow, View: 1, Epoch: epoch}}}
		var r [1]store.Reply
		if err := v.store.Apply(ctx, []store.Batch{b}, r[:]); err != nil || r[0].Err != nil {
			t.Fatal(err, r[0].Err)
		}
	}
	must[quipu.Receipt](v)(v.Add(ctx, "a", 1, quipu.At(at)))
	raise(store.EpochAt(time.Now().Add(-5*24*time.Hour).UnixMilli(), 720*time.Hour))
	if _, err := v.Add(ctx, "a", 1, quipu.At(at)); !errors.Is(err, store.ErrLate) {
		t.Errorf("a floor that is above what is kept: %v", err) // The clocks differ: nothing is counted, and it is said.
	}
	must[quipu.Receipt](v)(v.Add(ctx, "a", 1))
	v.holds("a", 2, "book=1, window 1=1")
}

// TestLateEvents has events that are older than windows keep, under each word of late.
func TestLateEvents(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Receipt](v)
		ago := func(days int) quipu.WriteOption {
			return quipu.At(time.Now().Add(-time.Duration(days) * 24 * time.Hour))
		}
		late := func(r quipu.Receipt, want bool) {
			t.Helper()
			if r.Late != want {
				t.Errorf("%+v, want late %t", r, want)
			}
		}
		d := days("a*")
		d.Windows = append(d.Windows, definition.Window{Every: width("1h"), Keep: definition.Keep(48 * time.Hour)})
		d.Ledger.Record = definition.All
		v.define(d)
		late(ok(v.Add(ctx, "a", 1)), false)
		late(ok(v.Add(ctx, "a", 2, ago(1))), false)
		late(ok(v.Add(ctx, "a", 4, ago(5), quipu.Token("t"))), true)
		late(ok(v.Add(ctx, "a", 4, ago(5), quipu.Token("t2"), quipu.WantValue())), true)
		late(ok(v.Add(ctx, "plain", 1, ago(500))), false)
		v.holds("a", 11, "book=1, outside 2=8, window 1=11, window 2=3, entries 3=4")

		// What is refused changes nothing, and a repeat is no event.
		long := time.Now().Add(-31 * 24 * time.Hour)
		for _, first := range []bool{true, false} {
			late(ok(v.Add(ctx, "a", 8, quipu.At(long), quipu.Token("long"))), first)
		}
		d.Late.Then = definition.Refuse
		v.define(d)
		if r := ok(v.Add(ctx, "a", 8, quipu.At(long), quipu.Token("long"))); !r.Replayed || r.Late {
			t.Errorf("a repeat: %+v", r)
		}
		for _, opts := range [][]quipu.WriteOption{{ago(31)}, {ago(31), quipu.Token("new")}, {ago(31), quipu.WantValue()}} {
			_, err := v.Add(ctx, "a", 1, opts...)
			if !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), "the event is 31d old, and the definition of its counter refuses events older than 30d") {
				t.Errorf("refused: %v", err)
			}
		}
		late(ok(v.Add(ctx, "a", 1, quipu.Token("new"))), false)
		rs, err := v.AddBatch(ctx, []quipu.Event{
			{Key: "a", Delta: 1, At: long}, {Key: "a", Delta: 1, At: time.Now().Add(-29 * 24 * time.Hour)}, {Key: "plain", Delta: 1, At: long},
		})
		if err != nil || !errors.Is(rs[0].Err, quipu.ErrInvalid) || rs[1].Err != nil || !rs[1].Late || rs[2].Err != nil || rs[2].Late {
			t.Errorf("a batch: %+v, %v", rs, err)
		}
		v.holds("a", 21, "book=2, outside 1=8, outside 2=17, window 1=13, window 2=4, entries 3=7")

		// What is clamped is counted in the oldest window that an event may be in, and taken
		// back from there.
		d.Late = definition.Late{Then: definition.Clamp, After: definition.Keep(24 * time.Hour)}
		v.define(d)
		late(ok(v.Add(ctx, "a", 100, ago(31), quipu.Token("clamp"))), true)
		v.holds("a", 121, "book=3, outside 1=8, outside 2=17, window 1=113, window 2=104, entries 3=8")
		page, err := v.Ledger(ctx, "a", quipu.LedgerOptions{Token: "clamp"})
		if err != nil || len(page.Lines) != 1 || time.Since(page.Lines[0].At).Round(time.Minute) != 24*time.Hour {
			t.Errorf("the line: %+v, %v", page, err)
		}
		if _, err := v.Add(ctx, "a", 1, quipu.At(time.Now().Add(-100*365*24*time.Hour))); !errors.Is(err, quipu.ErrInvalid) {
			t.Errorf("before 1970: %v", err)
		}
		d.Late = definition.Late{Then: definition.Refuse, After: definition.Keep(time.Hour)}
		v.define(d)
		ok(v.Undo(ctx, "a", "clamp", quipu.Correction{Reason: "a test"}))
		v.holds("a", 21, "book=4, outside 1=8, outside 2=17, window 1=13, window 2=4, entries 3=9, entries 3 undo:0=1")
		meters := map[string]float64{}
		v.Meters(func(name, _ string, value float64) { meters[name] = value })
		for name, want := range map[string]float64{"quipu_events_late_total": 4, "quipu_events_refused_late_total": 4, "quipu_events_clamped_total": 1} {
			if meters[name] != want {
				t.Errorf("%s is %g, want %g", name, meters[name], want)
			}
		}
	})
}

// TestSource has the ledger say where each change came from.
func TestSource(t *testing.T) {
	v := openViewed(t, 1)
	ctx := t.Context()
	ok := must[quipu.Receipt](v)
	d := days("a*")
	d.Ledger.Record = definition.All
	v.define(d)
	billing := v.Via("billing")
	ok(v.Add(ctx, "a", 1, quipu.Token("t")))
	if r := ok(billing.Add(ctx, "a", 1, quipu.Token("t"))); !r.Replayed { // It is the same write.
		t.Errorf("%+v", r)
	}
	ok(billing.In("default").Set(ctx, "a", 5))
	ok(billing.Delete(ctx, "a"))
	ok(v.Adjust(ctx, "b", 1, quipu.Correction{Reason: "r"}))
	for key, want := range map[string]string{"a": "[billing billing library]", "b": "[library]"} {
		page, err := v.Ledger(ctx, key, quipu.LedgerOptions{})
		got := []string{}
		for _, l := range page.Lines {
			got = append(got, l.Source)
		}
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v; want %s", key, got, err, want)
		}
	}
	for _, bad := range []string{"", "\xff", strings.Repeat("x", 65)} {
		if _, err := v.Via(bad).Add(ctx, "a", 1); !errors.Is(err, quipu.ErrInvalid) && !errors.Is(err, quipu.ErrTooLarge) {
			t.Errorf("via %q: %v", bad, err)
		}
	}
}

// TestRefusalsAreRemembered has tokens remember what a bound refused, and says when there is
// no room for it.
func TestRefusalsAreRemembered(t *testing.T) {
	v := openLimited(t, quipu.Limits{TokensMax: 11}) // of which two may remember a refusal
	ctx := t.Context()
	v.define(days("a*"))
	refused := func(token string, delta int64, forgotten bool, state quipu.TokenState) {
		t.Helper()
		_, err := v.Add(ctx, "a", delta, quipu.Floor(0), quipu.Token(token))
		e, ok := errors.AsType[*quipu.BoundError](err)
		if !ok || e.Forgotten != forgotten || strings.Contains(err.Error(), "no room to remember that") != forgotten {
			t.Errorf("%s: %v", token, err)
		}
		if f, err := v.Lookup(ctx, "a", token); err != nil || f.State != state {
			t.Errorf("%s is %s, %v", token, f.State, err)
		}
	}
	refused("one", -1, false, quipu.TokenRefused)
	if f, err := v.Settle(ctx, "a", "one"); err != nil || f.State != quipu.TokenRefused {
		t.Errorf("settled: %+v, %v", f, err)
	}
	refused("two", -1, false, quipu.TokenRefused)
	refused("three", -1, true, quipu.TokenUnknown)
	must[quipu.Receipt](v)(v.Add(ctx, "a", 9))
	refused("one", -1, false, quipu.TokenRefused) // though by now there would be enough
	must[quipu.Receipt](v)(v.Add(ctx, "a", -1, quipu.Floor(0), quipu.Token("three")))
}

// TestUndo takes corrections and events back, once.
func TestUndo(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Receipt](v)
		why := quipu.Correction{Reason: "fraud", Actor: "ana"}
		f := func(want string, kind error, err error) {
			t.Helper()
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		undo := func(key, token string) error {
			_, err := v.Undo(ctx, key, token, why)
			return err
		}
		// Without any definition.
		ok(v.Add(ctx, "b", 5, quipu.Token("plain")))
		f("no entry for the token", store.ErrUnmet, undo("b", "plain"))
		f("no entry for the token", store.ErrUnmet, undo("b", "never"))
		ok(v.Adjust(ctx, "b", 3, why, quipu.Token("fix")))
		v.holds("b", 8, "entries=1")
		var first quipu.Receipt
		for _, replayed := range []bool{false, true} {
			r := ok(v.Undo(ctx, "b", "fix", why))
			if r.Replayed != replayed || r.Applied != -3 || r.Version == 0 || replayed && (r.Version != first.Version || r.Session() != first.Session()) {
				t.Errorf("%+v", r)
			}
			if _, err := v.Read(ctx, "b", quipu.Session(r.Session())); err != nil {
				t.Error(err)
			}
			first = r
		}
		v.holds("b", 5, "entries=2, entries undo:0=1")
		for _, reason := range []string{"", " \t"} {
			_, err := v.Adjust(ctx, "b", 1, quipu.Correction{Reason: reason})
			f("needs a reason", quipu.ErrInvalid, err)
		}
		f("needs a reason", quipu.ErrInvalid, func() error { _, err := v.Undo(ctx, "b", "fix", quipu.Correction{}); return err }())

		// With all of it written down: the same window and value lose it.
		d := days("a*")
		d.Dimensions = []definition.Dimension{{By: []string{"country"}, Windows: []definition.Width{}}}
		d.Ledger.Record = definition.All
		v.define(d)
		at := quipu.At(time.Now().Add(-72 * time.Hour))
		ok(v.Add(ctx, "a", 7, quipu.Token("t"), at, quipu.Dim("country", "DE")))
		ok(v.Add(ctx, "a", 1))
		ok(v.Set(ctx, "a", 100, quipu.Token("set")))
		f("used for a set", store.ErrUnmet, undo("a", "set"))
		v.holds("a", 100, "admitted 2=1, admitted 2 DE=1, book=1, by 2=1, by 2 DE=7, outside 1=92, outside 2=92, outside 3=92, window 1=8, entries 3=3")
		ok(v.other().Undo(ctx, "a", "t", why))
		v.holds("a", 93, "admitted 2=1, admitted 2 DE=1, book=1, by 2=1, by 2 DE=0, outside 1=92, outside 2=92, outside 3=92, window 1=1, entries 3=4, entries 3 undo:0=1")
		if r := ok(v.Undo(ctx, "a", "t", why)); !r.Replayed {
			t.Errorf("%+v", r)
		}
		// The dimension may be gone when it is taken back.
		ok(v.Add(ctx, "a", 2, quipu.Token("u"), quipu.Dim("country", "DE")))
		d.Dimensions = nil
		v.define(d)
		ok(v.Undo(ctx, "a", "u", why))
		if got := v.parts("a")["window 1"]; got != 1 {
			t.Errorf("window: %d", got)
		}
	})
}

// TestFormerLedger changes and removes a ledger: what it had is still read, and undone.
func TestFormerLedger(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Receipt](v)
		why := quipu.Correction{Reason: "fraud", Actor: "ana"}
		lines := func(want ...string) {
			t.Helper()
			page, err := v.Ledger(ctx, "a", quipu.LedgerOptions{})
			var got []string
			for _, l := range page.Lines {
				got = append(got, fmt.Sprint(l.Kind, " ", l.Delta))
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v: want %q", got, err, want)
			}
		}
		d := days("a*")
		d.Ledger.Record = definition.All
		v.define(d)
		ok(v.Add(ctx, "a", 7, quipu.Token("t")))
		d.Ledger = definition.Ledger{Record: definition.Adjustments, Keep: definition.Keep(365 * 24 * time.Hour)}
		v.define(d)
		ok(v.Add(ctx, "a", 1))
		ok(v.Adjust(ctx, "a", 2, why))
		lines("adjust 2", "add 7")
		d.Ledger = definition.Ledger{}
		v.define(d)
		lines("adjust 2", "add 7")
		for _, replayed := range []bool{false, true} {
			if r := ok(v.Undo(ctx, "a", "t", why)); r.Replayed != replayed {
				t.Errorf("%+v", r)
			}
		}
		lines("undo -7", "adjust 2", "add 7")
		v.define()
		lines("undo -7", "adjust 2", "add 7")
		if got := v.parts("a")["window 1"]; got != 3 {
			t.Errorf("window: %d", got)
		}
	})
}

// TestUniquesOfCorrections checks that a correction, and what is taken back, are of nobody.
func TestUniquesOfCorrections(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		d := days("u*")
		d.Unique, d.Ledger = definition.Unique{Of: definition.Who}, definition.Ledger{Record: definition.All}
		v.define(d)
		_ = must[quipu.Receipt](v)(v.Add(t.Context(), "u", -3, quipu.Who("bob"), quipu.Token("t")))
		_ = must[quipu.Receipt](v)(v.Adjust(t.Context(), "u", 5, quipu.Correction{Reason: "found"}, quipu.Who("zed")))
		_ = must[quipu.Receipt](v)(v.Undo(t.Context(), "u", "t", quipu.Correction{Reason: "wrong"}))
		if u := must[quipu.Uniques](v)(v.Uniques(t.Context(), "u", quipu.UniqueOptions{})); u.Count != 0 {
			t.Errorf("%+v", u)
		}
		_ = must[quipu.Receipt](v)(v.Add(t.Context(), "u", 1, quipu.Who("eve")))
		if u := must[quipu.Uniques](v)(v.Uniques(t.Context(), "u", quipu.UniqueOptions{})); u.Count != 1 {
			t.Errorf("%+v", u)
		}
	})
}
