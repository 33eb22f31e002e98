package engine

import (
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// replayer returns what applies the records of a frame that are not part of
// the checkpoint at a position.
func (e *Engine) replayer(from wal.Position) func(wal.Position, []byte) error {
	p := replay{e: e, from: from}
	return func(pos wal.Position, payload []byte) error {
		p.writer, p.cell, p.ahead, p.of, p.plans, p.asks = 0, nil, p.ahead[:0], nil, p.plans[:0], nil
		for r := (reader{b: payload}); len(r.b) > 0; {
			if len(p.ahead) == 0 && (r.b[0] == recAdd || r.b[0] == recEvent) {
				p.lookAhead(r)
			}
			p.at = pos + wal.Position(len(payload)-len(r.b))
			if err := p.record(&r); err != nil {
				return err
			}
			if r.bad {
				return store.Errorf(store.KindCorrupt, "log position %d: a record can't be decoded", p.at)
			}
		}
		return nil
	}
}

// replay applies the records of one frame. They were decided when they were
// written, so nothing is decided again, and an add needs no read.
type replay struct {
	e      *Engine
	from   wal.Position
	at     wal.Position // of the record
	writer store.Writer // whose records they are
	cell   []byte       // of the last add, if nothing came after it
	found  plan         // where that is, if it was looked for
	of     []byte       // the cell that parts are of
	plans  []replayedPlan
	view   *view  // of the last event, if nothing came after it
	asks   []byte // what merges ask

	ahead []plan // of the next adds
	room  [groupMax]plan
}

// lookAhead finds the cells of the next adds, all at once: replay is waiting for
// memory as well.
func (p *replay) lookAhead(r reader) {
	p.ahead = p.room[:0]
	seed, keys := p.e.id.seed(), r.b
	for range 4 * groupMax { // no further, however many adds to one cell there are
		if len(p.ahead) == groupMax || len(r.b) == 0 {
			break
		}
		switch kind := r.byte(); kind {
		case recAdd, recEvent:
			cell := r.cell()
			to := len(keys) - len(r.b)
			p.ahead = append(p.ahead, plan{hash: xxh3.HashSeed(cell, seed), from: uint32(to - len(cell)), to: uint32(to)})
			if kind == recEvent {
				r.uvarint()
			}
			r.varint()
		case recAgain, recEventAgain:
			r.varint()
		case recTime:
			r.uvarint()
		default:
			r.b = nil
		}
	}
	p.e.cells.findNext(p.ahead, 0, keys)
}

func (p *replay) record(r *reader) error {
	e := p.e
	done := p.at < p.from // part of the checkpoint
	kind := r.byte()
	if kind != recAgain && kind != recEventAgain {
		p.cell = nil
	}
	switch kind {
	case recTime:
		e.timeMS = max(e.timeMS, int64(r.uvarint()))
	case recAdd, recAgain:
		if kind == recAdd {
			p.next(r)
		}
		delta := r.varint()
		if p.cell == nil {
			r.fail()
		}
		p.of = p.cell
		if !done && !r.bad {
			p.add(delta)
		}
	case recSet:
		cell, value := r.cell(), r.varint()
		if !done && !r.bad {
			return p.put(cell, func(id uint32) (int64, meta, extra) { return value, present, e.extra(id) })
		}
	case recDelete:
		cell := r.cell()
		p.of = cell
		if !done && !r.bad {
			return p.put(cell, func(uint32) (int64, meta, extra) { return 0, absent, 0 })
		}
	case recPlan, recEvent, recEventAgain, recPart, recBook, recFloor, recAsk, recLane:
		return p.second(r, kind, done)
	case recObject:
		cell, x := r.cell(), objectUntil(r.until())
		p.of = cell
		if !done && !r.bad {
			return p.put(cell, func(uint32) (int64, meta, extra) { return 0, present, x })
		}
	case recDeadline, recLayout:
		cell, x := r.cell(), extra(r.uvarint())
		if x < 0 {
			r.fail()
		}
		if kind == recLayout {
			x = -x
		}
		if !done && !r.bad {
			return p.put(cell, func(id uint32) (int64, meta, extra) { return e.cells.slot(id).value, present, x })
		}
	case recToken, recTokenAgain:
		key := r.bytes(r.uvarint())
		rec, ok := decodeToken(r.bytes(tokenBytes))
		if cell, split := tokenCell(key); !ok || !split || namespaceLen(cell) == 0 {
			r.fail()
		} else if !done {
			return p.token(cell, key, &rec)
		}
	case recBegin:
		p.writer = store.Writer(r.uvarint())
	case recMark:
		m := mark{seq: r.uvarint(), digest: r.fixed()}
		results := r.b
		r.results()
		if p.writer == 0 {
			r.fail()
		}
		if !done && !r.bad {
			to := e.marks.get(p.writer)
			to.seq, to.digest = m.seq, m.digest
			to.results = append(to.results[:0], results[:len(results)-len(r.b)]...)
		}
		p.writer = 0
	case recSkip:
		if n := r.uvarint(); !done {
			e.skip(p.at, n)
		}
	case recRetire:
		if floor := store.Writer(r.uvarint()); !done {
			e.retired = append(e.retired, e.marks.retire(floor)...)
		}
	default:
		r.fail()
	}
	return nil
}

func (p *replay) add(delta int64) {
	e := p.e
	if p.found.slot == 0 {
		p.found.hash = xxh3.HashSeed(p.cell, e.id.seed())
		p.found.slot = e.locate(p.found.hash, p.cell)
	}
	id, hash := p.found.slot, p.found.hash
	s := e.cells.slot(id)
	state := s.meta.state()
	if state == absent {
		state = present
	}
	e.marks.get(p.writer).tally.count(hash, delta)
	e.put(id, s.value+delta, state, e.version(p.at), 0, store.Memory)
}

// next reads the cell of an add.
func (p *replay) next(r *reader) {
	p.cell, p.found, p.view = r.cell(), plan{}, nil
	if len(p.ahead) > 0 {
		p.found, p.ahead = p.ahead[0], p.ahead[1:]
	}
}

// A replayedPlan is a plan that a frame names.
type replayedPlan struct {
	record []byte
	parts  []store.Part
}

// second replays a record of the second format, or a later one.
func (p *replay) second(r *reader, kind byte, done bool) error {
	switch kind {
	case recPlan:
		record := r.b
		parts := r.plan()
		p.plans = append(p.plans, replayedPlan{record[:len(record)-len(r.b)], parts})
	case recEvent, recEventAgain:
		if kind == recEvent {
			p.next(r)
			if number := r.uvarint(); number >= uint64(len(p.plans)) {
				r.fail()
			} else if !r.bad {
				p.view = p.e.replayedView(&p.plans[number], decodeCell(p.cell))
			}
		}
		delta := r.varint()
		if p.view == nil {
			r.fail()
		}
		p.of = p.cell
		if !done && !r.bad {
			p.event(delta)
		}
	case recPart:
		c := r.partChange()
		if p.of == nil || (c.op == partMerge || c.op == partTake) && p.asks == nil {
			r.fail()
		}
		if !done && !r.bad {
			return p.part(p.of, c)
		}
	case recLane:
		p.of = r.cell()
	case recAsk:
		p.asks = r.bytes(r.uvarint())
	case recBook:
		if b := r.book(); !done && !r.bad {
			p.e.fences.raiseBook(b)
		}
	case recFloor:
		if s, epoch := r.shelf(), r.epoch(); !done && !r.bad {
			p.e.fences.raiseFloor(store.Floor{Namespace: s.Namespace, Kind: s.Kind, View: s.View, Epoch: epoch})
		}
	default:
		r.fail()
	}
	return nil
}

// event replays an event that was bundled: it is again, and settled by the next
// checkpoint.
func (p *replay) event(delta int64) {
	e, v := p.e, p.view
	p.add(delta)
	id := e.bundle(v, p.found.hash, p.found.slot)
	if id == 0 {
		id = e.newBundle(v, p.found.hash, p.found.slot)
	}
	v.count(e.marks.get(p.writer), p.found.hash, delta)
	e.addBundle(id, delta, 0, store.Memory)
}

// replayedView returns the view of a plan that a frame names, for the counters of a
// namespace.
func (e *Engine) replayedView(p *replayedPlan, c store.Cell) *view {
	if of, _, ok := store.ShardOf(c); ok {
		c = of
	}
	record := c.Namespace + "/" + string(p.record)
	v := e.views.named[record]
	if v == nil {
		v = &view{namespace: c.Namespace, parts: p.parts, record: record}
		e.addView(v)
		e.views.named[record] = v
	}
	return v
}

// part replays the change of a part. The record has what was there where it matters, so
// nothing is read but sketches, of which it has only what was asked of them.
func (p *replay) part(cell []byte, c partChange) error {
	e := p.e
	hash := xxh3.HashSeed(cell, e.id.seed())
	if c.op != partAdd || c.n > blindMax || c.n < -blindMax { // as when it was decided
		e.settlePart(hash, e.cells.find(uint32(hash), cell), c.part, 0, store.Memory)
	}
	id, weight := e.locatePart(hash, decodeCell(cell), c.part)
	if c.op == partTake {
		return p.take(id, c)
	}
	e.still(id) // The record has the number that it had.
	s := e.cells.slot(id)
	v, was := store.Content{N: s.value + c.n, Exists: true}, s.value
	switch c.op {
	case partDelete:
		v, was = store.Content{}, c.n
	case partPut:
		v, was = c.part.Kind().Content(c.put), c.n
		if s.meta.state() == unread {
			s.meta = s.meta.withState(absent) // whatever its row has
		}
	case partMerge:
		var err error
		if v, was, err = p.merge(id, c); err != nil {
			return err
		}
	}
	e.countPart(e.marks.get(p.writer), id, weight, v.N-was)
	e.putPart(id, v, 0, store.Memory)
	return nil
}

// read reads a sketch, if nothing before it in the log has.
func (p *replay) read(id uint32) error {
	e := p.e
	if e.cells.slot(id).meta.state() != unread {
		return nil
	}
	r, err := e.readCell(e.base, e.cells.keyOf(id))
	if err == nil {
		e.resolve(id, r)
	}
	return err
}

// notWhatItWas says that a sketch does not become what it became when the log was written.
func (p *replay) notWhatItWas() error {
	return store.Errorf(store.KindCorrupt, "log position %d: a sketch does not become what it was", p.at)
}

// take takes into a sketch what was asked of it, where it is.
func (p *replay) take(id uint32, c partChange) error {
	e := p.e
	if err := p.read(id); err != nil {
		return err
	}
	if has, ok := sketch.Takes(e.blobs[id], p.asks); has || !ok || e.cells.slot(id).meta.state() != present {
		return p.notWhatItWas()
	}
	if _, rise := e.takeIn(id, p.asks, 0, store.Memory); int64(rise) != c.n {
		return p.notWhatItWas()
	}
	return nil
}

// merge returns what a sketch becomes, and the number that it was.
func (p *replay) merge(id uint32, c partChange) (v store.Content, was int64, err error) {
	e := p.e
	if err := p.read(id); err != nil {
		return v, 0, err
	}
	had := e.content(id)
	next, changed, _, ok := sketch.Decide(nil, had.Bytes, p.asks)
	v = c.part.Kind().Content(next)
	if !ok || !changed || v.N-had.N != c.n {
		return v, 0, p.notWhatItWas()
	}
	return v, had.N, nil
}

// token replays that a token was decided. Whether it was counted before, as one
// that was over, is not what it was then: the checkpoint that forgot it may have
// been lost, or be the one that the replay begins with.
func (p *replay) token(cell, key []byte, rec *decide.Token) error {
	e := p.e
	var was decide.Token
	if t, id := e.inMemory(key); id != 0 {
		was, _ = decodeToken(t.entry(id))
	} else {
		row, err := e.readToken(e.base, key)
		if err != nil {
			return err
		}
		if was = row.rec; !row.exists {
			e.names.of(cell).tokens++
			was = decide.Token{Settled: true} // none
		}
	}
	e.names.of(cell).refusals(was.Refused(), rec.Refused())
	e.putToken(key, rec, 0, store.Memory)
	return nil
}

// put replays a change for which the cell must be read: what it changes the sums
// by depends on what was there.
func (p *replay) put(cell []byte, change func(id uint32) (int64, meta, extra)) error {
	e := p.e
	hash := xxh3.HashSeed(cell, e.id.seed())
	id := e.locate(hash, cell)
	s := e.cells.slot(id)
	if s.meta.state() == unread {
		r, err := e.readCell(e.base, cell)
		if err != nil {
			return err
		}
		e.resolve(id, r)
	}
	value, state, x := change(id)
	version := e.version(p.at)
	if state == absent {
		version = 0
	}
	e.marks.get(p.writer).tally.count(hash, value-s.value)
	e.put(id, value, state, version, 0, store.Memory)
	e.setExtra(id, x)
	return nil
}
