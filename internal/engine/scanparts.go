package engine

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/quipudb/quipu/store"
)

// ScanParts returns parts in the order of their rows, as Scan does cells.
func (e *Engine) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d parts: want 1 to %d", n, store.ScanMax)
	}
	if err := e.use(); err != nil {
		return nil, err
	}
	defer e.users.Done()
	first := appendNamespace([]byte{nsPart}, r.Namespace)
	low, high := append(bytes.Clone(first), r.From...), append(bytes.Clone(first), r.To...)
	if r.To == "" {
		high = successor(bytes.Clone(first))
	}
	var entries []store.PartEntry
	for more := true; more && bytes.Compare(low, high) < 0; {
		want := n - len(entries)
		page, err := e.page(ctx, low, high, want, r.Back)
		if err != nil {
			return nil, err
		}
		page.contents = slices.Grow(page.contents, len(page.all))[:len(page.all)]
		if err := e.readLooks(ctx, page, page.contents); err != nil {
			return nil, err
		}
		entries = slices.Grow(entries, len(page.all))
		for i, c := range page.contents {
			if c.Exists {
				entries = append(entries, store.PartEntry{PartCell: page.all[i].of, Content: c})
			}
		}
		if more = len(page.all) == want && len(entries) < n; more { // some do not exist: go on behind them
			if last := bytes.Clone(page.all[want-1].key); r.Back {
				high = last
			} else {
				low = append(last, 0)
			}
		}
		page.reset()
		e.looks.Put(page)
	}
	return entries, nil
}

// page returns the first n parts in [low, high), or the last ones, last first, with the
// rows that they have. Some of them may not exist.
func (e *Engine) page(ctx context.Context, low, high []byte, n int, back bool) (*looks, error) {
	s := &sieve{low: low, high: high, n: n, back: back}
	if err := e.bundledKeys(ctx, s); err != nil {
		return nil, err
	}
	if err := e.bornKeys(ctx, s); err != nil {
		return nil, err
	}
	keys := s.keep()
	e.mu.Lock()
	disk, from := e.disk, e.base
	from.users++
	e.mu.Unlock()
	return guard(e, func() (*looks, error) {
		page := e.looks.Get().(*looks)
		page.disk, page.rows = disk, true
		err := e.diskParts(page, from, keys, low, high, n, back)
		return page, errors.Join(err, e.letGo(from))
	})
}

// diskParts adds the first n of keys, which are in their order, and of the parts in
// [low, high) on disk. So a key among them that is not on disk has no row.
func (e *Engine) diskParts(page *looks, from *base, keys [][]byte, low, high []byte, n int, back bool) (err error) {
	upper := []byte{rowPart + 1}
	if isPart(high) {
		upper = appendRowKey(nil, high)
	}
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: appendRowKey(nil, low), UpperBound: upper})
	if err != nil {
		return diskError(err)
	}
	first, next, before := it.First, it.Next, -1
	if back {
		first, next, before = it.Last, it.Prev, 1
	}
	for ok := first(); ok && err == nil && len(page.all) < n; ok = next() {
		begin := len(page.keys)
		page.keys = append(page.keys, it.Key()...)
		key := page.keys[begin:]
		key[0] = nsPart
		for ; err == nil && len(keys) > 0 && bytes.Compare(keys[0], key) == before; keys = keys[1:] {
			err = page.addKey(e, keys[0], row{})
		}
		if len(keys) > 0 && bytes.Equal(keys[0], key) {
			keys = keys[1:]
		}
		if err == nil {
			err = page.addRow(e, key, it)
		}
	}
	if err2 := it.Close(); err == nil {
		err = diskErrorOrNil(err2)
	}
	for ; err == nil && len(keys) > 0 && len(page.all) < n; keys = keys[1:] {
		err = page.addKey(e, keys[0], row{})
	}
	page.all = page.all[:min(n, len(page.all))]
	return err
}

// addRow adds the part at which an iterator is.
func (l *looks) addRow(e *Engine, key []byte, it *pebble.Iterator) error {
	e.meters.diskReads.Add(1)
	r, err := decodeBase(it, key)
	if err != nil {
		return err
	}
	return l.addKey(e, key, r)
}

// addKey adds the part that has a key.
func (l *looks) addKey(e *Engine, key []byte, r row) error {
	c, p, ok := decodePart(key)
	if !ok {
		return store.Errorf(store.KindCorrupt, "row %x is no part's", key)
	}
	l.add(e, store.PartCell{Cell: c, Part: p}, key, r)
	return nil
}

// bundledKeys sieves the keys of parts that are in bundles. They are looked for before
// those in memory, where settling puts them, and on disk, where a checkpoint does.
func (e *Engine) bundledKeys(ctx context.Context, s *sieve) error {
	for from, more := 1, true; more; from += lockedCells {
		e.mu.Lock()
		views := slices.Clone(e.views.all[min(from, len(e.views.all)):min(from+lockedCells, len(e.views.all))])
		more = from+lockedCells < len(e.views.all)
		e.mu.Unlock()
		for _, v := range views {
			if v == nil {
				continue
			}
			var parts []store.Part
			for _, p := range v.parts {
				if s.mayPass(v.namespace, p) {
					parts = append(parts, p)
				}
			}
			for id, more := uint32(0), len(parts) > 0; more; runtime.Gosched() {
				if err := ctx.Err(); err != nil {
					return err
				}
				id, more = e.viewKeys(v, parts, id, s)
				s.rest()
			}
		}
	}
	return nil
}

// viewKeys sieves some parts of some counters that have bundles of a view, from a bundle on,
// or if that is 0 from the first. It returns the one to go on with, and whether there are
// more. There are none once they are on disk.
func (e *Engine) viewKeys(v *view, parts []store.Part, id uint32, s *sieve) (next uint32, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v.turn != e.views.turn && (e.save == nil || v.turn != e.views.turn-1) {
		return 0, false
	}
	if id == 0 {
		id = v.first
	}
	for n := 0; id != 0 && n < lockedCells/4; n++ {
		if e.cells.slot(id).meta.state() == present {
			owner, _ := e.bundleOf(id)
			c := decodeCell(e.cells.keyOf(owner))
			for _, p := range parts {
				e.partBuf = appendPart(e.partBuf[:0], c, p)
				s.take(e.partBuf)
			}
		}
		id = e.nextBundle(id)
	}
	return id, id != 0
}

// mayPass reports whether a part of some counter of a namespace may be in the range.
func (s *sieve) mayPass(namespace string, p store.Part) bool {
	lead := 1
	if p.Kind()&store.PartRetained != 0 {
		lead = epochBytes
	}
	from := append(appendNamespace([]byte{nsPart}, namespace), p[:lead]...)
	return bytes.Compare(from, s.high) < 0 && bytes.Compare(successor(from), s.low) > 0
}
