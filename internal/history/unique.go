package history

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// The limits of a question about users.
const (
	sketchesMax = 100_000 // that are read
	sketchPage  = 64      // that are read at once: each may be 32 KiB
)

// Uniques returns how many different users a counter had, of all time or in a range.
func (r *Reader) Uniques(ctx context.Context, key string, o call.UniqueOptions) (call.Uniques, error) {
	if o.Top < 0 {
		return call.Uniques{}, store.Errorf(store.KindInvalid, "top %d is negative", o.Top)
	}
	u := call.Uniques{Key: key, By: o.By, AsOf: time.Now()}
	all, named, err := r.united(ctx, &u, key, o)
	if err != nil {
		return call.Uniques{}, err
	}
	u.UniqueEstimate = told(all.Estimate())
	if o.By != "" {
		named.into(&u, o.Top)
	}
	if o.With != "" {
		other := call.Uniques{}
		with, _, err := r.united(ctx, &other, o.With, call.UniqueOptions{From: o.From, To: o.To})
		if err != nil {
			return call.Uniques{}, err
		}
		a, b, both := sketch.Compare(all, with)
		u.Overlap = &call.UniqueOverlap{With: o.With, Only: told(a), Others: told(b), Both: told(both)}
		u.Complete = u.Complete && other.Complete
		u.Aligned = u.Aligned && other.Aligned && other.From.Equal(u.From) && other.To.Equal(u.To)
		if other.CompleteFrom.After(u.CompleteFrom) {
			u.CompleteFrom = other.CompleteFrom
		}
	}
	return u, nil
}

// united returns the users of a counter, and those of each value of a dimension, and says
// in u of which time they are.
func (r *Reader) united(ctx context.Context, u *call.Uniques, key string, o call.UniqueOptions) (*sketch.Unique, crowds, error) {
	if r.Known.Defines(key) == nil {
		all, err := r.held(ctx, u, key, o)
		return all, nil, err
	}
	views, err := r.views(key)
	if err != nil {
		return nil, nil, err
	}
	if views.Unique() == 0 {
		return nil, nil, view.NoUnique(key)
	}
	i := view.NoDimension
	if o.By != "" {
		if i, err = views.Dimension(o.By); err != nil {
			return nil, nil, err
		}
	}
	cells, err := r.shards(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	g := gathering{reader: r, crowds: crowds{}}
	if o.From.IsZero() && o.To.IsZero() {
		err = g.ever(ctx, u, views, i, cells)
	} else {
		err = g.windows(ctx, u, views, i, cells, o)
	}
	if err != nil {
		return nil, nil, err
	}
	all := sketch.NewUnique(views.Unique())
	for _, c := range g.crowds {
		all.Merge(c)
	}
	return all, g.crowds, nil
}

// held returns the items of a sketch that a key holds, which no definition names.
func (r *Reader) held(ctx context.Context, u *call.Uniques, key string, o call.UniqueOptions) (*sketch.Unique, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	var is [1]store.Value
	var has [1]store.Content
	if err := r.Store.Read(ctx, []store.Cell{r.cell(key)}, is[:]); err != nil {
		return nil, err
	}
	switch {
	case !is[0].Exists:
		return nil, view.NoUnique(key)
	case !is[0].IsObject():
		return nil, view.NotUniques(key)
	}
	if err := r.Store.ReadParts(ctx, []store.PartCell{{Cell: r.cell(key), Part: store.Object}}, has[:]); err != nil {
		return nil, err
	}
	all, err := sketch.ParseUnique(has[0].Bytes)
	switch {
	case !has[0].Exists: // It has gone meanwhile.
		return nil, view.NoUnique(key)
	case err != nil:
		return nil, view.NotUniques(key)
	case !o.From.IsZero(), !o.To.IsZero(), o.By != "":
		return nil, store.Errorf(store.KindInvalid, "%q is a sketch that covers all time, without windows and dimensions: for those, define {pattern: \"%s\", unique: who}", key, key)
	}
	u.Aligned, u.Complete = true, true
	return all, nil
}

// crowds are the users of each value, by the names of the parts. Those of all events have no
// name.
type crowds map[string]*sketch.Unique

// A gathering merges the sketches that a question needs.
type gathering struct {
	reader *Reader
	mu     sync.Mutex // guards the fields below
	crowds crowds
	read   int
}

// take merges what is in a part.
func (g *gathering) take(f *store.PartFields, content *store.Content) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read++; g.read > sketchesMax {
		return store.Errorf(store.KindTooLarge, "the users of that time are in more than %d sketches: ask for a shorter range, or without a dimension", sketchesMax)
	}
	has := g.crowds[f.Name]
	var err error
	if has == nil {
		has, err = sketch.ParseUnique(content.Bytes)
		g.crowds[f.Name] = has
	} else {
		err = has.MergeState(content.Bytes)
	}
	if err != nil {
		return store.Errorf(store.KindCorrupt, "users of %q, view %d: %w", f.Name, f.View, err)
	}
	return nil
}

// ever reads the sketches that are kept for ever.
func (g *gathering) ever(ctx context.Context, u *call.Uniques, views *view.Views, i int, cells []store.Cell) error {
	v, ok := views.UniqueOf(i)
	if !ok {
		return view.NoUnique(u.Key)
	}
	if at, ok := g.reader.Known.Since(v.View); ok {
		u.CompleteFrom, u.Complete = time.UnixMilli(at), true
	}
	u.Aligned = true
	from := store.PartFields{Kind: store.PartSketch, View: v.View.ID}
	to := from
	to.Position = 1
	for _, c := range cells {
		if err := g.rows(ctx, store.RowsOf(c, from, to)); err != nil {
			return err
		}
	}
	return nil
}

// windows reads the sketches of the windows in a range.
func (g *gathering) windows(ctx context.Context, u *call.Uniques, views *view.Views, i int, cells []store.Cell, o call.UniqueOptions) error {
	r := g.reader
	sources := views.Sketches(i, r.Now, r.Known.Since)
	if len(sources) == 0 {
		return store.Errorf(store.KindInvalid, "the sketch of users covers all time and has no windows: leave out the range")
	}
	span := r.span(sources, o.From, o.To)
	if o.To.IsZero() {
		span.To = sources[len(sources)-1].Grid.At(r.Now).To
	}
	if err := checkSpan(o.From, span); err != nil {
		return err
	}
	rg, err := view.NewRange(sources, span, calendar.Grid{})
	if err != nil {
		return err
	}
	var all []store.Rows
	for i := range rg.Runs {
		run := &rg.Runs[i]
		if err := epochs(run.Source.View, run.From, run.To, func(e store.Epoch) error {
			from, to := e.Span()
			first := store.PartFields{Kind: run.Source.Kind, View: run.Source.View.ID, Epoch: e, Position: max(from, run.From)}
			end := first
			end.Position = min(to, run.To)
			for _, c := range cells {
				all = append(all, store.RowsOf(c, first, end))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	err = inParallel(ctx, len(all), func(ctx context.Context, i int) error {
		return g.rows(ctx, all[i])
	})
	sum := rg.Sum()
	u.Aligned, u.Complete, u.CompleteFrom = sum.Exact, sum.Complete, time.UnixMilli(rg.CompleteFrom())
	u.From, u.To = time.UnixMilli(sum.From), time.UnixMilli(sum.To)
	return err
}

// rows merges the sketches of a range of rows.
func (g *gathering) rows(ctx context.Context, rows store.Rows) error {
	return g.reader.scanBy(ctx, rows, sketchPage, func(p *store.PartEntry) error {
		f, _ := p.Part.Fields()
		return g.take(&f, &p.Content)
	})
}

// into writes the users of each value into an answer, the most first, at most as many values
// as are asked for.
func (c crowds) into(u *call.Uniques, top int) {
	type value struct {
		name string
		of   *sketch.Unique
		est  call.UniqueEstimate
	}
	var all []value
	var other *sketch.Unique
	beyond := func(of *sketch.Unique) {
		if other == nil {
			other = of
		} else {
			other.Merge(of)
		}
	}
	for name, of := range c {
		if name == view.Other {
			beyond(of)
		} else {
			all = append(all, value{name, of, told(of.Estimate())})
		}
	}
	slices.SortFunc(all, func(a, b value) int {
		return cmp.Or(cmp.Compare(b.est.Count, a.est.Count), cmp.Compare(a.name, b.name))
	})
	for i, v := range all {
		if top > 0 && i >= top {
			beyond(v.of)
			continue
		}
		one := call.UniqueValue{Value: v.name, UniqueEstimate: v.est}
		if names := strings.Count(u.By, ",") + 1; names > 1 {
			one.Value, one.Values = "", view.Values(v.name)
			one.Values = append(one.Values, make([]string, names-len(one.Values))...) // events without any
		}
		u.Values = append(u.Values, one)
	}
	u.Other.Exact = true
	if other != nil {
		u.Other = told(other.Estimate())
	}
}

// told returns an estimate in whole users.
func told(e sketch.Estimate) call.UniqueEstimate {
	return call.UniqueEstimate{
		Count: int64(math.Round(e.Value)), Lower: int64(math.Floor(e.Lower)), Upper: int64(math.Ceil(e.Upper)),
		StandardError: e.Error, Exact: e.Exact,
	}
}
