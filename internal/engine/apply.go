package engine

import (
	"context"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// Apply applies each batch, one after the other.
func (e *Engine) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "%d batches and %d replies", len(batches), len(replies))
	}
	if len(batches) == 1 {
		if f, done := e.add(ctx, &batches[0], &replies[0]); done {
			return f.Wait(ctx, replies[0].Durability)
		}
	}
	var w waits
	for i := range batches {
		err := e.apply(ctx, &batches[i], &replies[i], &w)
		switch {
		case err == nil:
		case i == 0:
			return err
		default:
			replies[i].Err = err // what came before it was applied
		}
	}
	return w.wait(ctx)
}

// waits are the frames an answer depends on: for the written level and for the
// synced one, the last.
type waits struct {
	written, synced *wal.Frame
}

func (w *waits) add(f *wal.Frame, level store.Durability) {
	switch {
	case f == nil || level <= store.Memory:
	case level == store.Written:
		w.written = f
	default:
		w.synced = f
	}
}

func (w *waits) wait(ctx context.Context) error {
	if w.synced != nil {
		if err := w.synced.Wait(ctx, store.Synced); err != nil {
			return err
		}
	}
	if w.written != nil {
		return w.written.Wait(ctx, store.Written)
	}
	return nil
}

func (e *Engine) apply(ctx context.Context, b *store.Batch, r *store.Reply, w *waits) error {
	*r = store.Reply{Results: r.Results[:0]}
	if err := store.CheckBatch(b, 1); err != nil {
		r.Err = err
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.log.Room(ctx); err != nil {
		return err
	}
	plans := e.address(b)
	defer e.plans.Put(plans)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.admit(ctx); err != nil {
		return err
	}
	level := b.Durability
	if level == store.DurabilityDefault {
		level = store.Synced
	}
	var got *fetched
	for {
		if e.closed {
			return store.ErrClosed
		}
		var n needs
		if level = e.plan(b, plans, got, level, &n); !n.any() {
			break
		}
		var err error
		if got, err = e.fetch(ctx, n, got); err != nil {
			return err
		}
	}
	r.Durability = level
	f := e.log.Begin()
	before := len(f.Payload)
	e.batch(f, b, plans.all, r, level, got)
	end := f.Pos()
	if len(f.Payload) == before && b.Writer != 0 {
		// A mark does not tell the level of the batch that moved it.
		level, r.Durability = store.Synced, store.Synced
	}
	e.log.End(level)
	// A refusal or a repeat changes nothing, but it says what is, which may have
	// been asked to be less durable than this: so it waits like a change.
	w.add(f, level)
	e.tend(end)
	return nil
}

// plans are where the cells of a batch are. They are pooled.
type plans struct {
	all  []plan
	keys []byte
}

// A plan is where a delta's cell is.
type plan struct {
	hash     uint64
	slot     uint32
	from, to uint32 // its key, in plans.keys
}

// plan finds the cell of every delta, collects in n what has to be read from
// disk before they can be decided, and returns the level that the batch needs:
// its own, or that of a change it builds on. In a table larger than the
// processor's caches finding a cell is waiting for memory, so the cells of a
// large batch are looked for together.
func (e *Engine) plan(b *store.Batch, ps *plans, got *fetched, level store.Durability, n *needs) store.Durability {
	now := e.horizon()
	for rest := ps.all; len(rest) >= 8; {
		n := min(len(rest), warmMax)
		e.cells.warm(rest[:n])
		rest = rest[n:]
	}
	for i := range b.Deltas {
		d, p := &b.Deltas[i], &ps.all[i]
		if d.Op == store.OpRetire {
			continue
		}
		cell := ps.keys[p.from:p.to]
		if !e.cells.is(p.slot, uint32(p.hash), cell) {
			p.slot = e.locate(p.hash, cell)
		}
		s := e.cells.slot(p.slot)
		s.meta |= recent
		if u := e.undo.at(s.undo, p.slot); u != nil && u.level > level && now.pending(u.frame, u.level) {
			level = u.level
		}
		switch s.meta.state() {
		case unread:
			if e.mustRead(d, s, p.hash, cell, len(b.Deltas)) {
				n.cell(cell)
			}
		case absent:
			n.checkpoint = n.checkpoint || e.mustSettleQuota(d, cell, len(b.Deltas))
		default: // present: everything is known
		}
		if d.Guard.Token != "" {
			level = max(level, e.planToken(cell, d.Guard.Token, len(b.Deltas), got, n, now))
		}
	}
	return level
}

// address encodes and hashes the cell of every delta.
func (e *Engine) address(b *store.Batch) *plans {
	ps := e.plans.Get().(*plans)
	ps.all, ps.keys = ps.all[:0], ps.keys[:0]
	seed := e.id.seed()
	for i := range b.Deltas {
		from := len(ps.keys)
		ps.keys = appendCell(ps.keys, b.Deltas[i].Cell)
		ps.all = append(ps.all, plan{
			hash: xxh3.HashSeed(ps.keys[from:], seed), from: uint32(from), to: uint32(len(ps.keys)),
		})
	}
	return ps
}

// locate returns the slot of a cell, and makes an unread one if there is none.
func (e *Engine) locate(hash uint64, cell []byte) uint32 {
	if id := e.cells.find(uint32(hash), cell); id != 0 {
		return id
	}
	id := e.cells.insert(uint32(hash), nil, cell)
	e.cells.slot(id).undo = e.undo.tail - 1 // none
	e.inserts++
	return id
}

// blindMax is the largest blind change that needs no look at its cell: a whole
// batch of them moves an unread delta by less than a quarter of the range.
const blindMax = 1 << 47

// mustRead reports whether an unread cell has to be read before a delta to it
// can be decided. A blind add needs no read, unless it, or one of the more keys
// that its batch may make, could reach a limit.
func (e *Engine) mustRead(d *store.Delta, s *slot, hash uint64, cell []byte, more int) bool {
	switch {
	case d.Op == store.OpSettle:
		return false
	case d.Op != store.OpAdd, d.Want, d.Guard.Match:
		return true
	case d.N > blindMax, d.N < -blindMax, s.value > nearLimit/2, s.value < -nearLimit/2:
		return true
	case e.near.has(hash):
		return true
	case s.meta&(dirty0|dirty1|saving) != 0:
		return false // it is counted already
	}
	return e.names.full(cell, int64(more), &e.o.Limits)
}

// mustSettleQuota reports whether a delta would make a key that may or may not
// be one too many: only a checkpoint tells how many of the unread cells are
// new.
func (e *Engine) mustSettleQuota(d *store.Delta, cell []byte, more int) bool {
	if d.Op != store.OpAdd && d.Op != store.OpSet {
		return false
	}
	ns, _ := e.names.peek(cell)
	return ns.unread > 0 && e.names.full(cell, int64(more), &e.o.Limits)
}

// batch decides a batch and appends what it changes to the frame.
func (e *Engine) batch(f *wal.Frame, b *store.Batch, plans []plan, r *store.Reply, level store.Durability, got *fetched) {
	m, replay, err := e.marks.verdict(b, e.o.Limits.WritersMax)
	if m != nil && b.Writer != 0 {
		r.Mark = m.seq
	}
	if err != nil {
		r.Err = err
		return
	}
	if replay {
		e.meters.replayed++
		r.Replayed = true
		rd := reader{b: m.results}
		r.Results = append(r.Results, rd.results()...)
		for i := range r.Results {
			r.Results[i].Replayed = true
		}
		return
	}
	if len(f.Payload) == 0 {
		e.tick(f)
	}
	if b.Writer != 0 {
		f.Payload = binary.AppendUvarint(append(f.Payload, recBegin), uint64(b.Writer))
	}
	c := change{e: e, f: f, level: level, mark: e.marks.get(b.Writer)}
	for i := range b.Deltas {
		res := c.delta(&b.Deltas[i], plans[i], got)
		if res.Outcome != store.Applied {
			e.meters.refused++
		}
		r.Results = append(r.Results, res)
	}
	e.meters.batches++
	e.meters.deltas += uint64(len(b.Deltas))
	if b.Writer != 0 {
		m := c.mark
		m.seq, m.digest = b.Seq, b.Digest()
		m.results = appendResults(m.results[:0], r.Results)
		f.Payload = binary.AppendUvarint(append(f.Payload, recMark), m.seq)
		f.Payload = binary.LittleEndian.AppendUint64(f.Payload, m.digest)
		f.Payload = append(f.Payload, m.results...)
		r.Mark = m.seq
	}
}

// tick moves the store's time to now, never back, and makes the frame say so.
func (e *Engine) tick(f *wal.Frame) int64 {
	now := max(e.timeMS, e.o.Now().UnixMilli())
	if now != e.timeMS || f.ID != e.timeFrame {
		e.timeMS, e.timeFrame = now, f.ID
		f.Payload = binary.AppendUvarint(append(f.Payload, recTime), uint64(now))
	}
	return now
}

// change is one batch being decided.
type change struct {
	e     *Engine
	f     *wal.Frame
	level store.Durability
	mark  *mark
}

// delta decides one delta, and makes and logs its change.
func (c *change) delta(d *store.Delta, p plan, got *fetched) store.Result {
	e := c.e
	if d.Op == store.OpRetire {
		e.retired = append(e.retired, e.marks.retire(store.Writer(d.N))...)
		c.f.Payload = binary.AppendUvarint(append(c.f.Payload, recRetire), uint64(d.N))
		return store.Result{Outcome: store.Applied}
	}
	if d.Guard.Token == "" {
		return c.cell(d, p)
	}
	cell := e.cells.keyOf(p.slot)
	now := e.tick(c.f)
	key := appendToken(e.tokenBuf[:0], cell, d.Guard.Token)
	e.tokenBuf = key
	rec, known := e.findToken(key, got)
	if known && now-rec.atMS < store.TokenKeptMS(e.o.Limits.TokenWindow) {
		return e.repeat(d, &rec, now)
	}
	if store.TokenStale(d.Guard.Token, now, e.o.Limits.TokenWindow) {
		return store.Result{Outcome: store.Expired}
	}
	if !known && e.names.tokensFull(cell, 1, &e.o.Limits) {
		return store.Result{Outcome: store.Full}
	}
	res := store.Result{Outcome: store.Settled}
	if d.Op != store.OpSettle {
		if res = c.cell(d, p); res.Outcome != store.Applied {
			return res
		}
	}
	rec = tokenRec{
		outcome: res.Outcome, op: d.Op, want: d.Want, n: d.N, digest: d.Guard.Digest, atMS: now,
		before: res.Before, after: res.After, version: res.Version,
	}
	kind := byte(recTokenAgain)
	if !known {
		kind = recToken
		e.names.of(cell).tokens++
	}
	e.putToken(key, &rec, c.f.ID, c.level)
	c.f.Payload = binary.AppendUvarint(append(c.f.Payload, kind), uint64(len(key)))
	c.f.Payload = append(c.f.Payload, key...)
	c.f.Payload = rec.append(c.f.Payload)
	return res
}

// repeat answers a write, or a settling, of a token that was decided before.
func (e *Engine) repeat(d *store.Delta, rec *tokenRec, now int64) store.Result {
	e.meters.replayed++
	switch {
	case now-rec.atMS >= e.o.Limits.TokenWindow.Milliseconds():
		return store.Result{Outcome: store.Expired}
	case d.Op != store.OpSettle && rec.outcome == store.Applied && rec.digest != d.Guard.Digest:
		return store.Result{Outcome: store.Mismatch}
	}
	return rec.result()
}

// cell decides a delta that no token stands in the way of.
func (c *change) cell(d *store.Delta, p plan) store.Result {
	e := c.e
	s := e.cells.slot(p.slot)
	state, old := s.meta.state(), s.value
	if d.Guard.Match {
		have := s.meta.version()
		if state == absent {
			have = 0
		}
		if have != d.Guard.Version {
			return store.Result{Outcome: store.Changed}
		}
	}
	cell := e.cells.keyOf(p.slot)
	makes := d.Op != store.OpDelete && (state == absent || state == unread && s.meta&(dirty0|dirty1|saving) == 0)
	if makes && e.names.full(cell, 1, &e.o.Limits) {
		return store.Result{Outcome: store.Full}
	}

	version := e.version(c.f.Pos())
	res := store.Result{Outcome: store.Applied, Version: version}
	var value int64
	next := present
	switch d.Op {
	case store.OpAdd:
		if value = old + d.N; state == present && (value > old) != (d.N > 0) && d.N != 0 {
			return store.Result{Outcome: store.Overflow}
		}
		if state == unread {
			next = unread
		}
		e.logAdd(c.f, p.slot, cell, d.N)
	case store.OpSet:
		value = d.N
		c.f.Payload = appendCellRecord(c.f.Payload, recSet, cell)
		c.f.Payload = binary.AppendVarint(c.f.Payload, value)
	default: // OpDelete
		res.Version = 0
		value, next, version = 0, absent, 0
		if state == absent {
			return res
		}
		c.f.Payload = appendCellRecord(c.f.Payload, recDelete, cell)
	}
	if d.Want {
		res.Before, res.After = old, value
	}
	c.mark.tally.count(p.hash, value-old)
	e.put(p.slot, value, next, version, c.f.ID, c.level)
	return res
}

// logAdd appends the record of an add. When it follows an add to the same cell,
// which is what a hot counter is, it is two bytes.
func (e *Engine) logAdd(f *wal.Frame, id uint32, cell []byte, n int64) {
	if e.added.slot == id && e.added.frame == f.ID && e.added.end == f.Pos() {
		f.Payload = append(f.Payload, recAgain)
	} else {
		f.Payload = appendCellRecord(f.Payload, recAdd, cell)
		e.added.slot, e.added.frame = id, f.ID
	}
	f.Payload = binary.AppendVarint(f.Payload, n)
	e.added.end = f.Pos()
}

// put changes a cell: the one place that does. Readers see what was there
// until the frame has its level.
func (e *Engine) put(id uint32, value int64, state meta, version, frame uint64, level store.Durability) {
	s := e.cells.slot(id)
	e.preserve(id, s)
	if level > store.Memory {
		if u := e.undo.at(s.undo, id); u == nil || u.frame != frame || u.level != level {
			s.undo = e.undo.push(undo{
				frame: frame, value: s.value, meta: s.meta, slot: id, prev: s.undo, level: level,
			}, e.log.Synced())
		}
	}
	if was := s.meta.state(); was != state || was == unread && s.meta&(dirty0|dirty1|saving) == 0 {
		e.count(e.cells.keyOf(id), was, state)
	}
	m := s.meta
	if m&e.dirtyBit == 0 {
		e.dirty = append(e.dirty, id)
		e.arm()
	}
	if m&born == 0 && state != absent && m.state() != present {
		e.born = append(e.born, id)
		m |= born
	}
	s.value = value
	s.meta = m.withState(state).withVersion(version) | e.dirtyBit | recent
}

// count keeps a namespace's number of keys when a cell's state changes.
func (e *Engine) count(cell []byte, was, is meta) {
	ns := e.names.of(cell)
	switch {
	case is == unread:
		ns.unread++
	case was == absent && is == present:
		ns.keys++
	case was == present && is == absent:
		ns.keys--
	}
}
