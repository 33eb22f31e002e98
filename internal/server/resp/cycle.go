package resp

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

const (
	// cycleCommandsMax bounds the commands of one cycle, which share their fate
	// and so their wait.
	cycleCommandsMax = 1 << 16

	// keptCommandsMax is how many commands a cycle keeps room for.
	keptCommandsMax = 1 << 14

	// keptTextMax is how much text a cycle keeps room for.
	keptTextMax = 64 << 10

	// cycleTextMax is how much text a cycle may have when another session comes to
	// it.
	cycleTextMax = 1 << 20

	// singlesMax is how many plain additions that follow each other a cycle takes as
	// deltas. When there are more, a cycle that begins with them is worth its call.
	singlesMax = 16
)

// An entry's place in text is an int32, and an encoder makes no text longer than
// this: it does not compile if that might overflow.
const _ uint = math.MaxInt32 - outBytesMax

// errFull says that a command does not fit into a cycle together with what is
// there.
var errFull = errors.New("the cycle is full")

// A cycle is what the commands of one or many connections do to the counters of
// a namespace, and the replies that the results will make. It begins with plain
// additions (see lane). From the first other command on, everything is gathered into
// one batch, which is atomic where the store can, and so each command is.
type cycle struct {
	db       *quipu.DB
	reading  bool     // it changes nothing, and has names instead of deltas
	names    []string // of what is read
	lane     lane
	deltas   []store.Delta // of what is changed, and read between, after the additions of the lane
	results  []store.Result
	asks     []port.Ask    // questions to limits
	answers  []port.Answer // to them
	entries  []entry
	texts    []*keyspace.Value // of the results that are no counts; nil if there is none
	encoders []encode          // of the entries that are decided; it may have more
	runs     []run
	keys     []byte // the deltas' strings are views of it, so what is there stays
	keysMin  int    // room that it is given at first
	text     []byte // replies that need no result
	said     int    // how much of text has a run

	singles int  // plain additions that the deltas end with
	whole   bool // a transaction is being added
	joined  bool // some deltas are one step
	reacts  bool // some deltas are reactions

	united   []united         // PFADDs that are one delta; unite says what those ask
	visits   []visit          // PFADDs; it may have more
	unions   map[string]int32 // the last united of each key, if nothing else came after it
	unitedTo int              // how many deltas there were after the last of them
	asked    int              // bytes that are asked of sketches

	err  error   // of the whole batch
	errs []error // of each result, if parts of the batch were applied by themselves

	// Of a cycle that is applied by partition:
	mu    sync.Mutex // guards deltas, results, errs and what runs wait for, while it is applied
	homes []int32    // the portion that each delta is in
	split bool       // it is

	// Of a cycle in the loop:
	wake  func()
	left  atomic.Int32 // calls of done that are still to come
	fault atomic.Pointer[error]
	slow  bool // a goroutine applies it, and others may overtake it
}

// done is called when a part of the cycle is durable, or has failed.
func (c *cycle) done(err error) {
	if err != nil {
		c.fault.Store(&err)
	}
	if c.left.Add(-1) == 0 {
		c.wake()
	}
}

// An entry is the reply to one command, or a part of it; or if it is added, those to
// n commands. A turn has thousands, so it has no pointer for the collector to follow.
type entry struct {
	at, n int32 // n results, or bytes of text, from at on; if added, n times of the addition at
	nth   int32 // if added, which was the first of them; if decided, which of the encoders makes the reply; if visited, which visit it is
	kind  kind
}

// A kind is what the reply of an entry is made of.
type kind uint8

const (
	decided kind = iota // what an encoder makes of results
	textual             // text
	added               // the values after additions of the lane, OK if those are blind
	asked               // the answer of a limit
	visited             // whether a result says that items of a visit were new
)

// ofResults reports whether the reply is made of results.
func (k kind) ofResults() bool { return k == decided || k == visited }

// encode appends the reply that results make.
type encode func(e *encoder, results []store.Result)

// A run is entries of one session, up to an index, and how many commands they
// answer that came at a time.
type run struct {
	s       *session
	command *command // which they all are; nil if none was executed
	to      int
	calls   int
	owed    int // bytes of text
	came    time.Duration
	mute    bool
	held    bool          // the session executes nothing before it has its replies
	left    int           // portions of the cycle that it waits for
	told    bool          // it has its replies
	ended   time.Duration // when it got them, in the loop
}

// reset makes a cycle ready for use.
func (c *cycle) reset(db *quipu.DB) {
	c.db = db
	if cap(c.entries) > keptCommandsMax || cap(c.keys) > keptCommandsMax<<5 || cap(c.lane.Keys) > keptCommandsMax<<5 || cap(c.text) > keptTextMax || cap(c.united) > keptUnited {
		*c = cycle{db: db, wake: c.wake}
	}
	clear(c.runs)
	clear(c.encoders)
	c.encoders = c.encoders[:0]
	c.lane.reset()
	clear(c.asks)
	clear(c.answers)
	c.asks, c.answers = c.asks[:0], c.answers[:0]
	c.deltas, c.names, c.entries, c.runs = c.deltas[:0], c.names[:0], c.entries[:0], c.runs[:0]
	c.keys, c.text, c.said = c.keys[:0], c.text[:0], 0
	c.singles, c.whole, c.joined, c.reacts, c.slow, c.err = 0, false, false, false, false, nil
	c.texts, c.errs, c.homes, c.split = nil, nil, c.homes[:0], false
	clear(c.unions)
	c.united, c.visits, c.unitedTo, c.asked = c.united[:0], c.visits[:0], 0, 0
}

func (c *cycle) empty() bool { return len(c.runs) == 0 }

// keep returns a string of a key that lives as long as anyone has it.
func (c *cycle) keep(key []byte) string {
	if c.keys == nil {
		c.keys = make([]byte, 0, c.keysMin)
	}
	start := len(c.keys)
	c.keys = append(c.keys, key...)
	return unsafe.String(unsafe.SliceData(c.keys[start:]), len(key))
}

// name is keep for what may not be the key of a counter. Then it says why.
func (c *cycle) name(key []byte) (string, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	return c.keep(key), nil
}

// checkKey returns why an argument can't be the key of a counter.
func checkKey(key []byte) error {
	return store.CheckKey(unsafe.String(unsafe.SliceData(key), len(key)))
}

// delta appends a delta that wants its value, for the caller to complete.
func (c *cycle) delta(op store.Op, key []byte) (*store.Delta, error) {
	name, err := c.name(key)
	if err != nil {
		return nil, err
	}
	if len(c.deltas) == store.BatchDeltasMax || len(c.keys) > store.BatchBytesMax/2 { // the rest is for the namespaces
		return nil, errFull
	}
	c.singles = 0
	c.deltas = append(c.deltas, store.Delta{Cell: store.Cell{Key: name}, Op: op, Want: true})
	return &c.deltas[len(c.deltas)-1], nil
}

// get appends a question for a counter's value.
func (c *cycle) get(key []byte) error {
	if !c.reading {
		_, err := c.delta(store.OpGet, key)
		return err
	}
	if len(c.names) == store.ReadCellsMax {
		return errFull
	}
	name, err := c.name(key)
	if err == nil {
		c.names = append(c.names, name)
	}
	return err
}

// count returns how many results there will be.
func (c *cycle) count() int { return len(c.deltas) + len(c.names) }

// laned reports whether plain additions go to the lane.
func (c *cycle) laned() bool { return len(c.deltas) == 0 && !c.whole }

// add appends a plain addition and its reply. One that is blind asks for no value.
func (c *cycle) add(key []byte, by int64, blind bool) error {
	if !c.laned() {
		if c.singles == singlesMax && !c.whole {
			return errFull
		}
		return c.single(key, by, blind)
	}
	if err := checkKey(key); err != nil {
		return err
	}
	at, nth, err := c.lane.add(key, by, blind, 1)
	if err == nil {
		c.entries = append(c.entries, entry{kind: added, at: int32(at), nth: int32(nth), n: 1})
	}
	return err
}

// single is add for a cycle that has left its lane.
func (c *cycle) single(key []byte, by int64, blind bool) error {
	singles := c.singles
	d, err := c.delta(store.OpAdd, key)
	if err != nil {
		return err
	}
	d.N, d.Want = by, !blind
	c.singles = singles + 1
	if blind {
		c.encoded(encodeOK, len(c.deltas)-1)
	} else {
		c.encoded(encodeAfter, len(c.deltas)-1)
	}
	return nil
}

// encoded appends the reply that an encoder makes of the results from one on.
func (c *cycle) encoded(f encode, at int) {
	c.entries = append(c.entries, entry{kind: decided, at: int32(at), n: int32(c.count() - at), nth: int32(len(c.encoders))})
	c.encoders = append(c.encoders, f)
}

// encodeAfter replies the value that there is now.
func encodeAfter(e *encoder, results []store.Result) {
	if !notCount(e, &results[0]) && !refusal(e, &results[0]) {
		e.integer(results[0].After)
	}
}

// repeat answers the session's last command some more times, if that was a plain
// addition or the read of one counter, and reports how often it could.
func (c *cycle) repeat(s *session, times int) int {
	r := c.last(s)
	if r == nil {
		return 0
	}
	e := &c.entries[len(c.entries)-1]
	times = min(times, cycleCommandsMax-len(c.entries))
	switch {
	case e.kind == added && c.laned():
		if at, nth, err := c.lane.add(c.lane.KeyOf(&c.lane.Each[e.at]), c.lane.Each[e.at].N, c.lane.blind[e.at], times); err != nil {
			return 0
		} else if at == int(e.at) && nth == int(e.nth+e.n) {
			e.n += int32(times)
		} else {
			c.entries = append(c.entries, entry{kind: added, at: int32(at), nth: int32(nth), n: int32(times)})
		}
	case c.reading && e.n == 1:
		for range times {
			c.entries = append(c.entries, *e)
		}
	default:
		return 0
	}
	r.to = len(c.entries)
	r.calls += times
	return times
}

// another adds to a counter what the session's last command has added to another one,
// if that is in the lane.
func (c *cycle) another(s *session, key []byte) bool {
	r := c.last(s)
	if r == nil || !c.laned() || len(c.entries) >= cycleCommandsMax {
		return false
	}
	e := &c.entries[len(c.entries)-1]
	if e.kind != added || checkKey(key) != nil {
		return false
	}
	at, nth, err := c.lane.add(key, c.lane.Each[e.at].N, c.lane.blind[e.at], 1)
	if err != nil {
		return false
	}
	c.entries = append(c.entries, entry{kind: added, at: int32(at), nth: int32(nth), n: 1})
	r.to = len(c.entries)
	r.calls++
	return true
}

// last returns the run of the session's last command, if nothing came after it.
func (c *cycle) last(s *session) *run {
	n := len(c.runs)
	if n == 0 || c.whole {
		return nil
	}
	if r := &c.runs[n-1]; r.s == s && r.to == len(c.entries) && r.mute == s.muted && r.to > 0 {
		return r
	}
	return nil
}

// A mark is a state of a cycle to go back to.
type mark struct{ adds, addKeys, deltas, names, asks, entries, keys, text, singles int }

func (c *cycle) mark() mark {
	return mark{
		len(c.lane.Each), len(c.lane.Keys), len(c.deltas), len(c.names), len(c.asks), len(c.entries), len(c.keys), len(c.text), c.singles,
	}
}

// rewind takes back what came after a mark. Additions that have joined others since
// must not be among it.
func (c *cycle) rewind(m mark) {
	l := &c.lane
	l.Each, l.blind, l.Keys = l.Each[:m.adds], l.blind[:m.adds], l.Keys[:m.addKeys]
	c.deltas, c.names, c.asks, c.entries = c.deltas[:m.deltas], c.names[:m.names], c.asks[:m.asks], c.entries[:m.entries]
	c.keys, c.text, c.singles = c.keys[:m.keys], c.text[:m.text], m.singles
}

// trim takes back what belongs to no session: a command has panicked before it was
// complete.
func (c *cycle) trim() {
	m := c.mark()
	m.deltas, m.asks, m.entries, m.text = 0, 0, 0, 0
	if n := len(c.runs); n > 0 {
		m.entries = c.runs[n-1].to
	}
	for _, e := range c.entries[:m.entries] {
		switch e.kind {
		case textual:
			m.text = max(m.text, int(e.at+e.n))
		case decided, visited:
			m.deltas = max(m.deltas, int(e.at+e.n))
		case asked:
			m.asks = max(m.asks, int(e.at+e.n))
		case added:
		}
	}
	c.rewind(m)
	c.lane.recount(c.entries)
}

// failed returns a cycle that replies an error to the commands of c, which may
// still be in the hands of the store.
func (c *cycle) failed(err error) *cycle {
	return &cycle{db: c.db, entries: c.entries, runs: c.runs, asks: c.asks, text: c.text, wake: c.wake, err: err, lane: lane{err: err}}
}

// of makes the entries since the last run those of a session, and of a command.
func (c *cycle) of(s *session, cmd *command, mute bool) {
	n := len(c.runs)
	if n > 0 && c.runs[n-1].s == s && c.runs[n-1].command == cmd && c.runs[n-1].mute == mute && c.runs[n-1].came == s.came {
		c.runs[n-1].to = len(c.entries)
		c.runs[n-1].calls++
		n--
	} else {
		c.runs = append(c.runs, run{s: s, command: cmd, to: len(c.entries), calls: 1, came: s.came, mute: mute})
		if !c.reading { // or it is answered before anything else
			s.pending++
		}
	}
	if text := len(c.text) - c.said; text > 0 {
		c.said = len(c.text)
		c.runs[n].owed += text
		s.owed += text
	}
}

// say appends a reply that needs no result, made by f. It goes the way of every
// reply, with the session's own limits, into text.
func (c *cycle) say(s *session, f func()) {
	out, at := s.out, len(c.text)
	s.out = c.text
	f()
	s.out, c.text = out, s.out
	c.entries = append(c.entries, entry{kind: textual, at: int32(at), n: int32(len(c.text) - at)})
}

// room makes room for the results.
func (c *cycle) room() {
	n := c.count()
	if cap(c.results) < n {
		more := make([]store.Result, n, max(cap(c.deltas), n))
		copy(more, c.results)
		c.results = more
	}
	c.results = c.results[:n]
}
