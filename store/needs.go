package store

// Needs are the abilities that a delta, or a batch, needs beyond adding N to a
// cell. A fast path lists the needs that it serves, in a constant beside it,
// and takes a delta only if it has no others:
//
//	const laneServes = store.NeedValue | store.NeedToken
//
//	if d.Needs()&^laneServes == 0 { … }
//
// So no existing fast path serves a need that is added later.
type Needs uint32

// The needs. Those of a batch are its own and those of its deltas.
const (
	NeedOp      Needs = 1 << iota // another operation than OpAdd
	NeedValue                     // Want
	NeedExpiry                    // Expiry, DeadlineMS
	NeedToken                     // Guard.Token, Digest
	NeedVersion                   // Guard.Match, Version
	NeedLayout                    // Guard.Laid, Layout
	NeedExists                    // Guard.Exists
	NeedBound                     // Guard.Bound
	NeedMark                      // Batch.Writer, Prev, Seq
	NeedIf                        // Batch.If
	NeedPart                      // Event.Part
	NeedRiders                    // Delta.Event
	NeedBook                      // a rider's MetBook, or OpMax of PartBook
	NeedMet                       // Event.Is; a rider's other conditions and operations, PlaceMet
	NeedBytes                     // Event.Bytes, Rider.Bytes, OpPut, OpMerge
	NeedClock                     // Event.NotBefore, NotAfter
	NeedFence                     // Batch.Books, Floors
)

// Needs knows these fields. A field that is added to one of these types does not compile
// here: it must have a need, and a law in package storetest, or ask for nothing.
var (
	_ = struct {
		Cell        Cell
		Op          Op
		Want        bool
		Expiry      Expiry
		N           int64
		Guard       Guard
		DeadlineMS  int64
		Writes, Lot uint32
		Event       *Event
	}(Delta{})
	_ = struct {
		Part                Part
		Plan                *Plan
		Riders              []Rider
		Is                  Met
		Bytes               []byte
		NotBefore, NotAfter int64
	}(Event{})
	_ = struct {
		Part     Part
		Op       Op
		Amount   Amount
		Place    Place
		N        int64
		When, Is Met
		Bound    *Bound
		Bytes    []byte
	}(Rider{})
	_ = struct {
		Token   string
		Digest  uint64
		Match   bool
		Version uint64
		Laid    bool
		Layout  int64
		Exists  Existence
		Bound   *Bound
	}(Guard{})
	_ = struct {
		Partition  int
		Writer     Writer
		Prev, Seq  uint64
		Durability Durability
		If         []Condition
		Books      []Book
		Floors     []Floor
		Apart      bool
		Deltas     []Delta
	}(Batch{})
)

// Needs returns what d needs. Its cell, N, Writes and Lot need nothing.
func (d *Delta) Needs() (n Needs) {
	if d.Op != OpAdd {
		n |= NeedOp
	}
	if d.Want {
		n |= NeedValue
	}
	if d.Event != nil {
		n |= d.Event.needs()
	}
	if d.Expiry != ExpiryKeep || d.DeadlineMS != 0 {
		n |= NeedExpiry
	}
	g := &d.Guard
	if g.Token != "" || g.Digest != 0 {
		n |= NeedToken
	}
	if g.Match || g.Version != 0 {
		n |= NeedVersion
	}
	if g.Laid || g.Layout != 0 {
		n |= NeedLayout
	}
	if g.Exists != ExistsAny {
		n |= NeedExists
	}
	if g.Bound != nil {
		n |= NeedBound
	}
	return n
}

// Needs returns what b and its deltas need. The partition, the durability and
// Apart need nothing.
func (b *Batch) Needs() (n Needs) {
	if b.Writer != 0 || b.Prev != 0 || b.Seq != 0 {
		n |= NeedMark
	}
	if len(b.If) > 0 {
		n |= NeedIf
	}
	if len(b.Books) > 0 || len(b.Floors) > 0 {
		n |= NeedFence
	}
	for i := range b.Deltas {
		n |= b.Deltas[i].Needs()
	}
	return n
}

// AddMax is the largest amount, in either direction, that a part of a counter
// accepts in an add. So the values of the parts, and their sum, stay far from
// the limits of int64.
const AddMax = 1 << 32

// Splits reports whether a cell of a layout refuses d as Split, whatever else it is.
func (d *Delta) Splits(layout int64) bool {
	switch layout {
	case 0:
		return false
	case LayoutObject:
		return !d.fitsObject()
	default:
		return d.NeedsWhole()
	}
}

// fitsObject reports whether d is meant for an object. One that names a layout is
// refused for that: no delta names this one.
func (d *Delta) fitsObject() bool {
	switch d.Op {
	case OpGet, OpExpire, OpDelete, OpSettle, OpRetire:
		return d.Event == nil
	default:
		return d.IsObject() || d.Guard.Laid
	}
}

// IsObject reports whether d is about bytes that its key holds, or is to hold, instead of a
// count.
func (d *Delta) IsObject() bool { return d.Event != nil && d.Event.Part.Kind() == PartObject }

// shardServes is what a shard of a counter can decide alone.
const shardServes = NeedToken | NeedRiders | NeedBook | NeedBytes

// NeedsWhole reports whether a part of a counter can't decide d: d asks for the
// value, has a condition, is not an add, or is a large add. A delta that names
// the layout was made for the part.
func (d *Delta) NeedsWhole() bool {
	if d.Guard.Laid || d.Op == OpSettle || d.Op == OpRetire {
		return false
	}
	return d.Needs()&^shardServes != 0 || d.N > AddMax || d.N < -AddMax
}
