package sketch

import (
	"encoding/binary"
	"math/bits"
)

// A register of a sketch of uniques knows three levels: the highest that one of its
// items had, and whether there was one of the level below, and of the one below
// that (UltraLogLog, Ertl 2023).
//
// The level of an item is p-1 plus the number of zeros that its hash has after the p bits that
// choose the register: from p-1 to 63, each half as likely as the one before. A
// level that begins to count at p-1 is the same number in a sketch of
// any precision, so that most registers are the same after the precision is
// lowered.
//
//	bit 7..2  highest level, 0 if the register has no item
//	bit 1     there was an item one level below
//	bit 0     there was an item two levels below

// The bytes of a word.
const (
	ones = 0x0101010101010101
	six  = 0x3f * ones
	low7 = 0x7f * ones
	tops = 0x80 * ones // what is decided of each byte is decided in its highest bit
)

// locate returns the register of an item, and its level there.
func locate(hash uint64, p int) (index uint64, level int) {
	// The bit that is set ends the zeros where the hash ends.
	rest := hash<<p | 1<<(p-1)
	return hash >> (64 - p), bits.LeadingZeros64(rest) + p - 1
}

// levels returns a set of the levels that a register knows of, a bit for each.
// The shift of an empty register leaves nothing, as it is by more than 64.
func levels(r byte) uint64 { return uint64(4|r&3) << (r>>2 - 2) }

// register returns what is left of a set of levels, all of which are at least 2.
func register(levels uint64) byte {
	top := bits.Len64(levels) - 1
	return byte(top<<2) | byte(levels>>(top-2))&3
}

// raise returns a register with one more item.
func raise(r byte, level int) byte { return register(levels(r) | 1<<level) }

// badRegister returns the first register that is none of a sketch of precision p, up to
// PrecisionPlain, or -1. There is a multiple of 8.
//
// Fast path: a state is checked whenever it is merged, so 8 registers are checked at
// once (BenchmarkUniqueUnion). Levels begin at p-1, so the lowest ones have nothing below.
func badRegister(registers []byte, p int) int {
	var (
		above = uint64(0x80-4*(p+1)) * ones // carries into the highest bit if the level is p+1 or more
		first = uint64(4*(p-1)) * ones      // level p-1, and none below
		next  = uint64(4*p) * ones          // level p, and not p-1
		both  = uint64(4*p+2) * ones        // level p, and p-1
	)
	for i := 0; i <= len(registers)-8; i += 8 {
		x := binary.LittleEndian.Uint64(registers[i:])
		high := (x&low7 + above | x) & tops
		if bad := filled(x) & filled(x^first) & filled(x^next) & filled(x^both) &^ high; bad != 0 {
			return i + bits.TrailingZeros64(bad)/8
		}
	}
	return -1
}

// filled returns a word that has the highest bit of each byte of x that is not 0.
func filled(x uint64) uint64 { return (x&low7 + low7 | x) & tops }

// joinRegisters takes the registers src into dst. Both have the same length, a
// multiple of 8.
//
// Fast path: most of the time that reads of uniques take is spent here, so 8
// registers are joined at once, without a branch or a call (BenchmarkUniqueMerge).
func joinRegisters(dst, src []byte) {
	dst = dst[:len(src)]
	for i := 0; i <= len(src)-8; i += 8 {
		x, y := binary.LittleEndian.Uint64(dst[i:]), binary.LittleEndian.Uint64(src[i:])
		if x == y {
			continue
		}
		levelX, levelY := x>>2&six, y>>2&six
		ahead := (levelX | tops) - levelY // 128 more than x's highest level is above y's
		less := ^ahead & tops
		mask := less | (less - less>>7) // the bytes of which y has the higher level
		swap := (x ^ y) & mask
		high, low := x^swap, y^swap
		// The highest levels are apart by 0, 1, 2 or more. Up to 63, adding 127, 126
		// and 125 reaches the highest bit if it is that much or more.
		apart := ((ahead ^ mask) + mask&ones) & low7
		over0, over1, over2 := apart+0x7f*ones, apart+0x7e*ones, apart+0x7d*ones
		some := low>>2&six + 0x7f*ones // an empty register is not two below level 2
		apart0 := ^over0 & tops
		apart1 := over0 &^ over1 & tops
		apart2 := over1 &^ over2 & some & tops
		high |= low & (apart0>>7 | apart0>>6)  // the same two levels below
		high |= apart1>>6 | low>>1&(apart1>>7) // one below is low's highest, two below its next
		high |= apart2 >> 7                    // two below is low's highest
		binary.LittleEndian.PutUint64(dst[i:], high)
	}
}

// finer says which registers of a sketch of a higher precision some registers are.
type finer struct {
	first int // the number of their first
	above int // how much higher their levels are there
}

// joinFiner takes the registers src, which are some of a sketch of precision from, into
// all registers dst of precision to, which is not higher. The bits of the hash
// by which there are more registers become zeros, or the end of zeros.
func joinFiner(dst, src []byte, to, from int, are finer) {
	shift := from - to
	for i, r := range src {
		set := levels(r) << are.above
		if set == 0 { // It has no item, or is none of a sketch: see Decide.
			continue
		}
		i += are.first
		if low := i & (1<<shift - 1); low != 0 {
			// All its items have this number of zeros, and then a one.
			set = 1 << (shift - bits.Len(uint(low)) + to - 1)
		}
		dst[i>>shift] = register(levels(dst[i>>shift]) | set)
	}
}
