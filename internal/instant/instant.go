// Package instant reads points in time, such as 2026-10-01 or -24h, in requests
// and on command lines.
package instant

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/duration"
)

// Errors say what a moment looks like.
var (
	errForm  = errors.New("want a time such as 2026-10-01T08:00:00Z, 2026-10-01, Unix milliseconds, -24h or now")
	errFixed = errors.New("want a time such as 2026-10-01T08:00:00Z or Unix milliseconds")
)

// Parse returns the moment that s names: what Fixed takes; a date, which begins at
// midnight where now is; a duration with its sign, such as -24h, from now; or now.
func Parse(s string, now time.Time) (time.Time, error) {
	if s == "now" {
		return now, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, now.Location()); err == nil {
		return t, nil
	}
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		d, err := duration.Parse(s)
		if err != nil {
			return time.Time{}, errForm
		}
		return now.Add(d), nil
	}
	t, err := Fixed(s)
	if err != nil {
		return time.Time{}, errForm
	}
	return t, nil
}

// Fixed returns the moment that s names whenever it is read: RFC 3339, or Unix
// milliseconds. Requests that may be sent again say no other.
func Fixed(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, errFixed
	}
	return t, nil
}
