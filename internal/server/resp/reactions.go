package resp

import (
	"context"
	"strconv"
	"unsafe"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// Reactions are Q.REACT and its like; and a counter that has choices is a set to Redis, of
// the users that have the first of them.

const errWrongType = wireError("WRONGTYPE Operation against a key holding the wrong kind of value")

// firstChoice is the number of the choice that makes a user a member of the set.
const firstChoice = 1

// membersMost is how many members SMEMBERS replies at most.
const membersMost = 10_000

// reactionsMost is how many reactions a cycle takes beside other deltas. What they change
// counts towards what a batch may have, and a batch that has more is cut and must wait:
// this many fit, of a counter without views.
const reactionsMost = store.BatchDeltasMax / 8

func reactionCommands() []*command {
	own := []*command{
		{name: "Q.REACT", arity: -4, flags: flagGrow | writes | flagReact, keys: oneKey.used("RW access update"), plan: planQReact, slow: qReact, since: "1.0.0", about: "Makes a choice the user's."},
		{name: "Q.UNREACT", arity: -3, flags: writes | flagReact, keys: oneKey.used("RW access update"), plan: planQUnreact, slow: qUnreact, since: "1.0.0", about: "Takes back what a user has chosen."},
		{name: "Q.REACTION", arity: -2, flags: reads, keys: oneKey.used("RO access"), slow: qReaction, since: "1.0.0", about: "Returns what a user has chosen, or how many have each choice."},
	}
	sets := []*command{
		{name: "SADD", arity: -3, flags: flagGrow | writes | flagReact, keys: oneKey.used("RW insert"), plan: planSAdd, slow: sAdd, since: "1.0.0", about: "Makes users have the first choice of a counter."},
		{name: "SREM", arity: -3, flags: writes | flagReact, keys: oneKey.used("RW delete"), plan: planSRem, slow: sRem, since: "1.0.0", about: "Takes the first choice of a counter back from users."},
		{name: "SISMEMBER", arity: 3, flags: reads, keys: oneKey.used("RO"), slow: sIsMember, since: "1.0.0", about: "Returns whether a user has the first choice of a counter."},
		{name: "SMISMEMBER", arity: -3, flags: reads, keys: oneKey.used("RO access"), slow: sMIsMember, since: "6.2.0", about: "Returns which users have the first choice of a counter."},
		{name: "SCARD", arity: 2, flags: reads, keys: oneKey.used("RO"), slow: sCard, since: "1.0.0", about: "Returns how many users have the first choice of a counter."},
		{name: "SMEMBERS", arity: 2, flags: flagRead, keys: oneKey.used("RO access"), slow: sMembers, since: "1.0.0", about: "Returns the users that have the first choice of a counter."},
		{name: "SSCAN", arity: -3, flags: flagRead, keys: oneKey.used("RO access"), slow: sScan, since: "2.8.0", about: "Returns the users that have the first choice of a counter, a few at a time."},
	}
	return append(grouped("counter", own), grouped("set", sets)...)
}

// reactsSlow reports whether a reaction can't be planned: it has a token, or its counter has no
// choices as far as it is known here.
func (s *session) reactsSlow(c *command, args [][]byte) bool {
	if c.flags&flagReact == 0 {
		return false
	}
	most := map[string]int{"Q.REACT": 4, "Q.UNREACT": 3}[c.name]
	return most != 0 && len(args) > most || !s.db.Port().Acquainted(textOf(args[1]))
}

// textOf returns an argument as a string, which must not be kept.
func textOf(arg []byte) string { return unsafe.String(unsafe.SliceData(arg), len(arg)) }

func planQReact(c *cycle, _ *session, args [][]byte) (encode, error) {
	choice, err := choiceOf(c.db.Port().KnownChoices(textOf(args[1])), args[3])
	if err != nil {
		return nil, err
	}
	if len(args) > 4 {
		return nil, wireError("ERR ID can't be part of a transaction here")
	}
	if c.crammed(1) {
		return nil, errFull
	}
	return encodeChanged, c.react(store.OpSet, args[1], args[2], choice)
}

func planQUnreact(c *cycle, _ *session, args [][]byte) (encode, error) {
	if len(args) > 3 {
		return nil, wireError("ERR ID can't be part of a transaction here")
	}
	if c.crammed(1) {
		return nil, errFull
	}
	return encodeChanged, c.react(store.OpDelete, args[1], args[2], 0)
}

func planSAdd(c *cycle, _ *session, args [][]byte) (encode, error) {
	return c.reactEach(store.OpSet, args)
}

func planSRem(c *cycle, _ *session, args [][]byte) (encode, error) {
	return c.reactEach(store.OpDelete, args)
}

// crammed reports whether some reactions should go to the next cycle. Those of a
// transaction stay together.
func (c *cycle) crammed(more int) bool {
	return !c.whole && len(c.deltas) > 0 && len(c.deltas)+more > reactionsMost
}

func (c *cycle) reactEach(op store.Op, args [][]byte) (encode, error) {
	if c.crammed(len(args) - 2) {
		return nil, errFull
	}
	for _, user := range args[2:] {
		if err := c.react(op, args[1], user, firstChoice); err != nil {
			return nil, err
		}
	}
	return encodeChanged, nil
}

// react appends a reaction: n is the choice, or of a deletion the only one that is taken
// back, 0 for any.
func (c *cycle) react(op store.Op, key, user []byte, n int64) error {
	if err := call.CheckUser(textOf(user)); err != nil {
		return err
	}
	d, err := c.delta(op, key)
	if err != nil {
		return err
	}
	d.N, d.Event = n, c.db.Port().ReactEvent(d.Cell.Key, textOf(user))
	c.reacts = true
	return nil
}

// choiceOf returns the number of a choice.
func choiceOf(choices []string, name []byte) (int64, error) {
	for i, choice := range choices {
		if choice == string(name) {
			return int64(i + 1), nil
		}
	}
	return 0, port.ErrChoice(string(name), choices)
}

// encodeChanged replies how many reactions have changed something.
func encodeChanged(e *encoder, results []store.Result) {
	n, failed := 0, error(nil)
	for i := range results {
		r := &results[i]
		why := port.NotReacted(r)
		if failed == nil {
			failed = why
		}
		if why == nil && r.Outcome == store.Applied {
			n++
		}
	}
	if failed != nil {
		e.fail(errorText(someChanged(failed, n, len(results))))
		return
	}
	e.integer(int64(n))
}

// someChanged returns the error of a call that some of its users were refused by, and says for
// how many it has changed something: each of them is decided alone.
func someChanged(err error, changed, of int) error {
	if kind := store.KindOf(err); of > 1 && kind != store.KindUnknown && kind != store.KindUnavailable {
		return store.Errorf(kind, "%s; of the %d users of this call %d were changed", server.Detail(err), of, changed)
	}
	return store.Partly(err, changed > 0)
}

// stale returns the reactions of a portion that were refused because their server knew
// an old generation of members.
func (c *cycle) stale(home int32) (at []int) {
	if !c.reacts {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.deltas {
		if home != all && (int(home) >= len(c.homes) || c.homes[i] != home) || c.deltas[i].Event == nil || c.errs != nil && c.errs[i] != nil {
			continue
		}
		if stale, _ := port.Unchanged(&c.results[i]); stale && c.deltas[i].Event.Part.Kind() == store.PartMember {
			at = append(at, i)
		}
	}
	return at
}

// again makes reactions again that were stale.
func (c *cycle) again(ctx context.Context, at []int) error {
	c.mu.Lock()
	deltas, results := make([]store.Delta, len(at)), make([]store.Result, len(at))
	for i, n := range at {
		deltas[i] = c.deltas[n]
	}
	c.mu.Unlock()
	err := c.db.Port().ReactAgain(ctx, deltas, results)
	if err != nil {
		return store.Partly(err, true)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range at {
		c.results[n] = results[i]
	}
	return nil
}

// choices returns what users may choose of a counter. If that is nothing, the counter is no
// set: it must not exist then.
func (s *session) choices(ctx context.Context, key []byte) ([]string, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	choices, err := s.db.Port().Choices(ctx, string(key))
	if err != nil || len(choices) > 0 {
		return choices, err
	}
	count, err := s.db.Read(ctx, string(key))
	if err == nil && count.Exists {
		err = errWrongType
	}
	return nil, err
}

func qReact(ctx context.Context, s *session, args [][]byte) error {
	return s.qReact(ctx, args, args[4:], func(ctx context.Context, opts ...quipu.WriteOption) (quipu.Reaction, error) {
		return s.db.React(ctx, string(args[1]), string(args[2]), string(args[3]), opts...)
	})
}

func qUnreact(ctx context.Context, s *session, args [][]byte) error {
	return s.qReact(ctx, args, args[3:], func(ctx context.Context, opts ...quipu.WriteOption) (quipu.Reaction, error) {
		return s.db.Unreact(ctx, string(args[1]), string(args[2]), opts...)
	})
}

// qReact makes a reaction with a token, or to a counter that is not known to take any.
func (s *session) qReact(ctx context.Context, args, rest [][]byte, do func(ctx context.Context, opts ...quipu.WriteOption) (quipu.Reaction, error)) error {
	var opts []quipu.WriteOption
	switch {
	case len(rest) == 0:
	case len(rest) == 2 && is(rest[0], "ID"):
		if err := store.CheckToken(string(rest[1])); err != nil {
			return err
		}
		opts = append(opts, quipu.Token(string(rest[1])))
	default:
		return errSyntax
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	if _, err := s.choices(ctx, args[1]); err != nil {
		return err
	}
	r, err := do(ctx, opts...)
	if err != nil {
		return err
	}
	s.flag(r.Changed)
	return nil
}

func sAdd(ctx context.Context, s *session, args [][]byte) error {
	return s.reactEach(ctx, args, func(user string) port.Reaction {
		return port.Reaction{Key: string(args[1]), User: user, Choice: firstChoice}
	})
}

func sRem(ctx context.Context, s *session, args [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	if choices, err := s.choices(ctx, args[1]); err != nil || choices == nil {
		s.flag(false) // nothing is in what does not exist
		return err
	}
	return s.reactEach(ctx, args, func(user string) port.Reaction {
		return port.Reaction{Key: string(args[1]), User: user, Only: firstChoice}
	})
}

// reactEach makes a reaction of each user, and replies how many have changed something.
func (s *session) reactEach(ctx context.Context, args [][]byte, of func(user string) port.Reaction) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	if choices, err := s.choices(ctx, args[1]); err != nil {
		return err
	} else if choices == nil {
		return port.NoChoices(string(args[1]))
	}
	if len(args)-2 > store.BatchDeltasMax {
		return errTooLarge
	}
	reactions, results := make([]port.Reaction, len(args)-2), make([]port.Reacted, len(args)-2)
	for i, user := range args[2:] {
		if err := call.CheckUser(string(user)); err != nil {
			return err
		}
		reactions[i] = of(string(user))
	}
	if err := s.db.Port().React(ctx, reactions, results); err != nil {
		return err
	}
	n, failed := 0, error(nil)
	for i := range results {
		if failed == nil {
			failed = results[i].Err
		}
		if results[i].Changed {
			n++
		}
	}
	if failed != nil {
		return someChanged(failed, n, len(results))
	}
	s.integer(int64(n))
	return nil
}

func qReaction(ctx context.Context, s *session, args [][]byte) error {
	if len(args) > 3 {
		return errSyntax
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	if len(args) == 2 {
		all, err := s.db.Reactions(ctx, string(args[1]))
		if err != nil {
			return err
		}
		s.fields(len(all.Counts))
		for _, n := range all.Counts {
			s.text(n.Choice)
			s.integer(n.Users)
		}
		return nil
	}
	choices, err := s.db.Choice(ctx, string(args[2]), string(args[1]))
	switch {
	case err != nil:
		return err
	case choices[0] == "":
		s.null()
	default:
		s.text(choices[0])
	}
	return nil
}

// member returns which of some users have the first choice of a counter.
func (s *session) member(ctx context.Context, args [][]byte) ([]bool, error) {
	if len(args)-2 > store.ReadCellsMax {
		return nil, errTooLarge
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	is := make([]bool, len(args)-2)
	if choices, err := s.choices(ctx, args[1]); err != nil || choices == nil {
		return is, err
	}
	users, chosen := make([]string, len(is)), make([]int64, len(is))
	for i, user := range args[2:] {
		users[i] = string(user)
		if err := call.CheckUser(users[i]); err != nil {
			return nil, err
		}
	}
	if err := s.db.Port().ChosenBy(ctx, string(args[1]), users, chosen); err != nil {
		return nil, err
	}
	for i, choice := range chosen {
		is[i] = choice == firstChoice
	}
	return is, nil
}

func sIsMember(ctx context.Context, s *session, args [][]byte) error {
	is, err := s.member(ctx, args)
	if err == nil {
		s.flag(is[0])
	}
	return err
}

func sMIsMember(ctx context.Context, s *session, args [][]byte) error {
	is, err := s.member(ctx, args)
	if err != nil {
		return err
	}
	s.array(len(is))
	for _, is := range is {
		s.flag(is)
	}
	return nil
}

func sCard(ctx context.Context, s *session, args [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	var users [firstChoice]int64
	if choices, err := s.choices(ctx, args[1]); err != nil {
		return err
	} else if choices != nil {
		if err := s.db.Port().Counts(ctx, string(args[1]), users[:]); err != nil {
			return err
		}
	}
	s.integer(users[firstChoice-1])
	return nil
}

func sMembers(ctx context.Context, s *session, args [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	choices, err := s.choices(ctx, args[1])
	if err != nil {
		return err
	}
	var all []port.Member
	q := port.MembersQuery{Key: string(args[1]), Choice: firstChoice, Limit: quipu.MembersMax}
	for more := choices != nil; more; {
		page, next, err := s.db.Port().Members(ctx, q)
		if err != nil {
			return err
		}
		if all = append(all, page...); len(all) > membersMost {
			return wireError("ERR the set has more than " + strconv.Itoa(membersMost) + " members: use SSCAN")
		}
		q.Cursor, more = next, next != ""
	}
	s.set(len(all))
	for _, m := range all {
		s.text(m.User)
	}
	return nil
}

func sScan(ctx context.Context, s *session, args [][]byte) error {
	cursor, err := strconv.ParseUint(string(args[2]), 10, 64)
	if err != nil {
		return wireError("ERR invalid cursor")
	}
	pattern, count, only, err := parseScan(args[3:])
	if err == nil && only != "" {
		err = errSyntax
	}
	if err != nil {
		return err
	}
	q := port.MembersQuery{Key: string(args[1]), Choice: firstChoice, Limit: count}
	if cursor != 0 {
		var ok bool
		if q.Cursor, ok = s.d.cursors.get(cursor); !ok {
			return wireError("ERR invalid cursor")
		}
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	choices, err := s.choices(ctx, args[1])
	if err != nil {
		return err
	}
	var page []port.Member
	next, after := uint64(0), ""
	if choices != nil {
		if page, after, err = s.db.Port().Members(ctx, q); err != nil {
			return wireError(errorText(err))
		}
	}
	if after != "" {
		next = s.d.cursors.put(after)
	}
	var users []string
	for _, m := range page {
		if pattern == "*" || match(pattern, m.User) {
			users = append(users, m.User)
		}
	}
	s.array(2)
	s.text(strconv.FormatUint(next, 10))
	s.array(len(users))
	for _, user := range users {
		s.text(user)
	}
	return nil
}
