package call_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/call"
)

func TestRate(t *testing.T) {
	noon := time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	f := func(from, to, asOf int, n int64, want float64) {
		t.Helper()
		p := call.Point{From: at(from), To: at(to), Value: n}
		if got := p.Rate(at(asOf)); got != want {
			t.Errorf("%d from %d to %d, as of %d: %g, want %g", n, from, to, asOf, got, want)
		}
	}
	f(0, 60, 90, 1800, 0.5)
	f(0, 60, 60, 1800, 0.5)
	f(0, 60, 30, 1800, 1) // It is not over.
	f(0, 60, 30, -900, -0.5)
	f(0, 60, 0, 5, 0) // It has not begun: these were sent ahead.
	f(0, 60, -9, 5, 0)

	s := call.Series{Points: []call.Point{{From: at(0), To: at(60), Value: 900}, {From: at(60), To: at(120), Value: 900}}, Sum: 1800, AsOf: at(90)}
	if got := s.Rate(); got != 1800.0/(90*60) {
		t.Errorf("the whole: %g", got)
	}
	if got := (&call.Series{AsOf: at(0)}).Rate(); got != 0 {
		t.Errorf("nothing: %g", got)
	}
}
