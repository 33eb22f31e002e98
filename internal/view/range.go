package view

import (
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/wide"
	"github.com/quipudb/quipu/store"
)

// The limits of a range.
const (
	PointsMax  = 10_000
	windowsMax = 1 << 20 // that are summed
)

// A Range is the answer to a question about a range of time: windows to read, and points
// that they are counted into.
//
// A window belongs to the point that has its beginning. So points that are side by side
// count each event once, also if an edge cuts a window, and ranges that are side by side
// do too.
type Range struct {
	Points []Point
	Runs   []Run // what has to be read

	tiles  map[place]int // into Points
	begins int64         // where the first window begins, at the beginning of the range or later
	ends   int64         // where the range ends
	since  int64         // windows that begin here or later have all their events
}

// A Point is what was counted in one step of a range.
type Point struct {
	calendar.Span // of the windows that are counted

	Exact    bool // the span is the step that was asked for; else an edge has cut a window
	Complete bool // every event of the span is counted

	sum wide.Sum // windows may be of either sign
}

// A Run is windows of one source that follow each other.
type Run struct {
	Source Source
	calendar.Span
}

type place struct {
	view  uint16
	start int64
}

// moment returns a time as people read it.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// NewRange plans the answer for a span by steps, or by one step if the grid has no width.
// It has no points if no window begins in the span.
//
// The value of a counter at an earlier time is its value now without the range from then
// to a day from now, if nothing was assigned since.
func NewRange(sources []Source, span calendar.Span, step calendar.Grid) (*Range, error) {
	if span.From < 0 || span.From > span.To {
		return nil, store.Errorf(store.KindInvalid, "a range from %s to %s: want from 1970 on, and to after from", moment(span.From), moment(span.To))
	}
	t := newTiler(sources)
	from := t.align(span.From)
	r := &Range{tiles: map[place]int{}, begins: from, ends: span.To, since: never}
	for i := range sources {
		r.since = min(r.since, sources[i].Since)
	}
	for at, steps := span.From, 0; at < span.To; steps++ {
		if steps == PointsMax {
			return nil, store.Errorf(store.KindTooLarge, "the range has more than %d points: ask for a larger step", PointsMax)
		}
		asked := calendar.Span{From: at, To: span.To}
		if len(r.Points) == 0 { // Steps before the first window are its point's.
			asked.From = span.From
		}
		if step.Width != (calendar.Width{}) {
			asked.To = min(span.To, step.At(at).To)
		}
		to := t.align(asked.To)
		if err := r.add(t, asked, calendar.Span{From: from, To: to}); err != nil {
			return nil, err
		}
		at, from = asked.To, to
	}
	return r, nil
}

// add plans the point of one step, whose windows have a span. A step in which no window
// begins has none: it is part of the one before it, or of the first.
func (r *Range) add(t *tiler, asked, span calendar.Span) error {
	if span.From >= span.To {
		return nil
	}
	p := Point{Span: span, Exact: span == asked, Complete: true}
	whole, gaps, err := t.cover(p.Span, true)
	if err != nil {
		return err
	}
	if len(gaps) > 0 {
		if oldest := t.oldest(p.Span); oldest != nil {
			whole, gaps, p.Complete = oldest, nil, false
		}
	}
	if len(r.tiles)+len(whole) > windowsMax {
		return tooMany()
	}
	r.take(t.sources, whole)
	for _, gap := range gaps {
		p.Complete = false
		parts, _, err := t.cover(gap, false)
		if err != nil {
			return err
		}
		r.take(t.sources, parts)
	}
	r.Points = append(r.Points, p)
	return nil
}

// take has tiles read, and counted into the point that comes next.
func (r *Range) take(sources []Source, tiles []tile) {
	for _, t := range tiles {
		s := sources[t.source]
		r.tiles[place{s.View.ID, t.From}] = len(r.Points)
		if n := len(r.Runs); n > 0 && r.Runs[n-1].Source.View.ID == s.View.ID && r.Runs[n-1].To == t.From {
			r.Runs[n-1].To = t.To
			continue
		}
		r.Runs = append(r.Runs, Run{s, t.Span})
	}
}

// Merge adds what another range has counted, of counters that are defined otherwise. It
// reports false if its points are not the same, so that they can't be added.
func (r *Range) Merge(other *Range) bool {
	same := func(a, b Point) bool { return a.Span == b.Span }
	if !slices.EqualFunc(r.Points, other.Points, same) {
		return false
	}
	for i := range r.Points {
		p, q := &r.Points[i], &other.Points[i]
		p.Exact, p.Complete = p.Exact && q.Exact, p.Complete && q.Complete
		p.sum.Merge(q.sum)
	}
	return true
}

// Point returns which point counts the window of a view that begins at start, if one does.
func (r *Range) Point(view uint16, start int64) (i int, ok bool) {
	i, ok = r.tiles[place{view, start}]
	return i, ok
}

// Count adds n, a cell that was read, to the point that counts its window. Other cells are
// passed over. Those of several shards, or counters, or values, add up.
func (r *Range) Count(view uint16, start, n int64) {
	if i, ok := r.Point(view, start); ok {
		r.Points[i].sum.Add(n)
	}
}

// Value returns what was counted, or an error if it is more than int64 can hold.
func (p *Point) Value() (int64, error) {
	if n, ok := p.sum.Int64(); ok {
		return n, nil
	}
	return 0, store.ErrOverflow
}

// Sum returns the whole range as one point. Without any windows nothing is known of it: it
// is neither exact nor complete.
func (r *Range) Sum() Point {
	some := len(r.Points) > 0
	sum := Point{Span: calendar.Span{From: r.begins, To: r.begins}, Exact: some, Complete: some}
	for i := range r.Points {
		p := &r.Points[i]
		sum.To = p.To
		sum.Exact, sum.Complete = sum.Exact && p.Exact, sum.Complete && p.Complete
		sum.sum.Merge(p.sum)
	}
	return sum
}

// CompleteFrom returns from when on all events are counted. If the last point is not
// complete, or if there is none, that is after the range.
func (r *Range) CompleteFrom() int64 {
	from, known := r.ends, false
	for i := range r.Points {
		if p := &r.Points[i]; !p.Complete {
			from, known = p.To, false
		} else if i == 0 {
			from, known = p.From, true
		} else {
			known = true
		}
	}
	if !known && r.since != never {
		from = max(from, r.since)
	}
	return from
}
