package resp

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/quipudb/quipu"
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
)

// An entry's place in text is an int32, and an encoder makes no text longer than
// this: it does not compile if that might overflow.
const _ uint = math.MaxInt32 - outBytesMax

// errFull says that a command does not fit into a cycle together with what is
// there.
var errFull = errors.New("the cycle is full")

// A cycle is what the commands of one or many connections do to the counters of
// a namespace, gathered into one batch, and the replies that its results will
// make. The batch is atomic where the store can, and so each command is.
//
// Additions to one counter that follow each other become one delta (see add).
type cycle struct {
	db      *quipu.DB
	reading bool          // it changes nothing, and has names instead of deltas
	names   []string      // of what is read
	deltas  []store.Delta // of what is changed, and read between
	results []store.Result
	entries []entry
	runs    []run
	keys    []byte // the deltas' strings are views of it, so what is there stays
	text    []byte // replies that need no result
	said    int    // how much of text has a run

	plain  int  // index of the last delta, if it is a plain addition; else -1
	parts  bool // that addition has parts
	whole  bool // additions stay apart: a transaction may not be redone in parts
	joined bool // some deltas are one step
	merged mergedKeys

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
	held  bool // its sessions wait for it
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

// An entry is the reply to one command, or a part of it: what encode makes of
// the n results from at on, or if n is 0, the value after a plain addition by an
// amount, OK if that is blind; or, if textual, the n bytes of text from at on.
type entry struct {
	encode  encode
	by      int64
	sum     int64 // of the additions in its delta, up to this one
	at      int32
	n       int32
	textual bool
	blind   bool
}

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
	left    int           // portions of the cycle that it waits for
	told    bool          // it has its replies
	ended   time.Duration // when it got them, in the loop
}

// ends reports whether a run is the session's, and ends at an index.
func (r *run) ends(s *session, to int) bool { return r.s == s && r.to == to && r.mute == s.muted }

// mergedKeys is a filter of the keys whose additions were merged.
type mergedKeys struct {
	any  bool
	bits [16]uint64
}

func (m *mergedKeys) add(key string) {
	h := hash(key)
	m.any = true
	m.bits[h>>6&15] |= 1 << (h & 63)
}

func (m *mergedKeys) has(key []byte) bool {
	if !m.any {
		return false
	}
	h := hash(key)
	return m.bits[h>>6&15]&(1<<(h&63)) != 0
}

// hash is FNV-1a.
func hash[T string | []byte](key T) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h ^ h>>16
}

// reset makes a cycle ready for use.
func (c *cycle) reset(db *quipu.DB) {
	c.db = db
	if cap(c.entries) > keptCommandsMax || cap(c.keys) > keptCommandsMax<<5 || cap(c.text) > keptTextMax {
		*c = cycle{db: db, wake: c.wake}
	}
	clear(c.runs)
	c.deltas, c.names, c.entries, c.runs = c.deltas[:0], c.names[:0], c.entries[:0], c.runs[:0]
	c.keys, c.text, c.said = c.keys[:0], c.text[:0], 0
	c.plain, c.whole, c.joined, c.slow, c.held, c.err = -1, false, false, false, false, nil
	c.errs, c.homes, c.split = nil, c.homes[:0], false
	if c.merged.any {
		c.merged = mergedKeys{}
	}
}

func (c *cycle) empty() bool { return len(c.runs) == 0 }

// name returns a string of a key that lives as long as the cycle, or why it can't
// be the key of a counter.
func (c *cycle) name(key []byte) (string, error) {
	if c.merged.has(key) {
		return "", errFull // see add
	}
	start := len(c.keys)
	c.keys = append(c.keys, key...)
	name := unsafe.String(unsafe.SliceData(c.keys[start:]), len(key))
	if err := store.CheckKey(name); err != nil {
		c.keys = c.keys[:start]
		return "", err
	}
	return name, nil
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
	c.plain = -1
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

// add appends a plain addition and its reply. If the delta before it is one to
// the same key, with the same sign, it becomes a part of that: the store gives
// the value before, and each caller gets that and the sum up to its own. One that
// is blind asks for no value.
//
// The sum may be refused where the first of the additions would not be. Then they are
// redone one by one, after the cycle (see redo), and so no later delta of the
// cycle may be for the same key: name refuses it as one too many.
func (c *cycle) add(key []byte, by int64, blind bool) error {
	if c.plain >= 0 && !c.whole && string(key) == c.deltas[c.plain].Cell.Key && c.deltas[c.plain].Want != blind && c.merge(by) {
		c.entries = append(c.entries, entry{at: int32(c.plain), by: by, sum: c.deltas[c.plain].N, blind: blind})
		return nil
	}
	d, err := c.delta(store.OpAdd, key)
	if err != nil {
		return err
	}
	d.N, d.Want = by, !blind
	c.plain, c.parts = len(c.deltas)-1, false
	c.entries = append(c.entries, entry{at: int32(c.plain), by: by, sum: by, blind: blind})
	return nil
}

// repeat appends the last entry once more, if it is a plain addition or a read
// of one counter.
func (c *cycle) repeat() bool {
	e := c.entries[len(c.entries)-1]
	if e.textual || e.n > 1 || c.whole || len(c.entries) >= cycleCommandsMax {
		return false
	}
	if e.n == 0 {
		if int(e.at) != c.plain || !c.merge(e.by) {
			return false
		}
		e.sum = c.deltas[c.plain].N
	}
	c.entries = append(c.entries, e)
	r := &c.runs[len(c.runs)-1]
	r.to++
	r.calls++
	return true
}

// merge makes one more addition a part of the last delta.
func (c *cycle) merge(by int64) bool {
	d := &c.deltas[c.plain]
	sum := d.N + by
	if d.N >= 0 && by >= 0 && sum >= d.N || d.N <= 0 && by <= 0 && sum <= d.N {
		d.N, d.Writes = sum, max(d.Writes, 1)+1
		if !c.parts {
			c.parts = true
			c.merged.add(d.Cell.Key)
		}
		return true
	}
	return false
}

// A mark is a state of a cycle to go back to.
type mark struct{ deltas, names, entries, keys, text, plain int }

func (c *cycle) mark() mark {
	return mark{len(c.deltas), len(c.names), len(c.entries), len(c.keys), len(c.text), c.plain}
}

// rewind takes back what came after a mark. Additions merged since must not be
// among it.
func (c *cycle) rewind(m mark) {
	c.deltas, c.names, c.entries = c.deltas[:m.deltas], c.names[:m.names], c.entries[:m.entries]
	c.keys, c.text, c.plain = c.keys[:m.keys], c.text[:m.text], m.plain
}

// trim takes back what belongs to no session: a command has panicked before it was
// complete. It has merged no addition, since nothing comes after that.
func (c *cycle) trim() {
	m := mark{keys: len(c.keys), plain: -1}
	if n := len(c.runs); n > 0 {
		m.entries = c.runs[n-1].to
	}
	for _, e := range c.entries[:m.entries] {
		if e.textual {
			m.text = max(m.text, int(e.at+e.n))
		} else {
			m.deltas = max(m.deltas, int(e.at+max(e.n, 1)))
		}
	}
	c.rewind(m)
}

// failed returns a cycle that replies an error to the commands of c, which may
// still be in the hands of the store.
func (c *cycle) failed(err error) *cycle {
	return &cycle{db: c.db, entries: c.entries, runs: c.runs, text: c.text, plain: -1, held: c.held, wake: c.wake, err: err}
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
	c.entries = append(c.entries, entry{at: int32(at), n: int32(len(c.text) - at), textual: true})
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

// apply decides the deltas of one caller and waits until the results can be told. If
// some of them are one step, all are: otherwise those of a counter that is split
// might be applied to its shards, or later.
func (c *cycle) apply(ctx context.Context, conditions []store.Condition) {
	c.room()
	switch {
	case len(c.deltas) == 0 && len(conditions) == 0:
		return
	case c.joined || len(conditions) > 0:
		c.err = c.db.ApplyIf(ctx, conditions, c.deltas, c.results)
	default:
		c.err = c.db.Apply(ctx, c.deltas, c.results)
	}
	if c.err != nil {
		return
	}
	if at := c.redo(all); len(at) > 0 {
		from := at[0]
		c.err = store.Partly(c.db.Apply(ctx, c.deltas[from:], c.results[from:]), true)
	}
}

// A portion is what one partition of the store decides of a cycle. What becomes of
// it says nothing of the others.
type portion struct {
	home int32
	at   []int // its deltas
	runs []int // those that wait for it
}

// all is the home of every delta.
const all = -1

// divide makes portions of the deltas.
func (c *cycle) divide() []portion {
	c.room()
	c.errs, c.split = make([]error, len(c.deltas)), true
	if c.db.Traits().Partitions == 1 {
		p := portion{home: 0, at: make([]int, len(c.deltas)), runs: make([]int, len(c.runs))}
		for i := range p.at {
			p.at[i] = i
			c.homes = append(c.homes, 0)
		}
		for i := range c.runs {
			p.runs[i], c.runs[i].left = i, 1
		}
		return []portion{p}
	}
	var portions []portion
	byPartition := map[int]int32{}
	for i := range c.deltas {
		partition := c.db.Partition(c.deltas[i].Cell.Key)
		home, ok := byPartition[partition]
		if !ok {
			home = int32(len(portions))
			byPartition[partition] = home
			portions = append(portions, portion{home: home})
		}
		c.homes = append(c.homes, home)
		portions[home].at = append(portions[home].at, i)
	}
	from := 0
	for i := range c.runs {
		r := &c.runs[i]
		for _, e := range c.entries[from:r.to] {
			if e.textual {
				continue
			}
			for at := e.at; at < e.at+max(e.n, 1); at++ {
				p := &portions[c.homes[at]]
				if n := len(p.runs); n == 0 || p.runs[n-1] != i {
					p.runs = append(p.runs, i)
					r.left++
				}
			}
		}
		from = r.to
	}
	return portions
}

// decide decides a portion, and waits until its results can be told.
func (c *cycle) decide(ctx context.Context, p *portion) {
	at := p.at
	defer func() {
		if fault := recover(); fault != nil {
			c.took(at, nil, panicError(fault))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, i := range p.runs {
			c.runs[i].left--
		}
	}()
	for len(at) > 0 {
		c.mu.Lock()
		deltas, results := make([]store.Delta, len(at)), make([]store.Result, len(at))
		for i, n := range at {
			deltas[i] = c.deltas[n]
		}
		c.mu.Unlock()
		at = c.took(at, results, c.db.Apply(ctx, deltas, results))
		if len(at) > 0 {
			at = c.redo(p.home)
		}
	}
}

// gathered decides what commands of their own do, each by itself, unless some of it
// is one step.
func (c *cycle) gathered(ctx context.Context) {
	if c.joined || len(c.deltas) == 0 {
		c.apply(ctx, nil)
		return
	}
	portions := c.divide()
	var wg sync.WaitGroup
	for i := range portions[1:] {
		wg.Go(func() { c.decide(ctx, &portions[1+i]) })
	}
	c.decide(ctx, &portions[0])
	wg.Wait()
}

// took takes the results of some deltas, or why there are none, and returns those
// that were decided.
func (c *cycle) took(at []int, results []store.Result, err error) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range at {
		if c.errs[n] = err; err == nil {
			c.results[n] = results[i]
		}
	}
	if err != nil {
		return nil
	}
	return at
}

// read fills the results of a cycle that changes nothing, from each partition by
// itself.
func (c *cycle) read(ctx context.Context) {
	byPartition := map[int][]int{}
	for i, name := range c.names {
		partition := c.db.Partition(name)
		byPartition[partition] = append(byPartition[partition], i)
	}
	values := make([]store.Value, len(c.names))
	if len(byPartition) == 1 {
		if c.err = c.db.Values(ctx, c.names, values); c.err == nil {
			c.take(values)
		}
		return
	}
	c.errs = make([]error, len(c.names))
	var wg sync.WaitGroup
	for _, at := range byPartition {
		wg.Go(func() {
			names, some := make([]string, len(at)), make([]store.Value, len(at))
			for i, n := range at {
				names[i] = c.names[n]
			}
			err := c.db.Values(ctx, names, some)
			for i, n := range at {
				values[n], c.errs[n] = some[i], err
			}
		})
	}
	wg.Wait()
	c.take(values)
}

// take makes results of values.
func (c *cycle) take(values []store.Value) {
	c.room()
	for i := range values {
		v := &values[i]
		c.results[i] = store.Result{
			Outcome: store.Applied, Before: v.N, After: v.N, Version: v.Version, Existed: v.Exists, DeadlineMS: v.DeadlineMS,
		}
	}
}

// redo appends the parts of merged additions of a portion that overflowed as a sum, or
// crossed the floor or the ceiling of a policy, each as a delta of its own, and
// returns which those are.
func (c *cycle) redo(home int32) (at []int) {
	if !c.merged.any {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.entries {
		e := &c.entries[i]
		if e.textual || e.n > 0 || home != all && c.homes[e.at] != home || c.deltas[e.at].N == e.by {
			continue
		}
		if o := c.results[e.at].Outcome; o != store.Overflow && o != store.Bounded {
			continue
		}
		d := c.deltas[e.at]
		d.N, e.at, e.sum = e.by, int32(len(c.deltas)), e.by
		at = append(at, len(c.deltas))
		c.deltas = append(c.deltas, d)
		if home != all {
			c.homes, c.errs = append(c.homes, home), append(c.errs, nil)
		}
	}
	c.room()
	return at
}

// answered tells a session, whose all runs are, what the cycle answers.
func (c *cycle) answered(s *session) {
	for i := range c.runs {
		s.answer(c.runs[i].command, c.runs[i].calls)
	}
}

// undecided returns how many of its replies say that the call of the cycle failed.
func (c *cycle) undecided() (n int) {
	for i := range c.entries {
		if !c.entries[i].textual {
			n++
		}
	}
	return n
}

// finish gives every session its replies.
func (c *cycle) finish() { c.advance(func(*run) {}) }

// advance gives the sessions their replies whose commands are decided, and calls
// then for each run of them. A session has its replies in the order of its runs. One
// whose replies do not fit, or can't be made, is closed, and no other minds.
func (c *cycle) advance(then func(*run)) {
	if c.err != nil && len(c.runs) > 0 {
		c.runs[0].s.d.report(c.err, c.undecided())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from, waiting := 0, false
	for i := range c.runs {
		r := &c.runs[i]
		entries := c.entries[from:r.to]
		from = r.to
		switch {
		case r.told:
		case r.left > 0 || r.s.behind:
			r.s.behind, waiting = true, true
		default:
			c.tell(r, entries)
			then(r)
		}
	}
	for i := 0; waiting && i < len(c.runs); i++ {
		if r := &c.runs[i]; !r.told { // else the session goes on
			r.s.behind = false
		}
	}
}

// tell gives a session the replies of a run.
func (c *cycle) tell(r *run, entries []entry) {
	start := len(r.s.out)
	c.reply(r, entries)
	switch {
	case r.s.broken:
		r.s.cut(start)
	case r.s.fault != nil:
		r.s.overflow(start)
	case r.mute:
		r.s.cut(start)
	}
	r.s.owed -= r.owed
	r.told = true
	if !c.reading {
		r.s.pending--
	}
}

// reply gives a session the replies that entries make.
func (c *cycle) reply(r *run, entries []entry) {
	start := len(r.s.out)
	defer func() {
		if p := recover(); p != nil {
			r.s.d.panicked(r.s, p, debug.Stack())
			r.s.breakOff(start)
		}
	}()
	failed := 0
	for i := range entries {
		e := &entries[i]
		switch {
		case e.textual:
			r.s.raw(c.text[e.at : e.at+e.n])
		case c.err != nil:
			r.s.fail(errorText(c.err))
			failed++
		case c.errs != nil && c.failure(e) != nil:
			err := c.failure(e)
			r.s.d.report(err, 1)
			r.s.fail(errorText(err))
			failed++
		case e.n > 0:
			at := len(r.s.out)
			e.encode(&r.s.encoder, c.results[e.at:e.at+e.n])
			if at < len(r.s.out) && r.s.out[at] == '-' {
				failed++
			}
		default: // a plain addition
			result := &c.results[e.at]
			switch {
			case result.Outcome != store.Applied:
				r.s.fail(errorText(result.Outcome.Err()))
				failed++
			case e.blind:
				r.s.ok()
			default:
				r.s.integer(result.Before + e.sum)
			}
		}
	}
	// A transaction has more entries, and fails as a whole.
	if failed > 0 && r.command != nil && (len(entries) == r.calls || c.err != nil) {
		r.command.stats.failed.Add(uint64(min(failed, r.calls)))
	}
}

// failure returns why a command has no results, or nil. If some of what it does was
// decided, its outcome is unknown.
func (c *cycle) failure(e *entry) (err error) {
	decided := false
	for _, one := range c.errs[e.at : e.at+max(e.n, 1)] {
		if one == nil {
			decided = true
		} else if err == nil || store.KindOf(one) == store.KindUnknown {
			err = one
		}
	}
	return store.Partly(err, decided && !c.reading)
}
