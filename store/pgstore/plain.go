package pgstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A plain batch has nothing but adds without conditions, but for those on the
// layout, and perhaps with tokens: the server can apply it by itself. Each cell is
// in it once, with the sum of its deltas.
type plain struct {
	batch      *store.Batch
	order      []int32 // of the deltas, by their cells; those of one cell as they are in the batch
	cells      []store.Cell
	sums       []int64
	counts     []int64 // deltas of each cell
	most       int64   // of the counts
	laid       []int64 // what the layout of each cell must be, or anyhow; nil if that is so of all
	namespaces []string
	record     decide.Record
	want       bool
	tokened    bool // some have tokens
}

// plainServes is what the server can apply by itself.
const plainServes = store.NeedMark | store.NeedValue | store.NeedToken | store.NeedLayout

// anyhow is that a layout does not matter.
const anyhow = -1

// plainOf returns b as a plain batch; ok is false if it is none. The adds to one
// cell must have one sign: then its sum leaves int64 if and only if one of them
// would have.
func plainOf(b *store.Batch) (p *plain, ok bool) {
	if len(b.Deltas) == 0 || b.Needs()&^plainServes != 0 {
		return nil, false
	}
	p = &plain{batch: b, order: make([]int32, len(b.Deltas)), most: 1}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		p.order[i] = int32(i)
		p.want = p.want || d.Want
		p.tokened = p.tokened || d.Guard.Token != ""
		p.record.Merge(decide.Change(d.Cell, uint64(d.N)))
	}
	p.record.Deltas = uint64(len(b.Deltas))
	slices.SortFunc(p.order, func(i, j int32) int {
		return cmp.Or(compareCells(b.Deltas[i].Cell, b.Deltas[j].Cell), cmp.Compare(i, j))
	})
	return p, p.sum()
}

// sum adds up the deltas of each cell, and reports whether that can be done.
func (p *plain) sum() bool {
	n := len(p.order)
	p.cells, p.sums, p.counts = make([]store.Cell, 0, n), make([]int64, 0, n), make([]int64, 0, n)
	for _, i := range p.order {
		d, last := &p.batch.Deltas[i], len(p.cells)-1
		if last < 0 || d.Cell != p.cells[last] {
			if last < 0 || d.Cell.Namespace != p.cells[last].Namespace {
				p.namespaces = append(p.namespaces, d.Cell.Namespace)
			}
			p.cells, p.sums, p.counts = append(p.cells, d.Cell), append(p.sums, d.N), append(p.counts, 1)
			p.lay(d, last+1)
			continue
		}
		if !p.lay(d, last) {
			return false
		}
		before := p.sums[last]
		sum := before + d.N
		if before < 0 && (d.N > 0 || sum >= 0) || before > 0 && (d.N < 0 || sum <= 0) {
			return false
		}
		p.sums[last] = sum
		p.counts[last]++
		p.most = max(p.most, p.counts[last])
	}
	return true
}

// lay enters what d needs the layout of a cell to be, and reports false if another
// needs it to be different.
func (p *plain) lay(d *store.Delta, cell int) bool {
	word := int64(anyhow)
	switch {
	case d.Guard.Laid:
		word = d.Guard.Layout
	case d.NeedsWhole():
		word = 0
	}
	if word == anyhow && p.laid == nil {
		return true
	}
	for len(p.laid) <= cell {
		p.laid = append(p.laid, anyhow)
	}
	if p.laid[cell] == anyhow {
		p.laid[cell] = word
	}
	return word == anyhow || p.laid[cell] == word
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
	n := len(p.cells)
	m.expand(n)
	return len(m.versions) == n && (!p.want || len(m.afters) == n && len(m.terms) == n) &&
		(len(m.fresh) == 0 || len(m.fresh) == n)
}

// answer appends the results to r.
func (p *plain) answer(r *store.Reply, m *made) {
	start, next := len(r.Results), 0
	r.Results = slices.Grow(r.Results, len(p.order))[:start+len(p.order)]
	for i := range p.cells {
		before := int64(0)
		if p.want {
			before = m.afters[i] - p.sums[i]
		}
		for left := p.counts[i] - 1; left >= 0; left-- {
			at := p.order[next]
			d, res := &p.batch.Deltas[at], &r.Results[start+int(at)]
			*res = store.Result{Outcome: store.Applied, Version: uint64(m.versions[i] - left)}
			if d.Want {
				res.Before, res.After = before, before+d.N
				res.Existed = left < p.counts[i]-1 || len(m.fresh) == 0 || !m.fresh[i]
				if term := m.terms[i]; term != nil {
					res.DeadlineMS = max(*term, 0)
				}
			}
			before += d.N
			next++
		}
	}
}

// What it takes to change rows that nobody else is changing, or a little more. A
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
	namespaces, keys := columns(p.cells)
	spaces, locks := make([][]byte, len(p.namespaces)), make([]int64, len(p.namespaces))
	for i, ns := range p.namespaces {
		spaces[i], locks[i] = []byte(ns), s.locks.namespace(ns)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, failure(ctx, err)
	}
	defer conn.Release()
	t := tallyOf(p.record)
	var m made
	var took int64
	sql, args := s.sql.plain, []any{
		int64(b.Writer), int64(b.Prev), int64(b.Seq), int64(digest), namespaces, keys, p.sums, p.most, p.laid,
		t.deltas, t.total, t.proof, p.want, w.lazy, s.clock(), spaces, locks, s.limits.KeysMax - s.margin,
	}
	switch {
	case p.tokened:
		sql, args = s.sql.tokened, append(args, s.tokens(p)...)
	case s.unusual.any(p.namespaces):
		sql = s.sql.quietly
	}
	s.meters.trips.Add(1)
	err = conn.QueryRow(ctx, sql, args...).Scan(&took, &m.version, &m.odd, &m.versions, &m.afters, &m.terms, &m.fresh)
	switch code(err) {
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
	m.expand(len(p.cells))
	p.answer(r, &m)
	r.Waited = max(0, time.Duration(took)*time.Microsecond-callTime-time.Duration(len(p.cells))*rowTime)
	if b.Writer != 0 {
		r.Mark = b.Seq
	}
	return true, nil
}

// recent are the namespaces that had an unusual batch in the last minute.
type recent struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

const recentMax = 1000

func (r *recent) any(namespaces []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(namespaces, func(ns string) bool {
		at, ok := r.at[ns]
		return ok && time.Since(at) < time.Minute
	})
}

func (r *recent) add(namespaces []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil || len(r.at) >= recentMax {
		r.at = make(map[string]time.Time)
	}
	for _, ns := range namespaces {
		r.at[ns] = time.Now()
	}
}
