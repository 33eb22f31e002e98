// Package arrive has billions of items come to a sketch of uniques in milliseconds,
// for those who measure its error.
//
// Nearly all items change nothing in a sketch that has seen many. What changes it
// is the first item that comes to a level of a register, and how long that takes is
// known: so Later draws these moments (Ertl 2023, section 4), and nobody has to add what lies between.
package arrive

import (
	"math"
	"slices"
)

// Later draws which items change a sketch with 2^precision registers of its own kind when,
// after from different ones, more and more come until there were to[0], to[1] and so on, in
// rising order. It returns their hashes, for each of these numbers those that come
// before it is reached and after the one before. Some may change nothing. What it returns is in memory of
// into, if that is enough. Its randomness are numbers with the exponential distribution of mean 1.
func Later(exponential func() float64, precision int, from float64, to []float64, into [][]uint64) [][]uint64 {
	into = slices.Grow(into[:0], len(to))[:len(to)]
	for i := range into {
		into[i] = into[i][:0]
	}
	zeros := 64 - precision // that a hash has at most after its register
	var waits [65]float64   // how many items come on average before one that has so many
	for z := range zeros + 1 {
		waits[z] = math.Ldexp(1, min(z+1, zeros)+precision)
	}
	for register := range uint64(1) << precision {
		for z := range zeros + 1 {
			at := from + exponential()*waits[z]
			if !(at <= to[len(to)-1]) {
				continue
			}
			step, _ := slices.BinarySearch(to, at)
			hash := register << zeros
			if z < zeros {
				hash |= 1 << (zeros - 1 - z)
			}
			into[step] = append(into[step], hash)
		}
	}
	return into
}
