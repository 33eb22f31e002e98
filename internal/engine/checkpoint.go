package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// A checkpoint writes the state of the store at one position of the log to
// disk, in one table: cells, tokens, marks, the position itself. It begins by
// taking the set of changed cells, under the lock, and copies them
// afterwards, some at a time, so that no writer waits for long; a writer that
// is about to change a cell that is not copied yet copies it first. The copies
// are sorted and written to a file, which Pebble takes in as a whole. Then the
// log before the position is no longer needed.
type checkpoint struct {
	began    time.Time
	position wal.Position
	frame    *wal.Frame // holds the position: nothing is written before it is synced
	timeMS   int64
	meta     []byte
	cells    slotSet // the changed cells
	copies   []saved // of those of them that were copied; has room for all
	room     []saved // that room
	free     func()  // gives it back
	sorted   bool    // the copies are in the order of their keys
	born     slotSet
	tokens   *table // for those decided from now on
	marks    []markRow
	pace     *pace

	extras       map[uint32]extra  // of the copies that have one, by slot
	blobs        map[uint32]string // of the copies that have bytes, by slot
	members      int               // that may be new on disk, or more
	putBytes     int64
	bundleBytes  int64
	bundleAmount int64
	bundles      bundles
	afar         [][]byte // parts that were near when bundles were added to them
	tried        bool     // it was given to Pebble, which may not have taken it
	thawed       slotSet  // parts that have what is on disk when it is published
	epochs       []epochRow
	fences       *fences  // nil if they did not change
	collected    [][]byte // rows of deadlines that go
	soonest      int64    // deadline of those that are written
	names        namespaces
	swept        [][]byte        // tokens that are forgotten, in order
	forgotten    namespaces      // how many of each namespace those are
	again        map[string]bool // tokens known before that were decided since it began; whether they remembered a refusal
	nextMS       int64           // when there is more to forget; 0 if nobody looked
}

// A saved is the copy of a cell that is being saved, or a token. Its key stays
// in its slot meanwhile.
type saved struct {
	head  uint64 // for sortSaved
	value int64
	meta  meta
	slot  uint32
}

// An epochRow is the tally of an epoch as it is written.
type epochRow struct {
	key   string
	tally tally
}

// mustBeRead reports whether the cell must be read before it is changed, once
// it is on disk.
func (s *saved) mustBeRead() bool {
	return s.meta.state() == present && (isNear(s.value) || s.meta&hasExtra != 0)
}

// A markRow is a mark as it is written, or nil if it goes.
type markRow struct {
	writer store.Writer
	value  []byte
}

const (
	lockedCells = 128     // cells handled under one hold of the lock: some 10 µs
	sweepMax    = 100_000 // tokens forgotten in one checkpoint
)

func (e *Engine) newCheckpoint() *checkpoint {
	return &checkpoint{
		began: time.Now(), names: namespaces{}, forgotten: namespaces{}, again: map[string]bool{},
		extras: map[uint32]extra{}, blobs: map[uint32]string{}, tokens: newTable(tokenBytes), pace: e.newPace(),
	}
}

// Checkpoint writes everything up to the log's present end to disk.
func (e *Engine) Checkpoint(ctx context.Context) error {
	return e.checkpoint(ctx, false)
}

// checkpoint also forgets the tokens whose time is over, if it is time to look
// for them or if sweep is set. One that failed is finished first.
func (e *Engine) checkpoint(ctx context.Context, sweep bool) error {
	return e.guarded(func() error {
		if err := e.checkpointing.enter(ctx); err != nil {
			return err
		}
		defer e.checkpointing.leave()
		return e.checkpointLocked(ctx, sweep)
	})
}

// A gate lets one through at a time, and others wait no longer than their
// context.
type gate chan struct{}

func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }

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
	c := e.newCheckpoint()
	e.stillSome(c.pace)
	e.mu.Lock()
	e.begin(c)
	sweep = sweep || c.timeMS >= max(e.sweepMS, e.sweptMS+e.o.Limits.TokenWindow.Milliseconds()/8)
	e.mu.Unlock()
	return e.finish(ctx, c, sweep)
}

// begin takes what is to be saved. The lock is held.
func (e *Engine) begin(c *checkpoint) {
	e.stillFirst(len(e.live))
	c.frame = e.log.Begin()
	c.position = c.frame.Pos()
	e.log.End(store.Synced)

	c.cells, e.dirty = e.dirty, slotSet{}
	c.room, c.free = room[saved](c.cells.count)
	c.copies = c.room
	c.born, e.born = e.born, slotSet{}
	c.collected, e.collected = e.collected, nil
	e.soonest = min(e.soonest, e.soonestSet)
	e.soonestSet, e.soonestNew = math.MaxInt64, math.MaxInt64
	c.timeMS, e.timeFrame = e.now(), 0
	e.dirtyBit ^= dirty0 | dirty1
	e.frozen, e.tokens = e.tokens, c.tokens
	e.save = c
	e.armed = false
	for name, ns := range e.names {
		c.names[name] = &namespace{keys: ns.keys, tokens: ns.tokens, refused: ns.refused}
		if *ns == (namespace{}) {
			delete(e.names, name) // its row goes
		}
	}
	for w, m := range e.marks.of {
		if m.dirty {
			c.marks = append(c.marks, markRow{w, m.row()})
			m.dirty = false
		}
	}
	for _, w := range e.retired {
		c.marks = append(c.marks, markRow{w, nil})
	}
	e.retired = nil
	c.putBytes, e.putBytes = e.putBytes, 0
	c.members, e.madeMembers = e.madeMembers, 0
	e.tallyViews()
	e.freeze(c)
	for key, t := range e.epochs {
		if t.dirty {
			c.epochs = append(c.epochs, epochRow{key, t.tally})
			t.dirty = false
		}
	}
	c.fences = e.fences.take()
	c.meta = e.appendMeta(nil, c.position)
}

// preserve copies a cell that is about to change, if the checkpoint under way
// has still to copy it.
func (e *Engine) preserve(id uint32, s *slot) {
	if frozen := e.dirtyBit ^ (dirty0 | dirty1); s.meta&frozen != 0 {
		c := e.save
		c.copies = append(c.copies, saved{value: s.value, meta: s.meta, slot: id})
		if s.meta&hasExtra != 0 {
			if x, ok := e.extras[id]; ok {
				c.extras[id] = x
			} else {
				c.blobs[id] = e.blobs[id]
			}
		}
		s.meta = s.meta&^frozen | saving
	}
}

// finish does the rest of a checkpoint that was begun. After an error it can
// be called again.
func (e *Engine) finish(ctx context.Context, c *checkpoint, sweep bool) error {
	if err := e.write(ctx, c, sweep); err != nil {
		return err
	}
	return e.publish(c)
}

// write gets a checkpoint to disk.
func (e *Engine) write(ctx context.Context, c *checkpoint, sweep bool) error {
	e.copyCells(c)
	e.sortCopies(c)
	e.copyBundles(c)
	if err := c.frame.Wait(ctx, store.Synced); err != nil {
		return store.Errorf(store.KindUnavailable, "make checkpoint: %w", err)
	}
	e.thawAll(c)
	if sweep && c.nextMS == 0 {
		if err := e.sweep(c); err != nil {
			return err
		}
	}
	e.awaitMerging(ctx)
	e.tendFilter(c.born.count)
	e.tendMembers(c.members)
	if c.tried {
		if there, err := e.isThere(c); there || err != nil {
			return err
		}
	}
	c.tried = true
	return e.ingest(ctx, func(t *rowWriter) error { return e.writeRows(ctx, t, c) })
}

// isThere reports whether a checkpoint that failed is on disk all the same. What it adds to
// rows must not be added again.
func (e *Engine) isThere(c *checkpoint) (there bool, err error) {
	err = e.rows(rowMeta, func(_, value []byte) bool {
		m, ok := decodeMeta(value)
		there = m.position == c.position && c.position > e.saved
		return ok
	})
	return there, err
}

// some calls f for parts of a set that does not change any more, with the lock held
// for each part. Those who wait for the lock get it in between.
func (e *Engine) some(p *pace, set *slotSet, f func(ids []uint32)) {
	room := make([]uint32, lockedCells)
	for ids := set.some(0, room); len(ids) > 0; ids = set.some(ids[len(ids)-1]+1, room) {
		e.mu.Lock()
		f(ids)
		e.mu.Unlock()
		p.yield()
		p.breathe()
	}
}

// copyCells copies the changed cells that no writer copied.
func (e *Engine) copyCells(c *checkpoint) {
	ready(c.room, c.pace)
	e.some(c.pace, &c.cells, func(ids []uint32) {
		for _, id := range ids {
			e.preserve(id, e.cells.slot(id))
		}
	})
}

// sortCopies puts the copies in the order of their keys.
func (e *Engine) sortCopies(c *checkpoint) {
	if !c.sorted {
		sortSaved(c.copies, e.savedKeys(), c.pace)
		c.sorted = true
	}
}

// savedKeys returns the keys of the cells that are being saved for one who does not
// hold the lock.
func (e *Engine) savedKeys() *table {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cells.keys()
}

// writeRows writes everything, in the order of the rows' first bytes. It can be
// called again.
func (e *Engine) writeRows(ctx context.Context, t *rowWriter, c *checkpoint) error {
	keys := e.savedKeys()
	c.fences.writeBooks(t)
	cells, parts, own := c.split(keys)
	near, err := e.writeCells(ctx, t, c, cells)
	if err == nil {
		near, err = e.readParts(ctx, c, keys, parts, near)
	}
	if err != nil {
		return err
	}
	ownNear, err := e.writeCells(ctx, t, c, own)
	if err != nil {
		return err
	}
	near = append(near, ownNear...)
	var until []int
	for _, n := range near {
		if s := &c.copies[n]; s.meta&hasExtra != 0 && c.extras[s.slot].deadline() > 0 {
			until = append(until, n)
		}
	}
	c.writeDeadlines(t, keys, until)
	slices.SortFunc(c.epochs, func(a, b epochRow) int { return cmp.Compare(a.key, b.key) })
	for i := range c.epochs {
		t.set(rowEpoch, []byte(c.epochs[i].key), c.epochs[i].tally.appendEpoch(t.value()))
	}
	c.fences.writeFloors(t)
	t.set(rowMeta, nil, c.meta)
	c.writeNear(t, keys, near)
	if err := e.writeParts(ctx, t, c, keys, parts); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.names)) {
		if ns := c.names[name]; *ns == (namespace{}) {
			t.delete(rowNamespace, []byte(name))
		} else {
			t.set(rowNamespace, []byte(name), ns.appendRow(t.value()))
		}
	}
	e.writeTokens(t, c)
	slices.SortFunc(c.marks, func(a, b markRow) int { return cmp.Compare(a.writer, b.writer) })
	for _, m := range c.marks {
		key := binary.BigEndian.AppendUint64(nil, uint64(m.writer))
		if m.value == nil {
			t.delete(rowMark, key)
		} else {
			t.set(rowMark, key, m.value)
		}
	}
	return nil
}

// writeNear writes which cells and parts must be read before they are changed: some of the
// copies, and parts that the checkpoint before has found to be.
func (c *checkpoint) writeNear(t *rowWriter, keys *table, near []int) {
	far := c.afar
	slices.SortFunc(far, bytes.Compare)
	far = slices.CompactFunc(far, bytes.Equal)
	for _, n := range near {
		s, key := &c.copies[n], keys.keyOf(c.copies[n].slot)
		for ; len(far) > 0 && bytes.Compare(far[0], key) < 0; far = far[1:] {
			t.set(rowNear, far[0], nil)
		}
		switch {
		case len(far) > 0 && bytes.Equal(far[0], key):
		case s.mustBeRead():
			t.set(rowNear, key, nil)
		default:
			t.delete(rowNear, key)
		}
	}
	for _, key := range far {
		t.set(rowNear, key, nil)
	}
}

// A run is copies from one up to before another.
type run struct{ from, to int }

// split returns where the copies of cells are, those of parts behind them, and those of
// the store's own cells behind these.
func (c *checkpoint) split(keys *table) (cells, parts, own run) {
	find := func(first byte) int {
		return sort.Search(len(c.copies), func(i int) bool { return keys.keyOf(c.copies[i].slot)[0] >= first })
	}
	a, b := find(nsPart), find(nsPart+1)
	return run{0, a}, run{a, b}, run{b, len(c.copies)}
}

// writeCells writes cells, and returns the copies of those that must be read
// before they are changed, or may have had to be.
func (e *Engine) writeCells(ctx context.Context, t *rowWriter, c *checkpoint, r run) (near []int, err error) {
	it, err := e.cellRows()
	if err != nil {
		return nil, err
	}
	keys := e.savedKeys()
	for from := r.from; from < r.to && err == nil && t.err == nil; from += lockedCells {
		some := c.copies[from:min(r.to, from+lockedCells)]
		keys.fetch(some)
		if err = e.readCopies(it, keys, c, some); err != nil {
			break
		}
		var hashes, rows [lockedCells]uint64
		n := 0
		for i := range some {
			hashes[i] = xxh3.HashSeed(keys.keyOf(some[i].slot), e.id.seed())
			if some[i].meta.state() == present {
				rows[n] = hashes[i]
				n++
			}
		}
		e.mu.Lock()
		e.counters.willHaveRows(rows[:n])
		for i := range some {
			if some[i].mustBeRead() {
				e.near.add(hashes[i])
			}
			if e.near.has(hashes[i]) {
				near = append(near, from+i)
			}
		}
		e.mu.Unlock()
		c.pace.yield()
		for i := range some {
			if s := &some[i]; s.meta.state() == present {
				r := row{value: s.value, version: s.meta.version()}
				if s.meta&hasExtra != 0 {
					r.extra = c.extras[s.slot]
				}
				t.set(rowCell, keys.keyOf(s.slot), r.append(t.value()))
			} else {
				t.delete(rowCell, keys.keyOf(s.slot))
			}
		}
		c.pace.breathe()
		err = ctx.Err()
	}
	return near, errors.Join(err, diskErrorOrNil(it.Close()))
}

// readCopies reads the rows of those among some cells that nobody has looked
// at, and makes them read ones, the copies and the cells in memory too.
func (e *Engine) readCopies(it *pebble.Iterator, keys *table, c *checkpoint, some []saved) error {
	var rows [lockedCells]row
	seek, found := []byte(nil), false
	for i := range some {
		if some[i].meta.state() != unread {
			continue
		}
		found = true
		key := keys.keyOf(some[i].slot)
		seek = appendRowKey(seek[:0], key)
		if it.SeekGE(seek) && bytes.Equal(it.Key(), seek) {
			var err error
			if rows[i], err = decodeBase(it, key); err != nil {
				return err
			}
		}
		if err := it.Error(); err != nil {
			return diskError(err)
		}
	}
	if !found {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range some {
		s := &some[i]
		if s.meta.state() != unread {
			continue
		}
		e.resolve(s.slot, rows[i])
		s.value, s.meta = rows[i].value+s.value, s.meta.withState(present)
		if rows[i].extra != 0 {
			s.meta |= hasExtra
			c.extras[s.slot] = rows[i].extra
		}
		if key := keys.keyOf(s.slot); !rows[i].exists && !isPart(key) {
			c.names.of(key).keys++
		}
	}
	return nil
}

// appendRowKey appends the key of the row of a cell or a part.
func appendRowKey(dst, key []byte) []byte {
	if isPart(key) {
		return append(append(dst, rowPart), key[1:]...)
	}
	return append(append(dst, rowCell), key...)
}

func decodeBase(it *pebble.Iterator, key []byte) (row, error) {
	b, err := it.ValueAndErr()
	if err != nil {
		return row{}, diskError(err)
	}
	r, ok := decodeRow(b)
	if isPart(key) {
		r, ok = decodePartRow(key, b)
	}
	if !ok {
		return row{}, store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", it.Key())
	}
	return r, nil
}

// sweep finds the tokens whose time is over, on disk and among those that are
// about to be written.
func (e *Engine) sweep(c *checkpoint) error {
	kept := store.TokenKeptMS(e.o.Limits.TokenWindow)
	nextMS := c.timeMS + kept // of those decided from now on
	var swept [][]byte
	refused := map[string]bool{} // those of them that remember a refusal
	over := func(key, b []byte) (over, ok bool) {
		rec, ok := decodeToken(b)
		age := e.gaps.Age(rec.AtMS, c.timeMS)
		if over = age >= kept; !over {
			nextMS = min(nextMS, c.timeMS+kept-age)
		} else if rec.Refused() {
			refused[string(key)] = true
		}
		return over, ok
	}
	for id := uint32(1); id < e.frozen.slots; id++ {
		if over, _ := over(e.frozen.keyOf(id), e.frozen.entry(id)); over {
			swept = append(swept, bytes.Clone(e.frozen.keyOf(id)))
		}
	}
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowToken}, UpperBound: []byte{rowToken + 1}})
	if err != nil {
		return diskError(err)
	}
	for ok := it.First(); ok && nextMS > c.timeMS; ok = it.Next() {
		c.pace.breathe()
		b, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(diskError(err), it.Close())
		}
		key := it.Key()[1:]
		over, ok := over(key, b)
		switch {
		case !ok:
			return errors.Join(store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", it.Key()), it.Close())
		case !over:
		case e.frozen.find(uint32(xxh3.HashSeed(key, e.id.seed())), key) != 0: // decided again
		default:
			if swept = append(swept, bytes.Clone(key)); len(swept) >= sweepMax {
				nextMS = c.timeMS // there may be more
			}
		}
	}
	if err := it.Close(); err != nil {
		return diskError(err)
	}
	slices.SortFunc(swept, bytes.Compare)
	for _, token := range swept {
		ns, gone := c.names.named(tokenNamespace(token)), c.forgotten.named(tokenNamespace(token))
		ns.tokens--
		gone.tokens++
		ns.refusals(refused[string(token)], false)
		gone.refusals(false, refused[string(token)])
	}
	c.swept, c.nextMS = swept, nextMS
	return nil
}

// writeTokens writes the tokens, which nobody changes any more, and removes
// those that are forgotten.
func (e *Engine) writeTokens(t *rowWriter, c *checkpoint) {
	tokens, free := room[saved](e.frozen.count)
	defer free()
	for id := uint32(1); id < e.frozen.slots; id++ {
		tokens = append(tokens, saved{slot: id})
	}
	sortSaved(tokens, e.frozen, c.pace)
	swept := c.swept
	for i := range tokens {
		if i%lockedCells == 0 {
			c.pace.breathe()
		}
		entry := e.frozen.entry(tokens[i].slot)
		key := entry[tokenBytes:]
		for len(swept) > 0 && bytes.Compare(swept[0], key) < 0 {
			t.delete(rowToken, swept[0])
			swept = swept[1:]
		}
		if len(swept) > 0 && bytes.Equal(swept[0], key) {
			continue // it goes
		}
		t.set(rowToken, key, entry[:tokenBytes])
	}
	for _, key := range swept {
		t.delete(rowToken, key)
	}
}

// publish makes the cells and tokens that are on disk now unchanged ones, and lets go of
// the log before them.
func (e *Engine) publish(c *checkpoint) error {
	// Before e.save goes, through which Scan finds c.born: a cell that was saved
	// as absent, and made again since, is nowhere else.
	e.some(c.pace, &c.born, func(ids []uint32) {
		for _, id := range ids {
			if s := e.cells.slot(id); s.meta&e.dirtyBit != 0 {
				e.born.add(id)
			} else {
				s.meta &^= born
			}
		}
	})
	now := &base{Snapshot: e.db.NewSnapshot()}
	e.mu.Lock()
	was := e.base
	e.base = now
	was.users++ // until it is let go below
	e.disk++    // what was read before is stale: from here on cells may be evicted
	e.soonest, e.collectedTo = min(e.soonest, c.soonest), nil
	frozen := e.frozen
	e.frozen, e.save, e.saved = nil, nil, c.position
	if c.nextMS != 0 {
		e.sweepMS, e.sweptMS = c.nextMS, c.timeMS
		if c.nextMS <= c.timeMS {
			e.sweptMS = 0 // there is more: the next checkpoint goes on
		}
	}
	for name, ns := range c.forgotten {
		e.names.named([]byte(name)).tokens -= ns.tokens
		e.names.named([]byte(name)).refused -= ns.refused
	}
	for token, refused := range c.again {
		if _, swept := slices.BinarySearchFunc(c.swept, []byte(token), bytes.Compare); swept {
			ns := e.names.named(tokenNamespace([]byte(token)))
			ns.tokens++ // it is not forgotten after all
			ns.refusals(false, refused)
		}
	}
	e.mu.Unlock()
	frozen.free()
	c.copies, c.room = nil, nil
	c.free()
	c.bundles.free()
	for _, set := range []*slotSet{&c.cells, &c.thawed} {
		e.some(c.pace, set, func(ids []uint32) {
			for _, id := range ids {
				e.cells.slot(id).meta &^= saving
			}
		})
	}
	bundles := e.views.frozen.count
	e.dropFrozen(c)
	e.mu.Lock()
	e.makeRoom()
	e.mu.Unlock()
	e.meters.checkpoints.Add(1)
	e.meters.saved.Add(uint64(c.cells.count))
	e.o.Logger.Debug("checkpoint", "cells", c.cells.count, "bundles", bundles, "position", uint64(c.position), "took", time.Since(c.began))
	if err := e.letGo(was); err != nil {
		return err
	}
	if err := e.log.Release(c.position); err != nil {
		return store.Errorf(store.KindUnavailable, "release the log: %w", err)
	}
	return nil
}

// tokenNamespace returns the namespace's part of a token's key.
func tokenNamespace(token []byte) []byte {
	cell, _ := tokenCell(token)
	return cell[:namespaceLen(cell)]
}
