package view

import (
	"time"

	"github.com/quipudb/quipu/definition"
)

// A Part says which value of a counter is meant, besides its own. Stores have addresses
// for parts; these are what such an address is made of.
type Part struct {
	Kind     Kind
	View     uint16
	Epoch    uint32 // of the kinds that are kept for a time
	Position int64
	Name     string // UTF-8
}

// A Kind is what a part holds.
type Kind uint8

// The kinds. Those with the highest bit are kept for a time.
const (
	Outside     Kind = 0x01 // what the total has, and a view has not
	Value       Kind = 0x03 // one value of a dimension, for all time
	Admitted    Kind = 0x04 // a value that is counted by itself; with an empty name, how many are
	Window      Kind = 0x81 // what was counted in a window
	WindowValue Kind = 0x82 // the same, of one value of a dimension
	Entries     Kind = 0x83 // lines of the ledger
)

const (
	epochBits    = 28
	epochClasses = 8
	epochForever = uint32(15) << epochBits
)

// Epoch returns the epoch of what begins at a time, in Unix milliseconds, in a view whose
// epochs were chosen for a time of keeping; 0 is for ever. Epochs are 4^class hours long,
// the longest that is at most an eighth of that time. Parts of one epoch go together.
func Epoch(ms int64, keep definition.Keep) uint32 {
	if keep == 0 {
		return epochForever
	}
	class, length := epochOf(keep)
	return uint32(class)<<epochBits | uint32(min(max(ms, 0)/length, 1<<epochBits-1))
}

// epochOf returns the class and the length of epochs, in milliseconds.
func epochOf(keep definition.Keep) (class int, length int64) {
	length = time.Hour.Milliseconds()
	for class < epochClasses && 4*length <= time.Duration(keep).Milliseconds()/8 {
		class, length = class+1, 4*length
	}
	return class, length
}
