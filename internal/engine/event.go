package engine

import (
	"encoding/binary"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// planEvent collects what has to be read before an event can be decided, besides its own
// cell, and returns the level that its parts need.
func (e *Engine) planEvent(d *store.Delta, p *plan, level store.Durability, n *needs) store.Durability {
	now := e.horizon()
	look := func(part store.Part, mustRead bool) uint32 {
		id, weight := e.locatePart(p.hash, d.Cell, part)
		s := e.cells.slot(id)
		s.meta |= recent
		if u := e.undo.at(s.undo, id); u != nil && u.level > level && now.pending(u.frame, u.level) {
			level = u.level
		}
		if s.meta.state() == unread && (mustRead || e.isFar(s, placed(weight))) {
			n.cell(e.cells.keyOf(id))
		}
		return id
	}
	met := e.cells.slot(p.slot).value
	if d.Event.Part != "" {
		met = e.cells.slot(look(d.Event.Part, true)).value
	}
	for i := range d.Event.Len() {
		r := d.Event.Rider(i)
		if r.When.Kind == store.MetBook {
			look(partBook, true)
		}
		switch part := r.Part; {
		case part == "" || r.Place == store.PlaceVersion:
		case r.Place == store.PlaceMet: // if nothing before it in the batch changes the lead
			f, _ := part.Fields()
			look(part.At(f.Position+met), !isBlind(d, r))
		default:
			look(part, !isBlind(d, r))
		}
	}
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
	s := events{change: c, plan: p, cell: e.cells.keyOf(p.slot)}
	if !s.readMet(d) {
		return store.Result{Outcome: store.Unavailable}
	}
	return decide.Event(&s, decide.Clock{NowMS: c.time(), Window: e.o.Limits.TokenWindow}, d, nil)
}

// events are what one event is decided on.
type events struct {
	*change
	plan plan
	cell []byte // its key
}

// readMet reads the parts that are placed by what the lead meets, where they can't be
// decided unread. They were looked for when the batch was planned, but a delta before
// this one may have changed the lead. That is so rare that the lock is held meanwhile.
func (s *events) readMet(d *store.Delta) bool {
	met, known := int64(0), false
	for i := range d.Event.Len() {
		r := d.Event.Rider(i)
		if r.Place != store.PlaceMet {
			continue
		}
		if !known {
			met, known = s.met(d), true
		}
		f, _ := r.Part.Fields()
		id, weight := s.e.locatePart(s.plan.hash, d.Cell, r.Part.At(f.Position+met))
		if at := s.e.cells.slot(id); at.meta.state() == unread && (!isBlind(d, r) || s.e.isFar(at, placed(weight))) {
			has, err := s.e.readCell(s.e.cells.keyOf(id))
			if err != nil {
				return false
			}
			s.e.resolve(id, has)
		}
	}
	return true
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
	s.mark.tally.count(s.plan.hash, v.N-at.value)
	if !v.Exists {
		f.Payload = appendCellRecord(f.Payload, recDelete, s.cell)
		e.put(s.plan.slot, 0, absent, 0, f.ID, s.level)
		e.setExtra(s.plan.slot, 0)
		return 0
	}
	version = e.version(f.Pos())
	e.logAdd(f, s.plan.slot, s.cell, v.N-at.value)
	e.put(s.plan.slot, v.N, present, version, f.ID, s.level)
	return version
}

// Full reports whether there is no room for the own cell.
func (s *events) Full(string, decide.Room) bool {
	return s.e.names.full(s.cell, 1, &s.e.o.Limits)
}

// Part returns a part as it is now. If it is unread, it is only added to.
func (s *events) Part(c store.Cell, p store.Part) store.Content {
	id, _ := s.e.locatePart(s.plan.hash, c, p)
	return s.e.content(id)
}

// PutPart makes a part v. One that no decision has looked at is new.
func (s *events) PutPart(c store.Cell, p store.Part, v store.Content) {
	e, f := s.e, s.f
	id, weight := e.locatePart(s.plan.hash, c, p)
	at := e.cells.slot(id)
	if p.Kind().HasBytes() {
		e.resolve(id, row{})
	}
	was := at.value
	switch {
	case !v.Exists:
		f.Payload = appendPartRecord(f.Payload, p, partDelete, was)
	case p.Kind().HasBytes():
		f.Payload = appendPartRecord(f.Payload, p, partPut, was)
		f.Payload = append(binary.AppendUvarint(f.Payload, uint64(len(v.Bytes))), v.Bytes...)
	default:
		f.Payload = appendPartRecord(f.Payload, p, partAdd, v.N-was)
	}
	e.countPart(s.mark, id, weight, v.N-was)
	e.putPart(id, v, f.ID, s.level)
}

// Version returns the version of a step that leaves its counter absent: where the next
// record is.
func (s *events) Version() uint64 { return s.e.version(s.f.Pos()) }
