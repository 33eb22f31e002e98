package sketch

import "math"

// An Estimate is how many different items there were.
type Estimate struct {
	Value float64
	// Error is the standard error, in items, and 0 if Exact.
	Error float64
	// Lower and Upper are bounds that hold for 95 of 100 sketches, and always if Exact.
	Lower, Upper float64
	// Exact says that the items were listed.
	Exact bool

	least float64 // items that there were for sure
}

// estimate returns an estimate with bounds.
func estimate(value, sigma, least float64) Estimate {
	return Estimate{
		Value: value, Error: sigma,
		Lower: max(value-bound95*sigma, least), Upper: max(value+bound95*sigma, least),
		least: least,
	}
}

// Plus returns the estimate of how many items there were in two sketches together
// that had none in common, as two chunks have none.
func (e Estimate) Plus(o Estimate) Estimate {
	sum := estimate(e.Value+o.Value, math.Hypot(e.Error, o.Error), e.least+o.least)
	sum.Exact = e.Exact && o.Exact
	return sum
}

// bound95 is how many standard errors the bounds are apart from the value.
const bound95 = 1.959964

// biasULL is by how much the most likely number of items is too large on average:
// this share of it, over the number of registers (Ertl 2023, section 3.3).
const biasULL = 0.48147376527720065

// Estimate returns how many different items were added.
func (u *Unique) Estimate() Estimate {
	if u.Exact() {
		n := float64((len(u.b) - uniqueHead) / tokenBytes)
		e := estimate(n, 0, n)
		e.Exact = true
		return e
	}
	p := u.Precision()
	s := seenOf(u.b[uniqueHead:], p)
	n := s.likely(p)
	n /= 1 + biasULL/float64(int(1)<<p)
	return estimate(n, n*relativeError(n, p), s.least())
}

// seen is what the registers say of the items: for each level, in how many of them
// it is known that there was an item of it, and that there was none.
type seen struct {
	some, none [64]int
}

// seenOf counts what registers of precision p say. They are counted in four tables,
// as neighbours are often equal, and a count would wait for the one before.
func seenOf(registers []byte, p int) (s seen) {
	var t [4][256]int32
	for r := registers; len(r) >= 4; r = r[4:] {
		t[0][r[0]]++
		t[1][r[1]]++
		t[2][r[2]]++
		t[3][r[3]]++
	}
	var times [256]int
	for r := range times {
		times[r] = int(t[0][r] + t[1][r] + t[2][r] + t[3][r])
	}
	above := 0 // registers whose highest level is higher
	for level := 63; level >= p-1; level-- {
		known := times[level<<2 : level<<2+4]
		n := known[0] + known[1] + known[2] + known[3]
		s.some[level] = n
		s.none[level] = len(registers) - n - above
		above += n
	}
	for top := p - 1; top < 64; top++ {
		known := times[top<<2 : top<<2+4]
		count := func(level, yes, no int) {
			if level >= p-1 {
				s.some[level] += yes
				s.none[level] += no
			}
		}
		count(top-1, known[2]+known[3], known[0]+known[1])
		count(top-2, known[1]+known[3], known[0]+known[2])
	}
	return s
}

// least returns how many items there were at least: one for each level of each register.
func (s *seen) least() float64 {
	n := 0
	for _, some := range s.some {
		n += some
	}
	return float64(n)
}

// share returns the share of a register's items that have a level: half of them
// the lowest, half of the rest the next, and the last level all that is left. It is
// a power of two, made of its exponent.
func share(level, p int) float64 {
	return math.Float64frombits(uint64(1023-min(level-p+2, 64-p)) << 52)
}

// likely returns the number of items that makes what was seen most likely. If
// items come to each level of each register at random and on their own, with rate x
// times its share, then
//
//	log L(x) = sum over levels of some*log(1-exp(-x*share)) - none*x*share
//
// whose slope is 0 where sum of some*share/(exp(x*share)-1) = sum of none*share.
// The left side is convex and falls, so Newton's method comes to the solution from
// below, and never passes it.
func (s *seen) likely(p int) float64 {
	var none, some, shares float64
	top := 0
	for level := p - 1; level < 64; level++ {
		if s.some[level] > 0 {
			top = level
		}
		h := share(level, p)
		none += float64(s.none[level]) * h
		some += float64(s.some[level])
		shares += float64(s.some[level]) * h
	}
	if some == 0 {
		return 0
	}
	if none == 0 { // no honest items do this
		return math.Ldexp(1, 64)
	}
	// 1/(exp(y)-1) is at least 1/y - 1/2, so this is below the solution.
	x := some / (none + shares/2)
	for range 100 {
		var left, slope float64
		e := grown(x, p, top)
		for level := p - 1; level <= top; level++ {
			h, inverse := share(level, p), 1/e[level]
			known := float64(s.some[level]) * h * inverse
			left += known
			slope += known * h * (1 + inverse)
		}
		step := (left - none) / slope
		x += step
		if !(step > x*1e-12) {
			break
		}
	}
	return x * math.Ldexp(1, p)
}

// grown returns exp(x*share)-1 for each level from p-1 to top. A level has twice the
// share of the next one, so one multiplication leads from that to this.
func grown(x float64, p, top int) (e [64]float64) {
	if top == 63 {
		e[63] = math.Expm1(x * share(63, p))
		top--
	}
	e[top] = math.Expm1(x * share(top, p))
	for level := top - 1; level >= p-1; level-- {
		e[level] = e[level+1] * (e[level+1] + 2)
	}
	return e
}

// UniquesListed returns how many items a sketch of a precision lists at most: so
// many are counted exactly. Above PrecisionPlain it is for each chunk.
func UniquesListed(precision int) int {
	return listBytesMax(min(precision, PrecisionPlain)) / tokenBytes
}

// UniqueError returns the standard error with which a sketch of a precision, up to PrecisionMax,
// counts n items that it does not list, as a share of n. With many items it is 0.761 over the
// square root of the number of registers, and with fewer it is less.
func UniqueError(precision int, n float64) float64 { return relativeError(n, precision) }

// relativeError returns the standard error of the estimate of n items, as a share of n:
// the bound of Cramér and Rao of what registers tell when items come at random,
// less what their number then varies by.
func relativeError(n float64, p int) float64 {
	if n <= 0 {
		return 0
	}
	m := math.Ldexp(1, p)
	x := n / m
	var told float64
	e := grown(x, p, 63)
	for level := p - 1; level < 64; level++ {
		// A level is known if no item has one that is more than two higher. Those
		// have the share of the level that is two higher.
		none := 1.0
		if level <= 60 {
			none = 1 / (1 + e[level+2])
		}
		h := share(level, p)
		told += none * h * h / e[level]
	}
	return math.Sqrt(max(1/(m*x*x*told)-1/n, 0))
}
