package resp

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// A worker executes the commands of sessions, in order, as far as that needs no
// waiting: it gathers what they do into cycles, which its owner applies. It
// belongs to one goroutine.
type worker struct {
	d      *Door
	submit func(*cycle) // applies a cycle, now or later, and calls done
	soft   int          // how much unsent reply stops a session for now, at most outBytesSoft

	cycles []*cycle // being gathered, one for each namespace
	reads  *cycle   // what a session only reads, to be answered at once
	spare  []*cycle

	args   [][]byte
	values []store.Value
}

func (d *Door) newWorker(submit func(*cycle)) *worker {
	return &worker{d: d, submit: submit, soft: outBytesSoft}
}

// A verdict is what became of a command.
type verdict int

const (
	executed verdict = iota
	refused          // the session waits: the same command is to be tried again when it does not
)

// gather executes commands from buf until a session has to wait or there are no
// more, and returns how many bytes they took. After it, the session's cycles must
// be submitted, and its job, if it has one, be run.
func (w *worker) gather(s *session, buf []byte) (used int) {
	s.refused = false
	if s.pending > 0 && s.heard.Load() || w.crowded(s) {
		s.again()
		return 0
	}
	if s.ended() {
		if s.pending > 0 {
			s.again()
			return 0
		}
		s.expel()
	}
	var last shape // of the command before
	for !s.closing && s.rest == 0 && (s.job == nil || s.joint != nil) && len(s.out)+s.owed < w.soft {
		if n := w.like(s, buf[used:], &last); n > 0 { // Fast path.
			used += n
			continue
		}
		n, args, err := s.parser.next(buf[used:], w.args[:0])
		w.args = args[:0]
		if err != nil {
			w.protocol(s, err)
			break
		}
		if n == 0 {
			break
		}
		if len(args) > 0 && w.execute(s, args) == refused {
			break
		}
		s.seen = false
		last = shapeOf(s.last.Load(), buf[used:used+n])
		used += n
	}
	w.alone(s)
	if cap(w.args) > keptArgsMax {
		w.args = nil
	}
	return used
}

// crowded submits the session's cycle if it has much text already, so that nobody's
// replies leave no room for another's, and reports whether the session must wait for
// it now.
func (w *worker) crowded(s *session) bool {
	for _, c := range w.cycles {
		if c.db == s.db && len(c.text) > cycleTextMax {
			w.flush(c)
			return s.held > 0
		}
	}
	return false
}

// abandon takes back what a command had planned when it panicked. What came before
// it stays.
func (w *worker) abandon() {
	w.reads = nil
	for _, c := range w.cycles {
		c.trim()
	}
}

// A shape is a command as it came, if it can simply be repeated: the whole, and what
// comes before its key if nothing comes after that.
type shape struct{ whole, head []byte }

func shapeOf(c *command, raw []byte) (s shape) {
	if c == nil || c.flags&flagRepeat == 0 {
		return s
	}
	s.whole = raw
	if n := len("*2\r\n$4\r\n") + len(c.name) + 2; c.flags&flagWrite != 0 && c.arity == 2 && len(raw) > n && len(c.name) < 10 && raw[0] == '*' && raw[6] == '\r' {
		s.head = raw[:n]
	}
	return s
}

// like executes the commands that buf begins with, if they are the session's last one
// again, or the same for another counter, and returns how many bytes they take.
// Pipelines are full of these.
func (w *worker) like(s *session, buf []byte, last *shape) (used int) {
	if last.whole == nil || s.multi || s.skip || s.follow.on || s.picky || s.joint != nil {
		return 0
	}
	if bytes.HasPrefix(buf, last.whole) {
		n, size := 1, len(last.whole)
		for bytes.HasPrefix(buf[n*size:], last.whole) {
			n++
		}
		c := w.reads
		if c == nil || c.empty() {
			c = w.cycle(s)
		}
		n = c.repeat(s, n)
		s.calls += uint64(n)
		return n * size
	}
	if last.head == nil || !bytes.HasPrefix(buf, last.head) || w.reads != nil && !w.reads.empty() {
		return 0
	}
	key, end := short(buf, len(last.head))
	if end == 0 || !w.cycle(s).another(s, key) {
		return 0
	}
	last.whole = buf[:end]
	s.calls++
	return end
}

// protocol refuses what can't be parsed, after everything before it.
func (w *worker) protocol(s *session, err error) {
	if !w.alone(s) {
		s.again()
		return
	}
	s.d.meters.protocol.Add(1)
	s.fail(err.Error())
	s.closing = true
}

// alone answers what the session has read so far, or makes what it must wait for
// its job, and reports whether nothing of it is under way.
func (w *worker) alone(s *session) bool {
	switch {
	case w.reads != nil && !w.reads.empty() && !w.answer(s):
		return false
	case len(s.guarded) > 0:
		s.addGuarded()
		return false
	}
	return s.pending == 0
}

// execute executes one command.
func (w *worker) execute(s *session, args [][]byte) verdict {
	if s.joint != nil {
		return w.join(s, args)
	}
	if !s.parser.known {
		if s.strange++; s.strange > strangerCommandsMax { // it guesses keys, or has none
			s.close()
			return w.say(s, nil, func(*session, [][]byte) error { return errStranger }, nil)
		}
	}
	c, err := w.find(s, args)
	if err == nil {
		err = s.checkSubscribed(c)
	}
	if err != nil && isHTTP(args[0]) {
		return w.hangUp(s)
	}
	if err == nil && s.multi && c.flags&flagControl == 0 {
		err = s.enqueue(c, args)
		if err == nil {
			return w.say(s, nil, func(*session, [][]byte) error { s.simple("QUEUED"); return nil }, nil)
		}
	}
	if err != nil {
		if c != nil && c.name == "EXEC" {
			s.discard()
			err = aborted(err)
		}
		s.dirty = s.dirty || s.multi
		c.rejects()
		return w.say(s, nil, func(*session, [][]byte) error { return err }, nil)
	}
	v := w.dispatch(s, c, args)
	if v == executed {
		s.calls++
		s.follow.caching = s.follow.caching && (c.name == "MULTI" || strings.HasPrefix(c.name, "CLIENT|"))
	}
	return v
}

// isHTTP reports whether a command is a line of an HTTP request.
func isHTTP(name []byte) bool { return is(name, "POST") || is(name, "HOST:") }

// hangUp closes the connection of a browser: a web page can make one send
// requests here, whose lines might be commands.
func (w *worker) hangUp(s *session) verdict {
	if !w.alone(s) {
		return s.again()
	}
	s.d.meters.protocol.Add(1)
	s.d.options.Logger.Warn("an HTTP request arrived on the RESP port: connection closed", "client", s.addr)
	s.closing = true
	return executed
}

// find returns the command that args name, if the session may call it.
func (w *worker) find(s *session, args [][]byte) (*command, error) {
	last := s.last.Load()
	c, err := s.d.commands.find(args, last)
	if c != last { // as CLIENT LIST shows it, executed or not
		s.last.Store(c)
	}
	switch {
	case err != nil:
		if !s.parser.known { // strangers learn nothing
			err = errNoAuth
		}
		return c, err
	case !s.parser.known && c.flags&flagStranger == 0:
		return nil, errNoAuth
	case c.flags&flagWrite != 0 && s.d.db.Port().ReadOnly(): // One that is refused by the store takes its whole cycle with it.
		return c, store.ErrReadOnly
	case s.grows(c) && s.d.memory.over(s.d.start):
		return c, errMaxMemory
	}
	return c, s.vet(c, args)
}

// grows reports whether a command may add a key: a script may that does not say otherwise, and a
// transaction if one of its commands may.
func (s *session) grows(c *command) bool {
	if c.name == "EXEC" {
		return slices.ContainsFunc(s.queue, func(q queued) bool { return s.grows(q.command) })
	}
	return c.flags&flagGrow != 0 || c.flags&(flagScript|flagRead) == flagScript
}

func (w *worker) dispatch(s *session, c *command, args [][]byte) verdict {
	if s.follow.on && !w.recall(s, c, args) {
		return s.again()
	}
	guarded, text := c.guarded(args) || s.named(c, args), c.flags&flagText != 0 && s.textual(c, args)
	switch {
	case len(s.guarded) > 0 && (!guarded || len(s.guarded) == quipu.EventsMax):
		s.addGuarded()
		return s.again()
	case guarded && len(s.guarded) == 0 && !w.alone(s):
		return s.again()
	case guarded:
		if err := s.guard(args); err != nil {
			return w.say(s, c, func(*session, [][]byte) error { return err }, args)
		}
		s.answer(c, 1)
		if s.skip {
			s.addGuarded()
		}
	case c.plan != nil && !text && !s.waits(c, args):
		// While something is watched, a read is as new as what EXEC compares: a total that
		// is kept for readers may be older.
		if c.flags&flagRead != 0 && s.pending == 0 && !s.muted && !s.skip && (len(s.watched) == 0 || s.db.Port().ReadOnly()) {
			return w.plan(s, w.reading(s), c, args)
		}
		if w.reads != nil && !w.reads.empty() && !w.answer(s) {
			return s.again()
		}
		return w.plan(s, w.cycle(s), c, args)
	case c.flags&flagInline != 0:
		return w.say(s, c, c.local, args)
	case !w.alone(s):
		return s.again()
	case c.local != nil && !c.long():
		s.answer(c, 1)
		s.mute(func() { s.counted(c, args, func() { s.call(c.local, args) }) })
	case text && s.joinable(c, args):
		s.answer(c, 1)
		s.laterTexts(c, args)
	default:
		s.answer(c, 1)
		s.later(c, copyArgs(args), text)
	}
	return executed
}

// later makes a command the session's job. It may meet text.
func (s *session) later(c *command, args [][]byte, text bool) {
	s.kept, s.slots = argsBytes(args), s.jobs
	switch {
	case c.flags&flagSweep != 0:
		s.slots = s.d.sweeps
	case c.long(), c.name == "EXEC" && s.long:
		s.slots = s.d.long
	}
	s.job = func(ctx context.Context) {
		s.mute(func() {
			start := len(s.out)
			s.counted(c, nil, func() {
				s.call(func(s *session, args [][]byte) error {
					slow := c.slow
					switch {
					case text && c.name == "EXEC":
						slow = execText
					case text && (c.plan != nil || c.name == "MSETNX"):
						slow = textCommand
					case slow == nil:
						return c.local(s, args)
					}
					err := slow(ctx, s, args)
					if err == nil && s.fault != nil && c.flags&(flagWrite|flagScript) != 0 {
						s.overflow(start) // an error would say that nothing has changed
					}
					return err
				}, args)
			})
		})
		s.noteSlow(args)
	}
}

// again makes the session read the same command again, later.
func (s *session) again() verdict {
	s.parser.reset()
	s.refused = true
	return refused
}

// waits reports whether a command that could be planned can't be now: it needs
// conditions, has long replies, or is one step where a cycle may not be. A cycle is several if the
// store has partitions. If others share the store they may have split a counter, and
// to be one step the whole cycle would have to wait until that is put together.
func (s *session) waits(c *command, args [][]byte) bool {
	return s.reactsSlow(c, args) || c.joins(args) && (s.d.apart || c.name == "EXEC" && (len(s.watched) > 0 || s.long))
}

// call runs a handler, and makes its error the reply; or that its reply does not fit
// into memory.
func (s *session) call(f func(*session, [][]byte) error, args [][]byte) {
	start := len(s.out)
	s.try(f, args)
	if fault := s.takeFault(); fault != nil {
		s.cut(start)
		s.fail(errorText(fault))
	}
	if s.fault != nil { // not even that
		s.overflow(start)
	}
}

// try runs a handler, and makes its error the reply.
func (s *session) try(f func(*session, [][]byte) error, args [][]byte) {
	start := len(s.out)
	if err := f(s, args); err != nil {
		s.cut(start)
		s.fail(errorText(err))
		s.d.report(err, 1)
	}
}

// mute calls f and drops the reply if the client does not want it.
func (s *session) mute(f func()) {
	start := len(s.out)
	s.drop, s.skip = s.skip, false
	f()
	if s.drop || s.muted {
		s.cut(start)
	}
}

// say calls a handler that needs nothing but the session, of a command if one is
// executed. If replies to earlier
// commands are still to come, its own takes its place after them.
func (w *worker) say(s *session, cmd *command, f func(*session, [][]byte) error, args [][]byte) verdict {
	if w.alone(s) {
		s.answer(cmd, 1)
		s.mute(func() { s.counted(cmd, args, func() { s.call(f, args) }) })
		return executed
	}
	if s.job != nil {
		return s.again()
	}
	c := w.cycle(s)
	c.say(s, func() { s.counted(cmd, args, func() { s.call(f, args) }) })
	c.of(s, cmd, s.muted || s.skip)
	s.skip = false
	return executed
}

// plan adds a command to a cycle.
func (w *worker) plan(s *session, c *cycle, cmd *command, args [][]byte) verdict {
	before := c.mark()
	err := errFull
	if len(c.entries) < cycleCommandsMax {
		err = c.plan(s, cmd, args)
	}
	if errors.Is(err, errFull) {
		c.rewind(before)
		if c.empty() {
			return w.say(s, cmd, func(*session, [][]byte) error { return errTooLarge }, args)
		}
		if c == w.reads {
			if !w.answer(s) {
				return s.again()
			}
		} else {
			if w.flush(c); s.held > 0 {
				return s.again()
			}
		}
		return w.dispatch(s, cmd, args)
	}
	if err != nil {
		c.rewind(before)
		return w.say(s, cmd, func(*session, [][]byte) error { return err }, args)
	}
	c.joined = c.joined || cmd.joins(args)
	c.of(s, cmd, s.muted || s.skip)
	s.skip = false
	return executed
}

// plan adds what a command does, and the reply that it makes.
func (c *cycle) plan(s *session, cmd *command, args [][]byte) error {
	if cmd.flags&flagEntries != 0 {
		_, err := cmd.plan(c, s, args) // makes its own entries
		return err
	}
	at := c.count()
	encode, err := cmd.plan(c, s, args)
	if err != nil {
		return err
	}
	c.encoded(encode, at)
	return nil
}

// cycle returns the cycle of the session's namespace.
func (w *worker) cycle(s *session) *cycle {
	for _, c := range w.cycles {
		if c.db == s.db {
			return c
		}
	}
	c := w.fresh(s)
	w.cycles = append(w.cycles, c)
	return c
}

// reading returns the cycle of what the session reads.
func (w *worker) reading(s *session) *cycle {
	if w.reads == nil || w.reads.db != s.db {
		w.reads = w.fresh(s)
		w.reads.reading = true
	}
	return w.reads
}

func (w *worker) fresh(s *session) *cycle {
	var c *cycle
	if n := len(w.spare); n > 0 {
		c, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		c = new(cycle)
	}
	// A store may keep the strings of keys: they are not reused.
	c.keysMin, c.keys = max(len(c.keys), 64), nil
	c.reset(s.db)
	return c
}

// done takes back a cycle that is finished.
func (w *worker) done(c *cycle) {
	if len(w.spare) < 4 {
		w.spare = append(w.spare, c)
	}
}

// flush submits one cycle.
func (w *worker) flush(c *cycle) {
	i := slices.Index(w.cycles, c)
	w.cycles = slices.Delete(w.cycles, i, i+1)
	w.submit(c)
}

// flushAll submits everything that was gathered.
func (w *worker) flushAll() {
	for _, c := range w.cycles {
		w.submit(c)
	}
	clear(w.cycles)
	w.cycles = w.cycles[:0]
}

// answer answers what the session has read, if the store can without waiting.
// Otherwise it makes that the session's job, and reports false.
func (w *worker) answer(s *session) bool {
	c := w.reads
	c.answered(s)
	if values := w.room(len(c.names)); c.db.Port().Peek(c.names, values) && !slices.ContainsFunc(values, func(v store.Value) bool { return v.IsObject() }) {
		c.take(values)
		c.finish()
		if s.d.slow.usec.Load() == 0 { // all are wanted, however fast
			c.noteSlow(s.d, s.came)
		}
		c.reset(c.db)
		return true
	}
	w.reads = nil
	s.kept, s.slots = cap(c.keys)+len(c.names)*readBytesEach, s.jobs
	s.job = func(ctx context.Context) {
		ctx, cancel := s.d.deadline(ctx)
		defer cancel()
		c.read(ctx)
		c.finish()
		c.noteSlow(s.d, time.Since(s.d.start))
	}
	return false
}

// room returns room for values.
func (w *worker) room(n int) []store.Value {
	if cap(w.values) < n {
		w.values = make([]store.Value, n)
	}
	return w.values[:n]
}

// readBytesEach is what reading one counter takes besides its key: a name, a value
// and a result.
const readBytesEach = int(unsafe.Sizeof("") + unsafe.Sizeof(store.Value{}) + unsafe.Sizeof(store.Result{}))

// argsBytes returns how much memory copied arguments take.
func argsBytes(args [][]byte) (n int) {
	for _, a := range args {
		n += len(a) + int(unsafe.Sizeof(a))
	}
	return n
}

// copyArgs returns args that live as long as they are wanted.
func copyArgs(args [][]byte) [][]byte {
	size := 0
	for _, a := range args {
		size += len(a)
	}
	room := make([]byte, 0, size)
	kept := make([][]byte, len(args))
	for i, a := range args {
		start := len(room)
		room = append(room, a...)
		kept[i] = room[start:len(room):len(room)]
	}
	return kept
}
