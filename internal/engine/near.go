package engine

// nearLimit is how far from zero a value may be for a blind change to need no
// look at it: the value and the change together stay within int64.
const nearLimit = 1 << 62

func isNear(v int64) bool { return v > nearLimit || v < -nearLimit }

// near is a filter of the cells on disk whose value is near a limit of int64, or
// that have a deadline or a layout: such a cell is read before it is changed. A
// hit may be false, a miss never.
type near struct {
	bits []uint64 // nil as long as there is no such cell
}

const nearBits = 1 << 24

func (f *near) add(hash uint64) {
	if f.bits == nil {
		f.bits = make([]uint64, nearBits/64)
	}
	for range 3 {
		f.bits[hash%nearBits/64] |= 1 << (hash % 64)
		hash >>= 20
	}
}

func (f *near) has(hash uint64) bool {
	if f.bits == nil {
		return false
	}
	for range 3 {
		if f.bits[hash%nearBits/64]&(1<<(hash%64)) == 0 {
			return false
		}
		hash >>= 20
	}
	return true
}
