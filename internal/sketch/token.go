package sketch

import "math/bits"

// A token is what a sketch of uniques keeps of an item while it lists items: 48
// bits of which every register of every precision up to PrecisionMax follows.
//
//	bit 47..5  the first 43 bits of the hash
//	bit 4..0   the number of zeros that follow them, 0 to 21
//
// Two items have the same token about once in 2.6e13 pairs: in a list of
// 1,365 items, one time in 28 million.
const (
	tokenBytes = 6
	tailBits   = 21 // of the hash, of which only the zeros are kept
)

// tokenOf returns the token of a hash.
func tokenOf(hash uint64) uint64 {
	tail := hash & (1<<tailBits - 1)
	return hash>>tailBits<<5 | uint64(tailBits-bits.Len64(tail))
}

// hashOf returns a hash that has a token, and fills all registers as any other
// that has it.
func hashOf(token uint64) uint64 {
	return token>>5<<tailBits | 1<<tailBits>>1>>(token&31)
}

// goodToken reports whether a hash can have this token.
func goodToken(token uint64) bool { return token&31 <= tailBits }

// getToken reads the first token of b, big-endian, so that the order of
// tokens is the order of bytes.
func getToken[B bytesOrString](b B) uint64 {
	_ = b[tokenBytes-1]
	return uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 |
		uint64(b[3])<<16 | uint64(b[4])<<8 | uint64(b[5])
}

// putToken writes a token to the beginning of b.
func putToken(b []byte, token uint64) {
	_ = b[tokenBytes-1]
	b[0], b[1], b[2] = byte(token>>40), byte(token>>32), byte(token>>24)
	b[3], b[4], b[5] = byte(token>>16), byte(token>>8), byte(token)
}

// findToken returns where in a sorted list a token is, or where it belongs.
func findToken(list []byte, token uint64) (at int, found bool) {
	from, to := 0, len(list)/tokenBytes
	for from < to {
		mid := int(uint(from+to) >> 1)
		if getToken(list[mid*tokenBytes:]) < token {
			from = mid + 1
		} else {
			to = mid
		}
	}
	at = from * tokenBytes
	return at, at < len(list) && getToken(list[at:]) == token
}
