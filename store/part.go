package store

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"
)

// A Part is one more value of a counter, or of one of its shards, beside its own: what
// was counted in an hour, what a user has chosen, a line of the ledger. The part of
// the own value is empty.
//
// It is made by PartFields.Part, and its bytes are
//
//	kind 1 | view 2 | epoch 4, if the kind has PartRetained | position 8, its sign bit turned | name
//
// with numbers big endian, so that parts of one kind are in the order of their fields.
type Part string

// PartFields are what a part is made of.
type PartFields struct {
	Kind     PartKind
	View     uint16
	Epoch    Epoch // only if the kind has PartRetained
	Position int64
	Name     string // up to PartNameBytesMax bytes of UTF-8
}

// PartKind is what kind of thing a part is.
type PartKind uint8

// PartRetained is in the kinds of parts that are kept for a time. An epoch of them
// goes as a whole.
const PartRetained PartKind = 0x80

// The kinds. They are stored: append only. A number is changed by OpAdd, OpSet, OpMax
// and OpDelete, bytes by OpPut and OpDelete, and those of limiters, sketches and objects by OpMerge
// too.
const (
	PartOutside    PartKind = 0x01 // what the total has, and a view has not
	PartBook       PartKind = 0x02 // the highest book that the counter was written under
	PartDim        PartKind = 0x03 // one value of a dimension, of all time
	PartAdmitted   PartKind = 0x04 // a value that may be counted; with an empty name, how many
	PartMember     PartKind = 0x05 // what a user has chosen
	PartMembers    PartKind = 0x06 // how many chose it
	PartHold       PartKind = 0x07 // a reservation: its deadline
	PartHeld       PartKind = 0x08 // sum and number of reservations; with a name, those of one user
	PartLimit      PartKind = 0x09 // the state of a limiter, bytes
	PartSketch     PartKind = 0x0a // a chunk of a sketch, bytes
	PartWidth      PartKind = 0x0b // the widest layout inside the longest retention
	PartGeneration PartKind = 0x0c // of members: those of another generation are gone
	PartPage       PartKind = 0x0d // a page of a text that servers share, bytes; its position is its number
	PartDue        PartKind = 0x0e // what ends at its position, in Unix microseconds: a reservation, a hint that a counter has some, or at 0 a namespace that has what a worker looks for
	PartObject     PartKind = 0x0f // what its key holds if that is no count, bytes: see Object
	PartShared     PartKind = 0x10 // a sketch of many counters, bytes: see LaneCell

	PartWindow       PartKind = PartRetained | 0x01 // what was counted in a window
	PartWindowDim    PartKind = PartRetained | 0x02 // the same, of one value of a dimension
	PartEntries      PartKind = PartRetained | 0x03 // lines of the ledger that one step wrote, bytes
	PartOnce         PartKind = PartRetained | 0x04 // a user who was counted in a window
	PartWindowSketch PartKind = PartRetained | 0x05 // a chunk of a window's sketch, bytes
	PartWindowShared PartKind = PartRetained | 0x06 // a sketch of many counters in a window, bytes: see LaneCell
)

// Known reports whether k is one of the kinds.
func (k PartKind) Known() bool {
	return k >= PartOutside && k <= PartShared || k >= PartWindow && k <= PartWindowShared
}

// HasBytes reports whether parts of the kind hold bytes, and not a number.
func (k PartKind) HasBytes() bool {
	return k == PartLimit || k == PartPage || k == PartEntries || k == PartObject || k.IsSketch()
}

// Merges reports whether parts of the kind are changed by OpMerge.
func (k PartKind) Merges() bool { return k == PartLimit || k == PartObject || k.IsSketch() }

// IsSketch reports whether parts of the kind are sketches: what is merged into one does not
// depend on the time, so it may ride.
func (k PartKind) IsSketch() bool { return k == PartSketch || k == PartWindowSketch || k.Shared() }

// Shared reports whether parts of the kind are of many counters: they are beside a lane, and
// not beside the counter whose event changes them.
func (k PartKind) Shared() bool { return k == PartShared || k == PartWindowShared }

// Owner returns which cell has a part that an event of c changes, which is in a partition: c, or
// if the kind is Shared a lane. The name of such a part is the slot of its lane, one digit.
func (p Part) Owner(c Cell, partition int) Cell {
	if !p.Kind().Shared() {
		return c
	}
	return LaneCell(SpaceOf(c), partition, p.slot())
}

// slot returns which of the lanes of a partition a part is of.
func (p Part) slot() int {
	if len(p) == 0 {
		return 0
	}
	return int(p[len(p)-1] - '0')
}

const (
	partHeadBytes  = 1 + 2 + 8
	partEpochBytes = 4
	rowKeyEnd      = 0xff // no UTF-8 has it
)

// Part returns the part that has these fields.
func (f PartFields) Part() Part {
	b := make([]byte, 0, partHeadBytes+partEpochBytes+len(f.Name))
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint16(b, f.View)
	if f.Kind&PartRetained != 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(f.Epoch))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(f.Position)^1<<63)
	return Part(append(b, f.Name...))
}

// Kind returns what kind of part p is; 0 is the counter's own value.
func (p Part) Kind() PartKind {
	if p == "" {
		return 0
	}
	return PartKind(p[0])
}

// Fields takes a part apart; ok is false if it is none, or empty.
func (p Part) Fields() (f PartFields, ok bool) {
	head := partHeadBytes
	if f.Kind = p.Kind(); f.Kind&PartRetained != 0 {
		head += partEpochBytes
	}
	if !f.Kind.Known() || len(p) < head || len(p) > head+PartNameBytesMax {
		return PartFields{}, false
	}
	b := []byte(p[:head])
	f.View = binary.BigEndian.Uint16(b[1:])
	if f.Kind&PartRetained != 0 {
		f.Epoch = Epoch(binary.BigEndian.Uint32(b[3:]))
	}
	f.Position = int64(binary.BigEndian.Uint64(b[head-8:]) ^ 1<<63)
	f.Name = string(p[head:])
	if f.Kind.Shared() && (len(f.Name) != 1 || f.Name[0] < '0' || f.Name[0] >= '0'+LaneSlots) {
		return f, false
	}
	return f, f.Epoch.valid(f.Kind) && validUTF8(f.Name)
}

// FloorOf returns the floor that would keep a part, and none that is older; ok is false
// if it is not kept for a time. The namespace is left empty.
func (p Part) FloorOf() (f Floor, ok bool) {
	if p.Kind()&PartRetained == 0 || len(p) < partHeadBytes+partEpochBytes {
		return Floor{}, false
	}
	b := []byte(p[1 : 1+2+partEpochBytes])
	return Floor{Kind: p.Kind(), View: binary.BigEndian.Uint16(b), Epoch: Epoch(binary.BigEndian.Uint32(b[2:]))}, true
}

// At returns p with another position.
func (p Part) At(position int64) Part {
	f, _ := p.Fields()
	f.Position = position
	return f.Part()
}

// An Epoch is how long parts that are kept for a time stay together: it goes as a
// whole. It is 4^class hours long, and its word is class × 2^28 + number, counted
// from 1970.
type Epoch uint32

const (
	epochClassMax  = 8
	epochNumbers   = 28
	epochForeverOf = 15
)

// EpochForever is the epoch of parts of a retained kind that are kept for ever.
const EpochForever Epoch = epochForeverOf << epochNumbers

// EpochAt returns the epoch of what begins at a time, in Unix milliseconds, and is kept
// that long; 0 is for ever. It is the longest that is at most an eighth of that, so
// there are 8 to 33 of them, fewer for what is kept less than 8 hours. A time before
// 1970 is in the first.
func EpochAt(ms int64, keep time.Duration) Epoch {
	if keep <= 0 {
		return EpochForever
	}
	class := 0
	for class < epochClassMax && epochMS(class+1) <= keep.Milliseconds()/8 {
		class++
	}
	number := min(max(ms, 0)/epochMS(class), 1<<epochNumbers-1)
	return Epoch(class<<epochNumbers | int(number))
}

// Span returns from when on, and until before when, what begins is in the epoch.
func (e Epoch) Span() (fromMS, toMS int64) {
	if e == EpochForever {
		return 0, math.MaxInt64
	}
	long := epochMS(int(e >> epochNumbers))
	fromMS = int64(e&(1<<epochNumbers-1)) * long
	return fromMS, fromMS + long
}

func epochMS(class int) int64 { return time.Hour.Milliseconds() << (2 * class) }

// valid reports whether parts of a kind can have the epoch.
func (e Epoch) valid(k PartKind) bool {
	if k&PartRetained == 0 {
		return e == 0
	}
	return e == EpochForever || e>>epochNumbers <= epochClassMax
}

// AppendRow appends the place of a part of c among those of its namespace, and returns
// the namespace too. Rows have one of two orders, by the byte order of
//
//	kind | key | ff | shard 2 | view 2 | position 8 | name
//	kind | view 2 | epoch 4 | key | ff | shard 2 | position 8 | name     if the kind has PartRetained
//
// so the members of a counter are one range, and so is an epoch, with all keys of a
// prefix in it. A key comes after those that begin with it. Key, shard and namespace
// are those of the counter. A lane has no key, and its number is in the place of the shard.
func AppendRow(dst []byte, c Cell, p Part) (namespace string, row []byte) {
	lead, rest := p.Row()
	namespace, dst = AppendRowOwner(append(dst, lead...), c)
	return namespace, append(dst, rest...)
}

// AppendRowOwner appends what the rows of all parts of c have between the two pieces of
// Part.Row: key, ff and shard. So the rows of many cells that have the same first piece are
// in the order of their owners.
func AppendRowOwner(dst []byte, c Cell) (namespace string, owner []byte) {
	of, shard := rowCounter(c)
	dst = append(append(dst, of.Key...), rowKeyEnd)
	return of.Namespace, binary.BigEndian.AppendUint16(dst, uint16(shard))
}

// Row returns what the row of a part has before its owner, and behind it.
func (p Part) Row() (lead, rest Part) {
	n := p.Kind().rowLead()
	return p[:n], p[n:]
}

// PartOfRow returns what AppendRow has placed there; ok is false if it has not.
func PartOfRow(namespace string, row []byte) (c Cell, p Part, ok bool) {
	lead := 0
	if len(row) > 0 {
		lead = PartKind(row[0]).rowLead()
	}
	end := bytes.IndexByte(row[min(lead, len(row)):], rowKeyEnd) + lead
	if lead == 0 || end < lead || len(row) < end+3 {
		return Cell{}, "", false
	}
	of := Cell{Namespace: namespace, Key: string(row[lead:end])}
	shard := int(binary.BigEndian.Uint16(row[end+1:]))
	if c = ShardCell(of, shard); of.Key == "" {
		c = LaneCell(namespace, shard%lanePartitions, shard/lanePartitions)
	}
	p = Part(string(row[:lead]) + string(row[end+3:]))
	if CheckPart(c, p) != nil {
		return Cell{}, "", false
	}
	// A shard has one address: it is no counter of the store's own namespace.
	back, i := rowCounter(c)
	return c, p, back == of && i == shard
}

// rowCounter returns the counter and the shard that rows of a cell name.
func rowCounter(c Cell) (of Cell, shard int) {
	if of, shard, ok := ShardOf(c); ok && shard <= math.MaxUint16 {
		return of, shard
	}
	if namespace, number, ok := laneOf(c); ok {
		return Cell{Namespace: namespace}, number
	}
	return c, 0
}

// rowLead returns how much of a part comes before the key.
func (k PartKind) rowLead() int {
	if k&PartRetained != 0 {
		return 1 + 2 + partEpochBytes
	}
	return 1
}

// Rows are a range of parts of a namespace, by the bytes of their rows.
type Rows struct {
	Namespace string
	From, To  string // the first, and before which it ends; empty is no end
	Back      bool   // the last comes first
}

// Has reports whether a row is in the range.
func (r *Rows) Has(row []byte) bool {
	return string(row) >= r.From && (r.To == "" || string(row) < r.To)
}

// RowsOf returns the rows of one counter or shard from one part on, up to before
// another of the same kind.
func RowsOf(c Cell, from, to PartFields) Rows {
	namespace, first := AppendRow(nil, c, from.Part())
	_, end := AppendRow(nil, c, to.Part())
	return Rows{Namespace: namespace, From: string(first), To: string(end)}
}

// RowsUnder returns the rows of the parts of a kind, and if it has PartRetained of a
// view and an epoch, whose counters have keys that start with a prefix.
func RowsUnder(namespace string, f PartFields, prefix string) Rows {
	from := string(f.Part()[:f.Kind.rowLead()]) + prefix
	end := []byte(from)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
	}
	return Rows{Namespace: namespace, From: from, To: string(end)}
}

// A PartCell is the address of a part.
type PartCell struct {
	Cell Cell
	Part Part
}

// A PartEntry is a part found by ScanParts.
type PartEntry struct {
	PartCell
	Content Content
}
