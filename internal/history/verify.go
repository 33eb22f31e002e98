package history

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

const (
	verifyBatch = 1000    // counters whose totals are read at a time
	verifyRows  = 100_000 // parts that are held at a time, of all streams
	verifyTries = 8       // how often a counter is read that is written to meanwhile
	driftsMax   = 1000    // that are told, of one namespace
)

// Verify evaluates the equations between totals, windows, dimensions and ledgers of all
// counters that have them, and adds what it finds to an audit.
//
// It walks over all parts once, in the order of keys, while counters are written to. A
// counter that does not add up there is read again by itself, until nothing was written
// meanwhile: only then it is drift. One that is never left alone for so long is unproved.
func (r *Reader) Verify(ctx context.Context, a *store.Audit) error {
	v := &verifier{reader: r, audit: a}
	for i := range r.Known.Book.Entries {
		if err := v.entry(ctx, &r.Known.Book.Entries[i]); err != nil {
			return err
		}
	}
	if v.restless > 0 {
		a.Unproved = append(a.Unproved, fmt.Sprintf("namespace %q: %d counters were written to each time that their windows were compared", r.Known.Namespace, v.restless))
	}
	if v.relisted > 0 {
		a.Unproved = append(a.Unproved, fmt.Sprintf("namespace %q: %d patterns have top lists by key that were added to each time that their windows were compared", r.Known.Namespace, v.relisted))
	}
	if v.rebooked > 0 {
		a.Unproved = append(a.Unproved, fmt.Sprintf("namespace %q: %d counters have windows that differ, of a time for which other definitions held", r.Known.Namespace, v.rebooked))
	}
	if v.more > 0 {
		a.Unproved = append(a.Unproved, fmt.Sprintf("namespace %q: %d further differences", r.Known.Namespace, v.more))
	}
	return nil
}

type verifier struct {
	reader                                     *Reader
	audit                                      *store.Audit
	drifts, more, restless, relisted, rebooked int
}

// pending are counters that were walked over, and wait for their totals.
type pending struct {
	cells  []store.Cell
	counts []counted
}

// entry verifies the counters of an entry.
func (v *verifier) entry(ctx context.Context, e *book.Entry) error {
	r, q := v.reader, v.reader.equations(e)
	prefix, open := strings.CutSuffix(e.Definition.Pattern, "*")
	under := func(f store.PartFields) store.Rows {
		rows := store.RowsUnder(r.Known.Namespace, f, prefix)
		if !open { // the one key, and not those that it begins
			rows.From, rows.To = rows.From+"\xff", rows.From+"\xff\xff\xff\xff"
		}
		return rows
	}
	if err := v.shared(ctx, q); err != nil {
		return err
	}
	sets := r.sets(q, under)
	m := &merger{reader: r}
	page := min(max(verifyRows/len(sets), sketchPage), store.ScanMax)
	for _, s := range sets {
		if err := m.add(ctx, s.rows, min(page, s.page)); err != nil {
			return err
		}
	}
	p := pending{counts: make([]counted, verifyBatch)}
	for {
		key, ok := m.key()
		if !ok {
			return v.judge(ctx, q, &p)
		}
		c := &p.counts[len(p.cells)]
		c.reset(len(q.views))
		if err := m.take(ctx, key, func(shard int, f *store.PartFields, content *store.Content) error {
			return c.take(shard, f, content, q)
		}); err != nil {
			return err
		}
		v.audit.Cells += c.parts
		if r.Known.Book.Of(key) != e { // It is of an earlier entry.
			continue
		}
		if p.cells = append(p.cells, r.cell(key)); len(p.cells) == verifyBatch {
			if err := v.judge(ctx, q, &p); err != nil {
				return err
			}
		}
	}
}

// index returns which of the entry's views has an id, or -1.
func (q *equations) index(id uint16) int {
	for i := range q.views {
		if q.views[i].View.ID == id {
			return i
		}
	}
	return -1
}

// A set is rows that equations need, and how many of them are read at a time at most.
type set struct {
	rows store.Rows
	page int
}

// sets returns what the equations of counters need; of has the rows of one kind, and if it is
// kept for a time, of one view and epoch.
func (r *Reader) sets(q *equations, of func(store.PartFields) store.Rows) []set {
	var sets []set
	kinds := []store.PartKind{store.PartBook, store.PartOutside, store.PartDim, store.PartAdmitted}
	if q.reacts() {
		kinds = append(kinds, store.PartGeneration, store.PartMembers, store.PartMember)
	}
	for _, kind := range kinds {
		sets = append(sets, set{of(store.PartFields{Kind: kind}), store.ScanMax})
	}
	if slices.ContainsFunc(q.views, func(s view.Shown) bool { return s.Top != 0 && s.Kind == store.PartSketch }) {
		sets = append(sets, set{of(store.PartFields{Kind: store.PartSketch}), sketchPage})
	}
	for i := range q.views {
		if q.views[i].Kind.Shared() {
			continue
		}
		r.needed(q, i, func(f store.PartFields, page int) { sets = append(sets, set{of(f), page}) })
	}
	return sets
}

// needed calls f for the epochs of view i that have what is in an equation, if it has epochs.
func (r *Reader) needed(q *equations, i int, f func(fields store.PartFields, page int)) {
	s := &q.views[i]
	if s.Kind&store.PartRetained == 0 || q.from[i] == never {
		return
	}
	page := store.ScanMax
	if s.Top != 0 {
		page = sketchPage
	}
	from := max(q.from[i], 0)
	if s.Keep != 0 {
		begin, end := store.EpochAt(r.Now, time.Duration(s.View.Epoch)).Span()
		from = max(from, r.Now-s.Keep-2*(end-begin)-s.Grid.Longest())
	}
	_ = epochs(s.View, from, r.Now+2*book.Ahead, func(e store.Epoch) error {
		f(store.PartFields{Kind: s.Kind, View: s.View.ID, Epoch: e}, page)
		return nil
	})
}

// judge reads the totals of counters that were walked over, and looks again at those that
// do not add up.
func (v *verifier) judge(ctx context.Context, q *equations, p *pending) error {
	values := make([]store.Value, len(p.cells))
	if err := v.reader.Store.Read(ctx, p.cells, values); err != nil {
		return err
	}
	for i := range p.cells {
		if len(q.check(&p.counts[i], values[i], nil)) > 0 {
			if err := v.again(ctx, q, p.cells[i].Key); err != nil {
				return err
			}
		}
	}
	p.cells = p.cells[:0]
	return nil
}

// again looks at one counter until nothing was written meanwhile.
func (v *verifier) again(ctx context.Context, q *equations, key string) error {
	for range verifyTries {
		found, still, err := v.reader.alone(ctx, q, key)
		if err != nil {
			return err
		}
		if !still {
			continue
		}
		unsure := false
		for _, f := range found {
			if !f.sure {
				unsure = true
			} else {
				v.drift(fmt.Sprintf("counter %q of namespace %q: ", key, v.reader.Known.Namespace), f)
			}
		}
		if unsure {
			v.rebooked++
		}
		return nil
	}
	v.restless++
	return nil
}

// drift notes what does not hold, of what is named.
func (v *verifier) drift(of string, f finding) {
	if v.drifts++; v.drifts > driftsMax {
		v.more++
		return
	}
	v.audit.Drift = append(v.audit.Drift, store.Drift{What: of + f.what, Have: strconv.FormatInt(int64(f.have), 10), Want: strconv.FormatInt(int64(f.want), 10)})
}

// alone evaluates the equations of one counter, and reports whether nothing was written
// while it was read.
func (r *Reader) alone(ctx context.Context, q *equations, key string) (found []finding, still bool, err error) {
	c, total, versions, err := r.gather(ctx, q, key)
	if err != nil || c == nil {
		return nil, false, err
	}
	return q.check(c, total, versions), true, nil
}

// gather reads a counter by itself, with its total and the versions of its cells. It
// returns nil if something was written meanwhile.
func (r *Reader) gather(ctx context.Context, q *equations, key string) (*counted, store.Value, []uint64, error) {
	before, total, err := r.collect(ctx, key)
	if err != nil {
		return nil, total, nil, err
	}
	cells, err := r.shards(ctx, key)
	if err != nil {
		return nil, total, nil, err
	}
	for i := len(cells); i < len(before); i++ {
		cells = append(cells, store.ShardCell(r.cell(key), i))
	}
	c := &counted{}
	c.reset(len(q.views))
	for shard, cell := range cells {
		sets := r.sets(q, func(f store.PartFields) store.Rows {
			from, to := f, f
			if from.Position, to.Position = math.MinInt64, math.MaxInt64; f.Kind&store.PartRetained == 0 {
				to.View = math.MaxUint16
			}
			return store.RowsOf(cell, from, to)
		})
		for _, s := range sets {
			if err := r.scanBy(ctx, s.rows, s.page, func(p *store.PartEntry) error {
				f, _ := p.Part.Fields()
				return c.take(shard, &f, &p.Content, q)
			}); err != nil {
				return nil, total, nil, err
			}
		}
	}
	after, _, err := r.collect(ctx, key)
	if err != nil || !slices.Equal(before, after) {
		return nil, total, nil, err
	}
	return c, total, before, nil
}

// A merger walks several ranges of rows side by side, counter by counter.
type merger struct {
	reader *Reader
	walks  walks
}

// A walk is one range of rows.
type walk struct {
	rows  store.Rows
	page  int
	found []store.PartEntry
	more  bool
	key   string // of the counter that comes next
}

// add begins a walk over rows, so many at a time.
func (m *merger) add(ctx context.Context, rows store.Rows, page int) error {
	w := &walk{rows: rows, page: page, more: true}
	if ok, err := m.fill(ctx, w); err != nil || !ok {
		return err
	}
	heap.Push(&m.walks, w)
	return nil
}

// fill reads the next page of a walk, if it has none; ok is false at the end.
func (m *merger) fill(ctx context.Context, w *walk) (ok bool, err error) {
	if len(w.found) == 0 && w.more {
		if w.found, err = m.reader.Store.ScanParts(ctx, w.rows, w.page); err != nil {
			return false, err
		}
		if w.more = len(w.found) == w.page; w.more {
			w.rows = beyond(w.rows, &w.found[len(w.found)-1])
		}
	}
	if len(w.found) == 0 {
		return false, nil
	}
	w.key = counterOf(w.found[0].Cell).Key
	return true, nil
}

// key returns the counter that comes next.
func (m *merger) key() (string, bool) {
	if len(m.walks) == 0 {
		return "", false
	}
	return m.walks[0].key, true
}

// take calls f for all parts of the counter that comes next.
func (m *merger) take(ctx context.Context, key string, f func(shard int, fields *store.PartFields, content *store.Content) error) error {
	for len(m.walks) > 0 && m.walks[0].key == key {
		w := m.walks[0]
		p := &w.found[0]
		_, shard, _ := store.ShardOf(p.Cell)
		fields, _ := p.Part.Fields()
		if err := f(shard, &fields, &p.Content); err != nil {
			return err
		}
		last := w.found[0].Cell
		if w.found = w.found[1:]; len(w.found) > 0 && w.found[0].Cell == last {
			continue // Most have several of one counter in a row.
		}
		switch ok, err := m.fill(ctx, w); {
		case err != nil:
			return err
		case ok:
			heap.Fix(&m.walks, 0)
		default:
			heap.Pop(&m.walks)
		}
	}
	return nil
}

// walks are in the order of the keys that come next, which is that of rows: a key comes
// after those that begin with it.
type walks []*walk

// Len, Less, Swap, Push and Pop are for package heap.
func (w walks) Len() int { return len(w) }

// Less compares the counters that come next.
func (w walks) Less(i, j int) bool { return rowLess(w[i].key, w[j].key) }

func rowLess(a, b string) bool {
	n := min(len(a), len(b))
	if a[:n] != b[:n] || len(a) == len(b) {
		return a < b
	}
	return len(a) > len(b)
}

// Swap swaps two.
func (w walks) Swap(i, j int) { w[i], w[j] = w[j], w[i] }

// Push appends one.
func (w *walks) Push(x any) { *w = append(*w, x.(*walk)) }

// Pop removes the last.
func (w *walks) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return x
}
