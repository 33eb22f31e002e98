package clock

import (
	"sync"
	"time"
)

// A Heard is the time of a clock elsewhere, such as a database server's: as it was
// told, and what has passed since. It is never behind what was told, however late the
// answer was. It is safe for concurrent use.
type Heard struct {
	elapsed func() time.Duration // nil if nothing passes

	mu     sync.Mutex // guards the fields below
	ms     int64      // what was told last; 0 before
	at     time.Duration
	asleep time.Duration
	jumps  uint64
}

// NewHeard returns a clock of which nothing is known yet. If the clock elsewhere
// is a test's, it stands still between what is told.
func NewHeard(still bool) *Heard {
	h := &Heard{asleep: slept()}
	if start := time.Now(); !still {
		h.elapsed = func() time.Duration { return time.Since(start) }
	}
	return h
}

// Ask returns the moment at which the clock is asked: see Tell.
func (h *Heard) Ask() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since()
}

// Tell says what the clock has shown since it was asked, at a moment that Ask returned.
// An answer may be long on its way: the clock shows ms by now, or more by up to what has
// passed since it was asked. A time between these is kept as it is.
func (h *Heard) Tell(ms int64, asked time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.since()
	if jump := h.jump(ms, at); h.elapsed != nil && h.ms != 0 && (jump > StepMax || jump < -StepMax) {
		h.asleep = slept() // perhaps this machine was suspended
		at = h.since()
		if jump = h.jump(ms, at); jump > StepMax || jump < -StepMax {
			h.jumps++
		}
	}
	if h.elapsed != nil && h.ms != 0 {
		late := max(at-asked, 0)
		switch jump := h.jump(ms, at); {
		case jump <= 0 && jump >= -late:
			return
		case jump < 0:
			ms += late.Milliseconds()
		}
	}
	h.ms, h.at = ms, at
}

// since returns what has passed on this machine.
func (h *Heard) since() time.Duration {
	if h.elapsed == nil {
		return 0
	}
	return h.elapsed() + h.asleep
}

func (h *Heard) jump(ms int64, at time.Duration) time.Duration {
	return time.Duration(ms-h.ms)*time.Millisecond - (at - h.at)
}

// NowMS returns the time in Unix milliseconds, 0 if it was never told.
func (h *Heard) NowMS() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ms == 0 {
		return 0
	}
	return h.ms + (h.since() - h.at).Milliseconds()
}

// Meters calls f for each meter of clocks elsewhere: of those that are furthest
// from the wall clock here, and of all jumps.
func Meters(f func(name, help string, value float64), wall time.Time, all ...*Heard) {
	var ahead, behind float64
	var jumps uint64
	for _, h := range all {
		if now := h.NowMS(); now != 0 {
			off := float64(now-wall.UnixMilli()) / 1000
			ahead, behind = max(ahead, off), max(behind, -off)
		}
		h.mu.Lock()
		jumps += h.jumps
		h.mu.Unlock()
	}
	f("quipu_clock_ahead_seconds", "How far the store's clock is ahead of this machine's.", ahead)
	f("quipu_clock_behind_seconds", "How far the store's clock is behind this machine's.", behind)
	f("quipu_clock_jumps_total", "Jumps of the store's clock by more than a minute.", float64(jumps))
}
