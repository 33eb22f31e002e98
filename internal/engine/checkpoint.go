package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// A checkpoint writes the state of the store at one position of the log to
// disk, in one batch: cells, tokens, marks, the position itself. It begins by
// taking the list of changed cells, under the lock, and copies them
// afterwards, some at a time, so that no writer waits for long; a writer that
// is about to change a cell that is not copied yet copies it first. Then the
// log before the position is no longer needed.
type checkpoint struct {
	began    time.Time
	position wal.Position
	frame    *wal.Frame // holds the position: nothing is written before it is synced
	timeMS   int64
	batch    *pebble.Batch
	cells    []uint32 // the changed cells
	unread   []unreadCell
	born     []uint32
	names    namespaces
	swept    [][]byte // tokens that are forgotten
	nextMS   int64    // when there is more to forget; 0 if nobody looked
	whole    bool     // the batch is complete
	buf      []byte
}

// An unreadCell is the copy of a cell whose row must be read before it can be
// written. Its key stays where it is while the cell is being saved.
type unreadCell struct {
	key     ref
	slot    uint32
	delta   int64
	version uint64
}

const (
	lockedCells = 512     // cells handled under one hold of the lock
	sweepMax    = 100_000 // tokens forgotten in one checkpoint
)

// Checkpoint writes everything up to the log's present end to disk.
func (e *Engine) Checkpoint(ctx context.Context) error {
	return e.checkpoint(ctx, false)
}

// checkpoint also forgets the tokens whose time is over, if it is time to look
// for them or if sweep is set. One that failed is finished first.
func (e *Engine) checkpoint(ctx context.Context, sweep bool) error {
	return e.guarded(func() error {
		e.checkpointing.Lock()
		defer e.checkpointing.Unlock()
		return e.checkpointLocked(ctx, sweep)
	})
}

// checkpointLocked is checkpoint for one who holds e.checkpointing.
func (e *Engine) checkpointLocked(ctx context.Context, sweep bool) error {
	if err := e.failed.Load(); err != nil {
		return *err // the checkpoint it met may never end
	}
	if e.save != nil {
		if err := e.finish(ctx, e.save, false); err != nil {
			return err
		}
	}
	e.mu.Lock()
	perCell := 12
	if e.cells.count > 0 {
		perCell += int(e.cells.used) / e.cells.count
	}
	size := len(e.dirty)*perCell + 4096
	e.mu.Unlock()

	// The batch is made with room for everything, so that it need not be
	// copied to a larger one while the lock is held.
	c := &checkpoint{began: time.Now(), batch: e.db.NewBatchWithSize(size), names: namespaces{}}
	e.mu.Lock()
	e.begin(c)
	sweep = sweep || c.timeMS >= max(e.sweepMS, e.sweptMS+e.o.Limits.TokenWindow.Milliseconds()/8)
	e.mu.Unlock()
	return e.finish(ctx, c, sweep)
}

// begin takes what is to be saved. The lock is held.
func (e *Engine) begin(c *checkpoint) {
	c.frame = e.log.Begin()
	c.position = c.frame.Pos()
	e.log.End(store.Synced)

	c.cells, e.dirty = e.dirty, nil
	c.born, e.born = e.born, nil
	e.timeMS, e.timeFrame = max(e.timeMS, e.o.Now().UnixMilli()), 0
	c.timeMS = e.timeMS
	e.dirtyBit ^= dirty0 | dirty1
	e.frozen, e.tokens = e.tokens, newTable(tokenBytes)
	e.save = c
	e.armed = false
	for name, ns := range e.names {
		c.names[name] = &namespace{keys: ns.keys, tokens: ns.tokens}
		if *ns == (namespace{}) {
			delete(e.names, name) // its row goes
		}
	}
	for w, m := range e.marks.of {
		if m.dirty {
			c.set(markRow(w), m.appendRow(nil))
			m.dirty = false
		}
	}
	for _, w := range e.retired {
		c.delete(markRow(w))
	}
	e.retired = nil
	c.set([]byte{rowMeta}, e.appendMeta(nil, c.position))
}

// set and delete add to the batch. That fails only when it reaches 4 GiB; the
// memory limit keeps it far below.
func (c *checkpoint) set(key, value []byte) {
	if err := c.batch.Set(key, value, nil); err != nil {
		panic(err)
	}
}

func (c *checkpoint) delete(key []byte) {
	if err := c.batch.Delete(key, nil); err != nil {
		panic(err)
	}
}

func markRow(w store.Writer) []byte {
	return binary.BigEndian.AppendUint64([]byte{rowMark}, uint64(w))
}

// preserve copies a cell that is about to change, if the checkpoint under way
// has still to copy it.
func (e *Engine) preserve(id uint32, s *slot) {
	if frozen := e.dirtyBit ^ (dirty0 | dirty1); s.meta&frozen != 0 {
		e.save.copy(e, id, s)
		s.meta = s.meta&^frozen | saving
	}
}

// copy adds a cell, as it is, to the checkpoint.
func (c *checkpoint) copy(e *Engine, id uint32, s *slot) {
	if s.meta.state() == unread {
		c.unread = append(c.unread, unreadCell{key: s.key, slot: id, delta: s.value, version: s.meta.version()})
		return
	}
	c.cell(e, e.cells.keyOf(id), valueOf(s.value, s.meta))
}

// cell adds a cell's row to the batch, and keeps the filter of cells near a
// limit. The lock is held.
func (c *checkpoint) cell(e *Engine, key []byte, v store.Value) {
	hash := xxh3.HashSeed(key, e.id.seed())
	row := append(append(c.buf[:0], rowCell), key...)
	n := len(row)
	if v.Exists {
		row = appendCellRow(row, v.N, v.Version)
		c.set(row[:n], row[n:])
	} else {
		c.delete(row)
	}
	c.buf = row
	switch row[0] = rowNear; {
	case isNear(v.N):
		e.near.add(hash)
		c.set(row[:n], nil)
	case e.near.has(hash):
		c.delete(row[:n])
	}
}

// finish does the rest of a checkpoint that was begun. After an error it can
// be called again.
func (e *Engine) finish(ctx context.Context, c *checkpoint, sweep bool) error {
	e.copyCells(c)
	if err := e.readUnread(ctx, c); err != nil {
		return err
	}
	if err := c.frame.Wait(ctx, store.Synced); err != nil {
		return store.Errorf(store.KindUnavailable, "make checkpoint: %w", err)
	}
	if sweep {
		if err := e.sweep(c); err != nil {
			return err
		}
	}
	e.complete(c)
	if err := e.flushRest(); err != nil {
		return err
	}
	if err := e.db.Apply(c.batch, pebble.NoSync); err != nil {
		return diskError(err)
	}
	e.publish(c)
	if err := c.batch.Close(); err != nil {
		return diskError(err)
	}
	if err := e.flush(); err != nil {
		return err
	}
	if err := e.log.Release(c.position); err != nil {
		return store.Errorf(store.KindUnavailable, "release the log: %w", err)
	}
	e.meters.checkpoints.Add(1)
	e.meters.saved.Add(uint64(len(c.cells)))
	e.o.Logger.Debug("checkpoint", "cells", len(c.cells), "position", uint64(c.position), "took", time.Since(c.began))
	return nil
}

// some calls f for parts of n things, with the lock held for each part.
func (e *Engine) some(n int, f func(from, to int)) {
	for from := 0; from < n; from += lockedCells {
		e.mu.Lock()
		f(from, min(n, from+lockedCells))
		e.mu.Unlock()
	}
}

// copyCells copies the changed cells that no writer copied.
func (e *Engine) copyCells(c *checkpoint) {
	e.some(len(c.cells), func(from, to int) {
		for _, id := range c.cells[from:to] {
			e.preserve(id, e.cells.slot(id))
		}
	})
}

// readUnread reads the rows of the cells that nobody has looked at, in the
// order of their keys, and makes them read ones in memory too.
func (e *Engine) readUnread(ctx context.Context, c *checkpoint) error {
	if len(c.unread) == 0 {
		return nil
	}
	// The keys do not change while their cells are being saved, so they can be
	// read without the lock; only the list of chunks may grow meanwhile.
	e.mu.Lock()
	keys := arena{chunks: e.cells.chunks}
	e.mu.Unlock()
	slices.SortFunc(c.unread, func(a, b unreadCell) int { return bytes.Compare(keys.at(a.key), keys.at(b.key)) })
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowCell}, UpperBound: []byte{rowCell + 1}})
	if err != nil {
		return diskError(err)
	}
	for len(c.unread) > 0 && err == nil {
		some := c.unread[:min(lockedCells, len(c.unread))]
		if err = e.readSome(it, &keys, c, some); err == nil {
			c.unread = c.unread[len(some):]
			err = ctx.Err()
		}
	}
	return errors.Join(err, diskErrorOrNil(it.Close()))
}

// readSome reads the rows of some cells.
func (e *Engine) readSome(it *pebble.Iterator, keys *arena, c *checkpoint, some []unreadCell) error {
	var rows [lockedCells]row
	seek := []byte{rowCell}
	for i := range some {
		seek = append(seek[:1], keys.at(some[i].key)...)
		if it.SeekGE(seek) && bytes.Equal(it.Key(), seek) {
			var err error
			if rows[i], err = decodeBase(it); err != nil {
				return err
			}
		}
		if err := it.Error(); err != nil {
			return diskError(err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, u := range some {
		key := keys.at(u.key)
		e.resolve(u.slot, rows[i])
		c.cell(e, key, store.Value{N: rows[i].value + u.delta, Version: u.version, Exists: true})
		if !rows[i].exists {
			c.names.of(key).keys++
		}
	}
	return nil
}

func decodeBase(it *pebble.Iterator) (row, error) {
	b, err := it.ValueAndErr()
	if err != nil {
		return row{}, diskError(err)
	}
	r := row{exists: true}
	var ok bool
	if r.value, r.version, ok = decodeCellRow(b); !ok {
		return row{}, store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", it.Key())
	}
	return r, nil
}

// sweep finds the tokens whose time is over, on disk and among those that are
// about to be written.
func (e *Engine) sweep(c *checkpoint) error {
	kept := store.TokenKeptMS(e.o.Limits.TokenWindow)
	c.swept, c.nextMS = nil, c.timeMS+kept // of those decided from now on
	over := func(b []byte) (over, ok bool) {
		rec, ok := decodeToken(b)
		if over = c.timeMS-rec.atMS >= kept; !over {
			c.nextMS = min(c.nextMS, rec.atMS+kept)
		}
		return over, ok
	}
	for id := uint32(1); id < e.frozen.slots; id++ {
		if over, _ := over(e.frozen.entry(id)); over {
			c.swept = append(c.swept, bytes.Clone(e.frozen.keyOf(id)))
		}
	}
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowToken}, UpperBound: []byte{rowToken + 1}})
	if err != nil {
		return diskError(err)
	}
	for ok := it.First(); ok && c.nextMS > c.timeMS; ok = it.Next() {
		b, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(diskError(err), it.Close())
		}
		over, ok := over(b)
		key := it.Key()[1:]
		switch {
		case !ok:
			return errors.Join(store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", it.Key()), it.Close())
		case !over:
		case e.frozen.find(uint32(xxh3.HashSeed(key, e.id.seed())), key) != 0: // decided again
		default:
			if c.swept = append(c.swept, bytes.Clone(key)); len(c.swept) >= sweepMax {
				c.nextMS = c.timeMS // there may be more
			}
		}
	}
	return diskErrorOrNil(it.Close())
}

// complete adds to the batch what is known only now: the tokens, which nobody
// changes any more, and the numbers of keys and tokens.
func (e *Engine) complete(c *checkpoint) {
	if c.whole {
		return
	}
	c.whole = true
	var key []byte
	for id := uint32(1); id < e.frozen.slots; id++ {
		entry := e.frozen.entry(id)
		key = append(append(key[:0], rowToken), entry[tokenBytes:]...)
		c.set(key, entry[:tokenBytes])
	}
	for _, token := range c.swept {
		c.delete(append(append(key[:0], rowToken), token...))
		c.names.named(tokenNamespace(token)).tokens--
	}
	for name, ns := range c.names {
		row := append([]byte{rowNamespace}, name...)
		if *ns == (namespace{}) {
			c.delete(row)
		} else {
			c.set(row, ns.appendRow(nil))
		}
	}
}

// publish makes the cells and tokens that are on disk now unchanged ones.
func (e *Engine) publish(c *checkpoint) {
	// Before e.save goes, through which Scan finds c.born: a cell that was saved
	// as absent, and made again since, is nowhere else.
	e.some(len(c.born), func(from, to int) {
		for _, id := range c.born[from:to] {
			if s := e.cells.slot(id); s.meta&e.dirtyBit != 0 {
				e.born = append(e.born, id)
			} else {
				s.meta &^= born
			}
		}
	})
	e.mu.Lock()
	e.disk++ // what was read before is stale: from here on cells may be evicted
	e.frozen.free()
	e.frozen = nil
	e.save, e.saved = nil, c.position
	if c.nextMS != 0 {
		e.sweepMS, e.sweptMS = c.nextMS, c.timeMS
		if c.nextMS <= c.timeMS {
			e.sweptMS = 0 // there is more: the next checkpoint goes on
		}
	}
	for _, token := range c.swept {
		// Decided again since the checkpoint began: still counted.
		if _, id := e.inMemory(token); id == 0 {
			e.names.named(tokenNamespace(token)).tokens--
		}
	}
	e.mu.Unlock()
	e.some(len(c.cells), func(from, to int) {
		for _, id := range c.cells[from:to] {
			e.cells.slot(id).meta &^= saving
		}
	})
	e.mu.Lock()
	e.makeRoom()
	e.mu.Unlock()
}

// tokenNamespace returns the namespace's part of a token's key.
func tokenNamespace(token []byte) []byte {
	cell, _ := tokenCell(token)
	return cell[:namespaceLen(cell)]
}
