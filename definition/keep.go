package definition

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/duration"
)

const (
	week = Keep(7 * 24 * time.Hour)
	year = Keep(366 * 24 * time.Hour)
)

// A Keep is how long something is kept. A year has 366 days.
type Keep time.Duration

// ParseKeep returns the time that s names: a duration such as 90m, 24h or 30d, or whole
// weeks and years, such as 2w or 5y.
func ParseKeep(s string) (Keep, error) {
	for unit, length := range map[string]Keep{"w": week, "y": year} {
		number, ok := strings.CutSuffix(s, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 16)
		if err != nil || n < 0 || Keep(n) > KeepMax/length {
			return 0, fmt.Errorf("%q: want at most %s", s, KeepMax)
		}
		return Keep(n) * length, nil
	}
	d, err := duration.Parse(s)
	if err != nil {
		return 0, fmt.Errorf("%q: %w, 2w or 5y", s, err)
	}
	return Keep(d), nil
}

// String returns k as ParseKeep takes it.
func (k Keep) String() string {
	const day = Keep(24 * time.Hour)
	switch {
	case k == 0:
		return "0s"
	case k%year == 0:
		return strconv.FormatInt(int64(k/year), 10) + "y"
	case k%day == 0:
		return strconv.FormatInt(int64(k/day), 10) + "d"
	default:
		return duration.Short(k).String()
	}
}

// MarshalText returns k as String does.
func (k Keep) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText takes what ParseKeep takes.
func (k *Keep) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKeep(string(text))
	return err
}

func (k Keep) check() error {
	if k < Keep(time.Second) || k > KeepMax || k%Keep(time.Second) != 0 {
		return fmt.Errorf("keep of %s: want whole seconds, from 1s to %s", k, KeepMax)
	}
	return nil
}
