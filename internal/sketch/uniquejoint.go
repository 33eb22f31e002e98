package sketch

import (
	"math"
	"math/bits"
)

// Compare estimates how many items only a has, only b has, and both have. If both list
// their items, all three are exact. Neither changes. Sketches of two precisions
// are compared in the lower one.
//
// Inclusion and exclusion would subtract estimates of the whole sets, and leave an error of that
// size. Compare takes what the registers say of single levels instead: an item that is in
// both raises the same level of the same register of both. It returns the three numbers that
// make all of it most likely, with the errors that their likelihood tells. Where one number is below a
// hundredth of all, its bounds hold in some 90 of 100 cases instead of 95.
func Compare(a, b *Unique) (onlyA, onlyB, both Estimate) {
	if a.Exact() && b.Exact() {
		return compareLists(a.b[uniqueHead:], b.b[uniqueHead:])
	}
	p := min(a.Precision(), b.Precision())
	x, y := a.registers(p), b.registers(p)
	s := seenTogether(x, y, p)
	r := s.likely(p, begin(x, y, p))
	sigma := s.errors(p, r)
	m := math.Ldexp(1, p)
	var e [3]Estimate
	for i := range e {
		e[i] = estimate(r[i]*m, sigma[i]*m, 0)
	}
	return e[0], e[1], e[2]
}

// compareLists is Compare for lists.
func compareLists(a, b []byte) (onlyA, onlyB, both Estimate) {
	shared := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x, y := getToken(a[i:]), getToken(b[j:])
		if x == y {
			shared++
		}
		if x <= y {
			i += tokenBytes
		}
		if y <= x {
			j += tokenBytes
		}
	}
	f := func(n int) Estimate {
		e := estimate(float64(n), 0, float64(n))
		e.Exact = true
		return e
	}
	return f(len(a)/tokenBytes - shared), f(len(b)/tokenBytes - shared), f(shared)
}

// registers returns the registers that the sketch would have in precision p, which is
// not higher than its own.
func (u *Unique) registers(p int) []byte {
	r := make([]byte, 1<<p)
	addState(r, p, u.b)
	return r
}

// Two registers say one of these of a level: both of them, or one while the other does not
// know it any more.
const (
	inBoth = iota
	inA    // and not in b
	inB    // and not in a
	inNone
	inAMaybeB
	notAMaybeB
	inBMaybeA
	notBMaybeA
	findings
)

// together is how many pairs of registers say what of each level.
type together [64][findings]int

// seenTogether counts what pairs of registers of precision p say.
func seenTogether(a, b []byte, p int) *together {
	s := new(together)
	var all uint64 = math.MaxUint64 << (p - 1)
	known := func(r byte) uint64 {
		if r == 0 {
			return all
		}
		return all & (math.MaxUint64 << (r>>2 - 2))
	}
	each := func(set uint64, finding int) {
		for ; set != 0; set &= set - 1 {
			s[bits.TrailingZeros64(set)][finding]++
		}
	}
	var empty [65]int // pairs without anything from a level on
	for i, r := range a {
		yesA, yesB := levels(r), levels(b[i])
		knowA, knowB := known(r), known(b[i])
		each(yesA&yesB, inBoth)
		each(yesA&knowB&^yesB, inA)
		each(yesB&knowA&^yesA, inB)
		each(yesA&^knowB, inAMaybeB)
		each(knowA&^yesA&^knowB, notAMaybeB)
		each(yesB&^knowA, inBMaybeA)
		each(knowB&^yesB&^knowA, notBMaybeA)
		from := max(bits.Len64(yesA|yesB), p-1)
		empty[from]++
		each(knowA&knowB&^yesA&^yesB&(1<<from-1), inNone)
	}
	n := 0
	for level := p - 1; level < 64; level++ {
		n += empty[level]
		s[level][inNone] += n
	}
	return s
}

// rates are how many items come to a register on average: only of a, only of b, of both.
type rates [3]float64

// A finding's chance, and the slopes of its logarithm along the rates.
type chance struct {
	p     float64
	slope rates
}

// chances returns the chance of each finding about a level that has a share of the items.
// Items come at random, so that those of the three kinds come to a level on their own.
func (r *rates) chances(h float64) (c [findings]chance) {
	// That there is one, and that there is none, of each kind.
	someA, someB, someX := -math.Expm1(-r[0]*h), -math.Expm1(-r[1]*h), -math.Expm1(-r[2]*h)
	noA, noB, noX := 1-someA, 1-someB, 1-someX

	p := someX + noX*someA*someB
	c[inBoth] = chance{p, rates{h * noX * noA * someB / p, h * noX * noB * someA / p, h * noX * (noA + noB*someA) / p}}
	c[inA] = chance{someA * noB * noX, rates{h * noA / someA, -h, -h}}
	c[inB] = chance{someB * noA * noX, rates{-h, h * noB / someB, -h}}
	c[inNone] = chance{noA * noB * noX, rates{-h, -h, -h}}
	p = someX + noX*someA
	slope := h * noX * noA / p
	c[inAMaybeB] = chance{p, rates{slope, 0, slope}}
	c[notAMaybeB] = chance{noA * noX, rates{-h, 0, -h}}
	p = someX + noX*someB
	slope = h * noX * noB / p
	c[inBMaybeA] = chance{p, rates{0, slope, slope}}
	c[notBMaybeA] = chance{noB * noX, rates{0, -h, -h}}
	return c
}

// judge returns the logarithm of how likely the findings are, its slopes, and what they tell
// of the rates (Fisher's information), as far as the findings are those of pairs that both
// know a level, or of one register that does.
func (s *together) judge(p int, r rates) (logL float64, slope rates, told [3]rates) {
	for level := p - 1; level < 64; level++ {
		n := &s[level]
		c := r.chances(share(level, p))
		pairs := n[inBoth] + n[inA] + n[inB] + n[inNone]
		ofA, ofB := n[inAMaybeB]+n[notAMaybeB], n[inBMaybeA]+n[notBMaybeA]
		for f := range c {
			of := pairs
			switch f {
			case inAMaybeB, notAMaybeB:
				of = ofA
			case inBMaybeA, notBMaybeA:
				of = ofB
			}
			if of == 0 || c[f].p < 1e-300 {
				if n[f] > 0 {
					logL -= 700 * float64(n[f])
				}
				continue
			}
			logL += float64(n[f]) * math.Log(c[f].p)
			for i, si := range c[f].slope {
				slope[i] += float64(n[f]) * si
				for j, sj := range c[f].slope {
					told[i][j] += float64(of) * c[f].p * si * sj
				}
			}
		}
	}
	return logL, slope, told
}

// begin returns rates to begin with, by inclusion and exclusion.
func begin(x, y []byte, p int) (r rates) {
	m := float64(len(x))
	of := func(registers []byte) float64 {
		s := seenOf(registers, p)
		return s.likely(p) / m
	}
	a, b := of(x), of(y)
	joinRegisters(x, y)
	either := of(x)
	shared := min(max(a+b-either, either/1000), a, b)
	least := leastRate(either)
	return rates{max(a-shared, least), max(b-shared, least), max(shared, least)}
}

// leastRate is what a rate is taken for if there is none: so little beside all that it does
// not matter, and enough to divide by.
func leastRate(all float64) float64 { return max(all*1e-7, 1e-12) }

// likely returns the rates that make the findings most likely, from rates to begin
// with: by Fisher's scoring, with steps that are halved until they lead upwards.
func (s *together) likely(p int, r rates) rates {
	least := leastRate(r[0] + r[1] + r[2])
	logL, slope, told := s.judge(p, r)
	for range 60 {
		free := [3]bool{}
		for i := range r {
			free[i] = r[i] > least || slope[i] > 0
		}
		step := solve(told, slope, free)
		gain := 0.0
		for range 30 {
			next := r
			for i := range r {
				next[i] = max(r[i]+step[i], least)
			}
			nextL, nextSlope, nextTold := s.judge(p, next)
			if nextL > logL {
				gain = nextL - logL
				r, logL, slope, told = next, nextL, nextSlope, nextTold
				break
			}
			for i := range step {
				step[i] /= 2
			}
		}
		if !(gain > 1e-6) { // far below what the bounds are about
			break
		}
	}
	return r
}

// errors returns the standard errors of the rates.
func (s *together) errors(p int, r rates) (sigma rates) {
	_, _, told := s.judge(p, r)
	m := math.Ldexp(1, p)
	for i := range r {
		unit := rates{}
		unit[i] = 1
		// The sets are given, and do not vary as items that come at random do.
		sigma[i] = math.Sqrt(max(solve(told, unit, [3]bool{true, true, true})[i]-r[i]/m, 0))
	}
	return sigma
}

// solve returns x with told*x = y for the free ones, and 0 for the others. Told is symmetric
// and has no negative direction.
func solve(told [3]rates, y rates, free [3]bool) (x rates) {
	for i := range told {
		if !free[i] || told[i][i] <= 0 {
			told[0][i], told[1][i], told[2][i] = 0, 0, 0
			told[i] = rates{}
			told[i][i], y[i] = 1, 0
		}
	}
	for i := range told {
		for j := i + 1; j < 3; j++ {
			by := told[j][i] / told[i][i]
			for k := i; k < 3; k++ {
				told[j][k] -= by * told[i][k]
			}
			y[j] -= by * y[i]
			// The remains of rounding would point anywhere.
			told[j][j] = max(told[j][j], math.SmallestNonzeroFloat64)
		}
	}
	for i := 2; i >= 0; i-- {
		for k := i + 1; k < 3; k++ {
			y[i] -= told[i][k] * x[k]
		}
		x[i] = y[i] / told[i][i]
	}
	return x
}
