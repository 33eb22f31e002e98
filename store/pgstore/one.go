package pgstore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
)

// applyOne applies a plain batch of one cell that is there, such as a node sends for
// a hot counter or a lone caller: in one statement, which takes half of the server's
// time that quipu.plain does. It reports false, with nothing changed, if the
// batch has to go another way.
//
// The values that are told have to count what is pending. What was committed before
// the statement began is found by it. What was committed while it waited for the row
// is not, so a second statement looks again, in the same transaction and round trip.
func (s *Store) applyOne(ctx context.Context, p *plain, w *work) (done bool, err error) {
	b, r, c := w.batches[0], w.replies[0], &p.Cells[0]
	layout := int64(anyhow)
	if c.Laid {
		layout = c.Layout
	}
	t := tallyOf(p.Record)
	namespace, key := []byte(c.Namespace), []byte(c.Key)
	sql, book := s.sql.one[0], int64(0)
	for _, at := range b.Books { // there is no other than that of the cell
		sql, book = s.sql.one[1], at.ID
	}
	least, limit := int64(math.MinInt64), int64(math.MaxInt64)
	if c.Bounded {
		least, limit = c.Least, c.Most
	}
	var took int64
	m := made{versions: []int64{0}, afters: []int64{0}, terms: []*int64{nil}}
	q := &pgx.Batch{}
	q.Queue(sql, int64(b.Writer), int64(b.Prev), int64(b.Seq), int64(b.Digest()), namespace, key, c.Sum, p.most, layout,
		t.deltas, t.total, t.proof, p.Want, s.clock(), []byte(store.SpaceOf(c.Cell)), book, least, limit).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			done = true
			if err := rows.Scan(&took, &m.versions[0], &m.afters[0], &m.terms[0]); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if p.Want {
		q.Queue(s.sql.nonePending, namespace, key)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, failure(ctx, err)
	}
	defer conn.Release()
	switch err = s.send(ctx, conn, q); code(err) {
	case codeSerialization, codeDeadlock:
		s.meters.retries.Add(1)
		w.retries++
		return false, nil
	case codeOverflow, codePending:
		s.unusual.add(p.namespaces)
		return false, nil
	}
	if err != nil {
		return false, unsure(ctx, err)
	}
	if !done {
		return false, nil
	}
	s.meters.plain.Add(1)
	p.answer(r, &m)
	r.Waited = max(0, time.Duration(took)*time.Microsecond-callTime-rowTime)
	r.Mark = b.Seq
	return true, nil
}

// isOne reports whether a plain batch is for applyOne. Where something was unusual not
// long ago it is not: it would be tried in vain, and an overflow fill the server's log.
func (s *Store) isOne(p *plain, w *work) bool {
	b := w.batches[0]
	return len(p.Cells) == 1 && len(p.Tokens) == 0 && !p.rides && !slices.ContainsFunc(b.Books, func(at store.Book) bool { return at.Namespace != store.SpaceOf(p.Cells[0].Cell) }) &&
		b.Writer != 0 && !w.lazy && !s.unusual.any(p.namespaces)
}
