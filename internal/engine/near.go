package engine

// nearLimit is how far from zero a value may be for a blind change to need no
// look at it: the value and the change together stay within int64.
const nearLimit = 1 << 62

func isNear(v int64) bool { return v > nearLimit || v < -nearLimit }

// near is a filter of the cells on disk whose value is near a limit of int64:
// such a cell is read before it is changed. A hit may be false, a miss never.
type near []uint64

const nearBits = 1 << 20

func newNear() near { return make(near, nearBits/64) }

func (f near) add(hash uint64) {
	for range 3 {
		f[hash%nearBits/64] |= 1 << (hash % 64)
		hash >>= 20
	}
}

func (f near) has(hash uint64) bool {
	for range 3 {
		if f[hash%nearBits/64]&(1<<(hash%64)) == 0 {
			return false
		}
		hash >>= 20
	}
	return true
}
