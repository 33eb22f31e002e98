package clock

import (
	"slices"
	"testing"
	"time"
)

// The steps that time may take: how much passes, and how the wall clock jumps
// meanwhile.
var (
	passes = []time.Duration{0, time.Nanosecond, time.Millisecond, time.Second, time.Minute, time.Hour, 100 * time.Hour}
	leaps  = []time.Duration{
		0, time.Second, -time.Second, 59 * time.Second, -59 * time.Second, time.Minute, -time.Minute, 61 * time.Second, -61 * time.Second,
		time.Hour, -time.Hour, 100 * time.Hour, -100 * time.Hour,
	}
)

// A world is two clocks, and what a steady made of them.
type world struct {
	s       steady
	wall    time.Time
	elapsed time.Duration
	leapt   bool
}

func newWorld() world {
	wall := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	return world{s: begin(time.Time{}, wall, time.Hour), wall: wall, elapsed: time.Hour}
}

func (w world) now() time.Time { return w.s.base.Add(w.s.at) }

// step lets some time pass while the wall clock jumps, and returns what is wrong
// with the time then.
func (w *world) step(pass, leap time.Duration) string {
	was, room := w.now(), w.s.room+pass/gainEvery
	w.wall = w.wall.Add(pass + leap)
	w.elapsed += pass
	w.leapt = w.leapt || leap != 0
	if jump := w.s.jump(w.wall, w.elapsed); jump != leap {
		return "it takes a jump for " + jump.String()
	}
	w.s.step(w.wall, w.elapsed)
	now, lived := w.now(), w.elapsed-time.Hour
	ran := now.Sub(was)
	switch ahead := w.wall.Sub(was.Add(pass)); { // where the wall clock is, had the time run on
	case ran < 0:
		return "it falls"
	case ran < pass/2:
		return "it runs at less than half the speed"
	case now.Sub(w.s.base) > lived+StepMax+lived/gainEvery:
		return "it runs ahead of what was lived through"
	case !w.leapt && !now.Equal(w.wall):
		return "it leaves two clocks that agree"
	case ahead >= 0 && ran < pass:
		return "it runs slow behind the wall clock"
	case ahead >= 0 && ahead <= room && !now.Equal(w.wall):
		return "it does not follow a small correction"
	case ahead < 0 && -ahead <= pass/2 && !now.Equal(w.wall):
		return "it does not come back to the wall clock"
	case ahead < 0 && ran > pass:
		return "it runs fast ahead of the wall clock"
	}
	return ""
}

// Every history of three steps keeps every rule, and ends at the wall clock if
// that is left alone for long enough.
func TestSteadyInEveryHistory(t *testing.T) {
	var histories int
	var visit func(w world, path [][2]time.Duration)
	visit = func(w world, path [][2]time.Duration) {
		if len(path) == 3 {
			histories++
			for range 3 {
				if wrong := w.step(30_000*time.Hour, 0); wrong != "" {
					t.Fatalf("after %v and a long time: %s", path, wrong)
				}
			}
			if !w.now().Equal(w.wall) {
				t.Fatalf("after %v and a long time it is %v at %v", path, w.now(), w.wall)
			}
			return
		}
		for _, pass := range passes {
			for _, leap := range leaps {
				next, path := w, append(slices.Clip(path), [2]time.Duration{pass, leap})
				if wrong := next.step(pass, leap); wrong != "" {
					t.Fatalf("after %v: %s: %v at %v", path, wrong, next.now(), next.wall)
				}
				visit(next, path)
			}
		}
	}
	visit(newWorld(), nil)
	if want := len(passes) * len(leaps); histories != want*want*want {
		t.Errorf("%d histories, want %d", histories, want*want*want)
	}
}

// Many small readings come to the same as one.
func TestSteadyIgnoresHowOftenItIsRead(t *testing.T) {
	for _, leap := range leaps {
		once, often := newWorld(), newWorld()
		for _, w := range []*world{&once, &often} {
			if wrong := w.step(time.Second, leap); wrong != "" {
				t.Fatal(wrong)
			}
		}
		once.step(10*time.Second, 0)
		for range 100_000 {
			often.step(100*time.Microsecond, 0)
		}
		if d := once.now().Sub(often.now()).Abs(); d > time.Millisecond {
			t.Errorf("after a jump of %v it matters by %v how often the clocks are read", leap, d)
		}
	}
}
