package decide

import (
	"unsafe"

	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A PartState is a State that has parts.
type PartState interface {
	State
	Parts
}

// Parts are what an event is decided on that has no token, or a new one.
type Parts interface {
	Cells

	// Part returns a part as it is now.
	Part(c store.Cell, p store.Part) store.Content

	// PutPart makes a part v; a v that does not exist removes it.
	PutPart(c store.Cell, p store.Part, v store.Content)

	// MergePart makes a sketch v, which is what it was with what was asked merged into
	// it. Whoever keeps a log may keep that, and need not write all of v.
	MergePart(c store.Cell, p store.Part, v store.Content, asks []byte)

	// Version returns the version of a step that leaves its counter absent.
	Version() uint64

	// Partition returns which partition a cell is of.
	Partition(c store.Cell) int
}

// event decides a lead and its riders, and keeps what they change.
func event(s PartState, at Clock, d *store.Delta, rec *Record) store.Result {
	if d.Guard.Token != "" {
		if res, done := once(s, at, d); done {
			return res
		}
	}
	res := Event(s, at, d, rec)
	remember(s, at, d, &res)
	return res
}

// Event decides a lead and its riders, and keeps what they change. Tokens come before
// it: see Recall. A nil record is not written.
func Event(s Parts, at Clock, d *store.Delta, rec *Record) store.Result {
	st := step{own: d.Cell, event: d.Event, is: s.Cell(d.Cell), at: at, state: s}
	st.will, st.parts = st.is, st.room[:0]
	res := st.decide(d)
	if res.Outcome == store.Applied {
		if res.Version = st.is.Version; !st.still(d) {
			res.Version = st.keep(rec)
		}
	}
	return res
}

// A step is an event while it is decided: nothing is kept before all of it is.
type step struct {
	own      store.Cell
	event    *store.Event
	is, will store.Value // the own cell, before and after
	at       Clock
	state    Parts

	met, became store.Content // what leads, before and after
	answer      [2]int64      // of a merge
	merged      bool
	parts       []changed
	room        [6]changed     // for parts: few events have more
	entries     []*store.Rider // that are at the version of the step
}

// changed is a part that a step changes.
type changed struct {
	part      store.Part
	was, will store.Content
	asks      []byte // all that made will of was, if that was one merge into a sketch
}

// decide decides the lead, then the riders.
func (st *step) decide(d *store.Delta) store.Result {
	outcome, rider := st.lead(d), 0
	for i := 0; outcome == store.Applied && i < d.Event.Len(); i++ {
		if outcome = st.ride(d.Event.Rider(i)); outcome != store.Applied {
			rider = i + 1
		}
	}
	may := d.Op == store.OpDelete && d.Event.Part == "" || d.IsObject() // leave no cell
	if outcome == store.Applied && !st.will.Exists && !may {
		st.will.Exists = true
	}
	if outcome == store.Applied && (st.will.Exists || d.IsObject()) && !st.is.Exists && st.state.Full(st.own.Namespace, Keys, 1) {
		outcome, rider = store.Full, 0
	}
	res := store.Result{Outcome: outcome, Refused: uint8(rider)}
	switch {
	case !d.Want:
	case st.merged && (outcome == store.Applied || outcome == store.Untimely):
		res.Before, res.After, res.Existed = st.answer[0], st.answer[1], st.met.Exists
	case outcome == store.Applied, outcome == store.Unmet, outcome == store.Bounded:
		res.Before, res.After, res.Existed = st.met.N, st.became.N, st.met.Exists
		if outcome != store.Applied {
			res.After = res.Before
		}
	}
	if d.IsObject() {
		st.tell(d, &res)
	}
	return res
}

// lead decides what leads: the time is judged first, then whether the counter can have
// parts, then what it is to be, then what any delta is judged by.
func (st *step) lead(d *store.Delta) store.Outcome {
	e := d.Event
	if d.IsObject() {
		return st.object(d)
	}
	if e.Part == "" {
		st.met = store.Content{N: st.is.N, Exists: st.is.Exists}
	} else {
		st.met = st.state.Part(d.Cell, e.Part)
	}
	st.became = st.met
	nowUS := st.at.us()
	switch {
	case nowUS < e.NotBefore, e.NotAfter != 0 && nowUS > e.NotAfter:
		return store.Untimely
	case st.is.Layout == store.LayoutObject:
		return store.Split
	case st.is.DeadlineMS != 0, !e.Is.Holds(st.met.N):
		return store.Unmet
	}
	if e.Part == "" {
		outcome := Cell(&st.will, d, st.at.NowMS, false).Outcome // there is room, for now
		st.became = store.Content{N: st.will.N, Exists: st.will.Exists}
		return outcome
	}
	switch x := d.Guard.Exists; {
	case st.is.Layout != 0:
		return store.Split
	case x == store.ExistsMust && !st.met.Exists, x == store.ExistsNot && st.met.Exists:
		return store.Unmet
	}
	lead := changed{part: e.Part, was: st.met}
	if d.Op == store.OpMerge && e.Part.Kind().IsSketch() {
		lead.asks = e.Bytes
	}
	if outcome := st.change(d); outcome != store.Applied {
		return outcome
	}
	lead.will = st.became
	st.parts = append(st.parts, lead)
	return store.Applied
}

// change makes the part that leads what the lead makes of it, or says why it does not.
func (st *step) change(d *store.Delta) store.Outcome {
	if d.Op == store.OpMerge {
		return st.merge(d.Event.Part.Kind(), d.Event.Bytes)
	}
	return hold(d.Event.Part.Kind(), &st.became, d.Op, d.N, d.Event.Bytes, d.Guard.Bound)
}

// merge makes what leads what its kind makes of its bytes.
func (st *step) merge(kind store.PartKind, asks []byte) (outcome store.Outcome) {
	st.merged = true
	if kind != store.PartLimit {
		st.answer, outcome = mergeSketch(kind, &st.became, asks)
		return outcome
	}
	var room [128]byte
	next, changed, reply := limit.Decide(room[:0], st.met.Bytes, asks, st.at.us())
	st.answer[0], st.answer[1] = reply.Pack()
	if !changed {
		return store.Untimely
	}
	st.became = kind.Content(next)
	return store.Applied
}

// mergeSketch makes a sketch what it is with what is asked merged into it. A request that
// does not fit refuses the event. One that changes nothing leaves v as it is.
func mergeSketch(kind store.PartKind, v *store.Content, asks []byte) (answer [2]int64, outcome store.Outcome) {
	// What it becomes is made where it stays: most states are 8 KiB, and this is done thousands of times in a second.
	next, changed, answer, ok := sketch.Decide(make([]byte, 0, len(v.Bytes)+len(asks)), v.Bytes, asks)
	switch {
	case !ok && answer[0] == sketch.NoRoom:
		return answer, store.Full
	case !ok:
		return answer, store.Unmet
	case changed:
		*v = store.Content{N: kind.Number(next), Bytes: unsafe.String(unsafe.SliceData(next), len(next)), Exists: true}
	}
	return answer, store.Applied
}

// ride decides one rider.
func (st *step) ride(r *store.Rider) store.Outcome {
	if !st.when(r.When) {
		return store.Applied
	}
	asks := st.event.Asks(r)
	if r.Op == store.OpMerge && asks == nil {
		return store.Applied // The event asks nothing.
	}
	n, wraps := int64(0), false
	switch r.Amount {
	case store.AmountN:
		n = r.N
	case store.AmountApplied:
		n = st.became.N - st.met.N
		wraps = (n > 0) != (st.became.N > st.met.N)
	case store.AmountWas:
		n = st.is.N
	}
	part := r.Part
	switch r.Place {
	case store.PlaceFixed:
	case store.PlaceVersion:
		st.entries = append(st.entries, r)
		return store.Applied
	case store.PlaceMet:
		f, _ := part.Fields()
		at, beyond := plus(f.Position, st.met.N)
		part, wraps = part.At(at), wraps || beyond
	}
	if wraps {
		return store.Overflow
	}
	if n == 0 && r.Op == store.OpAdd && r.Is == (store.Met{}) && r.Bound == nil {
		return store.Applied // nobody has to look
	}
	if part == "" {
		v := store.Content{N: st.will.N, Exists: st.will.Exists}
		outcome := st.rides(r, &v, n, nil)
		if outcome == store.Applied && r.Op != store.OpGet {
			st.will.N, st.will.Exists = v.N, v.Exists
		}
		return outcome
	}
	p := &st.parts[st.find(part)]
	v := p.will
	outcome := st.rides(r, &v, n, asks)
	if outcome == store.Applied && v != p.will {
		if r.Op != store.OpMerge || p.will != p.was {
			asks = nil
		}
		p.will, p.asks = v, asks
	}
	return outcome
}

// when reports whether a rider is to be taken.
func (st *step) when(m store.Met) bool {
	if m.Kind != store.MetBook {
		return m.Holds(st.met.N)
	}
	return st.state.Part(st.own, store.PartFields{Kind: store.PartBook}.Part()).N < m.N
}

// rides decides a rider on what it meets.
func (st *step) rides(r *store.Rider, v *store.Content, n int64, asks []byte) (outcome store.Outcome) {
	if !r.Is.Holds(v.N) {
		return store.Unmet
	}
	if r.Op == store.OpMerge {
		_, outcome = mergeSketch(r.Part.Kind(), v, asks)
		return outcome
	}
	return hold(r.Part.Kind(), v, r.Op, n, r.Bytes, r.Bound)
}

// find returns the place in st.parts of a part as it is by now.
func (st *step) find(part store.Part) int {
	for i := range st.parts {
		if st.parts[i].part == part {
			return i
		}
	}
	v := st.state.Part(st.owner(part), part)
	st.parts = append(st.parts, changed{part: part, was: v, will: v})
	return len(st.parts) - 1
}

// owner returns which cell has a part that the step changes.
func (st *step) owner(part store.Part) store.Cell {
	if part.Kind().Shared() {
		return part.Owner(st.own, st.state.Partition(st.own))
	}
	return st.own
}

// keep makes what was decided so, and returns the version of the counter. What many counters
// share comes last.
func (st *step) keep(rec *Record) (version uint64) {
	s := st.state
	version = s.Put(st.own, st.will)
	if rec != nil {
		rec.enter(st.own, uint64(st.will.N)-uint64(st.is.N))
	}
	shares := false
	for i := range st.parts {
		if st.parts[i].part.Kind().Shared() {
			shares = true
			continue
		}
		st.put(&st.parts[i], rec)
	}
	st.enter(version, rec)
	for i := range st.parts {
		if shares && st.parts[i].part.Kind().Shared() {
			st.put(&st.parts[i], rec)
		}
	}
	return version
}

// enter keeps the parts that are at the version of the step.
func (st *step) enter(version uint64, rec *Record) {
	s := st.state
	if len(st.entries) == 0 {
		return
	}
	at := version
	if at == 0 {
		at = s.Version()
	}
	stamp := store.Stamp{MS: st.at.NowMS, Known: true, Value: st.will.N, Change: st.will.N - st.is.N}
	for _, r := range st.entries {
		will := store.Content{N: r.N, Exists: true}
		if r.Op == store.OpPut {
			will = r.Part.Kind().Content(append(stamp.Append(nil), r.Bytes...))
		}
		st.put(&changed{part: r.Part.At(int64(at)), will: will}, rec)
	}
}

// put keeps a part, if it has changed.
func (st *step) put(p *changed, rec *Record) {
	if p.was == p.will {
		return
	}
	of := st.owner(p.part)
	if p.asks != nil {
		st.state.MergePart(of, p.part, p.will, p.asks)
	} else {
		st.state.PutPart(of, p.part, p.will)
	}
	if rec != nil && p.part.Kind()&store.PartRetained == 0 { // an epoch has a record of its own
		rec.Merge(PartChange(of, p.part, uint64(p.will.N)-uint64(p.was.N)))
	}
}

// hold makes v what an operation makes of it, or says why it does not.
func hold(kind store.PartKind, v *store.Content, op store.Op, n int64, bytes []byte, b *store.Bound) store.Outcome {
	switch op {
	case store.OpGet:
		return store.Applied
	case store.OpDelete:
		*v = store.Content{}
		return store.Applied
	case store.OpAdd:
		after, outcome := sum(v.N, n, b)
		if outcome != store.Applied || n == 0 {
			return outcome
		}
		n = after
	case store.OpSet:
		if b != nil && !b.Has(n) {
			return store.Bounded
		}
	case store.OpMax:
		if v.Exists {
			n = max(n, v.N)
		}
	case store.OpPut:
		*v = kind.Content(bytes)
		return store.Applied
	default:
		return 0 // a part can't do it
	}
	v.N, v.Exists = n, true
	return store.Applied
}
