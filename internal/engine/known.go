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
// no look at the disk: see DESIGN.md, I18 to I20. Opening a store does not wait for it.
// It takes one part in filterShare of the memory limit at most; a store with more keys
// than that is enough for goes without.
const filterShare = 8

// filterBlocksMax returns how many blocks a filter may have: a power of two.
func filterBlocksMax(memory int64) int {
	return 1 << (bits.Len64(uint64(memory/filterShare/blockBytes)) - 1)
}

// filterBytes returns the memory that the filters take.
func (e *Engine) filterBytes() int64 { return e.filter.bytes() + e.filling.bytes() }

// noRow reports whether the disk certainly has no row of a cell that is not in memory,
// or is unread there.
func (e *Engine) noRow(hash uint64) bool {
	if e.filter == nil {
		return false
	}
	e.meters.filterChecks++
	return !e.filter.has(hash)
}

// willHaveRows says that keys are about to be written to disk.
func (e *Engine) willHaveRows(hashes []uint64) {
	e.filter.addAll(hashes)
	e.filling.addAll(hashes)
}

// tendFilter makes room for the keys that a checkpoint may add. It is called by the
// checkpoint under way, before that adds any; nobody else changes the filter or puts
// another in its place while none is being filled, so it is copied without the lock.
func (e *Engine) tendFilter(more int) {
	e.mu.Lock()
	old, live, leave := e.filter, e.names.live(), e.filling != nil || e.closed
	blocksMax := e.blocksMax
	e.mu.Unlock()
	switch {
	case leave:
	case old == nil:
		if live < blocksMax*blockKeysMax/4*3 {
			e.makeFilter(live, blocksMax)
		}
	case old.keys+more <= len(old.blocks)*roomKeys:
	case old.load > 2*live: // half of it is for keys that are gone, or that it has twice
		e.makeFilter(live, blocksMax)
	case len(old.blocks) < blocksMax:
		e.setFilter(old.widened(more, blocksMax))
	case old.keys+more > len(old.blocks)*blockKeysMax:
		e.o.Logger.Info("there are more counters than the filter of their keys has room for: new ones are looked for on disk", "counters", live)
		e.setFilter(nil)
	}
}

// setFilter puts another filter, or none, in the place of the one that is.
func (e *Engine) setFilter(f *filter) {
	e.mu.Lock()
	old := e.filter
	e.filter = f
	e.mu.Unlock()
	old.free()
}

// makeFilter makes a filter of the keys on disk, in the background.
func (e *Engine) makeFilter(live, blocksMax int) {
	if fill := e.beginFilter(live, blocksMax); fill != nil {
		go fill()
	}
}

// beginFilter begins a filter of the keys on disk and returns what fills it, or nil. It
// is called while no checkpoint is under way, or by the one that is, before that adds
// keys: so a row is there now, and is seen, or it comes with a checkpoint that adds its
// key.
func (e *Engine) beginFilter(live, blocksMax int) (fill func()) {
	it, err := e.cellRows()
	if err != nil {
		e.o.Logger.Warn("the filter of keys can't be made", "error", err)
		return nil
	}
	f := newFilter(live, blocksMax)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		_ = it.Close() // nothing was read
		return nil
	}
	e.filling = f
	e.done.Add(1)
	return func() {
		defer e.done.Done()
		began := time.Now()
		err := errors.Join(e.fill(f, it), diskErrorOrNil(it.Close()))
		e.filled(f, err)
		switch {
		case err == nil:
			e.o.Logger.Debug("made the filter of keys", "took", time.Since(began))
		case !errors.Is(err, store.ErrClosed):
			e.o.Logger.Warn("the filter of keys can't be made", "error", err)
		}
	}
}

// filled puts a filter in the place of the one that is, unless it could not be filled.
func (e *Engine) filled(f *filter, err error) {
	e.mu.Lock()
	if e.filling = nil; err == nil {
		e.fills++
		f, e.filter = e.filter, f
	}
	e.mu.Unlock()
	f.free()
}

// filtersMade returns how many filters were made of the rows on disk.
func (e *Engine) filtersMade() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fills
}

// knowNone makes the filter an empty one, if there are no rows of cells. It may fail to
// find out.
func (e *Engine) knowNone() {
	it, err := e.cellRows()
	if err != nil {
		return
	}
	none := !it.First()
	if it.Close() == nil && none {
		e.filter = newFilter(0, e.blocksMax)
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

// fill adds the keys of the rows that it goes over.
func (e *Engine) fill(f *filter, it *pebble.Iterator) error {
	p := e.newPace()
	var hashes [lockedCells]uint64
	for ok := it.First(); ok; {
		n := 0
		for ; ok && n < len(hashes); ok = it.Next() {
			hashes[n] = xxh3.HashSeed(it.Key()[1:], e.id.seed())
			n++
		}
		e.mu.Lock()
		f.addAll(hashes[:n])
		e.mu.Unlock()
		p.yield()
		p.breathe()
		select {
		case <-e.stop:
			return store.ErrClosed
		default:
		}
	}
	return diskErrorOrNil(it.Error())
}
