package history_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// TestBy compares values of a dimension, of all time and in ranges, with the events.
func TestBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.define(three())
		w.drawHistory(t, 40)
		if _, ok := w.totals["k1"]; ok {
			w.beside("k1", 5)
		}
		var o call.ByOptions
		if rapid.Bool().Draw(t, "range") {
			o.From = at((w.now - rapid.Int64Range(0, 3).Draw(t, "ago")*day) / hour * hour)
			o.To = at(w.now/day*day + 3*day)
		}
		o.Top = rapid.IntRange(0, 2).Draw(t, "top")
		b, err := w.reader().By(w.ctx(), "k1", "country", o)
		if err != nil {
			t.Fatal(err)
		}
		from, to := b.From, b.To
		if o.From.IsZero() {
			from, to = at(0), at(w.now+3*day)
			if total := w.totals["k1"]; b.Sum+b.Outside != total || !b.Exact || b.Complete != (b.Outside == 0) {
				t.Fatalf("%d and %d outside are not the total %d", b.Sum, b.Outside, total)
			}
		}
		sum := b.Other
		for i, v := range b.Values {
			want := w.sum(from, to, func(e *event) bool {
				return e.key == "k1" && (contains(e.dims, "country", v.Value) || v.Value == "" && len(e.dims) == 0)
			})
			if (b.Complete || o.From.IsZero()) && v.Count != want || i > 0 && b.Values[i-1].Count < v.Count {
				t.Fatalf("%+v, %d of %q from %s to %s", b, want, v.Value, from.UTC(), to.UTC())
			}
			sum += v.Count
		}
		if sum != b.Sum || o.Top > 0 && len(b.Values) > o.Top || o.Top == 0 && b.Other != 0 {
			t.Fatalf("%+v", b)
		}
	})
}

// What a counter had before its definition is outside, also before its first event.
func TestByBefore(t *testing.T) {
	w := newWorld(t)
	f := func(sum, outside int64) {
		t.Helper()
		b, err := w.reader().By(w.ctx(), "k1", "country", call.ByOptions{})
		if err != nil || b.Sum != sum || b.Outside != outside || b.Complete != (outside == 0) {
			t.Errorf("%+v, %v; want %d, and %d outside", b, err, sum, outside)
		}
	}
	w.define(definition.Definition{Pattern: "other"})
	home := store.Cell{Namespace: "ns", Key: "k1"}
	w.send(store.Delta{Cell: home, Op: store.OpAdd, N: 3})
	w.send(store.Delta{Cell: store.ShardCell(home, 1), Op: store.OpAdd, N: 4})
	w.define(three())
	f(0, 7)
	w.add("k1", 0, add(1))
	f(1, 7)
	w.add("k1", 1, add(2))
	f(3, 7)
	w.define(definition.Definition{Pattern: "other"})
	w.define(three())
	f(0, 10)
}

func TestByPairs(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	country := func(v string) call.Dimension { return call.Dimension{Name: "country", Value: v} }
	platform := func(v string) call.Dimension { return call.Dimension{Name: "platform", Value: v} }
	w.add("k1", 0, add(1), country("DE"), platform("iOS"))
	w.add("k1", 1, add(2), country("DE"), platform("iOS"))
	w.add("k1", 0, add(9), country("DE"))
	w.add("k1", 0, add(2))
	for _, o := range []call.ByOptions{{}, {From: at(noon - 2*day), To: at(noon + 2*day)}} {
		b, err := w.reader().By(w.ctx(), "k1", "country,platform", o)
		want := []call.DimensionValue{{Values: []string{"DE", ""}, Count: 9}, {Values: []string{"DE", "iOS"}, Count: 3}, {Values: []string{"", ""}, Count: 2}}
		if err != nil || !reflect.DeepEqual(b.Values, want) || b.Sum != 14 || b.Other != 0 {
			t.Errorf("%+v, %v", b, err)
		}
	}
	// A value that was not admitted is in other, as are those beyond the top.
	plan, err := w.views("k1").Plan(w.now, w.now, []string{view.Other, view.Other})
	if err != nil {
		t.Fatal(err)
	}
	w.apply("k1", 0, store.Delta{Op: store.OpAdd, N: 5, Event: plan.Event})
	b, err := w.reader().By(w.ctx(), "k1", "country", call.ByOptions{Top: 1})
	if err != nil || !reflect.DeepEqual(b.Values, []call.DimensionValue{{Value: "DE", Count: 12}}) || b.Other != 7 || b.Sum != 19 {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestByRefused(t *testing.T) {
	w := newWorld(t)
	w.define(definition.Definition{Pattern: "k*", Windows: []definition.Window{window("1h", "", day)}, Dimensions: []definition.Dimension{{By: []string{"country"}, Windows: []definition.Width{}}}})
	f := func(want, key, dimension string, o call.ByOptions) {
		t.Helper()
		if _, err := w.reader().By(w.ctx(), key, dimension, o); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(`no definition names "x"`, "x", "country", call.ByOptions{})
	f("want country", "k", "city", call.ByOptions{})
	f("negative", "k", "country", call.ByOptions{Top: -1})
	f("covers all time", "k", "country", call.ByOptions{From: at(noon)})
}

// TestAsOf compares the value at earlier times with the events, and with what was set.
func TestAsOf(t *testing.T) {
	exact := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		d := three()
		d.Ledger.Record = rapid.SampledFrom([]definition.Record{definition.Off, definition.Adjustments, definition.All}).Draw(t, "record")
		if d.Ledger.Record == definition.Off {
			d.Ledger.Keep = 0
		}
		w.define(d)
		w.drawHistory(t, 30)
		moment := (w.now - rapid.SampledFrom([]int64{minute, hour, day}).Draw(t, "unit")*rapid.Int64Range(0, 9).Draw(t, "ago")) / minute * minute
		n, err := w.reader().AsOf(w.ctx(), "k1", moment)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for _, e := range w.events {
			if e.key == "k1" && (e.assigns && e.ms < moment || !e.assigns && e.at < moment) {
				want += e.n
			}
		}
		if n.Exact {
			if exact++; n.Value != want || n.AsOf != at(moment) || d.Ledger.Record == definition.Off {
				t.Fatalf("at %s it was %+v, want %d", at(moment).UTC(), n, want)
			}
		}
	})
	if exact == 0 {
		t.Errorf("%d values were exact", exact)
	}
}

// A value at a time within a window is that at its end, and says so.
func TestAsOfEdge(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	w.now += 2 * day
	w.add("k1", 0, add(3))
	w.now += hour
	w.add("k1", 0, add(4))
	w.set("k1", ledger.Line{Kind: ledger.Set, Amount: 100})
	f := func(moment, value, asOf int64, exact bool) {
		t.Helper()
		n, err := w.reader().AsOf(w.ctx(), "k1", moment)
		if err != nil || n.Value != value || n.AsOf != at(asOf) || n.Exact != exact || n.Bounded != exact {
			t.Errorf("%+v, %v", n, err)
		}
	}
	f(w.now-hour, 0, w.now-hour, true)
	f(w.now-minute, 3, w.now-minute, true)
	f(w.now-minute-1, 3, w.now-minute, false)
	if _, err := w.reader().AsOf(w.ctx(), "k1", w.now+1); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

// Within a window that has not ended, a value is the one now.
func TestAsOfNow(t *testing.T) {
	w := newWorld(t)
	w.define(definition.Definition{Pattern: "k*", Windows: []definition.Window{window("1w", "", 900*day)}, Ledger: definition.Ledger{Record: definition.All}})
	w.now = noon + 8*day // a Tuesday
	w.add("k1", 0, add(3))
	w.now += day
	n, err := w.reader().AsOf(w.ctx(), "k1", w.now-day-hour)
	if err != nil || n.Value != 3 || n.AsOf != at(w.now) || n.Exact || !n.Complete || !n.Exists {
		t.Errorf("%+v, %v", n, err)
	}
}

// A counter that was deleted existed while it had a value.
func TestAsOfDeleted(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	w.now += 2 * day
	w.add("k1", 0, add(3))
	w.now += hour
	w.apply("k1", 0, store.Delta{Op: store.OpDelete, Event: &store.Event{
		Plan: w.views("k1").Assign.Plan, Riders: w.riders("k1", ledger.Line{Kind: ledger.Delete}),
	}})
	w.now += hour
	f := func(ago, value int64, exists bool) {
		t.Helper()
		n, err := w.reader().AsOf(w.ctx(), "k1", w.now-ago)
		if err != nil || n.Value != value || n.Exists != exists || n.Exact {
			t.Errorf("%+v, %v", n, err)
		}
	}
	f(2*hour, 0, false)
	f(hour+minute, 3, true)
	f(minute, 0, false)
}
