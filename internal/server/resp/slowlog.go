package resp

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The limits of the log of slow commands.
const (
	slowUsecDefault   = 10_000
	slowLengthDefault = 128
	slowLengthMax     = 1000
	slowArgsMax       = 32  // of an entry
	slowArgBytesMax   = 128 // of an argument
)

// A slowlog remembers the last commands that took long: from when they had come until
// their replies were made.
type slowlog struct {
	usec   atomic.Int64 // from how many microseconds on; -1 for none
	length atomic.Int64 // how many are remembered

	mu      sync.Mutex // guards the fields below
	next    int64      // the id of the next entry
	entries []slowEntry
}

type slowEntry struct {
	id         int64
	at         time.Time
	took       time.Duration
	args       []string
	addr, name string // of the client
}

// takes reports whether what took so long is to be remembered.
func (l *slowlog) takes(took time.Duration) bool {
	usec := l.usec.Load()
	return usec >= 0 && took.Microseconds() >= usec
}

// add remembers a command.
func (l *slowlog) add(s *session, took time.Duration, args [][]byte) {
	e := slowEntry{at: time.Now(), took: took, args: make([]string, 0, min(len(args), slowArgsMax)), addr: s.addr}
	for i, a := range args {
		if i == slowArgsMax-1 && len(args) > slowArgsMax {
			e.args = append(e.args, fmt.Sprintf("... (%d more arguments)", len(args)-i))
			break
		}
		text := clip(a, slowArgBytesMax)
		if more := len(a) - len(text); more > 0 {
			text += fmt.Sprintf("... (%d more bytes)", more)
		}
		e.args = append(e.args, text)
	}
	s.mu.Lock()
	e.name = s.name
	s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.trim()
}

// trim forgets the oldest entries that are too many.
func (l *slowlog) trim() {
	if more := len(l.entries) - int(l.length.Load()); more > 0 {
		clear(l.entries[:more])
		l.entries = l.entries[more:]
	}
}

// last returns the last n entries, the last one first.
func (l *slowlog) last(n int) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	var found []slowEntry
	for i := len(l.entries) - 1; i >= 0 && len(found) < n; i-- {
		found = append(found, l.entries[i])
	}
	return found
}

func (l *slowlog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// noteSlow notes what took long, if it did: a command that was the session's job.
func (s *session) noteSlow(args [][]byte) {
	took := time.Since(s.d.start) - s.came
	s.d.latency.note(took)
	if s.d.slow.takes(took) {
		s.d.slow.add(s, took, args)
	}
}

// noteSlow notes what took long, if the cycle did: of each session the first command,
// with its key. Its other arguments are gone by now.
func (c *cycle) noteSlow(d *Door, now time.Duration) {
	if len(c.runs) == 0 {
		return
	}
	took := now - c.runs[0].came
	d.latency.note(took)
	if !d.slow.takes(took) { // nor do the others, which came later
		return
	}
	from := 0
	for i := range c.runs[:min(len(c.runs), slowLengthMax)] {
		r := &c.runs[i]
		if took := cmp.Or(r.ended, now) - r.came; r.command != nil && d.slow.takes(took) {
			d.slow.add(r.s, took, c.wordsOf(r, &c.entries[from]))
		}
		from = r.to
	}
}

// wordsOf returns the name of a run's command and its first key, if it has one.
func (c *cycle) wordsOf(r *run, e *entry) [][]byte {
	words := [][]byte{[]byte(r.command.name)}
	switch {
	case e.kind == textual || r.command.keys.first == 0:
	case e.kind == added:
		words = append(words, c.lane.KeyOf(&c.lane.Each[e.at]))
	case e.kind == asked:
		words = append(words, []byte(c.asks[e.at].Who))
	case c.reading:
		words = append(words, []byte(c.names[e.at]))
	default:
		words = append(words, []byte(c.deltas[e.at].Cell.Key))
	}
	return words
}

func slowlogCommands() []*command {
	return []*command{{name: "SLOWLOG", arity: -2, group: "server", since: "2.2.12", about: "Commands about commands that took long.", subs: map[string]*command{
		"GET":   {name: "SLOWLOG|GET", arity: -2, flags: flagAdmin, local: slowlogGet, since: "2.2.12", syntax: "GET [<count>]", about: "Returns the last slow commands: id, time, microseconds, arguments, address and name of the client."},
		"LEN":   {name: "SLOWLOG|LEN", arity: 2, flags: flagAdmin, local: slowlogLen, since: "2.2.12", syntax: "LEN", about: "Returns how many slow commands are remembered."},
		"RESET": {name: "SLOWLOG|RESET", arity: 2, flags: flagAdmin, local: slowlogReset, since: "2.2.12", syntax: "RESET", about: "Forgets them."},
	}}}
}

// slowlogGetDefault is how many entries are returned if nobody says.
const slowlogGetDefault = 10

func slowlogGet(s *session, args [][]byte) error {
	n := int64(slowlogGetDefault)
	switch {
	case len(args) > 3:
		return wireError("ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.")
	case len(args) == 3:
		var ok bool
		if n, ok = parseInt(args[2]); !ok || n < -1 {
			return wireError("ERR count should be greater than or equal to -1")
		}
	}
	if n == -1 {
		n = slowLengthMax
	}
	entries := s.d.slow.last(int(min(n, slowLengthMax)))
	s.array(len(entries))
	for _, e := range entries {
		s.array(6)
		s.integer(e.id)
		s.integer(e.at.Unix())
		s.integer(e.took.Microseconds())
		s.array(len(e.args))
		for _, a := range e.args {
			s.text(a)
		}
		s.text(e.addr)
		s.text(e.name)
	}
	return nil
}

func slowlogLen(s *session, _ [][]byte) error {
	s.integer(int64(len(s.d.slow.last(slowLengthMax))))
	return nil
}

func slowlogReset(s *session, _ [][]byte) error {
	s.d.slow.reset()
	s.ok()
	return nil
}
