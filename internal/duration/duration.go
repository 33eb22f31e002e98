// Package duration reads and writes lengths of time, such as 7d or 1h30m, for
// flags, files and requests.
package duration

import (
	"errors"
	"math"
	"strings"
	"time"
)

const hoursOfDay = 24

// errForm says what a length of time looks like.
var errForm = errors.New("want a duration such as 30s, 1h30m or 7d")

// Parse returns the duration that s names: what time.ParseDuration takes, and
// days of 24 hours, such as 7d or 1d12h.
func Parse(s string) (time.Duration, error) {
	if !strings.Contains(s, "d") {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, errForm
		}
		return d, nil
	}
	rest, negative := strings.CutPrefix(s, "-")
	if !negative {
		rest = strings.TrimPrefix(s, "+")
	}
	sum := time.Duration(0)
	for rest != "" {
		var part time.Duration
		var ok bool
		if part, rest, ok = first(rest); !ok || part > math.MaxInt64-sum {
			return 0, errForm
		}
		sum += part
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}

// first returns the first number of s and its unit as a duration, and what
// follows it.
func first(s string) (d time.Duration, rest string, ok bool) {
	const digits = "0123456789."
	unit := len(s) - len(strings.TrimLeft(s, digits))
	end := len(s)
	if n := strings.IndexAny(s[unit:], digits); n >= 0 {
		end = unit + n
	}
	number, rest := s[:unit], s[end:]
	if s[unit:end] != "d" {
		d, err := time.ParseDuration(s[:end])
		return d, rest, err == nil && unit > 0
	}
	d, err := time.ParseDuration(number + "h")
	return hoursOfDay * d, rest, err == nil && d <= math.MaxInt64/hoursOfDay
}

// Short is a duration that is written as short as it can be: 10m, not 10m0s.
type Short time.Duration

// String returns the duration.
func (s Short) String() string {
	text := time.Duration(s).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
