package history

import (
	"context"
	"slices"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/internal/wide"
	"github.com/quipudb/quipu/store"
)

// A Collector is a Store that can tell of which versions of its cells a value is the sum.
type Collector interface {
	Collect(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error
}

// collectTries is how often a counter is read anew because it was written to meanwhile.
const collectTries = 4

// SourceWindows is the source of a value that was computed from windows.
const SourceWindows = "windows"

// AsOf returns the total that a counter had at a time, by the times of its events: its
// total now, without what was counted since, and without what was set since.
//
// It is exact if that can be proved: windows that begin at the time have all events since,
// the ledger has everything that was set since, and nothing was written while they were
// read.
func (r *Reader) AsOf(ctx context.Context, key string, at int64) (call.Count, error) {
	views, err := r.views(key)
	if err != nil {
		return call.Count{}, err
	}
	sources := views.Sources(view.NoDimension, r.Now, r.Known.Since)
	if len(sources) == 0 {
		return call.Count{}, store.Errorf(store.KindInvalid, "no windows are defined for %q: its earlier values are not known", key)
	}
	if at > r.Now {
		return call.Count{}, store.Errorf(store.KindInvalid, "%s is in the future", time.UnixMilli(at).UTC().Format(time.RFC3339))
	}
	end := sources[len(sources)-1].Grid.At(r.Now + book.Ahead).To
	var n call.Count
	for try := 0; ; try++ {
		before, total, err := r.collect(ctx, key)
		if err != nil {
			return call.Count{}, err
		}
		rg, err := view.NewRange(sources, calendar.Span{From: at, To: end}, calendar.Grid{})
		if err != nil {
			return call.Count{}, err
		}
		if err := r.countOne(ctx, rg, key); err != nil {
			return call.Count{}, err
		}
		set, known, err := r.assigned(ctx, key, views, at)
		if err == nil && known {
			known, err = r.moved(ctx, key)
		}
		if err != nil {
			return call.Count{}, err
		}
		after, _, err := r.collect(ctx, key)
		if err != nil {
			return call.Count{}, err
		}
		still := total.Exists && slices.Equal(before, after)
		if n, err = r.asOf(rg, total, set); err != nil {
			return call.Count{}, err
		}
		n.Exact = n.Exact && known && still
		if still || !total.Exists || try == collectTries {
			break
		}
	}
	n.Key = key
	if n.Bounded = n.Exact; n.Bounded {
		n.Lower, n.Upper = n.Value, n.Value
	}
	return n, nil
}

// asOf takes what came later from a total. If no window has begun later, that is nothing, and
// the total is as of now. A counter that is deleted has existed if it had a value.
func (r *Reader) asOf(rg *view.Range, total store.Value, set wide.Sum) (call.Count, error) {
	later := rg.Sum()
	counted, err := later.Value()
	if err != nil {
		return call.Count{}, err
	}
	var sum wide.Sum
	sum.Add(total.N)
	sum.Sub(counted)
	if n, ok := set.Int64(); ok {
		sum.Sub(n)
	}
	value, ok := sum.Int64()
	if !ok {
		return call.Count{}, store.ErrOverflow
	}
	n := call.Count{
		Value: value, Exact: later.Exact && later.Complete, Complete: later.Complete || len(rg.Points) == 0, Exists: total.Exists || value != 0,
		Source: SourceWindows, Shards: 1, AsOf: time.UnixMilli(min(later.From, r.Now)),
	}
	n.Staleness = time.Since(n.AsOf)
	return n, nil
}

// collect returns a counter, and the versions of its cells.
func (r *Reader) collect(ctx context.Context, key string) ([]uint64, store.Value, error) {
	cells, values, versions := []store.Cell{r.cell(key)}, make([]store.Value, 1), make([][]uint64, 1)
	if c, ok := r.Store.(Collector); ok {
		err := c.Collect(ctx, cells, values, versions)
		return versions[0], values[0], err
	}
	err := r.Store.Read(ctx, cells, values)
	return []uint64{values[0].Version}, values[0], err
}

// assigned returns by how much a counter was changed by what was set since a time, and
// whether that is known.
func (r *Reader) assigned(ctx context.Context, key string, views *view.Views, since int64) (sum wide.Sum, known bool, err error) {
	l, ok := views.Ledger()
	if !ok {
		return sum, false, nil
	}
	first, ok := r.Known.Since(l.View)
	known = ok && first <= since && (l.Keep == 0 || r.Now-l.Keep <= since)
	cells, err := r.shards(ctx, key)
	if err != nil {
		return sum, false, err
	}
	m := &merged{streams: r.streams(key, cells, views, since, r.Now+hour)}
	for err = m.begin(ctx); err == nil; err = m.step(ctx) {
		e, line := m.line()
		if e == nil {
			return sum, known, nil
		}
		if !e.Lines[line].Kind.Adds() {
			n, ok := e.Delta(line)
			known = known && ok
			sum.Add(n)
		}
	}
	return sum, false, err
}

// moved reports whether all that was reserved of a counter, and given back, is among what was
// set: a ledger of all events has it, and no other.
func (r *Reader) moved(ctx context.Context, key string) (known bool, err error) {
	if e := r.Known.Of(key).Entry; e.Definition.Ledger.Record == definition.All {
		return true, nil
	}
	var held [1]store.Content
	err = r.Store.ReadParts(ctx, []store.PartCell{{Cell: r.cell(key), Part: hold.Number("")}}, held[:])
	return !held[0].Exists, err
}
