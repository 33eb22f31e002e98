package plan

import (
	"math"

	"github.com/quipudb/quipu/store"
)

// within takes what the bound of d asks of the value that the cell has before all of its
// adds, and reports false if no value will do. Sum is what they have added by then, d
// included. If the value is between Least and Most, no bound stands in the way of any add,
// and none is cut short; otherwise the adds have to be decided one by one.
func (c *Cell) within(d *store.Delta, sum int64) bool {
	if !c.Bounded {
		c.Bounded, c.Least, c.Most = true, math.MinInt64, math.MaxInt64
	}
	b := *d.Guard.Bound
	b.Saturate = false // Its limits would depend on the value: those it has by itself are narrower.
	low, high := b.Limits(0, d.N)
	if low != math.MinInt64 {
		least, ok := less(low, sum)
		if !ok && sum < 0 {
			return false
		}
		c.Least = max(c.Least, least)
	}
	if high != math.MaxInt64 {
		most, ok := less(high, sum)
		if !ok && sum > 0 {
			return false
		}
		c.Most = min(c.Most, most)
	}
	return c.Least <= c.Most
}

// less returns a-b. It is false if that is no int64, and then the nearest that is.
func less(a, b int64) (int64, bool) {
	n := a - b
	switch {
	case b > 0 && n > a:
		return math.MinInt64, false
	case b < 0 && n < a:
		return math.MaxInt64, false
	}
	return n, true
}
