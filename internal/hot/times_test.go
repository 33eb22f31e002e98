package hot_test

import (
	"math"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
)

// One call in a hundred shows, and is told to an eighth.
func TestTimes(t *testing.T) {
	f := func(name string, want time.Duration, note func(*hot.Times, time.Time)) {
		t.Helper()
		var times hot.Times
		note(&times, start)
		got := times.P99(start)
		if math.Abs(float64(got-want)) > float64(want)/8 {
			t.Errorf("%s: %v, want some %v", name, got, want)
		}
	}
	every := func(n int, slow, fast time.Duration) func(*hot.Times, time.Time) {
		return func(times *hot.Times, now time.Time) {
			for i := range 10_000 {
				if i%n == 0 {
					times.Note(slow, now)
				} else {
					times.Note(fast, now)
				}
			}
		}
	}
	f("nothing", 0, func(*hot.Times, time.Time) {})
	for d := 20 * time.Microsecond; d < 16*time.Second; d = d * 5 / 4 {
		f("all alike", d, every(1, d, d))
	}
	f("one call", time.Second, func(times *hot.Times, now time.Time) { times.Note(time.Second, now) })
	f("one in 50", time.Second, every(50, time.Second, time.Millisecond))
	f("one in 200", time.Millisecond, every(200, time.Second, time.Millisecond))
	f("more than are counted", time.Second, func(times *hot.Times, now time.Time) {
		for range 100 {
			every(50, time.Second, time.Millisecond)(times, now)
		}
	})
	f("one more than are counted", time.Millisecond, func(times *hot.Times, now time.Time) {
		for range 1 << 16 {
			times.Note(time.Millisecond, now)
		}
		for range 100 {
			times.Note(time.Second, now)
		}
	})
	f("the longest", 15*time.Second, func(times *hot.Times, now time.Time) { times.Note(time.Hour, now) })
	f("none, and less", 8*time.Microsecond, func(times *hot.Times, now time.Time) { times.Note(-time.Hour, now); times.Note(0, now) })
}

// What was slow is forgotten when the calls since were not.
func TestTimesFade(t *testing.T) {
	var times hot.Times
	now := start
	for range 100 {
		times.Note(time.Second, now)
	}
	if got := times.P99(now.Add(10 * time.Second)); got < 800*time.Millisecond {
		t.Errorf("after 10 s it is %v, want some 1s", got)
	}
	if got := times.P99(now.Add(time.Hour)); got != 0 {
		t.Errorf("after an hour it is %v, want nothing", got)
	}
	for range 1200 {
		now = now.Add(100 * time.Millisecond)
		times.Note(time.Millisecond, now)
	}
	if got := times.P99(now); got > 2*time.Millisecond {
		t.Errorf("after two minutes of calls that take 1ms it is %v", got)
	}
}
