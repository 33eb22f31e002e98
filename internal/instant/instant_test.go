package instant_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/instant"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	f := func(s string, want time.Time) {
		t.Helper()
		if got, err := instant.Parse(s, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
	f("now", now)
	f("-24h", now.Add(-24*time.Hour))
	f("-7d", now.AddDate(0, 0, -7))
	f("+90s", now.Add(90*time.Second))
	f("0", time.UnixMilli(0))
	f("1790000000123", time.UnixMilli(1790000000123))
	f("2026-10-01", time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC))
	f("2026-10-01T08:00:00.5+02:00", time.Date(2026, 10, 1, 6, 0, 0, 5e8, time.UTC))
	now = now.In(time.FixedZone("", 3600))
	f("2026-10-01", time.Date(2026, 9, 30, 23, 0, 0, 0, time.UTC))
	for _, bad := range []string{"", "24h", "yesterday", "-", "-5", "+5", "2026-10-01 08:00", "2026-13-01", "99999999999999999999", "now-1h"} {
		if got, err := instant.Parse(bad, now); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// A request that is sent again must say the same.
func TestFixed(t *testing.T) {
	for _, s := range []string{"now", "-24h", "2026-10-01", ""} {
		if got, err := instant.Fixed(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
	if got, err := instant.Fixed("-1"); err != nil || got.UnixMilli() != -1 { // refused by those who know why
		t.Errorf("-1 is %v, %v", got, err)
	}
}

// FuzzParse checks that whatever is taken for a moment is one that can be told again, and
// that what names it for ever does so whatever the time is.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"now", "-24h", "+7d", "0", "-5", "1790000000123", "9223372036854775807", "2026-10-01", "2026-10-01T08:00:00.5+02:00", "", "-", "+", "0000-01-01", "9999-12-31T23:59:59Z"} {
		f.Add(seed)
	}
	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		fixed, err := instant.Fixed(s)
		got, failed := instant.Parse(s, now)
		if err == nil && s[0] != '-' && s[0] != '+' && (failed != nil || !got.Equal(fixed)) {
			t.Errorf("%q is %v, and fixed %v: %v", s, got, fixed, failed)
		}
		if failed != nil {
			return
		}
		if y := got.UTC().Year(); y >= 0 && y <= 9999 {
			if again, err := instant.Fixed(got.UTC().Format(time.RFC3339Nano)); err != nil || !again.Equal(got) {
				t.Errorf("%q is %v, told again %v: %v", s, got, again, err)
			}
		}
	})
}
