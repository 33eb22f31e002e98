package engine

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/quipudb/quipu/store"
)

// A cell may have a deadline, after which it is absent. Whoever is about to
// change a cell whose time is over deletes it first, and the log says so: nothing
// is judged again in replay. A reader takes it for absent. Cells that nobody
// touches are found by rows of their deadlines, which are hints: there may be
// more than one for a cell, and none is removed before its time. A checkpoint writes
// these rows; until then, cells are found among those that were changed.

// settleExpired makes a cell whose deadline has passed an absent one, before it
// is looked at by a change.
func (c *change) settleExpired(p plan) {
	e := c.e
	s := e.cells.slot(p.slot)
	was := e.extra(p.slot)
	if !c.over(was) {
		return
	}
	c.f.Payload = appendCellRecord(c.f.Payload, recDelete, e.cells.keyOf(p.slot))
	c.mark.tally.count(p.hash, -s.value)
	// The change has seen that it is gone, durable or not, so the undo entry that put
	// makes is one of an absent cell, and keeps the deadline, which says that readers
	// have to wait for the time to be durable.
	e.preserve(p.slot, s)
	e.count(e.cells.keyOf(p.slot), present, absent)
	s.value, s.meta = 0, s.meta.withState(absent).withVersion(0)
	e.put(p.slot, 0, absent, 0, c.f.ID, c.level)
	e.setExtra(p.slot, 0)
	if was.isObject() {
		c.lose(p)
	}
}

// over reports whether x is a deadline that has passed.
func (c *change) over(x extra) bool {
	ms := x.deadline()
	return ms > 0 && ms <= c.time()
}

// collectMax is how many deadlines are looked at in one go, under one hold of the lock.
const collectMax = 256

// collect removes the cells whose deadline has passed, as far as a checkpoint
// has written their deadlines.
func (e *Engine) collect(ctx context.Context) error {
	for p := e.newPace(); ; p.breathe() {
		e.mu.Lock()
		now, over := e.now(), e.now() >= e.soonest
		e.mu.Unlock()
		if !over {
			return nil
		}
		rows, disk, err := e.passed(now)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			continue
		}
		cells := make([]store.Cell, len(rows))
		for i, key := range rows {
			_, cell, _ := decodeDeadline(key)
			cells[i] = decodeCell(cell)
		}
		if err := e.lookAt(ctx, cells); err != nil {
			return err
		}
		e.mu.Lock()
		e.collected = append(e.collected, rows...)
		if e.disk == disk {
			e.collectedTo = rows[len(rows)-1]
		}
		e.arm()
		e.mu.Unlock()
		p.yield()
	}
}

// collectChanged removes the cells whose deadline has passed before a checkpoint
// has written it.
func (e *Engine) collectChanged(ctx context.Context) error {
	p := e.newPace()
	for cells := range slices.Chunk(e.lapsed(p), collectMax) {
		if err := e.lookAt(ctx, cells); err != nil {
			return err
		}
		p.yield()
		p.breathe()
	}
	return nil
}

// lookAt removes those of some cells that have expired. Nobody waits for that, but
// it is synced, so that readers are not told of it before.
func (e *Engine) lookAt(ctx context.Context, cells []store.Cell) error {
	b := store.Batch{Apart: true} // one may have a layout by now
	for _, c := range cells {
		b.Deltas = append(b.Deltas, store.Delta{Cell: c, Op: store.OpGet, Want: true}) // To look at it is enough.
	}
	var r store.Reply
	var w waits
	if err := e.apply(ctx, &b, &r, &w); err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	e.mu.Lock()
	e.meters.expired += uint64(len(cells))
	e.mu.Unlock()
	return nil
}

const lapsedMax = 100_000 // cells found in one go; the others are found in the next

// lapsed returns cells that have expired, of those changed since the last checkpoint
// began, and moves e.soonestSet to the first deadline of the others. It gives the lock
// away now and then. Deadlines set meanwhile are in soonestNew, as are all after a
// checkpoint that begins meanwhile; those before that are in its rows.
func (e *Engine) lapsed(p *pace) (cells []store.Cell) {
	soonest := int64(math.MaxInt64)
	room := make([]uint32, lockedCells)
	for from := uint32(0); ; {
		e.mu.Lock()
		now := e.now()
		if from == 0 {
			if now < e.soonestSet {
				e.mu.Unlock()
				return nil
			}
			e.soonestNew = math.MaxInt64
		}
		ids := e.dirty.some(from, room)
		if len(ids) == 0 {
			e.soonestSet = min(soonest, e.soonestNew)
			e.mu.Unlock()
			return cells
		}
		for _, id := range ids {
			deadline := e.extra(id).deadline()
			switch {
			case deadline == 0:
			case deadline <= now && len(cells) < lapsedMax:
				cells = append(cells, decodeCell(e.cells.keyOf(id)))
			default:
				soonest = min(soonest, deadline)
			}
		}
		from = ids[len(ids)-1] + 1
		e.mu.Unlock()
		p.yield()
		p.breathe()
	}
}

// passed returns rows of deadlines that have passed and were not collected yet, and
// the number of the checkpoint they are of, and moves e.soonest to the next.
func (e *Engine) passed(now int64) (rows [][]byte, disk uint64, err error) {
	e.mu.Lock()
	disk, behind := e.disk, e.collectedTo
	e.mu.Unlock()
	found, err := guard(e, func() (deadlines, error) { return e.deadlineRows(now, behind) })
	if err != nil {
		return nil, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.disk == disk { // else a checkpoint may have written a sooner one
		e.soonest = found.next
	}
	return found.rows, disk, nil
}

// deadlines are rows of deadlines, and the deadline after them.
type deadlines struct {
	rows [][]byte
	next int64
}

// deadlineRows returns the rows of deadlines up to now behind a row, as many as are
// looked at in one go.
func (e *Engine) deadlineRows(now int64, behind []byte) (found deadlines, err error) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowDeadline}, UpperBound: []byte{rowDeadline + 1}})
	if err != nil {
		return found, diskError(err)
	}
	found.next = math.MaxInt64
	from := []byte{rowDeadline}
	if behind != nil {
		from = append(append(from, behind...), 0)
	}
	for ok := it.SeekGE(from); ok; ok = it.Next() {
		key := it.Key()[1:]
		deadline, _, ok := decodeDeadline(key)
		if !ok {
			err = store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", it.Key())
			return found, errors.Join(err, it.Close())
		}
		if deadline > now || len(found.rows) == collectMax {
			found.next = deadline
			break
		}
		found.rows = append(found.rows, bytes.Clone(key))
	}
	return found, diskErrorOrNil(it.Close())
}

// writeDeadlines writes the rows of the deadlines of the copies that are named,
// and removes those that are over.
func (c *checkpoint) writeDeadlines(t *rowWriter, keys *table, copies []int) {
	type line struct {
		key  []byte
		gone bool
	}
	lines := make([]line, 0, len(copies)+len(c.collected))
	for _, key := range c.collected {
		lines = append(lines, line{key, true})
	}
	c.soonest = math.MaxInt64
	for _, n := range copies {
		s := &c.copies[n]
		deadline := c.extras[s.slot].deadline()
		c.soonest = min(c.soonest, deadline)
		lines = append(lines, line{appendDeadline(nil, deadline, keys.keyOf(s.slot)), false})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return bytes.Compare(a.key, b.key) })
	for i, l := range lines {
		switch {
		case i+1 < len(lines) && bytes.Equal(l.key, lines[i+1].key): // the last one counts
		case l.gone:
			t.delete(rowDeadline, l.key)
		default:
			t.set(rowDeadline, l.key, nil)
		}
	}
}

// expiryDue reports whether there may be cells that have expired and still
// count.
func (e *Engine) expiryDue() bool {
	return min(e.soonest, e.soonestSet) != math.MaxInt64 && min(e.soonest, e.soonestSet) <= e.now()
}
