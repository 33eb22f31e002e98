package store

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// An Event makes a delta, its lead, change more than one cell in one step. The
// other changes are its riders. They belong to the lead's counter and shard,
// and take effect if and only if the lead is applied now. They do not take
// effect on a repeat, a refusal or a settled token.
//
// The lead is decided first, then each rider in order, on the state at that
// point; the riders of the plan come first. A rider that can't be applied
// refuses the whole event with its outcome, and Result.Refused names it. An
// applied event makes its counter exist, unless it deletes it, and gives it a
// version; parts have no version. An OpAdd of 0 does not make a part exist. A
// counter with a deadline refuses events as Unmet.
//
// A token belongs to the counter, whatever part leads.
type Event struct {
	Part   Part    // what the delta changes; empty is the counter's own value, which else may ride
	Plan   *Plan   // riders that many events share; nil is none
	Riders []Rider // those of this event alone

	// Is is a condition on the value that the lead finds. It is checked before any
	// other condition of the lead. If it does not hold, the event is Unmet.
	Is Met

	// Bytes are the value of an OpPut, or the request of an OpMerge, for the lead and
	// for riders without bytes of their own. So events with different requests can
	// share a plan. They may be several requests: see AppendAsks. Other packages,
	// which every store calls, apply a request to a part: internal/limit for
	// PartLimit, and internal/sketch for sketches. The answer is two numbers. If the
	// lead is merged, they are Before and After of the result, with Want.
	//
	// A request that a limiter refuses is Untimely. It has the answer too, and no
	// token remembers it. A request that is not valid, or does not fit the sketch, is
	// Unmet. One that changes nothing is applied, and leaves the part as it is.
	Bytes []byte

	// The lead is Untimely if the store's time is before NotBefore or after NotAfter,
	// in Unix microseconds; 0 is no limit.
	NotBefore, NotAfter int64
}

// A Rider is a change of one more cell.
type Rider struct {
	Part Part // of the lead's counter and shard; empty is its own value; of a kind that is Shared it is the lane's: see LaneCell
	Op   Op   // OpAdd, OpSet, OpMax, OpDelete, OpPut, OpMerge of a sketch; OpGet changes nothing

	Amount Amount // what N is
	Place  Place  // what the position in Part is
	N      int64  // of an OpMerge without Bytes: which request of the event's it asks, from 1 on; 0 is all of Bytes

	When  Met    // on what the lead met. If it does not hold, the rider is left out
	Is    Met    // on what the rider meets. If it does not hold, the event is Unmet
	Bound *Bound // for an OpAdd: if the sum leaves it, the event is Bounded

	// Bytes are the value of an OpPut, or the request of an OpMerge. An OpMerge
	// without bytes has the request of the event, and is left out if the event has
	// none either.
	Bytes []byte
}

// Amount selects the number that a rider adds or sets.
type Amount uint8

// The amounts. They are stored and sent: append only.
const (
	AmountN       Amount = iota // N
	AmountApplied               // by how much the lead has changed its value
	AmountWas                   // what the counter's own value was before the event
)

// Place selects the position of a rider's part.
type Place uint8

// The places. They are stored and sent: append only.
const (
	PlaceFixed   Place = iota // where its part says
	PlaceVersion              // at the version of the step. With OpPut, a Stamp comes before the bytes
	PlaceMet                  // at the position in its part plus what the lead met
)

// A Met is a condition on a value that a step finds. An absent value is 0, and
// bytes are their Number.
type Met struct {
	Kind MetKind
	N    int64
}

// MetKind is what a Met asks for.
type MetKind uint8

// A Met may ask for one of these. They are stored and sent: append only.
const (
	MetAny   MetKind = iota // nothing
	MetEqual                // it is N
	MetNot                  // it is not N
	MetBook                 // for Rider.When: the counter's PartBook is below N
)

// Holds reports whether the condition, which is no MetBook, holds for a value.
func (m Met) Holds(n int64) bool {
	switch m.Kind {
	case MetAny:
		return true
	case MetEqual:
		return n == m.N
	case MetNot:
		return n != m.N
	default:
		return false
	}
}

// A Content is the content of a part: a number, or bytes and their Number.
type Content struct {
	N      int64
	Bytes  string
	Exists bool
}

// Number returns what stands for the bytes of a part of the kind where they are compared or
// added up. It is stored.
func (k PartKind) Number(bytes []byte) int64 {
	if !k.IsSketch() && k != PartObject {
		h := fnv.New64a()
		_, _ = h.Write(bytes)
		return int64(h.Sum64())
	}
	// Those are long, and change often: eight bytes at a time.
	const offset, prime = 14695981039346656037, 1099511628211 // of FNV
	h := uint64(offset)
	for ; len(bytes) >= 8; bytes = bytes[8:] {
		h = (h ^ binary.LittleEndian.Uint64(bytes)) * prime
		h ^= h >> 32
	}
	for _, b := range bytes {
		h = (h ^ uint64(b)) * prime
	}
	return int64(h)
}

// Content returns what a part of the kind holds that has some bytes.
func (k PartKind) Content(bytes []byte) Content {
	return Content{N: k.Number(bytes), Bytes: string(bytes), Exists: true}
}

// A Stamp is what only the step that makes a ledger entry knows.
type Stamp struct {
	MS    int64 // the store's time, Unix milliseconds
	Known bool  // a store need not look at a value that no decision asks for
	Value int64 // of the counter's own cell after the event, if known; 0 if it is absent

	// Change is by how much the event has changed that value, if known, mod 2^64. A
	// decision that looks at a value knows it: an entry of a value that was set, or of
	// an add that a bound cut short, could not say it otherwise.
	Change int64
}

// Append appends the stamp to dst: the time, and 1, the value and its change, or 0.
func (s Stamp) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.MS))
	if !s.Known {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(append(dst, 1), s.Value)
	return binary.AppendVarint(dst, s.Change)
}

// CutStamp returns the stamp that bytes begin with, and the rest.
func CutStamp(bytes string) (s Stamp, rest string, ok bool) {
	b := []byte(bytes)
	ms, n := binary.Uvarint(b)
	if n <= 0 || len(b) == n || b[n] > 1 {
		return Stamp{}, "", false
	}
	s.MS, s.Known = int64(ms), b[n] == 1
	n++
	for _, number := range []*int64{&s.Value, &s.Change} {
		if !s.Known {
			break
		}
		v, w := binary.Varint(b[n:])
		if w <= 0 {
			return Stamp{}, "", false
		}
		*number, n = v, n+w
	}
	return s, bytes[n:], true
}

// A Plan is riders that many events share. It is checked once, and never changes.
type Plan struct {
	riders []Rider
	needs  Needs
	bytes  int
	sums   bool
	shares bool // a rider asks what the event does
	merges bool // a rider merges
	lane   bool // a rider is of a kind that many counters share
}

// NewPlan returns a plan of riders, which are the plan's from now on.
func NewPlan(riders ...Rider) (*Plan, error) {
	p := &Plan{riders: riders}
	for i := range riders {
		if err := checkRider(&riders[i]); err != nil {
			return nil, err
		}
		p.needs |= riders[i].needs()
		p.bytes += riders[i].bytes()
		p.shares, p.merges = p.shares || riders[i].shares(), p.merges || riders[i].Op == OpMerge
		p.lane = p.lane || riders[i].Part.Kind().Shared()
	}
	p.sums = sum(riders)
	if len(riders) > EventRidersMax {
		return nil, Errorf(KindTooLarge, "plan of %d riders: at most %d", len(riders), EventRidersMax)
	}
	return p, nil
}

// Sums reports whether adds of one sign that have the plan, one after the other, do to
// parts what one add does that has the plan and is their sum; and if they ask something of
// sketches, that asks what internal/sketch combines of it.
func (p *Plan) Sums() bool { return p.sums }

// sum reports whether each rider adds what was applied, or does something that the first
// event does and those after it do not do again: it keeps the book, or adds what there
// was before it.
func sum(riders []Rider) bool {
	var keeps, below int64
	for i := range riders {
		switch r := &riders[i]; {
		case r.Is != (Met{}), r.Bound != nil, r.Place != PlaceFixed, r.Op == OpAdd && r.Part.Kind() == PartBook:
			return false
		case r.Op == OpAdd && r.Amount == AmountApplied && r.When == (Met{}):
		case r.Op == OpAdd && r.Amount == AmountWas && r.When.Kind == MetBook:
			below = max(below, r.When.N)
		case r.Op == OpMax && r.Amount == AmountN && r.When == (Met{}) && r.Part.Kind() == PartBook:
			keeps = max(keeps, r.N)
		case r.shares() && r.When == (Met{}):
		default:
			return false
		}
	}
	return below <= keeps
}

// Weight returns how many riders an event has, and the bytes of what parts are called and
// hold: they count against what a batch may have, beside its deltas.
func (e *Event) Weight() (riders, bytes int) {
	bytes = len(e.Part) + len(e.Bytes)
	if e.Plan != nil {
		bytes += e.Plan.bytes
	}
	for i := range e.Riders {
		bytes += e.Riders[i].bytes()
	}
	return e.Len(), bytes
}

func (r *Rider) bytes() int {
	n := len(r.Part) + len(r.Bytes)
	if r.Op == OpMerge {
		n += mergeBytes
	}
	return n
}

// mergeBytes is what a merge counts for besides what it asks: the sketch that it makes may be
// written as a whole.
const mergeBytes = 1 << 10

// shares reports whether a rider asks what its event does.
func (r *Rider) shares() bool { return r.Op == OpMerge && r.Bytes == nil }

// Asks returns what a rider of the event asks that is an OpMerge; nil if it is left out.
func (e *Event) Asks(r *Rider) []byte {
	switch {
	case !r.shares():
		return r.Bytes
	case r.N == 0 || e.Bytes == nil:
		return e.Bytes
	}
	asks, ok := cutAsks(e.Bytes)
	if !ok {
		return []byte{} // which is no request
	}
	for i := int64(1); i < r.N && len(asks) > 0; i++ {
		_, asks = cutAsk(asks)
	}
	if len(asks) == 0 {
		return nil
	}
	ask, _ := cutAsk(asks)
	return ask
}

// shares reports whether a rider asks what the event does.
func (e *Event) shares() bool {
	return e.Plan != nil && e.Plan.shares || slices.ContainsFunc(e.Riders, func(r Rider) bool { return r.shares() })
}

// Shares reports whether an event changes what many counters share.
func (e *Event) Shares() bool {
	return e.Plan != nil && e.Plan.lane || e.Part.Kind().Shared() ||
		slices.ContainsFunc(e.Riders, func(r Rider) bool { return r.Part.Kind().Shared() })
}

// MergesSketches reports whether an event may merge something into a sketch, or into what its key holds.
func (d *Delta) MergesSketches() bool {
	e := d.Event
	return e != nil && (d.Op == OpMerge && e.Part.Kind() != PartLimit || e.Plan != nil && e.Plan.merges ||
		slices.ContainsFunc(e.Riders, func(r Rider) bool { return r.Op == OpMerge }))
}

// Len returns how many riders an event has.
func (e *Event) Len() int {
	n := len(e.Riders)
	if e.Plan != nil {
		n += len(e.Plan.riders)
	}
	return n
}

// Rider returns rider i, from 0 on, which must not be changed.
func (e *Event) Rider(i int) *Rider {
	if e.Plan != nil {
		if i < len(e.Plan.riders) {
			return &e.Plan.riders[i]
		}
		i -= len(e.Plan.riders)
	}
	return &e.Riders[i]
}

// needs returns what an event asks for.
func (e *Event) needs() Needs {
	n := NeedRiders
	if e.Part != "" {
		n |= NeedPart
	}
	if e.Plan != nil {
		n |= e.Plan.needs
	}
	for i := range e.Riders {
		n |= e.Riders[i].needs()
	}
	if e.Is != (Met{}) {
		n |= NeedMet
	}
	if e.Bytes != nil {
		n |= NeedBytes
	}
	if e.NotBefore != 0 || e.NotAfter != 0 { // an OpMerge has NeedOp, and what it asks NeedBytes
		n |= NeedClock
	}
	return n
}

func (r *Rider) needs() Needs {
	n := NeedRiders
	if r.When.Kind == MetBook || r.Part.Kind() == PartBook && r.Op == OpMax {
		n |= NeedBook
	} else if r.When != (Met{}) || r.Op != OpAdd && r.Op != OpPut && r.Op != OpMerge {
		n |= NeedMet
	}
	if r.Is != (Met{}) || r.Bound != nil || r.Place == PlaceMet {
		n |= NeedMet
	}
	if r.Op == OpPut || r.Op == OpMerge || r.Bytes != nil {
		n |= NeedBytes
	}
	return n
}
