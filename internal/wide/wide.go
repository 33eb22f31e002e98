// Package wide adds up int64s whose intermediate sums may not fit into an
// int64.
package wide

import "math/bits"

// A Sum is a sum of int64s, of 128 bits. The zero Sum is 0.
type Sum struct {
	high int64
	low  uint64
}

// Add adds n.
func (s *Sum) Add(n int64) { s.Merge(Sum{n >> 63, uint64(n)}) }

// Sub takes n away.
func (s *Sum) Sub(n int64) {
	low, borrow := bits.Sub64(s.low, uint64(n), 0)
	s.low, s.high = low, s.high-n>>63-int64(borrow)
}

// Merge adds another sum.
func (s *Sum) Merge(t Sum) {
	low, carry := bits.Add64(s.low, t.low, 0)
	s.low, s.high = low, s.high+t.high+int64(carry)
}

// Less reports whether s is below t.
func (s Sum) Less(t Sum) bool { return s.high < t.high || s.high == t.high && s.low < t.low }

// Int64 returns the sum, and whether it is an int64.
func (s Sum) Int64() (int64, bool) { return int64(s.low), s.high == int64(s.low)>>63 }
