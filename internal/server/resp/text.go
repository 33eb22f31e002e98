package resp

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
)

// A key may hold text. Whatever may meet some is executed on a snapshot of its keys, in a
// step of its own, by package keyspace. That costs a read and a write, so counters go the
// other way, as long as their namespace has no text, or the command is nothing to it.

// errTextNow is what a command for counters is told whose key has become text since it was
// looked for, by another server. It has changed nothing.
const errTextNow = wireError("TRYAGAIN The key has begun to hold text: send the command again")

// isText reports whether a result says that its key holds text.
func isText(r *store.Result) bool { return r.Outcome == store.NotCount || r.Outcome == store.Split }

// notCount replies, of an addition, that the key holds text or something else, if it does.
func notCount(e *encoder, r *store.Result) bool {
	switch {
	case !isText(r):
		return false
	case e.meetsMore():
		e.fail(string(errWrongType))
	default:
		e.fail(string(errNotInteger))
	}
	return true
}

// uncounted returns the keys that additions of a portion were refused by, since they hold no count, and the
// results that say so.
func (c *cycle) uncounted(home int32) (refused map[string][]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.deltas {
		if home != all && (i >= len(c.homes) || c.homes[i] != home) || c.errs != nil && c.errs[i] != nil {
			continue
		}
		if d := &c.deltas[i]; i < len(c.results) && d.Op == store.OpAdd && d.Event == nil && isText(&c.results[i]) {
			if refused == nil {
				refused = make(map[string][]int)
			}
			refused[d.Cell.Key] = append(refused[d.Cell.Key], i)
		}
	}
	return refused
}

// lookAt looks at what such keys hold: the replies for text and for anything else differ. If it can't, they
// are for text.
func (c *cycle) lookAt(ctx context.Context, refused map[string][]int) {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(refused)), textsMax) {
		held := make([]keyspace.Value, len(keys))
		if c.db.Port().Text(ctx, keys, nil, func(space *keyspace.Space) error {
			for i, key := range keys {
				held[i] = space.Is(key)
			}
			return nil
		}) != nil {
			return
		}
		c.mu.Lock()
		if n := len(c.deltas) - len(c.texts); n > 0 {
			c.texts = append(c.texts, make([]*keyspace.Value, n)...)
		}
		for i, key := range keys {
			for _, at := range refused[key] {
				if held[i].Type() != "string" { // To Redis a HyperLogLog is text.
					c.texts[at] = &held[i]
				}
			}
		}
		c.mu.Unlock()
	}
}

// textual reports whether a command is to be executed on a snapshot. One that reads has no
// need of it as long as nothing before it is under way: see readTexts.
func (s *session) textual(c *command, args [][]byte) bool {
	switch {
	case c.plan == nil && c.slow != nil && c.name != "MSETNX":
		return true
	case c.name == "EXEC":
		return s.multi && !s.dirty && s.textualQueue()
	case c.name == "DEL" || c.name == "UNLINK": // Text is deleted as counters are. But several are one step, which an addition to text would refuse.
		return c.joins(args) && s.meetsText(c, args)
	case c.flags&flagRead != 0:
		return (s.pending > 0 || s.muted || s.skip || len(s.watched) > 0 && !s.db.Port().ReadOnly()) && s.meetsText(c, args)
	}
	return bringsText(c, args) || s.meetsText(c, args)
}

// bringsText reports whether an argument of a command that sets keys is no integer.
func bringsText(c *command, args [][]byte) bool {
	switch c.name {
	case "SET", "SETNX", "GETSET":
		return !isInteger(args[2])
	case "SETEX", "PSETEX":
		return !isInteger(args[3])
	case "MSET", "MSETNX":
		for i := 2; i < len(args); i += 2 {
			if !isInteger(args[i]) {
				return true
			}
		}
	}
	return false
}

func isInteger(arg []byte) bool {
	_, is := parseInt(arg)
	return is
}

// meetsText reports whether one of the keys of a command may hold text. Those that have
// definitions do not.
func (s *session) meetsText(c *command, args [][]byte) bool {
	p := s.db.Port()
	return p.MayHoldText() && slices.ContainsFunc(c.keys.positions(args), func(i int) bool { return !p.Defined(textOf(args[i])) })
}

// textualQueue reports whether a transaction has to be executed on a snapshot.
func (s *session) textualQueue() bool {
	for _, q := range s.queue {
		if q.command.flags&flagText != 0 && (q.command.plan == nil || bringsText(q.command, q.args)) {
			return true
		}
	}
	// If nothing of it is text, and something can't meet any, it is for counters.
	return s.db.Port().MayHoldText() && slices.ContainsFunc(s.queue, func(q queued) bool { return s.meetsText(q.command, q.args) }) &&
		!slices.ContainsFunc(s.queue, func(q queued) bool { return !onSnapshot(q.command) })
}

// onSnapshot reports whether a command can be executed together with text.
func onSnapshot(c *command) bool {
	_, has := keyspace.Has(c.name)
	return has || c.flags&flagScript != 0 || c.plan == nil && c.slow == nil
}

// ofSession reports whether a command needs nothing of the store, and does nothing that a transaction might not do
// in the end: only PUBLISH does, of those that have no other way.
func (c *command) ofSession() bool { return c.plan == nil && c.slow == nil && c.flags&flagText == 0 }

// keysOf returns the keys of commands, each once.
func keysOf(commands ...[][]byte) (keys []string, err error) {
	for _, args := range commands {
		all := keyspace.KeysOf(args)
		if len(args[0]) > 3 && is(args[0][:4], "EVAL") {
			for _, at := range counted.positions(args) {
				all = append(all, args[at])
			}
		}
		for _, key := range all {
			if err := checkKey(key); err != nil {
				return nil, err
			}
			keys = append(keys, string(key))
		}
	}
	return distinct(keys)
}

// distinct returns names, each once, if they are not too many.
func distinct(names []string) ([]string, error) {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > store.BatchDeltasMax/2 {
		return nil, errTooLarge
	}
	return names, nil
}

// textCommand executes a command on a snapshot.
func textCommand(ctx context.Context, s *session, args [][]byte) error {
	keys, err := keysOf(args)
	if err != nil {
		return err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	var r keyspace.Reply
	if err := s.db.Port().Text(ctx, keys, nil, func(space *keyspace.Space) error {
		r = space.Do(args)
		return nil
	}); err != nil {
		return err
	}
	s.answerText(&r)
	return nil
}

// execText is EXEC on a snapshot.
func execText(ctx context.Context, s *session, _ [][]byte) error {
	if err := s.checkExec(); err != nil {
		return err
	}
	queue, conditions := s.queue, s.watched
	s.discard()
	commands := make([][][]byte, len(queue))
	for i, q := range queue {
		if !onSnapshot(q.command) {
			return aborted(wireError("ERR " + q.command.name + " can't be in one transaction with text"))
		}
		commands[i] = q.args
		q.command.stats.calls.Add(1)
	}
	keys, err := keysOf(commands...)
	if err != nil {
		return err
	}
	if s.turn == s.d.long { // which is not for those who wait for the store
		s.leaveTurn()
		if !s.takeTurn(s.jobs) {
			return errReplyMemory // nobody will read it
		}
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	replies := make([]keyspace.Reply, len(queue))
	var published []keyspace.Message
	err = s.db.Port().Text(ctx, keys, conditions, func(space *keyspace.Space) (err error) {
		s.publishing(space)
		defer func() { published = space.Published() }()
		for i, q := range queue {
			switch {
			case q.command.flags&flagScript != 0:
				if replies[i], err = s.evalIn(ctx, q.args, space); err != nil {
					return err
				}
			case !q.command.ofSession():
				replies[i] = space.Do(q.args)
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrChanged) {
		s.nullArray()
		return nil
	}
	if err != nil && len(conditions) > 0 {
		return err
	}
	if err == nil {
		s.tellAll(published)
	}
	s.array(len(queue))
	for i, q := range queue {
		switch {
		case q.command.ofSession():
			s.try(q.command.local, q.args)
			continue
		case err != nil:
			s.d.report(err, 1)
			replies[i] = keyspace.Reply{Kind: keyspace.Error, Text: errorText(err)}
		}
		if s.answerText(&replies[i]); replies[i].Kind == keyspace.Error {
			q.command.stats.failed.Add(1)
		}
	}
	return nil
}

// answerText replies what a snapshot has answered.
func (s *session) answerText(r *keyspace.Reply) {
	switch r.Kind {
	case keyspace.Status:
		s.simple(r.Text)
	case keyspace.Error:
		s.fail(r.Text)
	case keyspace.Number:
		s.integer(r.N)
	case keyspace.Bulk:
		s.text(r.Text)
	case keyspace.Bool:
		s.boolean(r.N != 0)
	case keyspace.Double:
		if r.Text != "" {
			s.exactly(r.Text)
			return
		}
		s.double(r.F)
	case keyspace.Map:
		if r.N == 1 && !s.resp3 { // Of a single field RESP2 has the value alone.
			s.array(1)
			s.answerText(&r.All[1])
			return
		}
		s.fields(len(r.All) / 2)
		for i := range r.All {
			s.answerText(&r.All[i])
		}
	case keyspace.Array:
		s.array(len(r.All))
		for i := range r.All {
			s.answerText(&r.All[i])
		}
	case keyspace.Pairs:
		s.pairs(len(r.All) / 2)
		for i := range r.All {
			if i%2 == 0 && s.resp3 {
				s.array(2)
			}
			s.answerText(&r.All[i])
		}
	case keyspace.BigNumber, keyspace.Verbatim, keyspace.Set:
		s.answerTyped(r)
	default:
		s.null()
	}
}

// answerTyped replies what only scripts do.
func (s *session) answerTyped(r *keyspace.Reply) {
	switch r.Kind {
	case keyspace.BigNumber:
		if s.resp3 {
			s.line('(', r.Text)
		} else {
			s.text(r.Text)
		}
	case keyspace.Verbatim:
		if s.resp3 {
			s.head('=', int64(len(r.Text)))
			s.chars(r.Text + "\r\n")
		} else {
			s.text(r.Text[4:])
		}
	default:
		s.set(len(r.All))
		for i := range r.All {
			s.answerText(&r.All[i])
		}
	}
}

// readTexts reads what those of the keys of a cycle hold that are no counts, and are in no error.
func (c *cycle) readTexts(ctx context.Context, values []store.Value, errs []error) error {
	var keys []string
	var at []int
	for i := range values {
		if values[i].IsObject() && (errs == nil || errs[i] == nil) {
			keys, at = append(keys, c.names[i]), append(at, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	c.texts = make([]*keyspace.Value, len(values))
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return c.db.Port().Text(ctx, slices.Compact(sorted), nil, func(space *keyspace.Space) error {
		for n, i := range at {
			v := space.Is(keys[n])
			c.results[i] = store.Result{Outcome: store.Applied, Before: v.N, After: v.N, Existed: v.Exists, DeadlineMS: v.DeadlineMS}
			if c.texts[i] = nil; v.IsText || v.Held != "" {
				c.texts[i] = &v
			}
		}
		return nil
	})
}
