package history_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

// three is a definition with windows of three widths, a dimension and a ledger.
func three() definition.Definition {
	return definition.Definition{
		Pattern:    "k*",
		Windows:    []definition.Window{window("1m", "", day), window("1h", "", 30*day), window("1d", "Europe/Berlin", 1800*day)},
		Dimensions: []definition.Dimension{{By: []string{"country"}}, {By: []string{"country", "platform"}, Windows: []definition.Width{width("1d")}}},
		Ledger:     definition.Ledger{Record: definition.All, Keep: definition.Keep(400 * 24 * time.Hour)},
	}
}

func add(n int64) ledger.Line { return ledger.Line{Kind: ledger.Add, Amount: n} }

func at(ms int64) time.Time { return time.UnixMilli(ms) }

// TestRange compares ranges of a random history, for keys and prefixes, with its events.
func TestRange(t *testing.T) {
	complete := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.define(three())
		w.drawHistory(t, 40)
		edge := func(name string) int64 {
			unit := rapid.SampledFrom([]int64{minute, hour, day}).Draw(t, name)
			return (w.now - rapid.Int64Range(-3, 50).Draw(t, "ago")*unit) / unit * unit
		}
		from, to := edge("from"), edge("to")
		if from == to {
			to += hour
		}
		o := call.RangeOptions{From: at(min(from, to)), To: at(max(from, to)), Prefix: rapid.Bool().Draw(t, "prefix")}
		if step := rapid.SampledFrom([]string{"", "1h", "6h", "1d"}).Draw(t, "step"); step != "" {
			o.Step = width(step)
		}
		key, match := "k2", of("k2")
		if o.Prefix {
			key, match = "k", func(*event) bool { return true }
		}
		s, err := w.reader().Range(w.ctx(), key, o)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, p := range s.Points {
			if want := w.sum(p.From, p.To, match); p.Complete && p.Value != want {
				t.Fatalf("%s to %s is %d, want %d", p.From, p.To, p.Value, want)
			}
			if p.Complete {
				complete++
			}
			sum += p.Value
		}
		if s.Sum != sum {
			t.Fatalf("the sum is %d, that of the points %d", s.Sum, sum)
		}
	})
	if complete == 0 {
		t.Errorf("%d points were complete", complete)
	}
}

func TestRangeDefaults(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	w.add("k1", 0, add(5))
	f := func(o call.RangeOptions, step, zone string, from, to int64, points int) {
		t.Helper()
		s, err := w.reader().Range(w.ctx(), "k1", o)
		if err != nil {
			t.Fatal(err)
		}
		n := len(s.Points)
		if s.Step != width(step) || s.Zone != zone || n != points || s.Points[0].From.UnixMilli() != from || s.Points[n-1].To.UnixMilli() != to || !s.Exact || s.Sum != 5 {
			t.Errorf("%d points of %s in %q, %s to %s, exact %v, sum %d", n, s.Step, s.Zone, s.Points[0].From.UTC(), s.Points[n-1].To.UTC(), s.Exact, s.Sum)
		}
	}
	f(call.RangeOptions{From: at(noon - 2*hour)}, "1m", "", noon-2*hour, noon+minute, 121)
	f(call.RangeOptions{From: at(noon - 2*day)}, "1h", "", noon-2*day, noon+hour, 49)
	f(call.RangeOptions{From: at(noon - 2*day), To: at(noon + hour), Step: width("1h")}, "1h", "", noon-2*day, noon+hour, 49)
	midnight := noon + 11*hour // in Berlin, where summer has just ended
	f(call.RangeOptions{From: at(midnight - 60*day - hour)}, "1d", "Europe/Berlin", midnight-60*day-hour, midnight, 60)
	f(call.RangeOptions{From: at(noon - 12*hour), Step: width("1d"), Zone: "UTC"}, "1d", "", noon-12*hour, noon+12*hour, 1)
	f(call.RangeOptions{From: at(noon - 8*hour), Step: width("1d"), Zone: "America/New_York"}, "1d", "America/New_York", noon-8*hour, noon+16*hour, 1)

	s, err := w.reader().Range(w.ctx(), "k1", call.RangeOptions{}) // all that is kept
	if err != nil || s.Step != width("1mo") && s.Step != width("1w") || s.Sum != 5 || s.Complete || s.CompleteFrom.UnixMilli() < noon {
		t.Errorf("%s, %d, %v, %s, %v", s.Step, s.Sum, s.Complete, s.CompleteFrom, err)
	}
}

func TestRangeRefused(t *testing.T) {
	w := newWorld(t)
	days := definition.Definition{Pattern: "days:*", Windows: []definition.Window{window("1d", "", 90*day)}}
	none := definition.Definition{Pattern: "none:*", Ledger: definition.Ledger{Record: definition.All}}
	w.define(three(), days, none)
	f := func(want string, kind error, key string, o call.RangeOptions) {
		t.Helper()
		if _, err := w.reader().Range(w.ctx(), key, o); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(`no windows are defined for "x"`, store.ErrInvalid, "x", call.RangeOptions{})
	f("no windows are defined", store.ErrInvalid, "none:1", call.RangeOptions{})
	f(`no windows are defined for keys that start with "x": only totals`, store.ErrInvalid, "x", call.RangeOptions{Prefix: true})
	f("key is empty", store.ErrInvalid, "", call.RangeOptions{})
	f("not UTF-8", store.ErrInvalid, "\xff", call.RangeOptions{Prefix: true})
	f("unknown time zone", store.ErrInvalid, "k1", call.RangeOptions{Step: width("1d"), Zone: "Mars"})
	f("unknown time zone", store.ErrInvalid, "k1", call.RangeOptions{Step: width("1d"), Zone: "Local"})
	f("want from 1970 on", store.ErrInvalid, "k1", call.RangeOptions{From: at(noon), To: at(noon - 1)})
	f("from 2026-10-26T12:00:00Z to 2026-10-26T12:00:00Z is empty", store.ErrInvalid, "k1", call.RangeOptions{From: at(noon), To: at(noon)})
	f("more than 10000 points", store.ErrTooLarge, "k1", call.RangeOptions{From: at(noon - 30*day), Step: width("1m")})
	f("windows: ask for a shorter", store.ErrTooLarge, "k1", call.RangeOptions{From: at(noon - day), To: at(noon + 9000*365*day), Step: width("1y")})
	f("have different windows, by the patterns", store.ErrUnsupported, "", call.RangeOptions{From: at(noon - 5*day), Prefix: true, Step: width("1h")})
	if _, err := w.reader().Range(w.ctx(), "", call.RangeOptions{From: at(noon / day * day), Prefix: true, Step: width("1d"), Zone: "UTC"}); err != nil {
		t.Errorf("days of all: %v", err)
	}
}

// A definition that comes later has only what is counted from then on, and says so.
func TestRangeSince(t *testing.T) {
	w := newWorld(t)
	hours := definition.Definition{Pattern: "k*", Windows: []definition.Window{window("1h", "", 30*day)}}
	w.define(hours)
	w.add("k1", 0, add(5))
	w.now += 2 * day
	hours.Windows = append(hours.Windows, window("1m", "", day))
	w.define(hours)
	w.add("k1", 0, add(7))
	s, err := w.reader().Range(w.ctx(), "k1", call.RangeOptions{From: at(w.now - 2*hour), To: at(w.now + hour), Step: width("1m")})
	if err != nil || s.Sum != 7 || s.Complete || s.CompleteFrom != at(w.now+minute) || s.Exact || len(s.Points) != 62 { // two hours without minutes
		t.Errorf("%d, %s, %d points, %v", s.Sum, s.CompleteFrom, len(s.Points), err)
	}
	s, err = w.reader().Range(w.ctx(), "k1", call.RangeOptions{From: at(noon - 2*hour), To: at(noon + hour)})
	if err != nil || s.Sum != 5 || s.Complete || s.CompleteFrom != at(noon+hour) {
		t.Errorf("%d, %s, %v", s.Sum, s.CompleteFrom, err)
	}
}

// A range in which no window begins, or of which none is kept, does not claim to know.
func TestRangeOfNothing(t *testing.T) {
	w := newWorld(t)
	w.define(definition.Definition{
		Pattern: "k*", Windows: []definition.Window{window("1h", "", 30*day)}, Dimensions: []definition.Dimension{{By: []string{"country"}}},
	})
	w.now += 5*day + 20*minute
	w.add("k1", 0, add(5))
	now := at(w.now)
	f := func(from, to time.Time, points int, sum int64, exact, complete bool, completeFrom time.Time) {
		t.Helper()
		for _, prefix := range []bool{false, true} {
			s, err := w.reader().Range(w.ctx(), "k1", call.RangeOptions{From: from, To: to, Prefix: prefix})
			if err != nil || len(s.Points) != points || s.Sum != sum || s.Exact != exact || s.Complete != complete || s.CompleteFrom != completeFrom {
				t.Errorf("range: %+v, %v", s, err)
			}
			some := len(s.Points) > 0
			for _, p := range s.Points {
				some = some && p.Exact
			}
			if some != s.Exact {
				t.Errorf("the points are not as exact as the whole: %+v", s)
			}
		}
		b, err := w.reader().By(w.ctx(), "k1", "country", call.ByOptions{From: from, To: to})
		if err != nil || b.Sum != sum || b.Exact != exact || b.Complete != complete || b.CompleteFrom != completeFrom || b.From.Before(at(noon-365*day)) || b.To.Before(b.From) {
			t.Errorf("by: %+v, %v", b, err)
		}
	}
	next := now.Truncate(time.Hour).Add(time.Hour)
	f(now.Add(-time.Minute), time.Time{}, 0, 0, false, false, next)                      // within the hour
	f(now.Add(-time.Minute), now, 0, 0, false, false, now)                               //
	f(time.Time{}, at(noon-40*day), 0, 0, false, false, at(noon+1))                      // before what is kept
	f(at(noon-40*day), at(noon-39*day), 24, 0, true, false, at(noon+1))                  //
	f(now.Add(-2*time.Hour), time.Time{}, 2, 5, false, true, next.Add(-2*time.Hour))     // an hour is cut
	f(next.Add(-2*time.Hour), time.Time{}, 2, 5, true, true, next.Add(-2*time.Hour))     //
	f(next.Add(time.Hour), next.Add(3*time.Hour), 2, 0, true, true, next.Add(time.Hour)) // as of now, the future is empty
	if _, err := w.reader().By(w.ctx(), "k1", "country", call.ByOptions{From: now, To: now}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}
