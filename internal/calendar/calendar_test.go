package calendar_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/calendar"
)

// places are zones with clocks that do all that clocks do: turned at midnight and a
// minute after it, by 30 minutes and by 2 hours, over the date line, by seconds.
var places = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "Pacific/Apia",
	"Pacific/Kwajalein", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca",
	"Africa/Monrovia", "Asia/Beirut", "Antarctica/Troll", "Pacific/Kiritimati", "Asia/Gaza",
}

// A fataler is a test, of whichever package.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func width(t fataler, s string) calendar.Width {
	t.Helper()
	w, err := calendar.ParseWidth(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func ms(t fataler, s string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

func TestAt(t *testing.T) {
	f := func(every, zone, at, from, to string) {
		t.Helper()
		g := calendar.Grid{Width: width(t, every), Zone: calendar.NewZone(location(t, zone))}
		want := calendar.Span{From: ms(t, from), To: ms(t, to)}
		if got := g.At(ms(t, at)); got != want {
			t.Errorf("%s of %s in %s: %s to %s", every, at, zone, time.UnixMilli(got.From).UTC(), time.UnixMilli(got.To).UTC())
		}
	}
	// Fixed lengths.
	f("1m", "UTC", "2026-03-29T00:59:59Z", "2026-03-29T00:59:00Z", "2026-03-29T01:00:00Z")
	f("7h", "UTC", "1970-01-01T07:00:00Z", "1970-01-01T07:00:00Z", "1970-01-01T14:00:00Z")
	f("1h", "UTC", "1969-12-31T23:59:59Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z")

	// Days of 23 and 25 hours.
	f("1d", "Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00")
	f("1d", "Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00")
	// Weeks begin on Monday.
	f("1w", "UTC", "2026-11-15T23:59:59Z", "2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z")
	f("1w", "UTC", "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z")
	f("1w", "Europe/Berlin", "2026-03-29T23:00:00+02:00", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00")
	// Months, quarters and years.
	f("1mo", "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z")
	f("1mo", "America/New_York", "2026-03-01T03:00:00Z", "2026-02-01T05:00:00Z", "2026-03-01T05:00:00Z")
	f("3mo", "UTC", "2026-11-16T00:00:00Z", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z")
	f("1y", "Asia/Kolkata", "2026-12-31T18:30:00Z", "2026-12-31T18:30:00Z", "2027-12-31T18:30:00Z")
	// Midnight that does not exist: the clocks went from 0:00 to 1:00.
	f("1d", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z")
	// A minute after midnight the clocks went back to the day before, which had ended.
	f("1d", "America/St_Johns", "2010-11-07T02:40:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z")
	// A day that never was.
	f("1d", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z")
	f("1d", "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z")
}

// TestGrid checks that windows are side by side, and begin when the clocks of the place
// first show the day, as package time has them.
func TestGrid(t *testing.T) {
	var zones []*calendar.Zone
	var locations []*time.Location
	for _, p := range places {
		locations = append(locations, location(t, p))
		zones = append(zones, calendar.NewZone(locations[len(locations)-1]))
	}
	turns := turnsOf(locations)
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(places)-1).Draw(t, "place")
		first := ms(t, "1971-01-01T20:00:00Z") // the table begins in 1970, and so do its years
		at := rapid.Int64Range(first, ms(t, "2099-12-01T00:00:00Z")).Draw(t, "at")
		if rapid.Bool().Draw(t, "near a turn") {
			at = max(first, rapid.SampledFrom(turns[i]).Draw(t, "turn")+rapid.Int64Range(-3*86_400_000, 3*86_400_000).Draw(t, "beside"))
		}
		w := width(t, rapid.SampledFrom([]string{"1s", "7m", "1d", "1w", "1mo", "2mo", "3mo", "1y"}).Draw(t, "width"))
		g := calendar.Grid{Width: w, Zone: zones[i]}
		span := g.At(at)
		if at < span.From || at >= span.To {
			t.Fatalf("%d is not in %v", at, span)
		}
		if last, next := g.At(span.From-1), g.At(span.To); last.To != span.From || next.From != span.To {
			t.Fatalf("%v, %v, %v are not side by side", last, span, next)
		}
		if !g.Edge(span.From) || span.To-span.From > g.Longest() {
			t.Fatalf("%v: no edge, or longer than %d", span, g.Longest())
		}
		if w.Fixed() {
			return
		}
		from, before := clock(span.From, locations[i]), clock(span.From-1, locations[i])
		if name(w, from) == name(w, before) || from.Before(before) {
			t.Fatalf("the window from %v begins after %v", from, before)
		}
		if shown := name(w, clock(at, locations[i])); shown > name(w, from) {
			t.Fatalf("%v is in the window of %v", clock(at, locations[i]), from)
		}
	})
}

// clock returns what the clocks of a place show, as if they were in UTC.
func clock(ms int64, l *time.Location) time.Time {
	at := time.UnixMilli(ms).In(l)
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

// name returns what people call the window of a time. Later ones have higher names.
func name(w calendar.Width, at time.Time) string {
	switch w.String() {
	case "1d":
		return at.Format("2006-01-02")
	case "1w":
		year, week := at.ISOWeek()
		return fmt.Sprintf("%d-%02d", year, week)
	case "1mo":
		return at.Format("2006-01")
	case "2mo":
		return fmt.Sprintf("%d-%d", at.Year(), (at.Month()-1)/2)
	case "3mo":
		return fmt.Sprintf("%d-%d", at.Year(), (at.Month()-1)/3)
	default:
		return at.Format("2006")
	}
}

// turnsOf returns when clocks are turned.
func turnsOf(locations []*time.Location) [][]int64 {
	turns := make([][]int64, len(locations))
	for i, l := range locations {
		turns[i] = []int64{0}
		for at := time.UnixMilli(0).In(l); at.Year() < 2037; {
			_, end := at.ZoneBounds()
			if end.IsZero() {
				break
			}
			at = end
			turns[i] = append(turns[i], at.UnixMilli())
		}
	}
	return turns
}

func TestWithin(t *testing.T) {
	f := func(want bool, inner, innerZone, outer, outerZone string) {
		t.Helper()
		g := calendar.Grid{Width: width(t, inner), Zone: calendar.NewZone(location(t, innerZone))}
		h := calendar.Grid{Width: width(t, outer), Zone: calendar.NewZone(location(t, outerZone))}
		if got := g.Within(h); got != want {
			t.Errorf("%s in %s within %s in %s: %v", inner, innerZone, outer, outerZone, got)
		}
	}
	f(true, "1m", "UTC", "1h", "UTC")
	f(false, "7m", "UTC", "1h", "UTC")
	f(false, "1h", "UTC", "1m", "UTC")
	f(true, "1h", "UTC", "1d", "Europe/Berlin")
	f(false, "1h", "UTC", "1d", "Asia/Kolkata")
	f(true, "30m", "UTC", "1d", "Asia/Kolkata")
	f(false, "1h", "UTC", "1d", "Australia/Lord_Howe")
	f(false, "1m", "UTC", "1d", "Africa/Monrovia") // 44 minutes and 30 seconds behind until 1972
	f(false, "7h", "UTC", "1d", "UTC")
	f(true, "1d", "UTC", "1w", "UTC")
	f(true, "1d", "Europe/Berlin", "1mo", "Europe/Berlin")
	f(false, "1d", "Europe/Berlin", "1mo", "UTC")
	f(false, "1d", "Europe/Berlin", "1d", "Europe/Paris")
	f(false, "1w", "UTC", "1mo", "UTC")
	f(true, "1mo", "UTC", "3mo", "UTC")
	f(false, "2mo", "UTC", "3mo", "UTC")
	f(true, "2mo", "UTC", "1y", "UTC")
	f(false, "1y", "UTC", "1mo", "UTC")
	f(false, "1d", "UTC", "24h", "UTC")
	f(true, "24h", "UTC", "1d", "UTC")
}

func TestWidth(t *testing.T) {
	f := func(s, want string) {
		t.Helper()
		w := width(t, s)
		if w.String() != want || width(t, want) != w {
			t.Errorf("%q is %q, want %q", s, w, want)
		}
	}
	f("1s", "1s")
	f("60s", "1m")
	f("1.5m", "1m30s")
	f("90m", "1h30m")
	f("24h", "24h")
	f("1d", "1d")
	f("1w", "1w")
	f("1mo", "1mo")
	f("12mo", "1y")
	f("1y", "1y")
	for _, bad := range []string{"", "0s", "-1s", "1ms", "1500ms", "0d", "2d", "7d", "2w", "5mo", "24mo", "2y", "d", "1", "1D", "1 d", "1d12h", "-1d", "9223372036854775808d"} {
		if w, err := calendar.ParseWidth(bad); err == nil {
			t.Errorf("%q is %s", bad, w)
		}
	}
}

// A zone comes back from its table as it was, and agrees with itself for ever.
func TestZone(t *testing.T) {
	for _, place := range places {
		z := calendar.NewZone(location(t, place))
		table, _ := z.MarshalText()
		got, err := calendar.ParseZone(place, table)
		if err != nil || !got.Same(z) || got.Name() != place {
			t.Errorf("%s: %v", place, err)
		}
		if len(table) > 3072 {
			t.Errorf("%s has a table of %d bytes", place, len(table))
		}
	}
	var none *calendar.Zone
	if utc := calendar.NewZone(time.UTC); !none.Same(utc) || none.Name() != utc.Name() {
		t.Error("no zone is not UTC")
	}
}

func TestAgree(t *testing.T) {
	f := func(a, b string, want int64) {
		t.Helper()
		x, y := calendar.NewZone(location(t, a)), calendar.NewZone(location(t, b))
		if got := x.Agree(y); got != want || y.Agree(x) != want {
			t.Errorf("%s and %s agree up to %s", a, b, time.UnixMilli(got).UTC())
		}
	}
	f("UTC", "UTC", math.MaxInt64)
	f("Europe/Berlin", "Europe/Stockholm", math.MaxInt64)
	f("Europe/Berlin", "Europe/Moscow", -math.MaxInt64)
	f("Europe/Berlin", "Africa/Lagos", ms(t, "1980-04-06T01:00:00Z")) // Lagos has no summer time
}

// FuzzParseZone checks that a table that is taken can be used.
func FuzzParseZone(f *testing.F) {
	for _, place := range places {
		table, _ := calendar.NewZone(location(f, place)).MarshalText()
		f.Add(table, int64(1_700_000_000_000))
	}
	f.Fuzz(func(t *testing.T, table []byte, at int64) {
		z, err := calendar.ParseZone("x", table)
		if err != nil {
			return
		}
		at %= ms(t, "2500-01-01T00:00:00Z")
		for _, w := range []string{"1d", "1w", "1mo", "1y"} {
			g := calendar.Grid{Width: width(t, w), Zone: z}
			span := g.At(at)
			if at < span.From || at >= span.To || g.At(span.To).From != span.To || g.At(span.From-1).To != span.From {
				t.Fatalf("%s: %d in %v", w, at, span)
			}
		}
	})
}

func BenchmarkAt(b *testing.B) {
	for _, every := range []string{"1m", "1d", "1mo"} {
		b.Run(every, func(b *testing.B) {
			g := calendar.Grid{Width: width(b, every), Zone: calendar.NewZone(location(b, "Europe/Berlin"))}
			for b.Loop() {
				g.At(1_790_000_000_000)
			}
		})
	}
}

// FuzzParseWidth checks that whatever is taken for a width is written so that it is taken
// for the same again, and has a length.
func FuzzParseWidth(f *testing.F) {
	for _, seed := range []string{"1s", "90s", "1h30m", "24h", "1d", "1w", "1mo", "12mo", "5mo", "1y", "2y", "7d", "0d", "-1h", "1.5h", "1ms", "", "d", "99999999999999999999d", "2562047h", "01mo"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := calendar.ParseWidth(s)
		if err != nil {
			return
		}
		if again, err := calendar.ParseWidth(w.String()); err != nil || again != w {
			t.Errorf("%q is %v, and that %v: %v", s, w, again, err)
		}
		if w.Shortest() < time.Second {
			t.Errorf("%q is %v long", s, w.Shortest())
		}
	})
}
