package engine

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// How the memory limit is spent: one part in three on cells and the filter of keys, as
// long as not more of them are waiting to be saved, one in eight on blocks of the disk. A
// checkpoint is due when what has changed takes half of it, saving included, and
// writers wait when that and what is being saved take three quarters. The rest
// is for the log's buffers, Pebble's work, and what the collector leaves lying.
const (
	cellShare       = 3
	blockCacheShare = 8
	// savedCellBytes is what a changed cell takes, besides itself, when a
	// checkpoint saves it: its bit in the set, its copy, its bits in filters.
	savedCellBytes = 48
	extraBytes     = 40 // what a deadline or a layout takes in a map
)

// changed returns the memory that n changed cells take: about, since it is the
// average of all cells, as of the last that was added.
func (e *Engine) changed(n int) int64 { return int64(n) * e.cellBytes }

// weigh takes that average.
func (e *Engine) weigh() {
	e.cellBytes = savedCellBytes + e.cells.bytes()/int64(max(1, e.cells.count))
}

// unsaved returns the memory that changes take which are not on disk.
func (e *Engine) unsaved() int64 {
	unsaved := e.tokens.bytes() + e.changed(e.dirty.count) + e.views.bytes + e.putBytes
	if e.save != nil {
		unsaved += e.changed(e.save.cells.count) + e.save.bundleBytes + e.save.putBytes
	}
	if e.frozen != nil {
		unsaved += e.frozen.bytes()
	}
	return unsaved
}

// overfull reports whether that is so much that writers must wait for the
// checkpoint under way.
func (e *Engine) overfull() bool { return e.unsaved() > e.changesMax()/4*3 }

// pressed reports whether background work must not rest: half of what was left
// before writers have to wait is taken, the log is long, or the engine closes.
func (e *Engine) pressed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed || e.unsaved() > e.changesMax()/8*5 || int64(e.end-e.saved) > 2*e.o.CheckpointBytes
}

// changesMax returns the memory limit without what the filter of keys takes.
func (e *Engine) changesMax() int64 { return e.o.Memory - e.filterBytes() }

// makeRoom wakes the writers that wait because of overfull. The lock is held.
func (e *Engine) makeRoom() {
	close(e.room)
	e.room = make(chan struct{})
}

// due reports whether it is time for a checkpoint.
func (e *Engine) due() bool {
	return e.changed(e.dirty.count)+e.views.bytes+e.tokens.bytes()+e.putBytes > e.changesMax()/2
}

// arm sees to it that a change is followed by a checkpoint before long.
func (e *Engine) arm() {
	if !e.armed {
		e.armed = true
		e.timer.Reset(e.o.CheckpointEvery)
	}
}

// tend does the small upkeep that follows a call: it wakes the checkpoint if
// one is due, looks at the disk's free space now and then, and evicts cells.
func (e *Engine) tend(end wal.Position) {
	e.end = end
	if e.due() || int64(end-e.saved) > e.o.CheckpointBytes && e.save == nil {
		e.wake()
	}
	if end-e.spaceAt > spaceEvery || e.timeMS-e.spaceMS > spaceEveryMS {
		e.spaceAt, e.spaceMS = end, e.timeMS
		e.checkSpace()
	}
	if e.inserts > 0 {
		e.evict()
	}
}

// evict removes cells that have not been touched for a while, when there are
// too many: a few for each that was added, by the second chance of a clock.
// Cells that are not on disk as they are stay.
func (e *Engine) evict() {
	steps := 4 * e.inserts
	e.inserts = 0
	e.weigh()
	for ; steps > 0 && e.cells.bytes()+int64(len(e.extras)+len(e.blobs))*extraBytes+e.blobBytes+e.filterBytes() > e.cellsMax; steps-- {
		e.hand++
		if e.hand >= e.cells.slots {
			e.hand = 1
		}
		s := e.cells.slot(e.hand)
		switch {
		case s.isFree(), s.meta&(dirty0|dirty1|saving) != 0:
		case s.meta&recent != 0:
			s.meta &^= recent
		default:
			if s.meta&hasExtra != 0 {
				delete(e.extras, e.hand)
				e.blobBytes -= int64(len(e.blobs[e.hand]))
				delete(e.blobs, e.hand)
			}
			e.parts.remove(e.hand)
			e.cells.remove(e.hand)
			if e.hand == e.hot.id { // its place will be another's
				e.hot = hot{}
			}
			e.meters.evicted++
		}
	}
}

// The disk's free space is looked at after every so many bytes of log or so much
// time, and while there is too little of it, once in a while.
const (
	spaceEvery   = 4 << 20
	spaceEveryMS = 1000
	spaceRetry   = 100 * time.Millisecond
)

// checkSpace sets e.spaceErr if the disk is nearly full, so that writers are
// refused while there is still room for a checkpoint, and nothing fails half
// way. A file system that can't tell is not full.
func (e *Engine) checkSpace() {
	e.spaceErr, e.spaceTime = nil, time.Now()
	usage, err := e.o.FS.GetDiskUsage(e.dir)
	need := uint64(e.o.Memory) + 64<<20
	if err == nil && usage.AvailBytes < need {
		e.spaceErr = store.Errorf(store.KindUnavailable, "the disk is nearly full: %d MiB free, %d MiB are kept for checkpoints; free some and try again",
			usage.AvailBytes>>20, need>>20)
	}
}

// admit lets a write in, or waits until there is room in memory for it, or
// says why there won't be. The lock is held, but not while it waits.
func (e *Engine) admit(ctx context.Context) error {
	// Fast path: there is room.
	if e.spaceErr == nil && e.failed.Load() == nil && !e.overfull() {
		return nil
	}
	for {
		if e.closed {
			return store.ErrClosed
		}
		if err := e.failed.Load(); err != nil {
			return *err
		}
		if err := e.log.Err(); err != nil {
			return store.Errorf(store.KindUnavailable, "log stopped: %w", err)
		}
		if e.spaceErr != nil && time.Since(e.spaceTime) > spaceRetry {
			e.checkSpace()
		}
		if e.spaceErr != nil {
			return e.spaceErr
		}
		if !e.overfull() {
			return nil
		}
		e.wake()
		room := e.room
		e.mu.Unlock()
		var err error
		select {
		case <-room:
		case <-e.broken:
		case <-ctx.Done():
			err = store.Errorf(store.KindUnavailable, "the disk can't keep up with the changes: %w", ctx.Err())
		}
		e.mu.Lock()
		if err != nil {
			return err
		}
	}
}
