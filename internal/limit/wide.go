package limit

import "math/bits"

// A wide is an integer of 128 bits, 0 or more. Products of what a request may have are
// below 2^110.
type wide struct{ hi, lo uint64 }

// mul returns the product of two numbers, 0 or more.
func mul(a, b int64) wide {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return wide{hi, lo}
}

// plus returns the sum with a number, 0 or more.
func (w wide) plus(n int64) wide {
	lo, carry := bits.Add64(w.lo, uint64(n), 0)
	return wide{w.hi + carry, lo}
}

// less returns the difference, and 0 if that is less.
func (w wide) less(v wide) wide {
	lo, borrow := bits.Sub64(w.lo, v.lo, 0)
	hi, borrow := bits.Sub64(w.hi, v.hi, borrow)
	if borrow != 0 {
		return wide{}
	}
	return wide{hi, lo}
}

// divMod divides by a number, 1 or more. A quotient that is no int64 is the largest one.
func (w wide) divMod(n int64) (quotient, rest int64) {
	if w.hi >= uint64(n) {
		return 1<<63 - 1, 0
	}
	q, r := bits.Div64(w.hi, w.lo, uint64(n))
	if q > 1<<63-1 {
		return 1<<63 - 1, 0
	}
	return int64(q), int64(r)
}

// div is divMod without the rest.
func (w wide) div(n int64) uint64 {
	q, _ := w.divMod(n)
	return uint64(q)
}

// divUp divides by a number, 1 or more, and rounds up.
func (w wide) divUp(n int64) uint64 {
	q, r := w.divMod(n)
	if r > 0 {
		q++
	}
	return uint64(q)
}
