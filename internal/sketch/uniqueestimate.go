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
		return Estimate{Value: n, Lower: n, Upper: n, Exact: true}
	}
	p := u.Precision()
	s := seenOf(u.b[uniqueHead:], p)
	n := s.likely(p)
	n /= 1 + biasULL/float64(int(1)<<p)
	e := n * relativeError(n, p)
	return Estimate{
		Value: n, Error: e,
		Lower: max(n-bound95*e, s.least()), Upper: max(n+bound95*e, s.least()),
	}
}

// seen is what the registers say of the items: for each level, in how many of them
// it is known that there was an item of it, and that there was none.
type seen struct {
	some, none [64]int
}

// seenOf counts what registers of precision p say.
func seenOf(registers []byte, p int) (s seen) {
	var times [256]int
	for _, r := range registers {
		times[r]++
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
// the lowest, half of the rest the next, and the last level all that is left.
func share(level, p int) float64 {
	return math.Ldexp(1, -min(level-p+2, 64-p))
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
	for level := p - 1; level < 64; level++ {
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
		for level := p - 1; level < 64; level++ {
			if s.some[level] == 0 {
				continue
			}
			h := share(level, p)
			e := math.Expm1(x * h)
			left += float64(s.some[level]) * h / e
			slope += float64(s.some[level]) * h * h * (1 + e) / (e * e)
		}
		step := (left - none) / slope
		x += step
		if !(step > x*1e-12) {
			break
		}
	}
	return x * math.Ldexp(1, p)
}

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
	for level := p - 1; level < 64; level++ {
		h := share(level, p)
		above := share(min(level+2, 63), p) // of all levels above level+2
		if level+2 >= 63 {
			above = 0
		}
		e := math.Expm1(x * h)
		if math.IsInf(e, 1) {
			continue
		}
		told += math.Exp(-x*above) * h * h / e
	}
	return math.Sqrt(max(1/(m*x*x*told)-1/n, 0))
}
