package engine

import (
	"bytes"
	"context"
	"runtime"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// ReadParts returns the durable contents of parts at one moment.
func (e *Engine) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	if err := store.CheckReadParts(parts, contents); err != nil {
		return err
	}
	keys := make([][]byte, len(parts))
	hashes := make([]uint64, len(parts))
	for i, p := range parts {
		keys[i] = appendPart(nil, p.Cell, p.Part)
		hashes[i] = placed(e.weight(xxh3.HashSeed(appendCell(nil, p.Cell), e.id.seed()), p.Part))
	}
	return e.readKeys(ctx, parts, keys, hashes, contents)
}

// readKeys is ReadParts for parts with these keys.
func (e *Engine) readKeys(ctx context.Context, parts []store.PartCell, keys [][]byte, hashes []uint64, contents []store.Content) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.meters.reads += uint64(len(keys))
	for {
		if e.closed {
			return store.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var n needs
		h, waits := e.horizon(), false
		for i, key := range keys {
			if contents[i] = (store.Content{}); e.fences.gone(key) {
				continue
			}
			var wait bool
			contents[i], wait = e.readPart(key, hashes[i], &h, &n)
			waits = waits || wait
			if sum, is := e.inBundles(parts[i].Cell, parts[i].Part, &h); is {
				contents[i].N, contents[i].Exists = contents[i].N+sum, true
			}
		}
		var err error
		switch {
		case n.any():
			_, err = e.fetch(ctx, n, nil)
		case waits:
			err = e.awaitFrame(ctx)
		default:
			if e.inserts > 0 {
				e.evict()
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readPart returns what readers may see of a part. Bytes that were changed have to be
// waited for: what they were is not kept.
func (e *Engine) readPart(key []byte, hash uint64, h *horizon, n *needs) (c store.Content, wait bool) {
	id := e.cells.find(uint32(hash), key)
	if id == 0 {
		n.cell(key)
		return store.Content{}, false
	}
	s := e.cells.slot(id)
	s.meta |= recent
	value, m, _ := e.visible(id, h)
	switch {
	case m.state() == absent:
		return store.Content{}, false
	case m.state() == unread:
		n.cell(key)
		return store.Content{}, false
	case m&hasExtra == 0:
		return store.Content{N: value, Exists: true}, false
	}
	u := e.undo.at(s.undo, id)
	return store.Content{N: value, Bytes: e.blobs[id], Exists: true}, u != nil && h.pending(u.frame, u.level)
}

// awaitFrame waits until all that was changed up to now is durable. It is called with the
// lock held and returns with it held.
func (e *Engine) awaitFrame(ctx context.Context) error {
	f := e.log.Begin()
	e.log.End(store.Synced)
	e.mu.Unlock()
	err := f.Wait(ctx, store.Synced)
	e.mu.Lock()
	if err != nil {
		return store.Errorf(store.KindUnavailable, "wait for a change to be durable: %w", err)
	}
	return nil
}

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
	for bytes.Compare(low, high) < 0 {
		want := n - len(entries)
		keys, err := e.partKeys(ctx, low, high, want, r.Back)
		if err != nil {
			return nil, err
		}
		found, err := e.entries(ctx, keys)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
		if len(keys) < want || len(entries) == n {
			break
		}
		if last := keys[len(keys)-1]; r.Back {
			high = last
		} else {
			low = append(last, 0)
		}
	}
	return entries, nil
}

// entries reads the parts that have some keys. Those that do not exist are left out.
func (e *Engine) entries(ctx context.Context, keys [][]byte) ([]store.PartEntry, error) {
	found, parts := make([]store.PartEntry, len(keys)), make([]store.PartCell, len(keys))
	hashes, contents := make([]uint64, len(keys)), make([]store.Content, len(keys))
	for i, key := range keys {
		c, p, ok := decodePart(key)
		if !ok {
			return nil, store.Errorf(store.KindCorrupt, "row %x is no part's", key)
		}
		parts[i] = store.PartCell{Cell: c, Part: p}
		hashes[i] = placed(e.weight(xxh3.HashSeed(appendCell(nil, c), e.id.seed()), p))
	}
	if err := e.readKeys(ctx, parts, keys, hashes, contents); err != nil {
		return nil, err
	}
	for i := range found {
		found[i] = store.PartEntry{PartCell: parts[i], Content: contents[i]}
	}
	return slices.DeleteFunc(found, func(f store.PartEntry) bool { return !f.Content.Exists }), nil
}

// partKeys returns the first n keys of parts in [low, high), or the last ones, last
// first. Some of them may not exist.
func (e *Engine) partKeys(ctx context.Context, low, high []byte, n int, back bool) ([][]byte, error) {
	bundled, err := e.bundledKeys(ctx, low, high, n, back)
	if err != nil {
		return nil, err
	}
	inMemory, err := e.bornKeys(ctx, low, high, n, back)
	if err != nil {
		return nil, err
	}
	onDisk, err := guard(e, func() ([][]byte, error) { return e.diskParts(low, high, n, back) })
	if err != nil {
		return nil, err
	}
	return firstKeys(slices.Concat(bundled, inMemory, onDisk), n, back), nil
}

// diskParts returns the first n keys of parts in [low, high) on disk, or the last ones.
func (e *Engine) diskParts(low, high []byte, n int, back bool) ([][]byte, error) {
	upper := []byte{rowPart + 1}
	if isPart(high) {
		upper = appendRowKey(nil, high)
	}
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: appendRowKey(nil, low), UpperBound: upper})
	if err != nil {
		return nil, diskError(err)
	}
	first, next := it.First, it.Next
	if back {
		first, next = it.Last, it.Prev
	}
	var keys [][]byte
	for ok := first(); ok && len(keys) < n; ok = next() {
		key := bytes.Clone(it.Key())
		key[0] = nsPart
		keys = append(keys, key)
	}
	if err := it.Close(); err != nil {
		return nil, diskError(err)
	}
	return keys, nil
}

// bundledKeys returns the first n keys of parts in [low, high), or the last ones, that are
// in bundles. They are looked for before those in memory, where settling puts them.
func (e *Engine) bundledKeys(ctx context.Context, low, high []byte, n int, back bool) (found [][]byte, err error) {
	var room [lockedCells / 4]uint32
	for from, more := uint32(0), true; more; runtime.Gosched() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e.mu.Lock()
		ids := e.views.slots.some(from, room[:])
		for _, id := range ids {
			from = id + 1
			if e.cells.slot(id).meta.state() == present {
				found = e.partsOf(found, id, low, high)
			}
		}
		e.mu.Unlock()
		if more = len(ids) > 0; len(found) > 2*n+len(room)*store.EventRidersMax {
			found = firstKeys(found, n, back)
		}
	}
	return firstKeys(found, n, back), nil
}

// partsOf appends the keys in [low, high) of the parts that a bundle is to be added to.
func (e *Engine) partsOf(found [][]byte, id uint32, low, high []byte) [][]byte {
	cell, v := e.bundleOf(id)
	c := decodeCell(e.cells.keyOf(cell))
	for _, p := range v.parts {
		if key := appendPart(nil, c, p); bytes.Compare(key, low) >= 0 && bytes.Compare(key, high) < 0 {
			found = append(found, key)
		}
	}
	return found
}
