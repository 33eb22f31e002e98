package engine

import (
	"github.com/quipudb/quipu/store"
)

// Reactions, the short way. What a plan does to a counter depends on what the lead meets,
// and that is the same for most users of a batch. So riders are looked at once for a run of
// such events, and each event changes the slots that were found. What is left is for
// decide.Event, which decides and logs the same (TestLed plays one against the other).

// ledServes is what an event may need to be decided the short way.
const ledServes = store.NeedOp | store.NeedValue | store.NeedToken | store.NeedPart | store.NeedRiders | store.NeedBook | store.NeedMet

// isLed reports whether an event may be decided the short way, by what it asks for: a
// member leads, and all else is in a plan.
func isLed(d *store.Delta) bool {
	e := d.Event
	return e != nil && isUnlikely(e.Part.Kind()) && e.Plan != nil && len(e.Riders) == 0 && e.Is == (store.Met{}) &&
		(d.Op == store.OpSet || d.Op == store.OpDelete) && d.Needs()&^ledServes == 0
}

// A ridden is the riders that were planned last: those of the next event of the same plan
// and counter are the same, unless they are placed by what its lead meets. Then they are
// planned again, or they would be read with the lock held.
type ridden struct {
	plan *store.Plan // nil is none
	slot uint32      // of the counter
	mets []store.Met // if one of them holds, the riders are other ones
}

// again reports whether the riders of an event were planned with the one before.
func (r *ridden) again(d *store.Delta, p *plan, met int64) bool {
	if r.plan == nil || r.plan != d.Event.Plan || r.slot != p.slot || len(d.Event.Riders) > 0 || d.Event.Part == "" {
		return false
	}
	for _, m := range r.mets {
		if m.Holds(met) {
			return false
		}
	}
	return true
}

// note notes that the riders of an event were planned, unless they may be other ones for each event.
func (r *ridden) note(d *store.Delta, p *plan) {
	if r.plan, r.mets = nil, r.mets[:0]; len(d.Event.Riders) > 0 {
		return
	}
	for i := range d.Event.Len() {
		at := d.Event.Rider(i)
		if at.Amount == store.AmountApplied || at.Op == store.OpMerge || at.Place == store.PlaceMet && at.When.Kind == store.MetBook {
			return
		}
		if at.Place == store.PlaceMet {
			r.mets = append(r.mets, at.When)
		}
	}
	r.plan, r.slot = d.Event.Plan, p.slot
}

// A led is what events of one plan do to one counter if their leads meet the same: until
// another event changes parts.
type led struct {
	plan    *store.Plan // nil is none
	slot    uint32      // of the counter
	met     int64
	refused uint8 // the rider that refuses them; 0 is none
	own     int64 // what is added to the counter
	adds    []ledAdd
	checked []uint32 // slots of parts that were looked at
	room    [4]ledAdd
	looked  [4]uint32
}

// A ledAdd is a part that is added to.
type ledAdd struct {
	part   store.Part
	n      int64
	weight uint64
	id     uint32
}

// led decides an event the short way, or leaves it.
func (c *change) led(d *store.Delta, p *plan) (res store.Result, done bool) {
	l, e := &c.run, c.e
	own, lead := e.cells.slot(p.slot), e.cells.slot(p.lead)
	if !isLed(d) || own.meta.state() != present || own.meta&hasExtra != 0 || lead.meta.state() == unread {
		return res, false
	}
	was, will := e.content(p.lead), store.Content{}
	if d.Op == store.OpSet {
		will = store.Content{N: d.N, Exists: true}
	}
	if (l.plan != d.Event.Plan || l.slot != p.slot || l.met != was.N) && !c.learn(d, p, was.N) || !l.fits(e) {
		return res, false
	}
	c.time()
	res.Outcome = store.Applied
	if d.Want {
		res.Before, res.After, res.Existed = was.N, will.N, was.Exists
	}
	if l.refused != 0 {
		if res.Outcome, res.Refused = store.Unmet, l.refused; d.Want {
			res.After = was.N
		}
		return res, true
	}
	res.Version = c.keep(p, e.cells.keyOf(p.slot), l.own)
	if was != will {
		c.writePart(p.lead, p.weight, d.Event.Part, will, false)
	}
	for i := range l.adds {
		a := &l.adds[i]
		c.writePart(a.id, a.weight, a.part, store.Content{N: e.cells.slot(a.id).value + a.n, Exists: true}, false)
	}
	return res, true
}

// fits reports whether no sum leaves int64.
func (l *led) fits(e *Engine) bool {
	ok := l.own == 0 || inRange(e.cells.slot(l.slot).value, l.own)
	for i := range l.adds {
		ok = ok && inRange(e.cells.slot(l.adds[i].id).value, l.adds[i].n)
	}
	return ok
}

// learn finds out what a plan does to a counter if the lead meets this, or reports that the
// short way does not serve it.
func (c *change) learn(d *store.Delta, p *plan, met int64) bool {
	l := &c.run
	*l = led{slot: p.slot, met: met}
	l.adds, l.checked = l.room[:0], l.looked[:0]
	for i := range d.Event.Len() {
		r := d.Event.Rider(i)
		part := r.Part
		switch {
		case r.When.Kind == store.MetBook:
			if id, _ := c.e.locatePart(p.hash, d.Cell, partBook); c.e.cells.slot(id).meta.state() == unread || c.e.content(id).N < r.When.N {
				return false
			}
			continue
		case !r.When.Holds(met):
			continue
		case r.Amount != store.AmountN, r.Bound != nil, r.Place == store.PlaceVersion, r.N > blindMax, r.N < -blindMax:
			return false
		case r.Place == store.PlaceMet:
			f, _ := part.Fields()
			if met != 0 && !inRange(f.Position, met) {
				return false
			}
			part = part.At(f.Position + met)
		}
		if part != "" {
			if !l.rides(c.e, d.Cell, p, r, part) {
				return false
			}
		} else if r.Op != store.OpAdd || r.Is != (store.Met{}) {
			return false
		} else {
			l.own += r.N
		}
		if l.refuses(c.e, d.Cell, p, r, part) {
			l.refused = uint8(i + 1)
			break
		}
	}
	l.plan = d.Event.Plan
	return true
}

// refuses reports whether a rider that is taken refuses its event.
func (l *led) refuses(e *Engine, cell store.Cell, p *plan, r *store.Rider, part store.Part) bool {
	if part == "" || r.Op != store.OpGet {
		return false
	}
	id, _ := e.locatePart(p.hash, cell, part)
	return !r.Is.Holds(e.content(id).N)
}

// rides takes a rider of a part. A part is added to, or looked at, but not both: so what was
// seen of it stays so.
func (l *led) rides(e *Engine, cell store.Cell, p *plan, r *store.Rider, part store.Part) bool {
	kind := part.Kind()
	if isUnlikely(kind) || isViewed(kind) || kind.HasBytes() || len(l.adds) == cap(l.adds) || len(l.checked) == cap(l.checked) {
		return false
	}
	id, weight := e.locatePart(p.hash, cell, part)
	s := e.cells.slot(id)
	added, looked := false, false
	for i := range l.adds {
		added = added || l.adds[i].id == id
	}
	for _, other := range l.checked {
		looked = looked || other == id
	}
	switch {
	case r.Op == store.OpAdd && r.Is == (store.Met{}):
		if added || looked || kind == store.PartBook || s.meta.state() == unread && e.isFar(s, placed(weight)) {
			return false
		}
		if r.N != 0 {
			l.adds = append(l.adds, ledAdd{part: part, n: r.N, weight: weight, id: id})
		}
		return true
	case r.Op == store.OpGet:
	case r.Op == store.OpMax && r.Is == (store.Met{}) && s.meta.state() == present && s.value >= r.N:
	default:
		return false
	}
	l.checked = append(l.checked, id)
	return !added && s.meta.state() != unread
}
