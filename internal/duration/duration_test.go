package duration_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/duration"
)

func TestParse(t *testing.T) {
	f := func(s string, want time.Duration) {
		t.Helper()
		if got, err := duration.Parse(s); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", s, got, err, want)
		}
	}
	f("0", 0)
	f("30s", 30*time.Second)
	f("1h30m", 90*time.Minute)
	f("7d", 7*24*time.Hour)
	f("1d12h", 36*time.Hour)
	f("1.5d", 36*time.Hour)
	f(".5d", 12*time.Hour)
	f("12h1d", 36*time.Hour)
	f("1d1d", 48*time.Hour)
	f("-1d1h", -25*time.Hour)
	f("+1d", 24*time.Hour)
	f("106751d", 106751*24*time.Hour)
	for _, bad := range []string{"", "d", "1", "7D", "1dd", "1d ", " 1d", "1d1", "1d-1h", "--1d", "1.2.3d", "1e2d", "106752d", "106751d24h", "day", "1day", "one d"} {
		if got, err := duration.Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// FuzzParse compares days with hours.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1d", "-1d2h", "1.5d", "d", "0d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := duration.Parse(s)
		want, hours := time.ParseDuration(s)
		if hours == nil && (err != nil || got != want) {
			t.Fatalf("%q is %v, %v; as time has it, %v", s, got, err, want)
		}
		if err == nil && got > 0 && got < time.Hour {
			if again, err := duration.Parse("1d" + got.String()); err != nil || again != got+24*time.Hour {
				t.Fatalf("a day and %q is %v, %v", s, again, err)
			}
		}
	})
}
