package view

import (
	"cmp"
	"slices"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// A Source is a view whose windows can answer for a range.
type Source struct {
	View  book.View
	Kind  store.PartKind
	Grid  calendar.Grid
	Kept  int64 // the first window that is kept begins here
	Since int64 // windows that begin here or later have all their events
}

// never is later than all windows.
const never = 1 << 52

// Sources returns the views with windows at a time, of dimension i or of NoDimension.
// Since tells from when on a view is complete, as Book.Since does.
func (v *Views) Sources(i int, now int64, since func(book.View) (at int64, ok bool)) []Source {
	return v.sources(now, since, func(r *ready) bool { return r.dimension == i && !r.merges() })
}

// Sketches is Sources for those whose windows have sketches of users.
func (v *Views) Sketches(i int, now int64, since func(book.View) (at int64, ok bool)) []Source {
	return v.sources(now, since, func(r *ready) bool { return r.dimension == i && r.unique })
}

func (v *Views) sources(now int64, since func(book.View) (at int64, ok bool), some func(*ready) bool) []Source {
	var all []Source
	for j := range v.views {
		r := &v.views[j]
		if !r.windowed() || !some(r) {
			continue
		}
		s := Source{View: r.View, Kind: r.kind(), Grid: r.grid, Kept: r.grid.At(now - r.keep).From, Since: never}
		if at, ok := since(r.View); ok {
			s.Since = at
		}
		all = append(all, s)
	}
	// The coarsest first, as a tiler wants them.
	slices.SortStableFunc(all, func(a, b Source) int { return cmp.Compare(b.Grid.Longest(), a.Grid.Longest()) })
	return all
}

// from returns where the first window begins that can be used.
func (s *Source) from(whole bool) int64 {
	if whole {
		return max(s.Kept, s.Since)
	}
	return s.Kept
}

// A tiler covers spans by windows of sources, of which the coarsest is the first. Whole
// windows have all their events.
type tiler struct {
	sources     []Source
	last        []calendar.Span // the window of each source that was looked at last
	nested      bool            // each window is a number of windows of the next finer source
	kept, whole int64           // where the first window begins, and the first whole one
}

func newTiler(sources []Source) *tiler {
	t := &tiler{sources, make([]calendar.Span, len(sources)), true, never, never}
	for i := range sources {
		t.nested = t.nested && (i == 0 || sources[i].Grid.Within(sources[i-1].Grid))
		t.kept = min(t.kept, sources[i].Kept)
		t.whole = min(t.whole, t.first(i, 0, true))
	}
	return t
}

// at returns the window of a source that has a time. Most are asked for more than once in
// a row.
func (t *tiler) at(source int, ms int64) calendar.Span {
	last := &t.last[source]
	if ms < last.From || ms >= last.To {
		*last = t.sources[source].Grid.At(ms)
	}
	return *last
}

// first returns where the first window of a source begins that can be used, at a time or
// later.
func (t *tiler) first(source int, ms int64, whole bool) int64 {
	ms = max(ms, t.sources[source].from(whole))
	if w := t.at(source, ms); w.From != ms {
		return w.To
	}
	return ms
}

// align returns where the first window begins at a time or later. Whole windows go before
// others. Before all windows it is the time itself. It never falls while the time rises,
// so spans between such times do not overlap.
func (t *tiler) align(ms int64) int64 {
	if ms < t.kept {
		return ms
	}
	whole, next := ms >= t.whole, t.whole
	if whole {
		next = never
	}
	for i := range t.sources {
		next = min(next, t.first(i, ms, whole))
	}
	return next
}

// A tile is a window that is summed.
type tile struct {
	source int
	calendar.Span
}

// cover returns windows inside of a span that do not overlap, and the gaps between them.
// The gaps are as short as can be, and the windows as few as can be.
func (t *tiler) cover(span calendar.Span, whole bool) (tiles []tile, gaps []calendar.Span, err error) {
	how := t.coverAny
	if t.nested {
		how = t.coverNested
	}
	if tiles, err = how(span, whole); err != nil {
		return nil, nil, err
	}
	at := span.From
	for _, w := range tiles {
		if at < w.From {
			gaps = append(gaps, calendar.Span{From: at, To: w.From})
		}
		at = w.To
	}
	if at < span.To {
		gaps = append(gaps, calendar.Span{From: at, To: span.To})
	}
	return tiles, gaps, nil
}

// oldest returns the windows that cover a span, of the source that has all events since
// the earliest time; or nil if that is not known, or if its windows do not fit. Where no
// windows have all events, these have the most.
func (t *tiler) oldest(span calendar.Span) (tiles []tile) {
	best := -1
	for i := range t.sources {
		if t.sources[i].Since < never && (best < 0 || t.sources[i].Since < t.sources[best].Since) {
			best = i
		}
	}
	if best < 0 || span.From < t.sources[best].Kept {
		return nil
	}
	for at := span.From; at < span.To && len(tiles) <= windowsMax; {
		w := t.at(best, at)
		if w.From != at || w.To > span.To {
			return nil
		}
		tiles, at = append(tiles, tile{best, w}), w.To
	}
	return tiles
}

// coverNested covers a span by nested sources. A window that fits is never worse than
// the finer ones in it, since none of those reaches over its end.
func (t *tiler) coverNested(span calendar.Span, whole bool) (tiles []tile, err error) {
	for at := span.From; at < span.To; {
		next := span.To // where the next window of any source begins
		for i := range t.sources {
			if at < t.sources[i].from(whole) {
				next = min(next, t.first(i, at, whole))
				continue
			}
			w := t.at(i, at)
			next = min(next, w.To)
			if w.From == at && w.To <= span.To {
				tiles, next = append(tiles, tile{i, w}), w.To
				break
			}
		}
		if len(tiles) > windowsMax {
			return nil, tooMany()
		}
		at = next
	}
	return tiles, nil
}

// coverAny covers a span by whichever sources, such as weeks and months. It knows the
// best for all that begins later before it decides on a window.
func (t *tiler) coverAny(span calendar.Span, whole bool) ([]tile, error) {
	bounds, err := t.bounds(span, whole)
	if err != nil {
		return nil, err
	}
	type best struct {
		gaps  int64 // not covered from here on
		tiles int
		take  tile
		next  int // in bounds
	}
	all := make([]best, len(bounds))
	for i := len(bounds) - 2; i >= 0; i-- {
		at, after := bounds[i], all[i+1]
		all[i] = best{after.gaps + bounds[i+1] - at, after.tiles, tile{source: -1}, i + 1}
		for j := range t.sources {
			w := t.at(j, at)
			if w.From != at || w.To > span.To || at < t.sources[j].from(whole) {
				continue
			}
			next, _ := slices.BinarySearch(bounds, w.To)
			try := best{all[next].gaps, all[next].tiles + 1, tile{j, w}, next}
			if try.gaps < all[i].gaps || try.gaps == all[i].gaps && try.tiles < all[i].tiles {
				all[i] = try
			}
		}
	}
	var tiles []tile
	for i := 0; i < len(bounds)-1; i = all[i].next {
		if all[i].take.source >= 0 {
			tiles = append(tiles, all[i].take)
		}
	}
	return tiles, nil
}

// tooMany returns the error of a range that takes too long.
func tooMany() error {
	return store.Errorf(store.KindTooLarge, "the range has more than %d windows: ask for a shorter one", windowsMax)
}

// bounds returns where windows begin and end inside of a span, and its own ends, in order.
func (t *tiler) bounds(span calendar.Span, whole bool) ([]int64, error) {
	bounds := []int64{span.From, span.To}
	for i := range t.sources {
		for w := t.at(i, max(span.From, t.sources[i].from(whole))); w.From < span.To; w = t.at(i, w.To) {
			if w.From >= span.From {
				bounds = append(bounds, w.From)
			}
			if w.To <= span.To {
				bounds = append(bounds, w.To)
			}
			if len(bounds) > windowsMax {
				return nil, tooMany()
			}
		}
	}
	slices.Sort(bounds)
	return slices.Compact(bounds), nil
}
