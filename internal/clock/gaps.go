package clock

import "slices"

// A Gap is time that a store did not live through: when its process began, the
// wall clock was ByMS ahead of the last time that was written down, AtMS. Nobody
// can tell whether so much time had passed or the wall clock was wrong.
type Gap struct {
	AtMS, ByMS int64
}

// Gaps are the gaps in a store's time, oldest first.
type Gaps []Gap

// gapsMax is how many gaps are told apart.
const gapsMax = 64

// Age returns how much time the store has lived through since a moment.
func (g Gaps) Age(atMS, nowMS int64) int64 {
	age := nowMS - atMS
	for i := len(g) - 1; i >= 0 && g[i].AtMS >= atMS; i-- {
		age -= g[i].ByMS
	}
	return age
}

// With returns the gaps and one more, without those that nothing younger than
// keptMS has met. Of too many gaps the oldest two become one, which makes what
// was between them look younger, never older.
func (g Gaps) With(more Gap, keptMS int64) Gaps {
	g = slices.Clone(g)
	if n := len(g); n > 0 && g[n-1].AtMS >= more.AtMS {
		g = g[:n-1] // nothing was written down since
	}
	g = append(g, more)
	nowMS := more.AtMS + more.ByMS
	for len(g) > 0 && g.Age(g[0].AtMS, nowMS) >= keptMS {
		g = g[1:]
	}
	if len(g) > gapsMax {
		g[1].ByMS += g[0].ByMS
		g = g[1:]
	}
	return g
}
