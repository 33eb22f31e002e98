package resp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// latencySamplesMax is how many seconds with a slow command are remembered.
const latencySamplesMax = 160

// latencyEvent is the one event that is watched: commands that waited long for their
// replies.
const latencyEvent = "command"

// A latency remembers the seconds in which something took longer than a threshold,
// and the worst of each.
type latency struct {
	threshold atomic.Int64 // in milliseconds; 0 for none

	mu      sync.Mutex // guards the fields below
	samples []latencySample
	worst   int64
}

type latencySample struct{ second, ms int64 }

// note notes what something took, if that is long.
func (l *latency) note(took time.Duration) {
	threshold := l.threshold.Load()
	if threshold == 0 || took.Milliseconds() < threshold {
		return
	}
	second, ms := time.Now().Unix(), took.Milliseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = max(l.worst, ms)
	if n := len(l.samples); n > 0 && l.samples[n-1].second == second {
		l.samples[n-1].ms = max(l.samples[n-1].ms, ms)
		return
	}
	if len(l.samples) == latencySamplesMax {
		l.samples = append(l.samples[:0], l.samples[1:]...)
	}
	l.samples = append(l.samples, latencySample{second, ms})
}

// all returns the samples, the oldest first, and the worst that ever was.
func (l *latency) all() ([]latencySample, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]latencySample(nil), l.samples...), l.worst
}

// reset forgets all, and reports whether there was anything.
func (l *latency) reset() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := len(l.samples) > 0
	l.samples, l.worst = nil, 0
	return had
}

func latencyCommands() []*command {
	return []*command{{name: "LATENCY", arity: -2, group: "server", since: "2.8.13", about: "Commands about how long commands take.", subs: map[string]*command{
		"LATEST":    {name: "LATENCY|LATEST", arity: 2, flags: flagAdmin, local: latencyLatest, since: "2.8.13", syntax: "LATEST", about: "Returns the last and the longest wait above latency-monitor-threshold."},
		"HISTORY":   {name: "LATENCY|HISTORY", arity: 3, flags: flagAdmin, local: latencyHistory, since: "2.8.13", syntax: "HISTORY <event>", about: "Returns the seconds with such waits; the event is command."},
		"RESET":     {name: "LATENCY|RESET", arity: -2, flags: flagAdmin, local: latencyReset, since: "2.8.13", syntax: "RESET [<event> ...]", about: "Forgets them."},
		"DOCTOR":    {name: "LATENCY|DOCTOR", arity: 2, flags: flagAdmin, local: latencyDoctor, since: "2.8.13", syntax: "DOCTOR", about: "Sums them up in words."},
		"HISTOGRAM": {name: "LATENCY|HISTOGRAM", arity: -2, flags: flagAdmin, local: latencyHistogram, since: "7.0.0", syntax: "HISTOGRAM [<command> ...]", about: "Returns how many calls of commands took up to how many microseconds."},
	}}}
}

func latencyLatest(s *session, _ [][]byte) error {
	samples, worst := s.d.latency.all()
	if len(samples) == 0 {
		s.array(0)
		return nil
	}
	last := samples[len(samples)-1]
	s.array(1)
	s.array(4)
	s.text(latencyEvent)
	s.integer(last.second)
	s.integer(last.ms)
	s.integer(worst)
	return nil
}

func latencyHistory(s *session, args [][]byte) error {
	var samples []latencySample
	if string(args[2]) == latencyEvent {
		samples, _ = s.d.latency.all()
	}
	s.array(len(samples))
	for _, sample := range samples {
		s.array(2)
		s.integer(sample.second)
		s.integer(sample.ms)
	}
	return nil
}

func latencyReset(s *session, args [][]byte) error {
	n := int64(0)
	for i := 2; i < max(len(args), 3); i++ {
		if (len(args) == 2 || string(args[i]) == latencyEvent) && s.d.latency.reset() {
			n++
		}
	}
	s.integer(n)
	return nil
}

func latencyDoctor(s *session, _ [][]byte) error {
	samples, worst := s.d.latency.all()
	switch {
	case s.d.latency.threshold.Load() == 0:
		s.verbatim("Latency is not watched: CONFIG SET latency-monitor-threshold <milliseconds> turns that on. LATENCY HISTOGRAM and the metric quipu_resp_command_duration_seconds need no threshold.")
	case len(samples) == 0:
		s.verbatim("No command has waited longer than the threshold.")
	default:
		s.verbatim(fmt.Sprintf("In %d of the seconds remembered, commands have waited longer than the threshold, the longest for %d ms. "+
			"A reply waits until what it tells is durable: look at how long the store takes, and at SLOWLOG GET.", len(samples), worst))
	}
	return nil
}
