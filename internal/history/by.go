package history

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/internal/wide"
	"github.com/quipudb/quipu/store"
)

// By returns what was counted for each value of a dimension.
func (r *Reader) By(ctx context.Context, key, dimension string, o call.ByOptions) (call.Breakdown, error) {
	views, err := r.views(key)
	if err != nil {
		return call.Breakdown{}, err
	}
	i, err := views.Dimension(dimension)
	if err != nil {
		return call.Breakdown{}, err
	}
	if o.Top < 0 {
		return call.Breakdown{}, store.Errorf(store.KindInvalid, "top %d is negative", o.Top)
	}
	b := call.Breakdown{Key: key, Dimension: dimension, AsOf: time.Now()}
	cells, err := r.shards(ctx, key)
	if err != nil {
		return call.Breakdown{}, err
	}
	var values values
	if o.From.IsZero() && o.To.IsZero() {
		values, err = r.allTime(ctx, &b, views, i, cells)
	} else {
		values, err = r.windowed(ctx, &b, views, i, cells, o)
	}
	if err != nil {
		return call.Breakdown{}, err
	}
	return b, values.into(&b, o.Top)
}

// values are what was counted for each, by the names of the parts.
type values map[string]*wide.Sum

func (v values) add(name string, n int64) {
	sum := v[name]
	if sum == nil {
		sum = new(wide.Sum)
		v[name] = sum
	}
	sum.Add(n)
}

// allTime reads the values of dimension i that are kept for ever, and what is outside of
// them. A cell that was not written to since the view came has not put aside yet what it
// had: until then, that is what the values lack of the total.
func (r *Reader) allTime(ctx context.Context, b *call.Breakdown, views *view.Views, i int, cells []store.Cell) (values, error) {
	all := views.All()
	v := &all[slices.IndexFunc(all, func(s view.Shown) bool { return s.Kind == store.PartDim && s.Dimension == i })]
	if at, ok := r.Known.Since(v.View); ok {
		b.CompleteFrom = time.UnixMilli(at)
	}
	versions, total, err := r.collect(ctx, b.Key)
	if err != nil {
		return nil, err
	}
	var outside, lacking wide.Sum
	lacking.Add(total.N)
	var books counted
	found := values{}
	for shard, c := range cells {
		from := store.PartFields{Kind: store.PartDim, View: v.View.ID}
		to := from
		to.Position = 1
		err := r.scan(ctx, store.RowsOf(c, from, to), func(p *store.PartEntry) error {
			f, _ := p.Part.Fields()
			found.add(f.Name, p.Content.N)
			lacking.Sub(p.Content.N)
			return nil
		})
		if err != nil {
			return nil, err
		}
		fields := []store.PartFields{{Kind: store.PartOutside, View: v.View.ID}, {Kind: store.PartBook}}
		content := make([]store.Content, len(fields))
		if err := r.Store.ReadParts(ctx, []store.PartCell{{Cell: c, Part: fields[0].Part()}, {Cell: c, Part: fields[1].Part()}}, content); err != nil {
			return nil, err
		}
		outside.Add(content[0].N)
		if err := books.take(shard, &fields[1], &content[1], nil); err != nil {
			return nil, err
		}
		from, to = store.PartFields{Kind: store.PartOutside, Position: int64(v.View.Book)}, store.PartFields{Kind: store.PartOutside, View: 1, Position: math.MinInt64}
		err = r.scan(ctx, store.RowsOf(c, from, to), func(p *store.PartEntry) error {
			outside.Add(p.Content.N)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if total.Exists && !books.began(v.View, versions) {
		outside = lacking
	}
	var ok bool
	if b.Outside, ok = outside.Int64(); !ok {
		return nil, store.ErrOverflow
	}
	b.Exact, b.Complete = true, b.Outside == 0
	return found, nil
}

// windowed reads the windows of dimension i in a range.
func (r *Reader) windowed(ctx context.Context, b *call.Breakdown, views *view.Views, i int, cells []store.Cell, o call.ByOptions) (values, error) {
	sources := views.Sources(i, r.Now, r.Known.Since)
	if len(sources) == 0 {
		return nil, store.Errorf(store.KindInvalid, "dimension %q of %q covers all time and has no windows: leave out the range", b.Dimension, b.Key)
	}
	span := r.span(sources, o.From, o.To)
	if o.To.IsZero() {
		span.To = sources[len(sources)-1].Grid.At(r.Now).To
	}
	if err := checkSpan(o.From, span); err != nil {
		return nil, err
	}
	rg, err := view.NewRange(sources, span, calendar.Grid{})
	if err != nil {
		return nil, err
	}
	found := values{}
	err = r.countRows(ctx, rg, cells, func(f *store.PartFields, n int64) {
		if _, ok := rg.Point(f.View, f.Position); ok {
			found.add(f.Name, n)
		}
	})
	sum := rg.Sum()
	b.Exact, b.Complete, b.CompleteFrom = sum.Exact, sum.Complete, time.UnixMilli(rg.CompleteFrom())
	b.From, b.To = time.UnixMilli(sum.From), time.UnixMilli(sum.To)
	return found, err
}

// into writes the values into a breakdown, the highest first, at most as many as are asked
// for.
func (v values) into(b *call.Breakdown, top int) error {
	type value struct {
		name string
		sum  *wide.Sum
	}
	var sum, other wide.Sum
	var all []value
	for name, n := range v {
		sum.Merge(*n)
		if name == view.Other {
			other.Merge(*n)
		} else if *n != (wide.Sum{}) {
			all = append(all, value{name, n})
		}
	}
	slices.SortFunc(all, func(x, y value) int {
		switch {
		case y.sum.Less(*x.sum):
			return -1
		case x.sum.Less(*y.sum):
			return 1
		}
		return cmp.Compare(x.name, y.name)
	})
	fits := true
	number := func(s wide.Sum) int64 {
		n, ok := s.Int64()
		fits = fits && ok
		return n
	}
	for i, x := range all {
		if top > 0 && i >= top {
			other.Merge(*x.sum)
			continue
		}
		one := call.DimensionValue{Value: x.name, Count: number(*x.sum)}
		if names := strings.Count(b.Dimension, ",") + 1; names > 1 {
			one.Value, one.Values = "", view.Values(x.name)
			one.Values = append(one.Values, make([]string, names-len(one.Values))...) // events without any
		}
		b.Values = append(b.Values, one)
	}
	if b.Sum, b.Other = number(sum), number(other); !fits {
		return store.Errorf(store.KindOverflow, "the values of dimension %q add up to more than an int64", b.Dimension)
	}
	return nil
}
