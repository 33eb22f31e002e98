package engine

import (
	"runtime"
	"time"
)

// Background work shares the machine with callers who need a processor for a
// moment, and now. Go lets a goroutine run for 10 ms while others wait for its
// processor, and the operating system lets a thread run for some too. So the work
// comes in short strides, after each of which others may run, and after some
// of them it rests for as long as they took.
const (
	stride = 100 * time.Microsecond
	burst  = time.Millisecond
)

// A pace keeps one goroutine of background work to that.
type pace struct {
	pressed          func() bool // there is no time to rest
	strode, restedAt time.Time
}

func (e *Engine) newPace() *pace {
	now := time.Now()
	return &pace{pressed: e.pressed, strode: now, restedAt: now}
}

// breathe is called between small pieces of work.
func (p *pace) breathe() {
	now := time.Now()
	if now.Sub(p.strode) < stride {
		return
	}
	if now.Sub(p.restedAt) < burst {
		p.yield()
		return
	}
	if p.pressed() {
		runtime.Gosched()
	} else {
		<-time.After(burst)
	}
	p.strode = time.Now()
	p.restedAt = p.strode
}

// yield lets others run. It follows an unlocking: a goroutine that waited for the
// lock was woken by that, and runs now. Otherwise the lock would be taken again
// before it has it, many times, until it has waited for 1 ms.
func (p *pace) yield() {
	runtime.Gosched()
	p.strode = time.Now()
}

// Write takes bytes that were worked on.
func (p *pace) Write(b []byte) (int, error) {
	p.breathe()
	return len(b), nil
}
