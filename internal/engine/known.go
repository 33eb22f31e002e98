package engine

import (
	"errors"
	"math/bits"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// The engine has a filter of the keys that have a row on disk, so that a new key costs
// no look at the disk, and one of the parts that are mostly new when they are looked for: see
// DESIGN.md, I18 to I20. Opening a store does not wait for them. Each takes its share of
// the memory limit at most; a store that has more than that is enough for goes without.
const (
	filterShare       = 8
	memberFilterShare = 16
)

// A known is the filter of some rows on disk. The engine's lock guards it.
type known struct {
	filter    *filter // nil if they are not all known
	filling   *filter // the one that is being made, or nil
	blocksMax int     // how large a filter may be
	room      int     // that it has for each, in keys
	fills     uint64  // how many were made
}

// newKnown returns what is known if that is nothing. The filter may have some memory: its
// blocks are a power of two.
func newKnown(memory int64, room int) known {
	return known{blocksMax: 1 << (bits.Len64(uint64(memory/blockBytes)) - 1), room: room}
}

func (k *known) bytes() int64 { return k.filter.bytes() + k.filling.bytes() }

// filterBytes returns the memory that the filters take.
func (e *Engine) filterBytes() int64 { return e.counters.bytes() + e.members.bytes() }

// noRow reports whether the disk certainly has no row of a cell that is not in memory,
// or is unread there.
func (e *Engine) noRow(hash uint64) bool { return e.lacks(&e.counters, hash) }

func (e *Engine) lacks(k *known, hash uint64) bool {
	if k.filter == nil {
		return false
	}
	e.meters.filterChecks++
	return !k.filter.has(hash)
}

// willHaveRows says that keys are about to be written to disk.
func (k *known) willHaveRows(hashes []uint64) {
	k.filter.addAll(hashes)
	k.filling.addAll(hashes)
}

// tendFilter makes room for the keys that a checkpoint may add. It is called by the
// checkpoint under way, before that adds any; nobody else changes the filter or puts
// another in its place while none is being filled, so it is copied without the lock.
func (e *Engine) tendFilter(more int) {
	e.mu.Lock()
	k := &e.counters
	old, live, leave := k.filter, e.names.live(), k.filling != nil || e.closed
	blocksMax := k.blocksMax
	e.mu.Unlock()
	switch {
	case leave:
	case old == nil:
		if live < blocksMax*blockKeysMax/4*3 {
			e.makeFilter(k, live)
		}
	case old.keys+more <= len(old.blocks)*roomKeys:
	case old.load > 2*live: // half of it is for keys that are gone, or that it has twice
		e.makeFilter(k, live)
	case len(old.blocks) < blocksMax:
		e.setFilter(k, old.widened(more, blocksMax))
	case old.keys+more > len(old.blocks)*blockKeysMax:
		e.o.Logger.Info("there are more counters than fit into the filter of keys: the first write to a new counter reads the disk", "counters", live)
		e.setFilter(k, nil)
	}
}

// setFilter puts another filter, or none, in the place of the one that is.
func (e *Engine) setFilter(k *known, f *filter) {
	e.mu.Lock()
	old := k.filter
	k.filter = f
	e.mu.Unlock()
	old.free()
}

// makeFilter makes a filter of what is on disk, in the background.
func (e *Engine) makeFilter(k *known, keys int) {
	if fill := e.beginFilter(k, keys); fill != nil {
		go fill()
	}
}

// beginFilter begins a filter of what is on disk, with room for some keys, and returns what fills it, or nil. It
// is called while no checkpoint is under way, or by the one that is, before that adds
// keys: so a row is there now, and is seen, or it comes with a checkpoint that adds its
// key.
func (e *Engine) beginFilter(k *known, keys int) (fill func()) {
	walk, err := e.walkOf(k)
	if err != nil {
		e.o.Logger.Warn("can't build the filter of keys", "error", err)
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		_ = walk.it.Close() // nothing was read
		return nil
	}
	f := newFilter(keys, k.blocksMax)
	k.filling = f
	e.done.Add(1)
	return func() {
		defer e.done.Done()
		began := time.Now()
		err := errors.Join(e.fill(f, walk, k.room), diskErrorOrNil(walk.it.Close()))
		e.filled(k, f, err)
		switch {
		case err == nil:
			e.o.Logger.Debug("built the filter of keys", "took", time.Since(began))
		case !errors.Is(err, store.ErrClosed):
			e.o.Logger.Warn("can't build the filter of keys", "error", err)
		}
	}
}

// filled puts a filter in the place of the one that is, unless it could not be filled.
func (e *Engine) filled(k *known, f *filter, err error) {
	e.mu.Lock()
	if k.filling = nil; err == nil {
		k.fills++
		f, k.filter = k.filter, f
	}
	e.mu.Unlock()
	f.free()
}

// filtersMade returns how many filters were made of the rows on disk.
func (e *Engine) filtersMade() (keys, members uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counters.fills, e.members.fills
}

// knowNone makes a filter an empty one, if there are no rows for it. It may fail to find
// out.
func (e *Engine) knowNone(k *known) {
	walk, err := e.walkOf(k)
	if err != nil {
		return
	}
	none := !walk.first()
	if walk.it.Close() == nil && none {
		k.filter = newFilter(0, k.blocksMax)
	}
}

// cellRows returns an iterator over the rows of cells.
func (e *Engine) cellRows() (*pebble.Iterator, error) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowCell}, UpperBound: []byte{rowCell + 1}})
	if err != nil {
		return nil, diskError(err)
	}
	return it, nil
}

// A walk goes over the rows that a filter is of.
type walk struct {
	it    *pebble.Iterator
	parts bool // those of members
	seek  []byte
}

func (e *Engine) walkOf(k *known) (w *walk, err error) {
	w = &walk{parts: k == &e.members}
	if w.parts {
		w.it, err = e.partRows()
	} else {
		w.it, err = e.cellRows()
	}
	return w, err
}

func (w *walk) first() bool { return w.on(w.it.First()) }
func (w *walk) next() bool  { return w.on(w.it.Next()) }

// on goes on to a row that counts, from one that is there or not.
func (w *walk) on(there bool) bool {
	for w.parts && there {
		if w.seek = skipToMember(w.seek[:0], w.it.Key()); len(w.seek) == 0 {
			break
		}
		there = w.it.SeekGE(w.seek)
	}
	return there
}

// fill adds the keys of the rows that it goes over.
func (e *Engine) fill(f *filter, w *walk, room int) error {
	p := e.newPace()
	var hashes [lockedCells]uint64
	for ok := w.first(); ok; {
		n := 0
		for ; ok && n < len(hashes); ok = w.next() {
			hashes[n] = xxh3.HashSeed(w.it.Key()[1:], e.id.seed())
			n++
		}
		e.mu.Lock()
		f.addAll(hashes[:n])
		full := room*f.keys > len(f.blocks)*blockKeysMax
		e.mu.Unlock()
		if full {
			return errFilterFull
		}
		p.yield()
		p.breathe()
		select {
		case <-e.stop:
			return store.ErrClosed
		default:
		}
	}
	return diskErrorOrNil(w.it.Error())
}

var errFilterFull = errors.New("there are more keys than it has room for")

// lost reports whether a filter that was there when so many were made lacks a key that
// has a row.
func (k *known) lost(fills, hash uint64) bool {
	return k.filter != nil && k.fills == fills && !k.filter.has(hash)
}
