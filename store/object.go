package store

// Object is the part that has the bytes which a key holds instead of a count.
//
// An event that it leads is a change of the key as a whole. OpPut makes the key an
// object, whatever it was: its count is gone, and so are its bytes from before. OpSet makes
// it a count, whatever it was. OpMerge takes what is asked into the sketch that the key is, or is to be if it is
// absent; a key that is anything else is Unmet, and a merge that changes nothing leaves the key and its
// version as they are. What the lead meets is what the key holds now, so bytes of a key that has expired are
// nothing. Its Guard and its Expiry are about the key's own cell, as those of a delta
// without a part are: with ExistsNot and a deadline it is a lock. Of the result Before
// and After are the numbers of the bytes, 0 if the key held none, but After an OpSet its N, and of an OpMerge
// its answer; and Existed and DeadlineMS are those of the key.
//
// Its riders are of parts of PartSketch: the pieces of a sketch that is larger than a part. They outlive the key,
// so whoever makes one gives them names that no others had, and package internal/retention removes them later.
const Object Part = "\x0f\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00"

// LayoutObject is the layout of a cell whose key holds bytes. No counter can
// have it: OpLayout refuses layouts that end in these 16 bits, and no guard
// names one.
const LayoutObject = 1 << 15

// ofObject reports whether a layout is kept for objects. A store may keep the deadline of
// an object in the bits above.
func ofObject(layout int64) bool { return layout&(1<<16-1) == LayoutObject }

// ObjectDeadlineMax is the latest deadline of an object, in Unix milliseconds,
// in the year 6429. Later ones become this.
const ObjectDeadlineMax = 1<<47 - 1

// IsObject reports whether a cell's key holds bytes.
func (v *Value) IsObject() bool { return v.Layout == LayoutObject }
