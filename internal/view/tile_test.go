package view

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
)

func grid(every, place string) calendar.Grid {
	w, err := calendar.ParseWidth(every)
	if err != nil {
		panic(err)
	}
	l, err := time.LoadLocation(place)
	if err != nil {
		panic(err)
	}
	return calendar.Grid{Width: w, Zone: calendar.NewZone(l)}
}

// sourcesOf returns sources of grids, kept and complete from times on.
func sourcesOf(from []int64, grids ...calendar.Grid) []Source {
	var all []Source
	for i, g := range grids {
		all = append(all, Source{View: book.View{ID: uint16(i + 1)}, Grid: g, Kept: g.At(from[i]).From})
	}
	slices.SortStableFunc(all, func(a, b Source) int { return cmp.Compare(b.Grid.Longest(), a.Grid.Longest()) })
	return all
}

// A cost is what is not covered, and how many windows cover the rest.
type cost struct {
	gaps  int64
	tiles int
}

// cheapest tries all ways to cover a span.
func cheapest(sources []Source, span calendar.Span, known map[int64]cost) cost {
	if span.From >= span.To {
		return cost{}
	}
	if c, ok := known[span.From]; ok {
		return c
	}
	best, next := cost{gaps: 1 << 60}, span.To
	try := func(c cost) {
		if c.gaps < best.gaps || c.gaps == best.gaps && c.tiles < best.tiles {
			best = c
		}
	}
	for i := range sources {
		w := sources[i].Grid.At(span.From)
		next = min(next, w.To)
		if w.From == span.From && w.From >= sources[i].Kept && w.To <= span.To {
			c := cheapest(sources, calendar.Span{From: w.To, To: span.To}, known)
			try(cost{c.gaps, c.tiles + 1})
		}
	}
	c := cheapest(sources, calendar.Span{From: next, To: span.To}, known)
	try(cost{c.gaps + next - span.From, c.tiles})
	known[span.From] = best
	return best
}

// TestCover compares both ways of covering a span with the trial of all.
func TestCover(t *testing.T) {
	pool := []calendar.Grid{
		grid("10m", "UTC"), grid("15m", "UTC"), grid("1h", "UTC"), grid("3h", "UTC"), grid("7h", "UTC"), grid("1d", "UTC"), grid("1d", "Europe/Berlin"),
		grid("1d", "Asia/Kolkata"), grid("1w", "UTC"), grid("1w", "Europe/Berlin"), grid("1mo", "UTC"), grid("1mo", "Europe/Berlin"),
	}
	begin := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC).UnixMilli() // the clocks of Berlin are turned on the 25th
	ways := [2]int{}
	rapid.Check(t, func(t *rapid.T) {
		grids := rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 0, 4, func(g calendar.Grid) string { return g.Width.String() + g.Zone.Name() }).Draw(t, "grids")
		minutes := rapid.Int64Range(-60, 60*24*20)
		kept := rapid.SliceOfN(minutes, len(grids), len(grids)).Draw(t, "kept")
		for i := range kept {
			kept[i] = begin + min(kept[i], 60*24*3)*60_000
		}
		span := calendar.Span{From: begin + minutes.Draw(t, "from")*60_000}
		span.To = span.From + minutes.Draw(t, "length")*60_000
		sources := sourcesOf(kept, grids...)
		all := newTiler(sources)
		tiles, gaps, err := all.cover(span, false)
		if err != nil {
			t.Fatal(err)
		}
		got := check(t, sources, span, tiles, gaps)
		if want := cheapest(sources, span, map[int64]cost{}); got != want {
			t.Fatalf("%v: %v, %v cost %v, want %v", span, tiles, gaps, got, want)
		}
		if all.nested {
			ways[0]++
		} else {
			ways[1]++
		}
	})
	if !testing.Short() && (ways[0] < 10 || ways[1] < 10) { // few trials may have few of either
		t.Errorf("%d covered one way, %d the other", ways[0], ways[1])
	}
}

// check returns the cost of tiles and gaps, which must be a span's and nothing else.
func check(t *rapid.T, sources []Source, span calendar.Span, tiles []tile, gaps []calendar.Span) cost {
	pieces := slices.Clone(gaps)
	c := cost{tiles: len(tiles)}
	for _, g := range gaps {
		c.gaps += g.To - g.From
	}
	for _, w := range tiles {
		s := sources[w.source]
		if s.Grid.At(w.From) != w.Span || w.From < s.Kept {
			t.Fatalf("%v is no window of %s", w, s.Grid.Width)
		}
		pieces = append(pieces, w.Span)
	}
	slices.SortFunc(pieces, func(a, b calendar.Span) int { return cmp.Compare(a.From, b.From) })
	at := span.From
	for _, p := range pieces {
		if p.From != at || p.From >= p.To {
			t.Fatalf("%v is covered by %v", span, pieces)
		}
		at = p.To
	}
	if at != max(span.From, span.To) {
		t.Fatalf("%v is covered by %v", span, pieces)
	}
	return c
}

// Weeks and months overlap: it is not always best to begin with the longest that fits.
func TestCoverAny(t *testing.T) {
	f := func(from, to string, want int) {
		t.Helper()
		day := func(s string) int64 {
			at, err := time.Parse(time.DateOnly, s)
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMilli()
		}
		sources := sourcesOf([]int64{0, 0, 0}, grid("1d", "UTC"), grid("1w", "UTC"), grid("1mo", "UTC"))
		tiles, gaps, err := newTiler(sources).cover(calendar.Span{From: day(from), To: day(to)}, false)
		if err != nil || len(tiles) != want || len(gaps) > 0 {
			t.Errorf("%s to %s: %d windows and %d gaps, %v; want %d", from, to, len(tiles), len(gaps), err, want)
		}
	}
	f("2026-01-01", "2026-07-01", 6)
	f("2026-01-05", "2026-03-16", 10) // ten weeks
	f("2026-01-01", "2026-03-16", 5)  // two months, a day, two weeks
	f("2026-06-01", "2026-06-29", 4)  // a Monday, and four weeks
}

func BenchmarkRange(b *testing.B) {
	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC).UnixMilli()
	const day = int64(86_400_000)
	sources := sourcesOf([]int64{now - day, now - 30*day, now - 1800*day}, grid("1m", "UTC"), grid("1h", "UTC"), grid("1d", "Europe/Berlin"))
	step := grid("1h", "UTC")
	for b.Loop() {
		r, err := NewRange(sources, calendar.Span{From: now - 30*day, To: now}, step)
		if err != nil || len(r.Points) != 720 {
			b.Fatal(len(r.Points), err)
		}
	}
}
