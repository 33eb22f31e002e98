package engine

import (
	"encoding/binary"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// planEvent collects what has to be read before an event can be decided, besides its own
// cell, and returns the level that its parts need, and whether it can be bundled.
func (e *Engine) planEvent(d *store.Delta, p *plan, level store.Durability, n *needs) (store.Durability, bool) {
	if v := e.viewOf(d); v != nil {
		if level, bundled := e.planBundle(v, d, p, level, n); bundled {
			return level, true
		}
	}
	return e.planParts(d, p, level, n), false
}

// planParts is planEvent for an event that is decided part by part.
func (e *Engine) planParts(d *store.Delta, p *plan, level store.Durability, n *needs) store.Durability {
	now := e.horizon()
	see := func(id uint32, weight uint64, part store.Part, mustRead bool) {
		s := e.cells.slot(id)
		s.meta |= recent
		if u := e.undo.at(s.undo, id); u != nil && u.level > level && now.pending(u.frame, u.level) {
			level = u.level
		}
		if s.meta.state() == unread && (mustRead || e.isFar(s, placed(weight))) {
			if key := e.cells.keyOf(id); e.noMember(key) {
				e.resolve(id, row{})
			} else {
				n.cell(key)
			}
		}
		n.frame = n.frame || mustRead && e.isFreezing(part, p)
	}
	look := func(part store.Part, mustRead bool) {
		id, weight := e.locateOwned(p.hash, d.Cell, part)
		see(id, weight, part, mustRead)
	}
	met := e.cells.slot(p.slot).value
	if d.Event.Part != "" {
		p.lead = e.locateWeighed(p.weight, d.Cell, d.Event.Part) // see fetchEvents
		see(p.lead, p.weight, d.Event.Part, true)
		met = e.cells.slot(p.lead).value
	}
	if e.ridden.again(d, p, met) { // Fast path.
		return level
	}
	for i := range d.Event.Len() {
		r := d.Event.Rider(i)
		if r.When.Kind == store.MetBook {
			look(partBook, true)
		}
		switch part := r.Part; {
		case part == "" || r.Place == store.PlaceVersion, asksNothing(d, r):
		case r.Place == store.PlaceMet && r.When.Kind != store.MetBook && !r.When.Holds(met): // left out, unless a delta before it changes the lead: see prepare
		case r.Place == store.PlaceMet: // if nothing before it in the batch changes the lead
			f, _ := part.Fields()
			look(part.At(f.Position+met), !isBlind(d, r))
		default:
			look(part, !isBlind(d, r))
		}
	}
	e.ridden.note(d, p)
	return level
}

var partBook = store.PartFields{Kind: store.PartBook}.Part()

// isBlind reports whether a rider adds so little that it can be decided on a part that
// nobody has looked at.
func isBlind(d *store.Delta, r *store.Rider) bool {
	n := r.N
	if r.Amount == store.AmountApplied {
		n = d.N
	}
	return r.Op == store.OpAdd && r.Is == (store.Met{}) && r.Bound == nil && n <= blindMax && n >= -blindMax &&
		(r.Amount == store.AmountN || r.Amount == store.AmountApplied && d.Op == store.OpAdd)
}

// asksNothing reports whether a rider is a merge that is left out.
func asksNothing(d *store.Delta, r *store.Rider) bool {
	return r.Op == store.OpMerge && d.Event.Asks(r) == nil
}

// isFar reports whether an unread cell or part has to be read before anything is added
// to it.
func (e *Engine) isFar(s *slot, hash uint64) bool {
	return s.value > nearLimit/2 || s.value < -nearLimit/2 || e.near.has(hash)
}

// event decides an event that no token stands in the way of, and makes and logs its
// changes.
func (c *change) event(d *store.Delta, p plan) store.Result {
	e := c.e
	if e.cells.slot(p.slot).meta&hasExtra != 0 {
		c.settleExpired(p)
	}
	if res, done := c.led(d, &p); done {
		return res
	}
	c.run.plan = nil
	if res, done := c.taken(d, &p); done {
		return res
	}
	if v := e.viewOf(d); v != nil {
		if res, done := c.bundled(v, d, &p); done {
			return res
		}
	}
	s := events{change: c, plan: p, leads: d.Event.Part, cell: e.cells.keyOf(p.slot), unplanned: isPlain(d)}
	if err := s.prepare(d); err != nil {
		return store.Result{Outcome: store.Unavailable}
	}
	return decide.Event(&s, decide.Clock{NowMS: c.time(), NowUS: e.nowUS(), Window: e.o.Limits.TokenWindow}, d, nil)
}

// events are what one event is decided on.
type events struct {
	*change
	plan      plan
	leads     store.Part
	cell      []byte // its key
	unplanned bool   // it was to be bundled, perhaps
	asked     []byte // of sketches, by the last record that says so
}

// prepare settles the bundles of parts that a decision looks at, and reads what is still
// unread and must not be. That is so if a part is placed by what the lead meets, and a
// delta of the same batch has changed the lead since it was planned; or if one has changed
// what kept the event from being bundled. It is so rare that the lock is held meanwhile.
func (s *events) prepare(d *store.Delta) error {
	e := s.e
	if s.unplanned {
		if err := s.read(s.plan.slot); err != nil {
			return err
		}
	}
	look := func(p store.Part, blind, planned bool) error {
		if !blind && len(e.views.parts[p]) > 0 {
			e.settlePart(s.plan.hash, s.plan.slot, p, s.f.ID, s.level)
			id, _ := e.locatePart(s.plan.hash, d.Cell, p)
			e.thawPart(id)
		}
		if planned {
			return nil
		}
		id, weight := e.locateOwned(s.plan.hash, d.Cell, p)
		if at := e.cells.slot(id); blind && !e.isFar(at, placed(weight)) {
			return nil
		}
		return s.read(id)
	}
	if d.Event.Part != "" {
		if err := look(d.Event.Part, false, true); err != nil {
			return err
		}
	}
	for i := range d.Event.Len() {
		r := d.Event.Rider(i)
		part, planned := r.Part, !s.unplanned
		if r.When.Kind == store.MetBook {
			if err := look(partBook, false, planned); err != nil {
				return err
			}
		}
		if part == "" || r.Place == store.PlaceVersion || asksNothing(d, r) {
			continue
		}
		if r.Place == store.PlaceMet {
			met := s.met(d)
			if r.When.Kind != store.MetBook && !r.When.Holds(met) {
				continue
			}
			f, _ := part.Fields()
			part, planned = part.At(f.Position+met), false
		}
		if err := look(part, isBlind(d, r), planned); err != nil {
			return err
		}
	}
	return nil
}

// read reads a cell or a part that is unread.
func (s *events) read(id uint32) error {
	e := s.e
	if e.cells.slot(id).meta.state() != unread {
		return nil
	}
	key := e.cells.keyOf(id)
	if e.noMember(key) {
		e.resolve(id, row{})
		return nil
	}
	has, err := e.readCell(e.base, key)
	if err == nil {
		e.resolve(id, has)
	}
	return err
}

// met returns what the lead meets.
func (s *events) met(d *store.Delta) int64 {
	if d.Event.Part == "" {
		return s.Cell(d.Cell).N
	}
	return s.Part(d.Cell, d.Event.Part).N
}

// Cell returns the event's own cell, which was read.
func (s *events) Cell(store.Cell) store.Value {
	at := s.e.cells.slot(s.plan.slot)
	return valueOf(at.value, at.meta, s.e.extra(s.plan.slot))
}

// Put makes the own cell v. Its record comes before those of its parts, also if it
// changes nothing: they are of the cell that it names.
func (s *events) Put(_ store.Cell, v store.Value) (version uint64) {
	e, f := s.e, s.f
	at := e.cells.slot(s.plan.slot)
	if !v.Exists {
		s.mark.tally.count(s.plan.hash, -at.value)
		f.Payload = appendCellRecord(f.Payload, recDelete, s.cell)
		e.put(s.plan.slot, 0, absent, 0, f.ID, s.level)
		e.setExtra(s.plan.slot, 0)
		return 0
	}
	x := extraOf(v)
	if s.leads == store.Object {
		version = s.keepHeld(v.N, x)
	} else {
		version = s.keep(&s.plan, s.cell, v.N-at.value)
	}
	if x != e.extra(s.plan.slot) {
		e.setExtra(s.plan.slot, x)
	}
	return version
}

// keep adds n to the own cell of an event, and returns its version.
func (c *change) keep(p *plan, cell []byte, n int64) (version uint64) {
	e, f := c.e, c.f
	c.mark.tally.count(p.hash, n)
	version = e.version(f.Pos())
	e.logAdd(f, p.slot, cell, n)
	e.put(p.slot, e.cells.slot(p.slot).value+n, present, version, f.ID, c.level)
	return version
}

// Full reports whether there is no room for the own cell.
func (s *events) Full(_ string, _ decide.Room, n int64) bool {
	return s.e.names.full(s.cell, n, &s.e.o.Limits)
}

// locate returns the slot of a part, and its weight.
func (s *events) locate(c store.Cell, p store.Part) (id uint32, weight uint64) {
	if p == s.leads && p != "" && s.plan.lead != 0 {
		return s.plan.lead, s.plan.weight
	}
	return s.e.locateOwned(s.plan.hash, c, p)
}

// Partition returns which partition a cell is of: there is one.
func (s *events) Partition(store.Cell) int { return 0 }

// Part returns a part as it is now. If it is unread, it is only added to.
func (s *events) Part(c store.Cell, p store.Part) store.Content {
	id, _ := s.locate(c, p)
	return s.e.content(id)
}

// MergePart makes a sketch v. The log has what was asked, once for all sketches of the event:
// a state may be a thousand times as long.
func (s *events) MergePart(c store.Cell, p store.Part, v store.Content, asks []byte) {
	s.putPart(c, p, v, asks)
}

// PutPart makes a part v. One that no decision has looked at is new.
func (s *events) PutPart(c store.Cell, p store.Part, v store.Content) { s.putPart(c, p, v, nil) }

func (s *events) putPart(c store.Cell, p store.Part, v store.Content, asks []byte) {
	if asks != nil && v.Exists && (len(s.asked) != len(asks) || &s.asked[0] != &asks[0]) { // sketches do not take an empty one
		s.f.Payload, s.asked = appendAsk(s.f.Payload, asks), asks
	}
	id, weight := s.locate(c, p)
	if p.Kind().Shared() {
		s.f.Payload = appendCellRecord(s.f.Payload, recLane, appendCell(nil, c))
	}
	s.writePart(id, weight, p, v, asks != nil)
}

// writePart makes a part v that was found, by a merge or otherwise.
func (c *change) writePart(id uint32, weight uint64, p store.Part, v store.Content, merged bool) {
	e, f := c.e, c.f
	at := e.cells.slot(id)
	if p.Kind().HasBytes() {
		e.resolve(id, row{})
	}
	was := at.value
	if p.Kind() == store.PartBook && (!v.Exists || v.N < was) {
		e.views.renew()
	}
	switch {
	case !v.Exists:
		f.Payload = appendPartRecord(f.Payload, p, partDelete, was)
	case merged:
		f.Payload = appendPartRecord(f.Payload, p, partMerge, v.N-was)
	case p.Kind().HasBytes():
		f.Payload = appendPartRecord(f.Payload, p, partPut, was)
		f.Payload = append(binary.AppendUvarint(f.Payload, uint64(len(v.Bytes))), v.Bytes...)
	default:
		f.Payload = appendPartRecord(f.Payload, p, partAdd, v.N-was)
	}
	e.countPart(c.mark, id, weight, v.N-was)
	e.putPart(id, v, f.ID, c.level)
}

// Version returns the version of a step that leaves its counter absent: where the next
// record is.
func (s *events) Version() uint64 { return s.e.version(s.f.Pos()) }
