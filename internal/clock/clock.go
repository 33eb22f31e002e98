// Package clock makes a store's time from two clocks, because neither is
// enough. The wall clock knows the time, but it can be wrong, and it jumps when
// somebody corrects it. The monotonic clock never jumps, but it only knows how
// much time has passed.
//
// A store forgets by its time: expired counters and old tokens. To forget late
// costs a little room. To forget early loses counts or counts them twice. So
// the time runs with the monotonic clock, never falls, and returns to the wall
// clock as fast as is safe:
//
//   - If it is behind the wall clock, it follows at once by up to a minute, and from
//     then on by a minute for each hour that passes.
//   - If it is ahead of the wall clock, it runs at half speed, so that lifetimes still
//     end, at most twice as late.
//
// A new process has only the wall clock and the last time that the process
// before it wrote down. It starts with the later of the two. Gaps record how
// much of the time in between did not pass in the store.
package clock

import "time"

// StepMax is how far the time may follow the wall clock at once, and by how much
// the wall clock must leave the monotonic one to be said to have jumped.
const StepMax = time.Minute

const (
	gainEvery = 60 // of so much time passed, as much as one part may be gained
	slowBy    = 2  // ahead of the wall clock, one part of so many is left out
)

// A steady is a time that jumps no further than is safe. Moments are durations
// since its base, for the arithmetic is then that of whole nanoseconds.
type steady struct {
	base    time.Time     // when it began
	at      time.Duration // its time
	wall    time.Duration // the wall clock, when it was that
	elapsed time.Duration // the monotonic clock, when it was that
	room    time.Duration // how far it may still follow at once
}

// begin begins at the wall clock's time, or at a later one.
func begin(last, wall time.Time, elapsed time.Duration) steady {
	s := steady{base: wall, elapsed: elapsed, room: StepMax}
	if last.After(wall) {
		s.base, s.wall = last, wall.Sub(last)
	}
	return s
}

// jump returns by how much the wall clock has left the monotonic one since the
// last step.
func (s *steady) jump(wall time.Time, elapsed time.Duration) time.Duration {
	return (wall.Sub(s.base) - s.wall) - max(elapsed-s.elapsed, 0)
}

// step brings the time up to date.
func (s *steady) step(wall time.Time, elapsed time.Duration) {
	passed := max(elapsed-s.elapsed, 0)
	s.wall, s.elapsed = wall.Sub(s.base), max(elapsed, s.elapsed)
	s.room += passed / gainEvery
	s.at += passed
	if off := s.wall - s.at; off > 0 {
		gain := min(off, s.room)
		s.at += gain
		s.room -= gain
	} else {
		s.at -= min(-off, passed/slowBy)
	}
	s.room = min(s.room, StepMax)
}

func (s *steady) nowUS() int64 { return s.base.Add(s.at).UnixMicro() }

// A Clock is the time of a store that keeps its own. Its methods must not be
// called at the same time.
type Clock struct {
	read  func() (wall time.Time, elapsed time.Duration)
	slept func() time.Duration // how long the machine has been suspended, of which the monotonic clock knows nothing

	asleep time.Duration // what slept returned last
	ms     int64         // the time
	us     int64         // the same, finer; never falls
	steady steady
	jumps  uint64
	last   time.Duration // the last jump
}

// New returns a clock that reads a wall clock and a monotonic one. Without either
// it reads the machine's. With a wall clock alone it believes that one: its time
// is the latest that the wall clock has shown.
func New(now func() time.Time, elapsed func() time.Duration) *Clock {
	switch {
	case now == nil:
		start := time.Now()
		return &Clock{slept: slept, read: func() (time.Time, time.Duration) {
			t := time.Now() // both clocks, at one moment
			return t.Round(0), t.Sub(start)
		}}
	case elapsed == nil:
		return &Clock{read: func() (time.Time, time.Duration) { return now().Round(0), -1 }}
	default:
		return &Clock{read: func() (time.Time, time.Duration) { return now().Round(0), elapsed() }}
	}
}

// Start begins with the latest time that is known, 0 if none is, and returns how
// much the time has gone ahead of that which nobody has lived through, as far as
// anyone can tell. A wall clock that is believed leaves no such gap.
func (c *Clock) Start(lastMS int64) (gapMS int64) {
	wall, elapsed := c.read()
	if c.ms, c.us = lastMS, lastMS*1000; elapsed < 0 {
		return 0
	}
	c.ms = max(lastMS, wall.UnixMilli())
	if c.slept != nil {
		c.asleep = c.slept()
	}
	c.steady = begin(time.UnixMilli(lastMS), wall, elapsed+c.asleep)
	return c.ms - lastMS
}

// NowMS returns the time in Unix milliseconds. It never falls.
func (c *Clock) NowMS() int64 {
	wall, elapsed := c.read()
	if elapsed < 0 {
		return c.keep(wall.UnixMicro())
	}
	jump := c.steady.jump(wall, elapsed+c.asleep)
	if jump > StepMax && c.slept != nil { // perhaps the machine was suspended
		c.asleep = c.slept()
		jump = c.steady.jump(wall, elapsed+c.asleep)
	}
	if jump > StepMax || jump < -StepMax {
		c.jumps++
		c.last = jump
	}
	c.steady.step(wall, elapsed+c.asleep)
	return c.keep(c.steady.nowUS())
}

// keep moves the time to a later one.
func (c *Clock) keep(us int64) int64 {
	c.us = max(c.us, us)
	c.ms = max(c.ms, c.us/1000)
	return c.ms
}

// US returns in Unix microseconds what NowMS has returned last. It never falls, and is never
// before those milliseconds.
func (c *Clock) US() int64 { return max(c.us, c.ms*1000) }

// Jumps returns how often the wall clock has jumped by more than StepMax, and how
// far it did the last time.
func (c *Clock) Jumps() (n uint64, last time.Duration) { return c.jumps, c.last }

// Wall returns what the wall clock shows.
func (c *Clock) Wall() time.Time {
	wall, _ := c.read()
	return wall
}

// Off returns how far the wall clock is ahead of the time; below zero, how far it
// is behind.
func (c *Clock) Off() time.Duration {
	return time.Duration(c.Wall().UnixMilli()-c.ms) * time.Millisecond
}

// Meters calls f for each meter of the clock.
func (c *Clock) Meters(f func(name, help string, value float64)) {
	off := c.Off().Seconds()
	f("quipu_clock_ahead_seconds", "How far the store's time is ahead of the wall clock, which was set back.", max(0, -off))
	f("quipu_clock_behind_seconds", "How far the store's time is behind the wall clock, which jumped ahead.", max(0, off))
	f("quipu_clock_jumps_total", "Jumps of the wall clock by more than a minute.", float64(c.jumps))
}
