package history

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// Range returns what was counted in a range of time, for a key or for all that start with
// it.
func (r *Reader) Range(ctx context.Context, key string, o call.RangeOptions) (call.Series, error) {
	entries, err := r.entries(key, o.Prefix)
	if err != nil {
		return call.Series{}, err
	}
	asOf := time.Now()
	var (
		whole *view.Range
		step  calendar.Grid
		first string // the pattern whose points the others must have
	)
	for _, e := range entries {
		sources := view.New(r.Known.Book, e).Sources(view.NoDimension, r.Now, r.Known.Since)
		if len(sources) == 0 {
			continue
		}
		if whole == nil {
			if o, step, err = r.asked(sources, o); err != nil {
				return call.Series{}, err
			}
		}
		rg, err := view.NewRange(sources, calendar.Span{From: o.From.UnixMilli(), To: o.To.UnixMilli()}, step)
		if err != nil {
			return call.Series{}, err
		}
		if o.Prefix {
			err = r.countUnder(ctx, rg, key)
		} else {
			err = r.countOne(ctx, rg, key)
		}
		if err != nil {
			return call.Series{}, err
		}
		if whole == nil {
			whole, first = rg, e.Definition.Pattern
		} else if !whole.Merge(rg) {
			return call.Series{}, store.Errorf(store.KindUnsupported, "keys that start with %q have different windows, by the patterns %q and %q, which can't be added in these steps: choose a step and a range that both have windows for, or for a longer prefix",
				key, first, e.Definition.Pattern)
		}
	}
	switch {
	case whole == nil && o.Prefix:
		return call.Series{}, store.Errorf(store.KindInvalid, "no windows are defined for keys that start with %q: only totals are kept", key)
	case whole == nil:
		return call.Series{}, store.Errorf(store.KindInvalid, "no windows are defined for %q: only its total is kept", key)
	}
	s, err := series(whole)
	s.Key, s.Step, s.AsOf = key, step.Width, asOf
	if step.Zone != nil {
		s.Zone = step.Zone.Name()
	}
	return s, err
}

// entries returns the definitions of a key, or of all that start with it.
func (r *Reader) entries(key string, prefix bool) ([]*book.Entry, error) {
	if !prefix {
		if err := store.CheckKey(key); err != nil {
			return nil, err
		}
		if e := r.Known.Book.Of(key); e != nil {
			return []*book.Entry{e}, nil
		}
		return nil, nil
	}
	switch {
	case len(key) > store.KeyBytesMax:
		return nil, store.Errorf(store.KindTooLarge, "prefix of %d bytes: at most %d", len(key), store.KeyBytesMax)
	case !utf8.ValidString(key):
		return nil, store.Errorf(store.KindInvalid, "prefix is not UTF-8")
	}
	return r.Known.Book.Under(key), nil
}

// asked fills in what options leave open.
func (r *Reader) asked(sources []view.Source, o call.RangeOptions) (call.RangeOptions, calendar.Grid, error) {
	span := r.span(sources, o.From, o.To)
	step := calendar.Grid{Width: o.Step}
	if o.Step == (definition.Width{}) {
		step = defaultStep(sources, span)
	} else if !o.Step.Fixed() {
		zone, err := r.zone(sources, o.Zone, o.Step)
		if err != nil {
			return o, step, err
		}
		step.Zone = zone
	}
	if o.To.IsZero() {
		span.To = step.At(r.Now).To
	}
	if err := checkSpan(o.From, span); err != nil {
		return o, step, err
	}
	o.From, o.To = time.UnixMilli(span.From), time.UnixMilli(span.To)
	return o, step, nil
}

// checkSpan refuses an empty range of somebody who has said where it begins: with two dates
// that are the same, a day is meant. Otherwise it ends before all that is kept.
func checkSpan(from time.Time, span calendar.Span) error {
	if !from.IsZero() && span.From == span.To {
		return store.Errorf(store.KindInvalid, "a range from %[1]s to %[1]s is empty: want to after from", time.UnixMilli(span.To).UTC().Format(time.RFC3339))
	}
	return nil
}

// span returns the range between two times, either of which may be zero: then it begins
// with the first window that is kept, and ends now.
func (r *Reader) span(sources []view.Source, from, to time.Time) calendar.Span {
	span := calendar.Span{From: from.UnixMilli(), To: to.UnixMilli()}
	if to.IsZero() {
		span.To = r.Now
	}
	if from.IsZero() {
		span.From = span.To
		for i := range sources {
			span.From = max(0, min(span.From, sources[i].Kept))
		}
	}
	return span
}

// zone returns the time zone of a step: the one that is named, or that of the windows of
// its width, or of any.
func (r *Reader) zone(sources []view.Source, name string, step definition.Width) (*calendar.Zone, error) {
	switch {
	case name == "UTC":
		return nil, nil
	case name == "":
		var some *calendar.Zone
		for i := range sources {
			if g := sources[i].Grid; g.Width == step {
				return g.Zone, nil
			} else if g.Zone != nil {
				some = g.Zone
			}
		}
		return some, nil
	case r.Known.Book.Zones[name] != nil:
		return r.Known.Book.Zones[name], nil
	}
	location, err := time.LoadLocation(name)
	if err != nil || name == time.Local.String() {
		return nil, store.Errorf(store.KindInvalid, "unknown time zone %q: want a name such as Europe/Berlin, or UTC", name)
	}
	return calendar.NewZone(location), nil
}

// longer are the widths of steps if those of the windows are too short for a range.
var longer = []string{"1d", "1w", "1mo", "1y"}

// defaultStep returns the shortest width of the sources that makes at most PointsDefault
// points of a span, or one that is longer than all of them.
func defaultStep(sources []view.Source, span calendar.Span) calendar.Grid {
	few := func(w definition.Width) bool {
		return (span.To-span.From)/w.Shortest().Milliseconds() < call.PointsDefault
	}
	for _, s := range slices.Backward(sources) {
		if few(s.Grid.Width) {
			return s.Grid
		}
	}
	step := sources[0].Grid
	for _, text := range longer {
		w, err := definition.ParseWidth(text)
		if err == nil && w.Shortest() > step.Width.Shortest() && !few(step.Width) {
			step.Width = w
		}
	}
	return step
}

// series returns a range as people see it.
func series(rg *view.Range) (s call.Series, err error) {
	points := make([]call.Point, len(rg.Points))
	for i := range rg.Points {
		if points[i], err = point(&rg.Points[i]); err != nil {
			return call.Series{}, err
		}
	}
	whole := rg.Sum()
	sum, err := point(&whole)
	return call.Series{
		Points: points, Sum: sum.Value, Exact: sum.Exact, Complete: sum.Complete,
		CompleteFrom: time.UnixMilli(rg.CompleteFrom()),
	}, err
}

func point(p *view.Point) (call.Point, error) {
	n, err := p.Value()
	if err != nil {
		err = store.Errorf(store.KindOverflow, "the windows from %s to %s add up to more than an int64",
			time.UnixMilli(p.From).UTC().Format(time.RFC3339), time.UnixMilli(p.To).UTC().Format(time.RFC3339))
	}
	return call.Point{From: time.UnixMilli(p.From), To: time.UnixMilli(p.To), Value: n, Exact: p.Exact, Complete: p.Complete}, err
}

// countOne counts the windows of one counter into a range: those of few are read by
// address, all at one moment for each shard; else epoch by epoch.
func (r *Reader) countOne(ctx context.Context, rg *view.Range, key string) error {
	cells, err := r.shards(ctx, key)
	if err != nil {
		return err
	}
	var parts []store.PartCell
	for i := range rg.Runs {
		run := &rg.Runs[i]
		for w := run.Source.Grid.At(run.From); w.From < run.To; w = run.Source.Grid.At(w.To) {
			part := windowOf(run.Source, w.From).Part()
			for _, c := range cells {
				parts = append(parts, store.PartCell{Cell: c, Part: part})
			}
			if len(parts) > store.ReadCellsMax {
				return r.countRows(ctx, rg, cells, func(f *store.PartFields, n int64) { rg.Count(f.View, f.Position, n) })
			}
		}
	}
	contents := make([]store.Content, len(parts))
	if err := r.Store.ReadParts(ctx, parts, contents); err != nil {
		return err
	}
	for i := range contents {
		if contents[i].Exists {
			f, _ := parts[i].Part.Fields()
			rg.Count(f.View, f.Position, contents[i].N)
		}
	}
	return nil
}

// windowOf returns the part of a window of a source that begins at a time.
func windowOf(s view.Source, start int64) store.PartFields {
	return store.PartFields{Kind: s.Kind, View: s.View.ID, Epoch: store.EpochAt(start, time.Duration(s.View.Epoch)), Position: start}
}

// countRows calls f for each part of some cells that a range needs.
func (r *Reader) countRows(ctx context.Context, rg *view.Range, cells []store.Cell, f func(*store.PartFields, int64)) error {
	return r.rows(ctx, rg, f, func(epoch store.PartFields, from, to int64) []store.Rows {
		first, end := epoch, epoch
		first.Position, end.Position = from, to
		var all []store.Rows
		for _, c := range cells {
			all = append(all, store.RowsOf(c, first, end))
		}
		return all
	})
}

// countUnder counts the windows of all counters with a prefix into a range.
func (r *Reader) countUnder(ctx context.Context, rg *view.Range, prefix string) error {
	count := func(f *store.PartFields, n int64) { rg.Count(f.View, f.Position, n) }
	seen := map[store.PartFields]bool{}
	return r.rows(ctx, rg, count, func(epoch store.PartFields, _, _ int64) []store.Rows {
		if seen[epoch] { // Several runs of a view may begin in one.
			return nil
		}
		seen[epoch] = true
		return []store.Rows{store.RowsUnder(r.Known.Namespace, epoch, prefix)}
	})
}

// rows walks, epoch by epoch, the rows that have what a range needs between two times, and
// calls f for each part. Some epochs are walked at the same time, but f is called by one.
func (r *Reader) rows(ctx context.Context, rg *view.Range, f func(*store.PartFields, int64), of func(epoch store.PartFields, from, to int64) []store.Rows) error {
	var all []store.Rows
	for i := range rg.Runs {
		run := &rg.Runs[i]
		if err := epochs(run.Source.View, run.From, run.To, func(e store.Epoch) error {
			from, to := e.Span()
			epoch := store.PartFields{Kind: run.Source.Kind, View: run.Source.View.ID, Epoch: e}
			all = append(all, of(epoch, max(from, run.From), min(to, run.To))...)
			return nil
		}); err != nil {
			return err
		}
	}
	var mu sync.Mutex // held while f is called
	return inParallel(ctx, len(all), func(ctx context.Context, i int) error {
		return r.scan(ctx, all[i], func(p *store.PartEntry) error {
			fields, _ := p.Part.Fields()
			mu.Lock()
			f(&fields, p.Content.N)
			mu.Unlock()
			return nil
		})
	})
}

// walksMax is how many walks of one question go on at the same time.
const walksMax = 4

// inParallel calls f for the numbers below n, some at a time, and returns the first error,
// which ends the others.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, walksMax, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
