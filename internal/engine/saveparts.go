package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/quipudb/quipu/internal/decide"
)

// A checkpoint handles parts in two steps: it reads those that nobody has looked at
// before it writes which of all must be read before they are changed, and writes them
// after that, in the order of the rows.

// partRows returns an iterator over the rows of parts.
func (e *Engine) partRows() (*pebble.Iterator, error) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowPart}, UpperBound: []byte{rowPart + 1}})
	if err != nil {
		return nil, diskError(err)
	}
	return it, nil
}

// readParts makes the copies of parts read ones, and appends those that must be read
// before they are changed, or may have had to be, to near.
func (e *Engine) readParts(ctx context.Context, c *checkpoint, keys *table, r run, near []int) ([]int, error) {
	if r.from == r.to {
		return near, nil
	}
	it, err := e.partRows()
	if err != nil {
		return nil, err
	}
	for from := r.from; from < r.to && err == nil; from += lockedCells {
		some := c.copies[from:min(r.to, from+lockedCells)]
		keys.fetch(some)
		if err = e.readCopies(it, keys, c, some); err != nil {
			break
		}
		e.willHaveMembers(keys, some)
		near = e.addNear(keys, some, from, near)
		c.pace.yield()
		c.pace.breathe()
		err = ctx.Err()
	}
	return near, errors.Join(err, diskErrorOrNil(it.Close()))
}

// addNear notes which parts among some must be read before they are changed.
func (e *Engine) addNear(keys *table, some []saved, from int, near []int) []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range some {
		isFar := some[i].meta.state() == present && isNear(some[i].value)
		if !isFar && e.near.bits == nil || some[i].meta&hasExtra != 0 { // bytes are always read
			continue
		}
		hash := e.hashOf(keys.keyOf(some[i].slot))
		if isFar {
			e.near.add(hash)
		}
		if e.near.has(hash) {
			near = append(near, from+i)
		}
	}
	return near
}

// writeParts writes the parts that are kept: copies, and those that bundles are added to.
func (e *Engine) writeParts(ctx context.Context, t *rowWriter, c *checkpoint, keys *table, r run) error {
	rows, err := e.partRows()
	if err != nil {
		return err
	}
	m := merger{e: e, c: c, keys: keys, copies: r, rows: rows}
	n := 0
	err = c.bundles.each(func(key []byte, sum int64) error {
		m.writeBefore(t, key)
		base, err := m.base(key)
		if err != nil {
			return err
		}
		if sum += base; sum > nearLimit/2 || sum < -nearLimit/2 {
			e.isAfar(key, sum)
		}
		t.set(rowPart, key[1:], binary.AppendVarint(t.value(), sum))
		if n++; n%lockedCells == 0 {
			c.pace.breathe()
			return ctx.Err()
		}
		return t.err
	})
	m.writeBefore(t, []byte{nsPart + 1})
	return errors.Join(err, diskErrorOrNil(rows.Close()))
}

// writeBefore writes the copies of parts before a key.
func (m *merger) writeBefore(t *rowWriter, key []byte) {
	for ; m.copies.from < m.copies.to; m.copies.from++ {
		if m.copies.from >= m.fetched {
			m.fetched = min(m.copies.to, m.copies.from+fetchedCells)
			m.keys.fetch(m.c.copies[m.copies.from:m.fetched])
		}
		s := &m.c.copies[m.copies.from]
		own := m.keys.keyOf(s.slot)
		if bytes.Compare(own, key) >= 0 {
			return
		}
		m.c.writePart(t, s, own)
		if m.copies.from%lockedCells == 0 {
			m.c.pace.breathe()
		}
	}
}

func (c *checkpoint) writePart(t *rowWriter, s *saved, key []byte) {
	switch {
	case c.fences.gone(key): // it goes with its epoch
	case s.meta.state() != present:
		t.delete(rowPart, key[1:])
	case s.meta&hasExtra != 0:
		t.set(rowPart, key[1:], []byte(c.blobs[s.slot]))
	default:
		t.set(rowPart, key[1:], binary.AppendVarint(t.value(), s.value))
	}
}

// take returns the fences as they are written, or nil if they did not change.
func (f *fences) take() *fences {
	if !f.dirty {
		return nil
	}
	taken := &fences{books: maps.Clone(f.books), floors: maps.Clone(f.floors), risen: f.risen}
	f.dirty, f.risen = false, nil
	return taken
}

func (f *fences) writeBooks(t *rowWriter) {
	if f == nil {
		return
	}
	rows := map[string]int64{}
	for namespace, id := range f.books {
		rows[string(appendNamespace(nil, namespace))] = id
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		t.set(rowBook, []byte(key), binary.AppendUvarint(t.value(), uint64(rows[key])))
	}
}

// writeFloors writes the floors, and removes what is below those that have risen: the
// rows, and the notes that some of them must be read first.
func (f *fences) writeFloors(t *rowWriter) {
	if f == nil {
		return
	}
	rows := map[string][]byte{}
	for s, epoch := range f.floors {
		rows[string(appendShelf(nil, s))] = binary.BigEndian.AppendUint32(nil, uint32(epoch))
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		t.set(rowFloor, []byte(key), rows[key])
	}
	risen := map[string]decide.Shelf{}
	for _, s := range f.risen {
		risen[string(appendShelf(nil, s))] = s
	}
	for _, first := range [][]byte{{rowNear, nsPart}, {rowPart}} {
		for _, key := range slices.Sorted(maps.Keys(risen)) {
			from := append(bytes.Clone(first), key...)
			t.deleteRange(from, binary.BigEndian.AppendUint32(bytes.Clone(from), uint32(f.floors[risen[key]])))
		}
	}
}

// appendEpoch appends the row of an epoch's tally.
func (t *tally) appendEpoch(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, t.sum), t.check)
}

func decodeEpochTally(b []byte) (t tally, ok bool) {
	r := reader{b: b}
	t.sum, t.check = r.fixed(), r.fixed()
	return t, !r.bad && len(r.b) == 0
}
