package clock

import (
	"testing"
	"time"
)

func TestHeard(t *testing.T) {
	elapsed := time.Duration(0)
	h := NewHeard(false)
	h.elapsed = func() time.Duration { return elapsed }
	f := func(pass time.Duration, tell, want int64, jumps uint64) {
		t.Helper()
		if elapsed += pass; tell != 0 {
			h.Tell(tell, h.Ask())
		}
		if now := h.NowMS(); now != want || h.jumps != jumps {
			t.Errorf("it is %d after %d jumps, want %d after %d", now, h.jumps, want, jumps)
		}
	}
	f(time.Hour, 0, 0, 0)
	f(0, 1_000_000, 1_000_000, 0)
	f(time.Second, 0, 1_001_000, 0)
	f(time.Second, 1_002_007, 1_002_007, 0)
	f(time.Second, 1_003_000, 1_003_000, 0) // the answer took a little
	f(time.Hour, 4_603_000, 4_603_000, 0)
	f(time.Second, 4_604_000+60_001, 4_664_001, 1)
	f(time.Second, 4_605_000, 4_605_000, 2)
	f(0, 4_605_000-60_000, 4_545_000, 2)

	got := map[string]float64{}
	Meters(func(name, _ string, value float64) { got[name] = value }, time.UnixMilli(4_600_000), h, NewHeard(true))
	if len(got) != 3 || got["quipu_clock_ahead_seconds"] != 0 || got["quipu_clock_behind_seconds"] != 55 || got["quipu_clock_jumps_total"] != 2 {
		t.Errorf("meters %v", got)
	}
}

// An answer that was long on its way tells less than is known, or only that the clock shows
// less by now.
func TestHeardLate(t *testing.T) {
	elapsed := time.Duration(0)
	h := NewHeard(false)
	h.elapsed = func() time.Duration { return elapsed }
	f := func(pass, late time.Duration, tell, want int64) {
		t.Helper()
		asked := h.Ask()
		elapsed += pass
		if h.Tell(tell, asked+pass-late); h.NowMS() != want {
			t.Errorf("it is %d, want %d", h.NowMS(), want)
		}
	}
	f(0, 0, 1_000_000, 1_000_000)
	f(3*time.Second, 3*time.Second, 1_000_100, 1_003_000) // It was told at once, and its answer was held up.
	f(time.Second, time.Second, 1_003_999, 1_004_000)
	f(time.Second, time.Second, 1_005_001, 1_005_001)          // It shows no less than what it has told.
	f(time.Second, 2*time.Second, 1_000_000, 1_002_000)        // It was set back, and shows no more than that.
	f(time.Second, time.Second, 1_000_000, 1_001_000)          // The same.
	f(time.Second, 100*time.Millisecond, 1_001_950, 1_002_000) // It is neither of both.
}

// A clock that a test moves stands still between what is told, and may jump.
func TestHeardStill(t *testing.T) {
	h := NewHeard(true)
	for _, ms := range []int64{5_000_000, 1, 900_000_000} {
		if h.Tell(ms, h.Ask()); h.NowMS() != ms || h.jumps != 0 {
			t.Errorf("it is %d after %d jumps, want %d", h.NowMS(), h.jumps, ms)
		}
	}
}
