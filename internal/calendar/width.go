package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/duration"
)

// A Width says how long windows are. Widths can be compared by ==, and two that mean
// the same are equal. The zero Width is none.
type Width struct {
	n    int64
	unit unit
}

type unit uint8

const (
	seconds unit = iota
	days
	weeks
	months
	years
)

const monthsOfYear = 12

// widthForm says how a width is written.
const widthForm = "want a length from 1s on in whole seconds, such as 90s, 1m or 1h30m, or 1d, 1w, 1mo, 3mo or 1y as the calendar has them"

// ParseWidth returns the width that s names. Lengths in hours, minutes and seconds are
// fixed, and counted from 1970 on. Days, weeks that begin on Monday, months and years are
// those of the calendar; of months there may be as many as divide a year.
func ParseWidth(s string) (Width, error) {
	end := len(s) - len(strings.TrimLeft(s, "0123456789"))
	if u := unitOf(s[end:]); u != seconds {
		n, err := strconv.ParseInt(s[:end], 10, 64)
		w := Width{n, u}
		if w == (Width{monthsOfYear, months}) {
			w = Width{1, years}
		}
		if err != nil || !w.valid() {
			return Width{}, fmt.Errorf("%q: %s", s, widthForm)
		}
		return w, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return Width{}, fmt.Errorf("%q: %s", s, widthForm)
	}
	return Width{int64(d / time.Second), seconds}, nil
}

func unitOf(s string) unit {
	switch s {
	case "d":
		return days
	case "w":
		return weeks
	case "mo":
		return months
	case "y":
		return years
	default:
		return seconds
	}
}

// valid reports whether w is a width of the calendar that has a meaning: people who
// write 7d mean a week, or 168 hours.
func (w Width) valid() bool {
	if w.unit == months {
		return w.n >= 1 && w.n < monthsOfYear && monthsOfYear%w.n == 0
	}
	return w.n == 1
}

// Fixed reports whether all windows of w have one length.
func (w Width) Fixed() bool { return w.unit == seconds }

// Shortest returns what no window but one whose clocks were changed is shorter than.
func (w Width) Shortest() time.Duration {
	switch w.unit {
	case days:
		return 24 * time.Hour
	case weeks:
		return 7 * 24 * time.Hour
	case months:
		return time.Duration(w.n) * 28 * 24 * time.Hour
	case years:
		return 365 * 24 * time.Hour
	default:
		return time.Duration(w.n) * time.Second
	}
}

// String returns w as ParseWidth takes it, as short as it can be.
func (w Width) String() string {
	if w.unit != seconds {
		return strconv.FormatInt(w.n, 10) + [...]string{days: "d", weeks: "w", months: "mo", years: "y"}[w.unit]
	}
	return duration.Short(time.Duration(w.n) * time.Second).String()
}

// MarshalText returns w as String does.
func (w Width) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText takes what ParseWidth takes.
func (w *Width) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWidth(string(text))
	return err
}

// fixed returns the length of the windows if they all have one, else 0.
func (w Width) fixed() int64 {
	if w.unit != seconds {
		return 0
	}
	return w.n * second
}

// longest returns what no window is longer than if clocks are never changed.
func (w Width) longest() int64 {
	switch w.unit {
	case days:
		return day
	case weeks:
		return 7 * day
	case months:
		return w.n * 31 * day
	default:
		return 366 * day
	}
}

// divides reports whether each window of v is a number of windows of w, both of the
// calendar.
func (w Width) divides(v Width) bool {
	switch {
	case w == v, w.unit == days, w.unit == months && v.unit == years:
		return true
	default:
		return w.unit == months && v.unit == months && v.n%w.n == 0
	}
}

// civil returns the window that a time of a wall clock is in, as the wall clock has its
// ends.
func (w Width) civil(wall int64) (from, to int64) {
	const monday = 4 * day // the first one after 1 January 1970
	switch w.unit {
	case days:
		from = floor(wall, day)
		return from, from + day
	case weeks:
		from = floor(wall-monday, 7*day) + monday
		return from, from + 7*day
	default:
		n := w.n
		if w.unit == years {
			n = monthsOfYear
		}
		date := time.UnixMilli(wall).UTC()
		month := floor(int64(date.Month())-1, n) + 1
		begin := func(month int64) int64 {
			return time.Date(date.Year(), time.Month(month), 1, 0, 0, 0, 0, time.UTC).UnixMilli()
		}
		return begin(month), begin(month + n)
	}
}
