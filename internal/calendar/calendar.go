// Package calendar computes windows of time: of a fixed length, or days, weeks,
// months and years of a time zone. It knows no clock and reads no files. A zone
// is a table, so that all servers with the same table choose the same window.
//
// Instants are milliseconds since 1970 in UTC.
package calendar

import "time"

const (
	second = int64(time.Second / time.Millisecond)
	hour   = 3600 * second
	day    = 24 * hour
)

// A Span is the time from From up to, but not including, To.
type Span struct{ From, To int64 }

// A Grid is windows of one width, side by side, over all time.
type Grid struct {
	Width Width // valid
	Zone  *Zone // nil is UTC; windows of a fixed length have none
}

// At returns the window that t is in.
func (g Grid) At(t int64) Span {
	if length := g.Width.fixed(); length != 0 {
		from := floor(t, length)
		return Span{from, from + length}
	}
	from, to := g.Width.civil(g.Zone.wall(t))
	return Span{g.Zone.instant(from), g.Zone.instant(to)}
}

// Edge reports whether a window begins at t.
func (g Grid) Edge(t int64) bool { return g.At(t).From == t }

// Longest returns what no window is longer than, in milliseconds. A day may be longer
// than 24 hours by as much as the clocks of its zone are turned back.
func (g Grid) Longest() int64 {
	if length := g.Width.fixed(); length != 0 {
		return length
	}
	return g.Width.longest() + 2*aheadMax
}

// Within reports whether each window of h surely is a number of windows of g.
func (g Grid) Within(h Grid) bool {
	length := g.Width.fixed()
	switch other := h.Width.fixed(); {
	case length == 0:
		return other == 0 && g.Zone.Same(h.Zone) && g.Width.divides(h.Width)
	case other != 0:
		return other%length == 0
	default:
		return day%length == 0 && h.Zone.on(length)
	}
}

// floor returns the highest multiple of n that is not above t.
func floor(t, n int64) int64 {
	rest := t % n
	if rest < 0 {
		rest += n
	}
	return t - rest
}
