package resp

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"unsafe"

	"github.com/quipudb/quipu/store"
)

// A transaction is commands kept until EXEC, which gives everything they do to
// the store as one batch, with the versions of what was watched as conditions.
// So only commands can be part of it that are nothing but deltas, or need nothing
// of the store and leave the session's namespace and protocol alone.

func multi(s *session, _ [][]byte) error {
	if s.multi {
		return wireError("ERR MULTI calls can not be nested")
	}
	s.multi = true
	s.queuing.Store(0)
	s.ok()
	return nil
}

// longQueue is how many commands make a transaction long, whatever they are: EXEC is
// short itself, and its turn of the loop should be too.
const longQueue = 1000

// enqueue adds a command to the transaction.
func (s *session) enqueue(c *command, args [][]byte) error {
	switch {
	case c.slow != nil && c.plan == nil && c.flags&flagText == 0, c.flags&flagLone != 0, c.guarded(args):
		return wireError("ERR " + c.name + " can't be part of a transaction here")
	case len(s.queue) == store.BatchDeltasMax || s.queued > inBytesMax:
		return errTooLarge
	}
	kept := copyArgs(args)
	s.queue = append(s.queue, queued{c, kept})
	s.queuing.Store(int32(len(s.queue)))
	s.queued += argsBytes(kept) + 48
	s.long = s.long || c.long() || len(s.queue) > longQueue
	return nil
}

// aborted returns why EXEC was refused, in Redis's words.
func aborted(why error) error {
	return wireError("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(errorText(why), "ERR "))
}

func discard(s *session, _ [][]byte) error {
	if !s.multi {
		return wireError("ERR DISCARD without MULTI")
	}
	s.discard()
	s.ok()
	return nil
}

// checkExec returns why a transaction can't be executed, and ends it.
func (s *session) checkExec() error {
	switch {
	case !s.multi:
		return wireError("ERR EXEC without MULTI")
	case s.dirty:
		s.discard()
		return wireError("EXECABORT Transaction discarded because of previous errors.")
	}
	return nil
}

func planExec(c *cycle, s *session, _ [][]byte) (encode, error) {
	if err := s.checkExec(); err != nil {
		return nil, err
	}
	err := c.transaction(s, s.queue)
	if errors.Is(err, errFull) && !c.empty() {
		return nil, err // it may fit into a cycle of its own
	}
	s.discard()
	if errors.Is(err, errFull) {
		err = errTooLarge
	}
	return nil, err
}

// transaction adds commands whose additions stay apart. If their replies do not fit
// into memory it returns why, and nothing is to be applied.
func (c *cycle) transaction(s *session, commands []queued) error {
	defer func() { c.whole = false }()
	c.whole = true
	c.say(s, func() { s.array(len(commands)) })
	for _, q := range commands {
		var err error
		before := c.mark()
		q.command.stats.calls.Add(1)
		if q.command.plan == nil {
			c.say(s, func() { s.try(q.command.local, q.args) })
		} else if err = c.plan(s, q.command, q.args); errors.Is(err, errFull) {
			return err
		}
		if err != nil {
			c.rewind(before)
			q.command.stats.failed.Add(1)
			c.say(s, func() { s.fail(errorText(err)) })
		}
		if fault := cmp.Or(s.takeFault(), s.pass()); fault != nil {
			return aborted(fault)
		}
	}
	return nil
}

// exec is EXEC with conditions, or in a step of its own.
func exec(ctx context.Context, s *session, _ [][]byte) error {
	if err := s.checkExec(); err != nil {
		return err
	}
	queue, conditions := s.queue, s.watched
	s.discard()
	c := new(cycle)
	c.reset(s.db)
	c.joined = true
	err := c.transaction(s, queue)
	if errors.Is(err, errFull) {
		return errTooLarge
	}
	if err != nil {
		return err
	}
	if s.turn == s.d.long { // which is not for those who wait for the store
		s.leaveTurn()
		if !s.takeTurn(s.jobs) {
			return errReplyMemory // nobody will read it
		}
	}
	return s.apply(ctx, c, conditions)
}

// alone executes a command in a step of its own.
func (s *session) alone(ctx context.Context, cmd *command, args [][]byte) error {
	c := new(cycle)
	c.reset(s.db)
	c.joined = true
	if err := c.plan(s, cmd, args); errors.Is(err, errFull) {
		return errTooLarge
	} else if err != nil {
		return err
	}
	return s.apply(ctx, c, nil)
}

// apply applies a cycle of this session alone, and replies.
func (s *session) apply(ctx context.Context, c *cycle, conditions []store.Condition) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	c.apply(ctx, conditions)
	switch {
	case errors.Is(c.err, store.ErrChanged):
		s.nullArray()
	case c.err != nil:
		return c.err
	default:
		c.of(s, nil, false)
		c.finish()
	}
	return nil
}

// watch remembers the versions of counters.
func watch(ctx context.Context, s *session, args [][]byte) error {
	if s.multi {
		return wireError("ERR WATCH inside MULTI is not allowed")
	}
	names, watching, err := s.unwatched(args[1:])
	if err != nil {
		return err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	cells, err := s.look(ctx, names)
	if err != nil {
		return err
	}
	for i := range cells {
		s.watched = append(s.watched, store.Condition{Cell: s.db.Port().Cell(names[i]), Version: cells[i].Version})
	}
	s.watching = watching
	s.ok()
	return nil
}

// unwatched returns those of the keys that are not watched yet, and how many bytes
// the session watches with them.
func (s *session) unwatched(keys [][]byte) (names []string, watching int, err error) {
	seen := make(map[string]bool, len(s.watched))
	here := s.db.Port().Namespace()
	for i := range s.watched {
		if s.watched[i].Cell.Namespace == here {
			seen[s.watched[i].Cell.Key] = true
		}
	}
	watching = s.watching
	for _, key := range keys {
		if seen[string(key)] {
			continue
		}
		name := string(key)
		if err := store.CheckKey(name); err != nil {
			return nil, 0, err
		}
		seen[name] = true
		names = append(names, name)
		watching += len(name) + int(unsafe.Sizeof(store.Condition{}))
		if len(s.watched)+len(names) > watchedMax || watching > watchedBytesMax {
			return nil, 0, wireError("ERR too many keys watched: at most " + itoa(watchedMax) + ", in 256 KiB")
		}
	}
	return names, watching, nil
}

// look returns what the cells of counters are, with the versions that conditions
// compare: not totals that are kept for readers, which may be old. A counter that is
// split is put together for it, since its parts have no version in common.
func (s *session) look(ctx context.Context, keys []string) ([]store.Result, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	deltas := make([]store.Delta, len(keys))
	for i, key := range keys {
		deltas[i] = store.Delta{Cell: store.Cell{Key: key}, Op: store.OpGet, Want: true}
	}
	cells := make([]store.Result, len(keys))
	if s.db.Port().ReadOnly() { // It folds nothing; nor can what is compared be the condition of a write.
		return cells, s.lookOnly(ctx, keys, cells)
	}
	if err := s.db.Port().Apply(ctx, deltas, cells); err != nil {
		return nil, err
	}
	for i := range cells {
		if err := cells[i].Outcome.Err(); err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// lookOnly is look for a server that takes no writes.
func (s *session) lookOnly(ctx context.Context, keys []string, cells []store.Result) error {
	values := make([]store.Value, len(keys))
	if err := s.db.Port().Values(ctx, keys, values); err != nil {
		return err
	}
	for i, v := range values {
		cells[i] = store.Result{Outcome: store.Applied, Before: v.N, After: v.N, Version: v.Version, Existed: v.Exists, DeadlineMS: v.DeadlineMS}
	}
	return nil
}

// The limits of what a session may watch: so many keys, and so many bytes of them with what is
// compared.
const (
	watchedMax      = 1000
	watchedBytesMax = 256 << 10
)

func unwatch(s *session, _ [][]byte) error {
	s.unwatch()
	s.ok()
	return nil
}
