package clock_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/clock"
)

// A machine is two clocks that are moved by hand.
type machine struct {
	wall    time.Time
	elapsed time.Duration
}

func newMachine() *machine {
	return &machine{wall: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), elapsed: time.Hour}
}

func (m *machine) pass(d time.Duration) { m.wall, m.elapsed = m.wall.Add(d), m.elapsed+d }
func (m *machine) leap(d time.Duration) { m.wall = m.wall.Add(d) }

func (m *machine) clock() *clock.Clock {
	return clock.New(func() time.Time { return m.wall }, func() time.Duration { return m.elapsed })
}

func TestClockCountsJumps(t *testing.T) {
	m := newMachine()
	c := m.clock()
	c.Start(0)
	f := func(leap time.Duration, want uint64) {
		t.Helper()
		m.leap(leap)
		m.pass(time.Second)
		was := c.NowMS()
		if got, last := c.Jumps(); got != want || want > 0 && leap.Abs() > clock.StepMax && last != leap {
			t.Errorf("a jump of %v: %d jumps, the last %v; want %d", leap, got, last, want)
		}
		if again := c.NowMS(); again != was {
			t.Errorf("time passes from %d to %d while none does", was, again)
		}
	}
	f(0, 0)
	f(time.Minute, 0)
	f(-time.Minute, 0)
	f(61*time.Second, 1)
	f(-61*time.Second, 2)
	f(100*time.Hour, 3)
	f(0, 3)
	if off := c.Off(); off < 99*time.Hour || off > 100*time.Hour {
		t.Errorf("the wall clock is %v ahead, want just under 100 h", off)
	}
	f(-100*time.Hour, 4)
}

func TestClockStartsLate(t *testing.T) {
	f := func(last time.Duration, wantGap time.Duration, wantNow time.Duration) {
		t.Helper()
		m := newMachine()
		began := m.wall
		c := m.clock()
		if gap := c.Start(began.Add(last).UnixMilli()); gap != wantGap.Milliseconds() {
			t.Errorf("started with a time %v from now: a gap of %d ms, want %v", last, gap, wantGap)
		}
		m.pass(10 * time.Minute)
		if now := time.UnixMilli(c.NowMS()).Sub(began); now != wantNow {
			t.Errorf("started with a time %v from now: ten minutes later it is %v, want %v", last, now, wantNow)
		}
	}
	f(0, 0, 10*time.Minute)
	f(-time.Hour, time.Hour, 10*time.Minute)
	f(time.Second, 0, 10*time.Minute)        // soon caught up with
	f(time.Hour, 0, time.Hour+5*time.Minute) // at half speed
	f(100*time.Hour, 0, 100*time.Hour+5*time.Minute)
}

// A wall clock alone is believed, and the time does not fall with it.
func TestClockBelieves(t *testing.T) {
	m := newMachine()
	c := clock.New(func() time.Time { return m.wall }, nil)
	if gap := c.Start(m.wall.Add(-time.Hour).UnixMilli()); gap != 0 {
		t.Errorf("a gap of %d ms", gap)
	}
	m.leap(100 * time.Hour)
	now := c.NowMS()
	if now != m.wall.UnixMilli() {
		t.Errorf("it is %d at %d", now, m.wall.UnixMilli())
	}
	m.leap(-100 * time.Hour)
	if c.NowMS() != now {
		t.Error("time fell, or went on")
	}
	if n, _ := c.Jumps(); n != 0 {
		t.Errorf("%d jumps", n)
	}
}

// The machine's own clocks agree.
func TestClockOfTheMachine(t *testing.T) {
	c := clock.New(nil, nil)
	c.Start(0)
	from := time.Now().UnixMilli()
	now := c.NowMS()
	if to := time.Now().UnixMilli(); now < from || now > to {
		t.Errorf("it is %d, between %d and %d", now, from, to)
	}
	if n, last := c.Jumps(); n != 0 {
		t.Errorf("%d jumps, the last %v", n, last)
	}
}

func TestMeters(t *testing.T) {
	m := newMachine()
	c := m.clock()
	c.Start(0)
	f := func(ahead, behind, jumps float64) {
		t.Helper()
		c.NowMS()
		got := map[string]float64{}
		c.Meters(func(name, help string, value float64) {
			if help == "" {
				t.Errorf("%s has no help", name)
			}
			got[name] = value
		})
		if len(got) != 3 || got["quipu_clock_ahead_seconds"] != ahead || got["quipu_clock_behind_seconds"] != behind || got["quipu_clock_jumps_total"] != jumps {
			t.Errorf("meters %v, want %v ahead, %v behind, %v jumps", got, ahead, behind, jumps)
		}
	}
	f(0, 0, 0)
	m.leap(-time.Hour)
	f(3600, 0, 1)
	m.leap(2 * time.Hour)
	f(0, 3540, 2)
}
