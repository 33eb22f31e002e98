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

// Scan returns cells in the order of their keys. The keys are those on disk
// and those in the set of cells that are perhaps not there yet; their values
// come from Read, so that they are durable and of one moment.
func (e *Engine) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d keys: want 1 to %d", n, store.ScanMax)
	}
	if err := e.use(); err != nil {
		return nil, err
	}
	defer e.users.Done()
	var entries []store.Entry
	for {
		want := n - len(entries)
		keys, err := e.keys(ctx, r, want)
		if err != nil {
			return nil, err
		}
		cells := make([]store.Cell, len(keys))
		for i, k := range keys {
			cells[i] = store.Cell{Namespace: r.Namespace, Key: k}
		}
		values := make([]store.Value, len(keys))
		if err := e.Read(ctx, cells, values); err != nil {
			return nil, err
		}
		for i, v := range values {
			if v.Exists {
				entries = append(entries, store.Entry{Key: keys[i], Value: v})
			}
		}
		// Deleted cells and cells that are not durable yet were among the keys:
		// go on behind them.
		if len(keys) < want || len(entries) == n {
			return entries, nil
		}
		r.After = keys[len(keys)-1]
	}
}

// keys returns the first n keys of a range, some of which may not exist.
func (e *Engine) keys(ctx context.Context, r store.Range, n int) ([]string, error) {
	ns := appendNamespace(nil, r.Namespace)
	low := append(bytes.Clone(ns), max(r.Prefix, r.After)...)
	high := successor(append(bytes.Clone(ns), r.Prefix...))
	if r.After != "" && r.After >= r.Prefix {
		low = append(low, 0)
	}
	s := &sieve{low: low, high: high, n: n}
	if err := e.bornKeys(ctx, s); err != nil {
		return nil, err
	}
	onDisk, err := guard(e, func() ([][]byte, error) { return e.diskKeys(low, high, n) })
	if err != nil {
		return nil, err
	}
	all := firstKeys(slices.Concat(s.found, onDisk), n, false)
	keys := make([]string, len(all))
	for i, k := range all {
		keys[i] = string(k[len(ns):])
	}
	return keys, nil
}

// firstKeys returns the first n of some keys in order, each once; or the last ones, last
// first.
func firstKeys(keys [][]byte, n int, back bool) [][]byte {
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	if back {
		slices.Reverse(keys)
	}
	return keys[:min(n, len(keys))]
}

// successor returns the first key after all keys that start with prefix.
func successor(prefix []byte) []byte {
	for i, b := range slices.Backward(prefix) {
		if b != 0xff {
			return append(prefix[:i:i], b+1)
		}
	}
	return bytes.Repeat([]byte{0xff}, store.KeyBytesMax+2) // after every key of the store's own namespace
}

// A sieve keeps the first n of the keys in [low, high) that it is given, or the last ones.
type sieve struct {
	low, high []byte
	n         int
	back      bool
	found     [][]byte
}

// take is given a key, which it copies.
func (s *sieve) take(key []byte) {
	if bytes.Compare(key, s.low) >= 0 && bytes.Compare(key, s.high) < 0 {
		s.found = append(s.found, bytes.Clone(key))
	}
}

// rest is called now and then, without the lock.
func (s *sieve) rest() {
	if len(s.found) >= 2*s.n+lockedCells {
		s.keep()
	}
}

// keep returns the keys in order. Those that come after them do not pass any more.
func (s *sieve) keep() [][]byte {
	s.found = firstKeys(s.found, s.n, s.back)
	switch {
	case len(s.found) < s.n:
	case s.back:
		s.low = s.found[s.n-1]
	default:
		s.high = s.found[s.n-1]
	}
	return s.found
}

// bornKeys sieves the keys of cells and parts that are perhaps not on disk.
func (e *Engine) bornKeys(ctx context.Context, s *sieve) error {
	e.mu.Lock()
	sets := []slotSet{e.born}
	if e.save != nil {
		sets = append(sets, e.save.born)
	}
	e.mu.Unlock()
	for i := range sets {
		for next := uint32(1); next != 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			next = e.keysOf(s, &sets[i], next)
			s.rest()
			runtime.Gosched() // as pace does
		}
	}
	return nil
}

// keysOf sieves the keys of the cells in some slots of a set, and returns the slot to go
// on with, or 0. A slot may have another cell by now: then it is a key that exists, in
// this range or not.
func (e *Engine) keysOf(s *sieve, set *slotSet, from uint32) (next uint32) {
	var room [lockedCells]uint32
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range set.some(from, room[:]) {
		next = id + 1
		if !e.cells.slot(id).isFree() {
			s.take(e.cells.keyOf(id))
		}
	}
	return next
}

// diskKeys returns the first n keys in [low, high) on disk.
func (e *Engine) diskKeys(low, high []byte, n int) ([][]byte, error) {
	it, err := e.db.NewIter(&pebble.IterOptions{
		LowerBound: append([]byte{rowCell}, low...),
		UpperBound: append([]byte{rowCell}, high...),
	})
	if err != nil {
		return nil, diskError(err)
	}
	var keys [][]byte
	for ok := it.First(); ok && len(keys) < n; ok = it.Next() {
		keys = append(keys, bytes.Clone(it.Key()[1:]))
	}
	if err := it.Close(); err != nil {
		return nil, diskError(err)
	}
	return keys, nil
}

// Namespaces makes a checkpoint and looks for the first cell of each namespace
// on disk: in memory cells have no order.
func (e *Engine) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "list of %d namespaces: want 1 to %d", n, store.ScanMax)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := e.use(); err != nil {
		return nil, err
	}
	defer e.users.Done()
	found, err := guard(e, func() ([]string, error) {
		snap, err := e.snapshot(ctx)
		if err != nil {
			return nil, err
		}
		found, err := diskNamespaces(ctx, snap)
		return found, errors.Join(err, diskErrorOrNil(snap.Close()))
	})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(ns string) bool { return ns <= after }) // the store's own is ""
	slices.Sort(found)
	return slices.Clip(found[:min(n, len(found))]), nil
}

// diskNamespaces returns the namespaces that have a row of a cell.
func diskNamespaces(ctx context.Context, snap *pebble.Snapshot) ([]string, error) {
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: []byte{rowCell}, UpperBound: []byte{rowCell + 1}})
	if err != nil {
		return nil, diskError(err)
	}
	var found []string
	for ok := it.First(); ok && err == nil; {
		cell := it.Key()[1:]
		size := namespaceLen(cell)
		if size == 0 {
			err = store.Errorf(store.KindCorrupt, "row %x is no cell's", it.Key())
			break
		}
		found = append(found, decodeCell(cell).Namespace)
		err = ctx.Err()
		ok = it.SeekGE(append([]byte{rowCell}, successor(bytes.Clone(cell[:size]))...))
	}
	return found, errors.Join(err, diskErrorOrNil(it.Close()))
}
