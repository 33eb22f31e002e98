package sketch

import "unsafe"

// Taking is how stores that keep states in memory change those of uniques: where they are, without
// another state. It decides as Decide does (TestTake).

// Takes reports whether a request can be taken into a state where it is: the state has registers, as it has
// from some thousand items on, and the request lists items. If has is true it would change nothing, and
// need not be taken. Both are as Decide takes them.
func Takes(state string, asks []byte) (has, ok bool) {
	if len(state) < uniqueHead || !shapedUnique(unsafe.Slice(unsafe.StringData(state), len(state))) || state[3] != formRegisters ||
		checkUnique(asks) != nil || asks[3] != formList || asks[2] < state[2] {
		return false, false
	}
	return hasUnique(state, asks), true
}

// Take takes a request into a state that Takes it, and has not all of it. The answer is that of Decide. Rise is by how
// much the registers have risen, all together: if the request is taken again into what the state was, it is the same.
func Take(state, asks []byte) (answer [2]int64, rise uint64) {
	registers, p := state[uniqueHead:], int(state[2])
	fresh := uint64(0)
	for i, list := 0, asks[uniqueHead:]; len(list) > 0; i, list = i+1, list[tokenBytes:] {
		index, level := locate(hashOf(getToken(list)), p)
		was := registers[index]
		is := raise(was, level)
		if is == was {
			continue
		}
		registers[index] = is
		rise += uint64(is - was) // A register never falls.
		if i < UniquesToldMost {
			fresh |= 1 << i
		}
	}
	return [2]int64{1, int64(fresh)}, rise
}
