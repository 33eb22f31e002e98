package store

// Object is the part that has the bytes that a key holds instead of a count.
//
// An event that Object leads changes the key as a whole. OpPut makes the key an
// object, whatever it was: its count and its old bytes are gone. OpSet makes it
// a count, whatever it was. OpMerge merges the request into the key's sketch,
// or into a new one if the key is absent. Any other key is Unmet, and a merge
// that changes nothing leaves the key and its version as they are. The lead
// finds the present content of the key, so bytes of an expired key count as
// absent. Guard and Expiry are about the key's own cell, as for a delta without
// a part: with ExistsNot and a deadline it is a lock. Before and After of the
// result are the numbers of the bytes, 0 if the key held none. After an OpSet,
// After is its N, and for an OpMerge they are its answer. Existed and
// DeadlineMS are those of the key.
//
// Its riders are of parts of PartSketch: the pieces of a sketch that is larger
// than a part. They outlive the key, so each new sketch needs a name that no
// other had, and package internal/retention removes old pieces later.
const Object Part = "\x0f\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00"

// LayoutObject is the layout of a cell whose key holds bytes. No counter can
// have it: OpLayout refuses layouts that end in these 16 bits, and no guard
// names one.
const LayoutObject = 1 << 15

// ofObject reports whether a layout is reserved for objects. A store may keep
// the deadline of an object in the bits above.
func ofObject(layout int64) bool { return layout&(1<<16-1) == LayoutObject }

// ObjectDeadlineMax is the latest deadline of an object, in Unix milliseconds,
// in the year 6429. Later ones become this.
const ObjectDeadlineMax = 1<<47 - 1

// IsObject reports whether a cell's key holds bytes.
func (v *Value) IsObject() bool { return v.Layout == LayoutObject }
