package resp

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// stats is what became of the calls of one command. Nobody updates it for each call:
// those that came and were answered together are counted as one.
type stats struct {
	calls, usec      atomic.Uint64 // executed, and how long they took until they were answered
	rejected, failed atomic.Uint64 // refused before, and answered with an error
	took             [histogramBuckets]atomic.Uint64
}

// histogramBuckets is how many durations are told apart: up to 1, 2, 4 µs and so on,
// and what is above all.
const histogramBuckets = 32

// count counts calls that were answered after a time.
func (t *stats) count(took time.Duration, calls int) {
	usec := uint64(max(took.Microseconds(), 0))
	t.calls.Add(uint64(calls))
	t.usec.Add(usec * uint64(calls))
	t.took[min(bits.Len64(max(usec, 1)-1), histogramBuckets-1)].Add(uint64(calls))
}

func (t *stats) reset() {
	t.calls.Store(0)
	t.usec.Store(0)
	t.rejected.Store(0)
	t.failed.Store(0)
	for i := range t.took {
		t.took[i].Store(0)
	}
}

// An answer is calls of a command, or of none, that have their replies.
type answer struct {
	command *command
	calls   int
}

// answersMax is how many answers a session keeps until they are sent.
const answersMax = 64

// answer notes that the replies to calls are made, or will be by the session's job.
func (s *session) answer(c *command, calls int) {
	n := len(s.answers)
	if n > 0 && s.answers[n-1].command == c {
		s.answers[n-1].calls += calls
		return
	}
	if n == answersMax {
		s.observe()
	}
	s.answers = append(s.answers, answer{c, calls})
}

// observe measures what the session's answers took.
func (s *session) observe() {
	took := time.Since(s.d.start) - s.came
	for _, a := range s.answers {
		s.d.observe(took, a)
	}
	s.answers = s.answers[:0]
}

// observe measures calls that were answered after a time.
func (d *Door) observe(took time.Duration, a answer) {
	d.seconds.Observe(took, a.calls)
	if a.command != nil {
		a.command.stats.count(took, a.calls)
	}
}

// counted has f make the reply to a call, and counts it if it is an error. A command
// that takes no time is slow only for those who ask for all.
func (s *session) counted(c *command, args [][]byte, f func()) {
	start := len(s.out)
	f()
	if c == nil {
		return
	}
	if len(s.out) > start && s.out[start] == '-' {
		c.stats.failed.Add(1)
	}
	if args != nil && s.d.slow.usec.Load() == 0 {
		s.d.slow.add(s, 0, args)
	}
}

// rejects counts a call that was refused before it was executed.
func (c *command) rejects() {
	if c != nil {
		c.stats.rejected.Add(1)
	}
}

// infoCommands tells what became of the calls of each command.
func infoCommands(_ context.Context, s *session) (fields []string) {
	s.d.each(func(c *command) {
		t := &c.stats
		calls, usec, rejected := t.calls.Load(), t.usec.Load(), t.rejected.Load()
		if calls+rejected > 0 {
			fields = append(fields, fmt.Sprintf("cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
				c.lower, calls, usec, float64(usec)/float64(max(calls, 1)), rejected, t.failed.Load()))
		}
	})
	return fields
}

// each calls f for all commands and subcommands, in order.
func (d *Door) each(f func(*command)) {
	for _, name := range d.names {
		c := d.commands[name]
		f(c)
		for _, sub := range sortedNames(c.subs) {
			f(c.subs[sub])
		}
	}
}

// latencyHistogram replies how many calls took up to how long.
func latencyHistogram(s *session, args [][]byte) error {
	wanted := map[*command]bool{}
	for _, a := range args[2:] {
		if c := s.d.commands.path(a); c != nil && !wanted[c] {
			for _, c := range c.family() {
				wanted[c] = true
			}
		}
	}
	var found []*command
	s.d.each(func(c *command) {
		if (wanted[c] || len(args) == 2) && c.stats.calls.Load() > 0 {
			found = append(found, c)
		}
	})
	s.fields(len(found))
	for _, c := range found {
		s.text(c.lower)
		s.histogram(&c.stats)
	}
	return nil
}

func (e *encoder) histogram(t *stats) {
	type bucket struct{ upTo, calls int64 }
	var buckets []bucket
	sum := int64(0)
	for i := range t.took {
		if n := int64(t.took[i].Load()); n > 0 {
			sum += n
			buckets = append(buckets, bucket{1 << i, sum})
		}
	}
	e.fields(2)
	e.text("calls")
	e.integer(int64(t.calls.Load()))
	e.text("histogram_usec")
	e.fields(len(buckets))
	for _, b := range buckets {
		e.integer(b.upTo)
		e.integer(b.calls)
	}
}
