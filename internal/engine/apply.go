package engine

import (
	"context"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// Apply applies each batch, one after the other.
func (e *Engine) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "%d batches and %d replies", len(batches), len(replies))
	}
	if len(batches) == 1 {
		if f, done := e.addOne(ctx, &batches[0], &replies[0]); done {
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

// Start is Apply for one who can't wait for anything but durability.
func (e *Engine) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	if len(batches) != len(replies) {
		return false
	}
	plans := make([]*plans, 0, 1)
	defer func() {
		for _, ps := range plans {
			e.plans.Put(ps)
		}
	}()
	for i := range batches {
		if store.CheckBatch(&batches[i], 1) != nil || !e.writes(&batches[i]) {
			return false
		}
		plans = append(plans, e.address(&batches[i]))
	}
	w, ok := e.start(batches, replies, plans)
	if ok {
		w.notify(done)
	}
	return ok
}

// Flush makes what was started durable.
func (e *Engine) Flush(here bool) { e.log.Flush(here) }

// start decides all batches, or none if one would have to wait.
func (e *Engine) start(batches []store.Batch, replies []store.Reply, plans []*plans) (w waits, ok bool) {
	if e.log.Full() {
		return w, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.admits() {
		return w, false
	}
	for i := range batches {
		b, r := &batches[i], &replies[i]
		*r = store.Reply{Results: r.Results[:0]}
		var n needs
		if r.Durability = e.plan(b, plans[i], nil, orSynced(b.Durability), &n); n.any() {
			return w, false
		}
	}
	var end wal.Position
	for i := range batches {
		end = e.decide(&batches[i], &replies[i], plans[i], nil, &w)
	}
	e.tend(end) // it may evict cells, so not before all plans are carried out
	return w, true
}

func orSynced(level store.Durability) store.Durability {
	if level == store.DurabilityDefault {
		return store.Synced
	}
	return level
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

// notify calls done when wait would have returned.
func (w waits) notify(done func(error)) {
	switch {
	case w.synced != nil:
		w.synced.Notify(store.Synced, func(err error) {
			if w.synced = nil; err != nil {
				done(err)
				return
			}
			w.notify(done)
		})
	case w.written != nil:
		w.written.Notify(store.Written, done)
	default:
		done(nil)
	}
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
	if !e.writes(b) {
		if err := e.upgrade(formatOf(b)); err != nil {
			return err
		}
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
	level := orSynced(b.Durability)
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
	e.tend(e.decide(b, r, plans, got, w))
	return nil
}

// decide decides a batch that was planned, at the level that the plan asked
// for, adds what its answer has to wait for, and returns where its records end.
func (e *Engine) decide(b *store.Batch, r *store.Reply, plans *plans, got *fetched, w *waits) wal.Position {
	level := r.Durability
	f := e.log.Begin()
	decided := e.batch(f, b, plans.all, r, level, got)
	end := f.Pos()
	if !decided && b.Writer != 0 {
		// A mark does not tell the level of the batch that moved it.
		level, r.Durability = store.Synced, store.Synced
	}
	e.log.End(level)
	// A refusal or a repeat changes nothing, but it says what is, which may have
	// been asked to be less durable than this: so it waits like a change.
	w.add(f, level)
	return end
}

// plans are where the cells of a batch are. They are pooled.
type plans struct {
	all  []plan
	keys []byte
}

// A plan is where a delta's cell is.
type plan struct {
	hash     uint64
	weight   uint64 // of the part that leads, if one does
	slot     uint32
	lead     uint32 // its slot
	from, to uint32 // its key, in plans.keys
}

// plan finds the cell of every delta, collects in n what has to be read from
// disk before they can be decided, and returns the level that the batch needs:
// its own, or that of a change it builds on.
func (e *Engine) plan(b *store.Batch, ps *plans, got *fetched, level store.Durability, n *needs) store.Durability {
	now := e.horizon()
	e.ridden.plan = nil
	deletes := false
	for i := range ps.all {
		if i%groupMax == 0 {
			group := e.cells.findNext(ps.all, i, ps.keys)
			e.counters.filter.fetch(group)
			if i < len(b.Deltas) {
				e.fetchEvents(b.Deltas[i:min(len(b.Deltas), i+groupMax)], group)
			}
		}
		d, p := &getOne, &ps.all[i] // a condition looks at its cell
		if i < len(b.Deltas) {
			d = &b.Deltas[i]
		}
		if d.Op == store.OpRetire {
			continue
		}
		deletes = deletes || d.Op == store.OpDelete
		cell := ps.keys[p.from:p.to]
		if p.slot == 0 {
			p.slot = e.locate(p.hash, cell)
		}
		s := e.cells.slot(p.slot)
		s.meta |= recent
		if u := e.undo.at(s.undo, p.slot); u != nil && u.level > level && now.pending(u.frame, u.level) {
			level = u.level
		}
		served := unreadServes
		if d.Event != nil {
			var bundled bool
			if level, bundled = e.planEvent(d, p, level, n); bundled {
				served |= store.NeedRiders | store.NeedBook
			}
		}
		if s.meta.state() == unread && e.mustRead(d, served, s, p.hash, cell, len(b.Deltas)) {
			if e.noRow(p.hash) {
				e.resolve(p.slot, row{})
			} else {
				n.cell(cell)
			}
		}
		if s.meta&hasExtra != 0 && e.mayLose(d, e.extra(p.slot)) {
			e.planLose(cell, p, n)
		}
		switch s.meta.state() {
		case unread:
		case absent:
			n.checkpoint = n.checkpoint || e.mustSettleQuota(d, cell, len(b.Deltas), got.madeRoom())
		default: // present: everything is known, unless the batch deletes it and makes it again
			n.checkpoint = n.checkpoint || deletes && e.mustSettleQuota(d, cell, len(b.Deltas), got.madeRoom())
		}
		if d.Guard.Token != "" {
			level = max(level, e.planToken(cell, d, len(b.Deltas), got, n, now))
		}
	}
	return level
}

var getOne = store.Delta{Op: store.OpGet}

// address encodes and hashes the cell of every delta, and of every condition.
func (e *Engine) address(b *store.Batch) *plans {
	ps := e.plans.Get().(*plans)
	ps.reset()
	seed := e.id.seed()
	for i := range b.Deltas {
		ps.add(b.Deltas[i].Cell, seed)
	}
	for i := range b.If {
		ps.add(b.If[i].Cell, seed)
	}
	return ps
}

func (ps *plans) reset() { ps.all, ps.keys = ps.all[:0], ps.keys[:0] }

func (ps *plans) add(c store.Cell, seed uint64) {
	from := len(ps.keys)
	ps.keys = appendCell(ps.keys, c)
	ps.all = append(ps.all, plan{
		hash: xxh3.HashSeed(ps.keys[from:], seed), from: uint32(from), to: uint32(len(ps.keys)),
	})
}

// locate returns the slot of a cell, and makes one if there is none: an absent one if
// it has no row, else one that is unread.
func (e *Engine) locate(hash uint64, cell []byte) uint32 {
	if id := e.cells.find(uint32(hash), cell); id != 0 {
		return id
	}
	id := e.cells.insert(uint32(hash), nil, cell)
	s := e.cells.slot(id)
	s.undo = e.undo.tail - 1 // none
	if isPart(cell) {
		switch kind := store.PartKind(cell[partRow(cell)]); {
		case isViewed(kind):
			e.parts.add(id)
		case isUnlikely(kind):
			if e.madeMembers++; e.lacks(&e.members, e.memberHash(cell)) {
				s.meta = absent
			}
		}
	} else if e.noRow(hash) {
		s.meta = absent
	}
	e.inserts++
	return id
}

// blindMax is the largest blind change that needs no look at its cell: a whole
// batch of them moves an unread delta by less than a quarter of the range.
const blindMax = 1 << 47

// unreadServes is what can be decided on a cell that is unread: tokens are kept
// elsewhere, and the layout of such a cell is 0 (I12).
const unreadServes = store.NeedToken | store.NeedLayout

// mustRead reports whether an unread cell has to be read before a delta to it
// can be decided, if these needs are served unread. A blind add needs no read, unless it, or one of the more keys
// that its batch may make, could reach a limit.
func (e *Engine) mustRead(d *store.Delta, served store.Needs, s *slot, hash uint64, cell []byte, more int) bool {
	switch {
	case d.Op == store.OpSettle:
		return false
	case d.Needs()&^served != 0:
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
// new, and, unless one was made for this batch, which deadlines have passed.
func (e *Engine) mustSettleQuota(d *store.Delta, cell []byte, more int, made bool) bool {
	if !decide.Makes(d) {
		return false
	}
	ns, _ := e.names.peek(cell)
	return (ns.unread > 0 || !made && e.expiryDue()) && e.names.full(cell, int64(more), &e.o.Limits)
}

// batch decides a batch and appends what it changes to the frame. It reports
// false if the batch was refused or is a repeat.
func (e *Engine) batch(f *wal.Frame, b *store.Batch, plans []plan, r *store.Reply, level store.Durability, got *fetched) bool {
	digest := uint64(0)
	if b.Writer != 0 {
		digest = b.Digest()
	}
	m, repeat, err := e.marks.verdict(b, digest, e.o.Limits.WritersMax)
	if m != nil && b.Writer != 0 {
		r.Mark = m.seq
	}
	if err != nil {
		r.Err = err
		return false
	}
	if repeat {
		e.meters.replayed++
		r.Replayed = true
		rd := reader{b: m.results}
		r.Results = append(r.Results, rd.results()...)
		for i := range r.Results {
			r.Results[i].Replayed = true
		}
		return false
	}
	if err := e.judge(b); err != nil {
		e.meters.refused++
		r.Err = err
		return false
	}
	c := change{e: e, f: f, level: level}
	for i := range b.If {
		if !c.holds(&b.If[i], plans[len(b.Deltas)+i]) {
			e.meters.refused++
			r.Err = store.ErrChanged
			return false
		}
	}
	if b.Together() && len(e.extras) > 0 && c.isSplit(b.Deltas, plans) {
		e.meters.refused++
		r.Err = store.ErrSplit
		return false
	}
	if len(b.If) > 0 && b.Together() && c.isCrowded(b.Deltas, plans) {
		e.meters.refused++
		r.Err = store.ErrFull
		return false
	}
	if len(f.Payload) == 0 {
		c.time()
	}
	c.raise(b)
	if b.Writer != 0 {
		f.Payload = binary.AppendUvarint(append(f.Payload, recBegin), uint64(b.Writer))
	}
	c.mark = e.marks.get(b.Writer)
	for i := range b.Deltas {
		if i%groupMax == 0 && len(plans) > groupMax { // what was planned may be out of the caches
			e.cells.touch(groupAt(plans, i+groupMax))
		}
		res := c.delta(&b.Deltas[i], plans[i], got)
		if res.Outcome != store.Applied {
			e.meters.refused++
		}
		r.Results = append(r.Results, res)
		e.meters.writes += uint64(max(1, b.Deltas[i].Writes))
	}
	e.meters.batches++
	e.meters.deltas += uint64(len(b.Deltas))
	if b.Writer != 0 {
		m := c.mark
		m.seq, m.digest = b.Seq, digest
		m.results = appendResults(m.results[:0], r.Results)
		f.Payload = binary.AppendUvarint(append(f.Payload, recMark), m.seq)
		f.Payload = binary.LittleEndian.AppendUint64(f.Payload, m.digest)
		f.Payload = append(f.Payload, m.results...)
		r.Mark = m.seq
	}
	return true
}

// holds reports whether a condition holds.
func (c *change) holds(want *store.Condition, p plan) bool {
	s := c.e.cells.slot(p.slot)
	have := s.meta.version()
	if s.meta.state() == absent || c.over(c.e.extra(p.slot)) {
		have = 0
	}
	return have == want.Version
}

// isCrowded reports whether there is no room for all keys that deltas would make, or for
// their tokens.
func (c *change) isCrowded(deltas []store.Delta, plans []plan) bool {
	e := c.e
	grown := decide.Growth(deltas, func(i int) bool {
		s := e.cells.slot(plans[i].slot)
		switch s.meta.state() {
		case present:
			return !c.over(e.extra(plans[i].slot))
		case absent:
			return false
		default:
			return s.meta&(dirty0|dirty1|saving) != 0 // It is counted already.
		}
	})
	for namespace, n := range grown {
		if e.names.full(anyOf(namespace), n, &e.o.Limits) {
			return true
		}
	}
	for namespace, n := range decide.Tokened(deltas) {
		if e.names.tokensFull(anyOf(namespace), n, &e.o.Limits) {
			return true
		}
	}
	return false
}

// anyOf returns the key of some cell of a namespace.
func anyOf(namespace string) []byte {
	return appendCell(nil, store.Cell{Namespace: namespace, Key: "k"})
}

// tick moves the store's time to now, never back, and makes the frame say so.
func (e *Engine) tick(f *wal.Frame) int64 {
	now := max(e.timeMS, e.clock.NowMS())
	if now != e.timeMS || f.ID != e.timeFrame {
		if now != e.timeMS {
			e.told.Store(nil) // or a lifetime that begins now would seem longer than it is
		}
		e.timeMS, e.timeFrame = now, f.ID
		e.kept.logged(now, f.ID, e.log.Synced())
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
	now   int64 // see time
	run   led   // the last event, if it was decided the short way
}

// time returns the moment at which the batch is decided, and makes its frame say
// so. It is asked for only when it matters.
func (c *change) time() int64 {
	if c.now == 0 {
		c.now = c.e.tick(c.f)
	}
	return c.now
}

// delta decides one delta, and makes and logs its change.
func (c *change) delta(d *store.Delta, p plan, got *fetched) store.Result {
	e := c.e
	if d.Op == store.OpRetire {
		e.retired = append(e.retired, e.marks.retire(store.Writer(d.N))...)
		c.f.Payload = binary.AppendUvarint(append(c.f.Payload, recRetire), uint64(d.N))
		return store.Result{Outcome: store.Applied}
	}
	switch {
	case d.Guard.Token != "":
		return c.once(d, p, got)
	case d.Event != nil:
		return c.event(d, p)
	case d.Needs()&^plainServes == 0:
		return c.plain(d, p)
	default:
		return c.cell(d, p)
	}
}

// once decides a delta that has a token, and remembers what was decided.
func (c *change) once(d *store.Delta, p plan, got *fetched) store.Result {
	e := c.e
	cell, name, now := e.cells.keyOf(p.slot), d.Guard.Token, c.time()
	key := appendToken(e.tokenBuf[:0], cell, name)
	e.tokenBuf = key
	was, known := e.findToken(key, got)
	state, t := decide.Recall(name, was, known, e.gaps.Age(was.AtMS, now), decide.Clock{NowMS: now, Window: e.o.Limits.TokenWindow})
	// One that is known counts until it is swept, whatever its age.
	res, done := t.Verdict(state, d, !known && e.names.tokensFull(cell, 1, &e.o.Limits))
	if done {
		if res.Replayed {
			e.meters.replayed++
		}
		return res
	}
	switch {
	case d.Op == store.OpSettle:
		res.Outcome = store.Settled
	case d.Event != nil:
		res = c.event(d, p)
	default:
		res = c.cell(d, p)
	}
	if res.Outcome != store.Applied && res.Outcome != store.Settled {
		if !decide.Remembers(d, res.Outcome) {
			return res
		}
		if res.Forgotten = e.names.refusalsFull(cell, 1, &e.o.Limits); res.Forgotten {
			return res
		}
	}
	t = decide.Remembered(d, res, now)
	if t.Settled {
		t.Op = store.OpSettle // as the log has it
	}
	kind := byte(recTokenAgain)
	if !known {
		kind = recToken
		e.names.of(cell).tokens++
	} else if e.save != nil {
		e.save.again[string(key)] = was.Refused()
	}
	e.names.of(cell).refusals(known && was.Refused(), t.Refused())
	e.putToken(key, &t, c.f.ID, c.level)
	c.f.Payload = binary.AppendUvarint(append(c.f.Payload, kind), uint64(len(key)))
	c.f.Payload = append(c.f.Payload, key...)
	c.f.Payload = appendTokenRecord(c.f.Payload, &t)
	return res
}

// cell decides a delta that no token stands in the way of, and makes and logs its
// change.
func (c *change) cell(d *store.Delta, p plan) (res store.Result) {
	e := c.e
	s := e.cells.slot(p.slot)
	if s.meta&hasExtra != 0 {
		c.settleExpired(p)
	}
	state, x := s.meta.state(), e.extra(p.slot)
	v := store.Value{N: s.value, Exists: true, DeadlineMS: x.deadline(), Layout: x.layout()}
	switch {
	case state == present:
		v.Version = s.meta.version()
	case state == absent, s.meta&(dirty0|dirty1|saving) == 0:
		// An unread cell that was not changed may be a new key. Whatever it is, the adds
		// that come here do not depend on it (I1, I12).
		v.Exists = false
	}
	cell := e.cells.keyOf(p.slot)
	full := !v.Exists && decide.Makes(d) && e.names.full(cell, 1, &e.o.Limits)
	now := int64(0)
	if d.Expiry != store.ExpiryKeep {
		now = c.time()
	}
	res = decide.Cell(&v, d, now, full)
	if res.Outcome != store.Applied || d.Op == store.OpGet {
		return res
	}
	next := state
	switch {
	case !v.Exists:
		next = absent
	case state == absent:
		next = present
	}
	res.Version = c.log(d, p, cell, v.N, next, extraOf(v))
	if x.isObject() && !v.Exists {
		c.lose(p)
	}
	return res
}

// plainServes is what plain serves.
const plainServes = store.NeedValue | store.NeedLayout

// plain is cell for an add that asks for no more than its value, to a cell that can
// only add it: most are. For others it is cell.
func (c *change) plain(d *store.Delta, p plan) (res store.Result) {
	e := c.e
	s := e.cells.slot(p.slot)
	state, old := s.meta.state(), s.value
	if (s.meta&hasExtra != 0 || d.Guard.Laid) && !e.takes(d, p.slot) ||
		state == absent || state == unread && s.meta&(dirty0|dirty1|saving) == 0 ||
		state == present && !inRange(old, d.N) {
		return c.cell(d, p)
	}
	res.Outcome, res.Version = store.Applied, c.add(&p, s, e.cells.keyOf(p.slot), d.N, state)
	if d.Want {
		res.Before, res.After, res.Existed = old, old+d.N, true
	}
	return res
}

// log appends the records of a change, makes it, and returns the version of the
// cell afterwards: the position of the last of them.
func (c *change) log(d *store.Delta, p plan, cell []byte, value int64, next meta, has extra) uint64 {
	e := c.e
	s := e.cells.slot(p.slot)
	old, state, had := s.value, s.meta.state(), e.extra(p.slot)
	version := uint64(0)
	switch {
	case next == absent:
		if state == absent {
			return 0
		}
		c.f.Payload = appendCellRecord(c.f.Payload, recDelete, cell)
	case d.Op == store.OpAdd:
		version = e.version(c.f.Pos())
		e.logAdd(c.f, p.slot, cell, value-old)
	case d.Op == store.OpSet:
		version = e.version(c.f.Pos())
		c.f.Payload = appendCellRecord(c.f.Payload, recSet, cell)
		c.f.Payload = binary.AppendVarint(c.f.Payload, value)
	case d.Op == store.OpLayout:
		version = e.version(c.f.Pos())
		c.f.Payload = appendCellRecord(c.f.Payload, recLayout, cell)
		c.f.Payload = binary.AppendUvarint(c.f.Payload, uint64(has.layout()))
	}
	if d.Op != store.OpExpire || next == absent {
		c.mark.tally.count(p.hash, value-old)
	}
	if next != absent && (has != had && d.Op != store.OpLayout || d.Op == store.OpExpire) {
		version = e.version(c.f.Pos())
		if has.isObject() {
			c.f.Payload = appendObject(c.f.Payload, cell, has.deadline())
		} else {
			c.f.Payload = appendCellRecord(c.f.Payload, recDeadline, cell)
			c.f.Payload = binary.AppendUvarint(c.f.Payload, uint64(has.deadline()))
		}
		c.mark.tally.count(p.hash, 0)
	}
	e.put(p.slot, value, next, version, c.f.ID, c.level)
	if has != had {
		e.setExtra(p.slot, has)
	}
	return version
}

// logAdd appends the record of an add. When it follows an add to the same cell,
// which is what a hot counter is, it is two bytes.
func (e *Engine) logAdd(f *wal.Frame, id uint32, cell []byte, n int64) {
	b := f.Payload
	if e.added.slot == id && e.added.frame == f.ID && e.added.end == f.Pos() {
		b = append(b, recAgain)
	} else {
		b = appendCellRecord(b, recAdd, cell)
		e.added.slot, e.added.frame = id, f.ID
	}
	f.Payload = binary.AppendVarint(b, n)
	e.added.end = f.Pos()
}

// put changes a cell, all but its extra: the one place that does. Readers see
// what was there until the frame has its level.
func (e *Engine) put(id uint32, value int64, state meta, version, frame uint64, level store.Durability) {
	s := e.cells.slot(id)
	e.preserve(id, s)
	if level > store.Memory {
		if u := e.undo.at(s.undo, id); u == nil || u.frame != frame || u.level != level {
			n, u := e.undo.push(e.log)
			*u = undo{frame: frame, value: s.value, extra: e.extra(id), meta: s.meta, slot: id, prev: s.undo, level: level}
			s.undo = n
		}
	}
	if was := s.meta.state(); was != state || was == unread && s.meta&(dirty0|dirty1|saving) == 0 {
		e.count(e.cells.keyOf(id), was, state)
	}
	m := s.meta
	if m&e.dirtyBit == 0 {
		e.dirty.add(id)
		e.arm()
	}
	if m&born == 0 && state != absent && m.state() != present {
		e.born.add(id)
		m |= born
	}
	s.value = value
	s.meta = m.withState(state).withVersion(version) | e.dirtyBit | recent
}

// count keeps a namespace's number of keys when a cell's state changes.
func (e *Engine) count(cell []byte, was, is meta) {
	if isPart(cell) {
		return
	}
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
