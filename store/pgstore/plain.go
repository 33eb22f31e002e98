package pgstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// A plain batch has nothing but adds without conditions, but for those on the
// layout, and perhaps with tokens, and with riders that add what was applied: the server
// can apply it by itself.
type plain struct {
	*plan.Adds
	most       int64   // deltas to one cell
	laid       []int64 // what the layout of each cell must be, or anyhow; nil if that is so of all
	namespaces []string
	rides      bool // some are events

	// Between what the value of each cell must be before the batch; nil if bounds ask for
	// nothing.
	least, limit []int64
}

// anyhow is that a layout does not matter.
const anyhow = -1

// plainOf returns b as a plain batch; ok is false if it is none. A sum must leave int64
// if and only if one of its adds would have.
func plainOf(b *store.Batch) (p *plain, ok bool) {
	adds, ok := plan.WithRiders(b)
	if !ok || len(b.Deltas) == 0 {
		return nil, false
	}
	p = &plain{Adds: adds}
	for i := range p.Cells {
		c := &p.Cells[i]
		if !c.Direct() {
			return nil, false
		}
		p.most = max(p.most, int64(c.To-c.From))
		if i == 0 || c.Namespace != p.Cells[i-1].Namespace {
			p.namespaces = append(p.namespaces, c.Namespace)
		}
		if c.Laid && p.laid == nil {
			p.laid = slices.Repeat([]int64{anyhow}, len(p.Cells))
		}
		if c.Laid {
			p.laid[i] = c.Layout
		}
		if c.Bounded && p.least == nil {
			p.least, p.limit = slices.Repeat([]int64{math.MinInt64}, len(p.Cells)), slices.Repeat([]int64{math.MaxInt64}, len(p.Cells))
		}
		if c.Bounded {
			p.least[i], p.limit[i] = c.Least, c.Most
		}
	}
	p.rides = slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return d.Event != nil })
	return p, true
}

// A made is what a plain batch made of its cells, in their order. All but the
// versions is told only if the batch wants values, and which are fresh only if
// some are. Most cells have one version: the others are at odd.
type made struct {
	version          *int64
	odd              []int32
	versions, afters []int64
	terms            []*int64
	fresh            []bool
}

// plain reports whether a mark is of a plain batch.
func (m *made) plain() bool { return m.version != nil || m.versions != nil }

// expand makes versions those of all n cells. Marks of format 1 have them so.
func (m *made) expand(n int) {
	if m.version == nil || len(m.odd) != len(m.versions) {
		return
	}
	all := slices.Repeat([]int64{*m.version}, n)
	for i, at := range m.odd {
		if at >= 0 && int(at) < n {
			all[at] = m.versions[i]
		}
	}
	m.versions = all
}

// fits reports whether m can be of p, which is what it takes to answer.
func (m *made) fits(p *plain) bool {
	n := len(p.Cells)
	m.expand(n)
	return len(m.versions) == n && (!p.Want || len(m.afters) == n && len(m.terms) == n) &&
		(len(m.fresh) == 0 || len(m.fresh) == n)
}

// answer appends the results to r.
func (p *plain) answer(r *store.Reply, m *made) {
	r.Results = p.Results(r.Results, func(i int) store.Value {
		v := store.Value{N: m.afters[i] - p.Cells[i].Sum, Exists: len(m.fresh) == 0 || !m.fresh[i]}
		if term := m.terms[i]; term != nil {
			v.DeadlineMS = max(*term, 0)
		}
		return v
	}, func(i, _, later int) uint64 { return uint64(m.versions[i] - int64(later)) })
}

// The time it takes to change rows that nobody else is changing, or a little more. A
// plain batch that took longer is said to have waited.
const (
	callTime = 200 * time.Microsecond
	rowTime  = 20 * time.Microsecond
)

// applyPlain applies the only batch of w in one round trip. It reports false if
// the batch has to be decided here.
func (s *Store) applyPlain(ctx context.Context, p *plain, w *work) (done bool, err error) {
	b, r := w.batches[0], w.replies[0]
	digest := uint64(0)
	if b.Writer != 0 {
		digest = b.Digest()
	}
	cells, sums := make([]store.Cell, len(p.Cells)), make([]int64, len(p.Cells))
	for i := range p.Cells {
		cells[i], sums[i] = p.Cells[i].Cell, p.Cells[i].Sum
	}
	namespaces, keys := columns(cells)
	spaces, locks := make([][]byte, len(p.namespaces)), make([]int64, len(p.namespaces))
	for i, ns := range p.namespaces {
		spaces[i], locks[i] = []byte(ns), s.locks.namespace(ns)
	}
	if err := s.room(ctx, w); err != nil {
		return false, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, failure(ctx, err)
	}
	defer conn.Release()
	t := tallyOf(p.Record)
	var m made
	var took int64
	way := 0
	sql, args := &s.sql.plain, []any{
		int64(b.Writer), int64(b.Prev), int64(b.Seq), int64(digest), t.deltas, t.total, t.proof, p.Want, w.lazy, s.clock(),
		namespaces, keys, sums, p.most, p.laid, spaces, locks, s.limits.KeysMax - s.margin,
	}
	args = append(args, fencesOf(p)...)
	if p.rides {
		way, args = 1, append(args, partsOf(p)...)
	}
	switch {
	case p.least != nil && len(p.Tokens) > 0:
		sql, args = &s.sql.tokenedWithin, append(append(args, s.tokens(p)...), p.least, p.limit)
	case p.least != nil:
		sql, args = &s.sql.within, append(args, p.least, p.limit)
	case len(p.Tokens) > 0:
		sql, args = &s.sql.tokened, append(args, s.tokens(p)...)
	case s.unusual.any(p.namespaces):
		sql = &s.sql.quietly
	}
	s.meters.trips.Add(1)
	err = conn.QueryRow(ctx, sql[way], args...).Scan(&took, &m.version, &m.odd, &m.versions, &m.afters, &m.terms, &m.fresh)
	switch code(err) {
	case codeNoEpoch:
		s.tables.set(nil)
		return false, nil
	case codeSerialization, codeDeadlock:
		s.meters.retries.Add(1)
		w.retries++
		return false, nil
	case codeUnusual, codeOverflow:
		s.meters.unusual.Add(1)
		s.unusual.add(p.namespaces)
		return false, nil
	}
	if err != nil {
		return false, unsure(ctx, err)
	}
	if m.version == nil {
		s.meters.unusual.Add(1)
		return false, nil
	}
	s.meters.plain.Add(1)
	m.expand(len(p.Cells))
	p.answer(r, &m)
	r.Waited = max(0, time.Duration(took)*time.Microsecond-callTime-time.Duration(len(p.Cells))*rowTime)
	if b.Writer != 0 {
		r.Mark = b.Seq
	}
	return true, nil
}

// bounded returns the cells that have bounds.
func (p *plain) bounded() (names []string) {
	for i := range p.least {
		if c := &p.Cells[i]; c.Bounded {
			names = append(names, c.Namespace+"/"+c.Key)
		}
	}
	return names
}

// recent are the namespaces that had an unusual batch in the last minute, or the cells
// that bounds stood in the way of a moment ago.
type recent struct {
	keep time.Duration // how long it matters; 0 is a minute

	mu sync.Mutex // guards at
	at map[string]time.Time
}

const recentMax = 1000

// shortFor is how long a batch to a cell that is near its bound is not tried the short
// way: it would be in vain.
const shortFor = 100 * time.Millisecond

func (r *recent) any(names []string) bool {
	if len(names) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool {
		at, ok := r.at[name]
		return ok && time.Since(at) < cmp.Or(r.keep, time.Minute)
	})
}

func (r *recent) add(names []string) {
	if len(names) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil || len(r.at) >= recentMax {
		r.at = make(map[string]time.Time)
	}
	for _, name := range names {
		r.at[name] = time.Now()
	}
}
