package history

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// The limits of a question about a top list.
const (
	listsMax = 20_000  // that are merged
	lanesMax = 200_000 // in which they are looked for
)

// Top returns a top list, of all time or of a range: of one counter, or of all counters of a
// pattern.
func (r *Reader) Top(ctx context.Context, name string, o call.TopOptions) (call.Top, error) {
	if err := o.Check(); err != nil {
		return call.Top{}, err
	}
	q, err := r.listed(ctx, name, o.Key)
	if err != nil {
		return call.Top{}, err
	}
	top := q.views.Tops()[q.list]
	k := o.K
	switch {
	case k == 0:
		k = top.Items()
	case k > top.Items():
		return call.Top{}, store.Errorf(store.KindInvalid, "%d items: the definition of top list %s keeps the first %d", k, name, top.Items())
	}
	t := call.Top{Name: name, Key: o.Key, By: top.By, AsOf: time.Now(), Trend: o.Trend}
	switch {
	case o.Trend:
		err = q.trend(ctx, &t, k, o)
	case o.From.IsZero() && o.To.IsZero():
		var list *sketch.Top
		if list, err = q.ever(ctx, &t); err == nil {
			tell(&t, list, k)
		}
	default:
		var list *sketch.Top
		if list, err = q.windows(ctx, &t, o.From, o.To); err == nil {
			tell(&t, list, k)
		}
	}
	return t, err
}

// A listing is a question about one top list.
type listing struct {
	reader *Reader
	views  *view.Views
	list   int          // in views.Tops
	shared bool         // by many counters
	cells  []store.Cell // that may have it: of a shared one all lanes
}

// listed finds a list: of a counter, or, if that is empty, of all counters of a pattern.
func (r *Reader) listed(ctx context.Context, name, key string) (*listing, error) {
	if key == "" {
		for i := range r.Known.Book.Entries {
			views := view.New(r.Known.Book, &r.Known.Book.Entries[i])
			if at, ok := views.Top(name, true); ok {
				return &listing{reader: r, views: views, list: at, shared: true, cells: r.lanes()}, nil
			}
		}
		return nil, store.Errorf(store.KindInvalid, "no definition has top list %q by key: define it first, such as {pattern: \"posts:*\", top: {name: %s, by: key}}; if the list belongs to one counter, name the counter", name, name)
	}
	views, err := r.views(key)
	if err != nil {
		return nil, err
	}
	at, ok := views.Top(name, false)
	if !ok {
		if _, shared := views.Top(name, true); shared {
			return nil, store.Errorf(store.KindInvalid, "top list %q covers all counters of a pattern: ask for it without a counter", name)
		}
		return nil, store.Errorf(store.KindInvalid, "the definition of %q has no top list %q: define it first, such as top: {name: %s, by: country}", key, name, name)
	}
	cells, err := r.shards(ctx, key)
	return &listing{reader: r, views: views, list: at, cells: cells}, err
}

// lanes returns the lanes that may have what many counters share.
func (r *Reader) lanes() []store.Cell {
	traits := r.Store.Traits()
	slots := 1
	if traits.Shared {
		slots = store.LaneSlots
	}
	lanes := make([]store.Cell, 0, slots*traits.Partitions)
	for slot := range slots {
		for partition := range traits.Partitions {
			lanes = append(lanes, store.LaneCell(r.Known.Namespace, partition, slot))
		}
	}
	return lanes
}

// A mergedList is one into which parts are merged.
type mergedList struct {
	mu   sync.Mutex // guards the fields below
	list *sketch.Top
	read int
}

func (q *listing) newList() (*mergedList, error) {
	list, err := sketch.NewTop(q.views.Tops()[q.list].Items())
	return &mergedList{list: list}, err
}

// take merges what is in a part.
func (m *mergedList) take(p store.Part, content *store.Content) error {
	if !content.Exists {
		return nil
	}
	list, err := sketch.ParseTop(content.Bytes)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read++; m.read > listsMax {
		return store.Errorf(store.KindTooLarge, "the list of that time is in more than %d parts: ask for a shorter range", listsMax)
	}
	if err == nil {
		err = m.list.Merge(list)
	}
	if err != nil {
		return store.Errorf(store.KindCorrupt, "top list %x: %w", string(p), err)
	}
	return nil
}

// ever reads the list of all time.
func (q *listing) ever(ctx context.Context, t *call.Top) (*sketch.Top, error) {
	m, err := q.newList()
	if err != nil {
		return nil, err
	}
	v := q.views.TopOf(q.list)
	if at, ok := q.reader.Known.Since(v.View); ok {
		t.CompleteFrom, t.Complete = time.UnixMilli(at), true
	}
	t.Aligned = true
	return m.list, q.read(ctx, m, []store.PartFields{{Kind: v.Kind, View: v.View.ID}})
}

// windows reads the list of a range.
func (q *listing) windows(ctx context.Context, t *call.Top, from, to time.Time) (*sketch.Top, error) {
	r := q.reader
	sources := q.views.TopWindows(q.list, r.Now, r.Known.Since)
	if len(sources) == 0 {
		return nil, noWindows(t.Name)
	}
	span := r.span(sources, from, to)
	if to.IsZero() {
		span.To = sources[len(sources)-1].Grid.At(r.Now).To
	}
	if err := checkSpan(from, span); err != nil {
		return nil, err
	}
	list, rg, err := q.span(ctx, sources, span)
	if err != nil {
		return nil, err
	}
	sum := rg.Sum()
	t.Aligned, t.Complete, t.CompleteFrom = sum.Exact, sum.Complete, time.UnixMilli(rg.CompleteFrom())
	t.From, t.To = time.UnixMilli(sum.From), time.UnixMilli(sum.To)
	return list, nil
}

func noWindows(name string) error {
	return store.Errorf(store.KindInvalid, "top list %q covers all time and has no windows: leave out the range and the trend, or add windows to its definition", name)
}

// span merges the fewest windows that a span has.
func (q *listing) span(ctx context.Context, sources []view.Source, span calendar.Span) (*sketch.Top, *view.Range, error) {
	rg, err := view.NewRange(sources, span, calendar.Grid{})
	if err != nil {
		return nil, nil, err
	}
	var parts []store.PartFields
	for i := range rg.Runs {
		run := &rg.Runs[i]
		for at := run.From; at < run.To; at = run.Source.Grid.At(at).To {
			parts = append(parts, store.PartFields{
				Kind: run.Source.Kind, View: run.Source.View.ID, Position: at, Epoch: store.EpochAt(at, time.Duration(run.Source.View.Epoch)),
			})
		}
	}
	m, err := q.newList()
	if err == nil {
		err = q.read(ctx, m, parts)
	}
	return m.list, rg, err
}

// read merges parts of all cells.
func (q *listing) read(ctx context.Context, m *mergedList, parts []store.PartFields) error {
	if n := len(parts) * len(q.cells); n > lanesMax {
		return store.Errorf(store.KindTooLarge, "the list of that time may be in %d parts: at most %d: ask for a shorter range", n, lanesMax)
	}
	var all []store.PartCell
	for _, f := range parts {
		for _, c := range q.cells {
			if _, _, slot, lane := store.LaneOf(c); lane {
				f.Name = strconv.Itoa(slot)
			}
			all = append(all, store.PartCell{Cell: c, Part: f.Part()})
		}
	}
	pages := (len(all) + sketchPage - 1) / sketchPage
	return inParallel(ctx, pages, func(ctx context.Context, i int) error {
		page := all[i*sketchPage : min((i+1)*sketchPage, len(all))]
		contents := make([]store.Content, len(page))
		if err := q.reader.Store.ReadParts(ctx, page, contents); err != nil {
			return err
		}
		for j := range contents {
			if err := m.take(page[j].Part, &contents[j]); err != nil {
				return err
			}
		}
		return nil
	})
}

// trend reads two ranges, one after the other, and tells what rose the most.
func (q *listing) trend(ctx context.Context, t *call.Top, k int, o call.TopOptions) error {
	r := q.reader
	sources := q.views.TopWindows(q.list, r.Now, r.Known.Since)
	if len(sources) == 0 {
		return noWindows(t.Name)
	}
	now := r.span(sources, o.From, o.To)
	if o.From.IsZero() { // the window that ended last
		grid := sources[len(sources)-1].Grid
		if o.To.IsZero() {
			now.To = grid.At(r.Now).From
		}
		now.From = grid.At(now.To - 1).From
	}
	if err := checkSpan(o.From, now); err != nil {
		return err
	}
	before := calendar.Span{From: now.From - (now.To - now.From), To: now.From}
	if o.From.IsZero() {
		before.From = sources[len(sources)-1].Grid.At(now.From - 1).From
	}
	later, rg, err := q.span(ctx, sources, now)
	if err != nil {
		return err
	}
	earlier, was, err := q.span(ctx, sources, before)
	if err != nil {
		return err
	}
	sum, old := rg.Sum(), was.Sum()
	t.Aligned, t.Complete = sum.Exact && old.Exact, sum.Complete && old.Complete
	t.CompleteFrom = time.UnixMilli(was.CompleteFrom())
	t.From, t.To, t.Before = time.UnixMilli(sum.From), time.UnixMilli(sum.To), time.UnixMilli(old.From)
	t.Total, t.Rest, t.Exact = later.Total(), later.Rest(), later.Rest() == 0 && earlier.Rest() == 0
	for _, c := range sketch.Changes(later, earlier, k) {
		lower, upper := later.Bounds(c.Item)
		t.Items = append(t.Items, call.TopItem{
			Item: c.Item, Count: upper, Lower: lower, Upper: upper,
			Rise: c.Lower/2 + c.Upper/2 + (c.Lower%2+c.Upper%2)/2, RiseLower: c.Lower, RiseUpper: c.Upper,
		})
	}
	return nil
}

// tell writes the first k items of a list into an answer.
func tell(t *call.Top, list *sketch.Top, k int) {
	t.Total, t.Rest, t.Exact = list.Total(), list.Rest(), list.Rest() == 0
	for i, item := range list.List(k + 1) {
		if i == k {
			t.Rest = max(t.Rest, item.Upper)
			break
		}
		t.Items = append(t.Items, call.TopItem{Item: item.Item, Count: item.Upper, Lower: item.Lower, Upper: item.Upper})
	}
	if t.Total == math.MaxInt64 { // where numbers stop
		t.Exact = false
	}
}
