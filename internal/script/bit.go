package script

import (
	"math"
	"math/bits"
)

// bitFunctions are those of LuaBitOp: on 32 bits, with results that have a sign.
func bitFunctions() map[string]function {
	one := func(f func(uint32) uint32) function {
		return func(p params) int { return p.giveBits(f(p.bits(1))) }
	}
	all := func(f func(a, b uint32) uint32) function {
		return func(p params) int {
			n := p.bits(1)
			for i := 2; i <= p.GetTop(); i++ {
				n = f(n, p.bits(i))
			}
			return p.giveBits(n)
		}
	}
	shift := func(f func(n uint32, by int) uint32) function {
		return func(p params) int { return p.giveBits(f(p.bits(1), int(p.bits(2)&31))) }
	}
	return map[string]function{
		"tobit": one(func(n uint32) uint32 { return n }),
		"bnot":  one(func(n uint32) uint32 { return ^n }),
		"bswap": one(bits.ReverseBytes32),
		"band":  all(func(a, b uint32) uint32 { return a & b }),
		"bor":   all(func(a, b uint32) uint32 { return a | b }),
		"bxor":  all(func(a, b uint32) uint32 { return a ^ b }),

		"lshift":  shift(func(n uint32, by int) uint32 { return n << by }),
		"rshift":  shift(func(n uint32, by int) uint32 { return n >> by }),
		"arshift": shift(func(n uint32, by int) uint32 { return uint32(int32(n) >> by) }), //nolint:gosec // its bits
		"rol":     shift(bits.RotateLeft32),
		"ror":     shift(func(n uint32, by int) uint32 { return bits.RotateLeft32(n, -by) }),
		"tohex":   bitHex,
	}
}

// bits returns the lowest 32 bits of a number, rounded.
func (p params) bits(n int) uint32 {
	f := math.RoundToEven(p.number(n))
	if math.IsNaN(f) {
		return 0
	}
	if math.Abs(f) < 1<<51 {
		return uint32(int64(f)) //nolint:gosec // its bits
	}
	return uint32(math.Float64bits(f + (1<<51 + 1<<52))) //nolint:gosec // as LuaBitOp does
}

func (p params) giveBits(n uint32) int { return p.giveNumber(float64(int32(n))) } //nolint:gosec // its bits

func bitHex(p params) int {
	v, digits, letters := p.bits(1), 8, "0123456789abcdef"
	if p.GetTop() > 1 {
		if digits = int(int32(p.bits(2))); digits < 0 { //nolint:gosec // its bits
			digits, letters = -digits, "0123456789ABCDEF"
		}
	}
	digits = min(max(digits, 0), 8)
	b := make([]byte, digits)
	for i := digits - 1; i >= 0; i-- {
		b[i] = letters[v&15]
		v >>= 4
	}
	return p.r.text(string(b))
}
