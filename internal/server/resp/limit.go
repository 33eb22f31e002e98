package resp

import (
	"context"
	"strconv"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// Questions to limits go beside the deltas of a cycle, in a batch of their own: limits are no
// counters, and nothing of a cycle depends on them.

// throttleName is the limit that CL.THROTTLE asks: its keys are clients of it.
const throttleName = "cl.throttle"

const amountMax = definition.LimitAmountMax

// An asking is a question of a cycle, and how it is answered.
type asking uint8

const (
	throttled asking = iota // by five integers, as redis-cell does
	mapped                  // by a map
)

// ask appends a question and its reply.
func (c *cycle) ask(a port.Ask, how asking) error {
	if len(c.asks) == store.BatchDeltasMax/2 || len(c.keys) > store.BatchBytesMax/2 {
		return errFull
	}
	c.entries = append(c.entries, entry{kind: asked, at: int32(len(c.asks)), n: 1, nth: int32(how)})
	c.asks = append(c.asks, a)
	return nil
}

// allow asks what was gathered, and waits for the answers.
func (c *cycle) allow(ctx context.Context) {
	c.answers = append(c.answers[:0], make([]port.Answer, len(c.asks))...)
	if len(c.asks) == 0 {
		return
	}
	if err := c.db.Port().Allow(ctx, c.asks, c.answers); err != nil {
		for i := range c.answers {
			c.answers[i].Err = err
		}
	}
}

// startAllow is allow for a cycle in the loop, which does not wait: it reports false if it
// would have to.
func (c *cycle) startAllow() bool {
	if cap(c.answers) < len(c.asks) {
		c.answers = make([]port.Answer, len(c.asks))
	}
	c.answers = c.answers[:len(c.asks)]
	return c.db.Port().StartAllow(c.asks, c.answers, c.done)
}

// answerTo replies the answer to a question, and returns why there is none.
func (c *cycle) answerTo(s *session, e *entry) {
	if int(e.at) >= len(c.answers) {
		s.fail(errorText(c.err))
		return
	}
	a := &c.answers[e.at]
	if a.Err != nil {
		s.d.report(a.Err, 1)
		s.fail(errorText(a.Err))
		return
	}
	if asking(e.nth) == throttled {
		d := a.Decision()
		s.array(5)
		s.flag(!a.Allowed)
		s.integer(d.Limit)
		s.integer(a.Remaining)
		if a.Allowed || d.RetryAfter < 0 {
			s.integer(-1)
		} else {
			s.integer((a.RetryMS + 999) / 1000)
		}
		s.integer((a.ResetMS + 999) / 1000)
		return
	}
	d := a.Decision()
	s.decision(&d)
}

// decision replies a decision, as a map.
func (s *session) decision(d *call.Decision) {
	s.fields(8)
	s.text("allowed")
	s.boolean(d.Allowed)
	s.text("policy")
	s.text(d.Policy)
	s.text("limit")
	s.integer(d.Limit)
	s.text("remaining")
	s.integer(d.Remaining)
	s.text("retry_after_ms")
	if d.RetryAfter < 0 {
		s.integer(-1)
	} else {
		s.integer(d.RetryAfter.Milliseconds())
	}
	s.text("reset_after_ms")
	s.integer(d.ResetAfter.Milliseconds())
	s.text("source")
	s.text(d.Source)
	s.text("replayed")
	s.boolean(d.Replayed)
}

// planThrottle plans CL.THROTTLE key max_burst count period [quantity].
func planThrottle(c *cycle, _ *session, args [][]byte) (encode, error) {
	if len(args) > 6 {
		return nil, errSyntax
	}
	cost := int64(1)
	var n [3]int64
	for i := range n {
		var err error
		if n[i], err = integer(args[2+i]); err != nil {
			return nil, err
		}
	}
	if len(args) == 6 {
		var err error
		if cost, err = integer(args[5]); err != nil {
			return nil, err
		}
	}
	if n[0] < 0 || n[0] >= amountMax || n[1] < 1 || n[2] < 1 {
		return nil, wireError("ERR want a max_burst of 0 or more, and a count and a period of 1 or more, up to " + strconv.FormatInt(amountMax, 10))
	}
	who, err := c.name(args[1])
	if err == nil {
		err = port.CheckAsk(throttleName, who, cost)
	}
	if err != nil {
		return nil, err
	}
	by, err := c.db.Port().Throttle(port.Throttle{Burst: n[0] + 1, Count: n[1], Seconds: n[2]})
	if err != nil {
		return nil, err
	}
	return nil, c.ask(port.Ask{Name: throttleName, Who: who, Cost: cost, By: by}, throttled)
}

// planQAllow plans Q.ALLOW name who [cost] [BURN] [ID token].
func planQAllow(c *cycle, _ *session, args [][]byte) (encode, error) {
	name, err := c.name(args[1])
	if err != nil {
		return nil, err
	}
	a := port.Ask{Name: name, Who: c.keep(args[2]), Cost: 1}
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "BURN") && !a.Burn:
			a.Burn = true
		case is(args[i], "ID") && i+1 < len(args) && a.Token == "":
			i++
			a.Token = c.keep(args[i])
			if err := store.CheckToken(a.Token); err != nil {
				return nil, err
			}
		case i == 3:
			if a.Cost, err = integer(args[i]); err != nil {
				return nil, err
			}
		default:
			return nil, errSyntax
		}
	}
	if err := port.CheckAsk(a.Name, a.Who, a.Cost); err != nil {
		return nil, err
	}
	return nil, c.ask(a, mapped)
}

// qPeek says what a limit would answer: Q.PEEK name who [cost].
func qPeek(ctx context.Context, s *session, args [][]byte) error {
	cost := int64(0)
	switch len(args) {
	case 3:
	case 4:
		var err error
		if cost, err = integer(args[3]); err != nil {
			return err
		}
	default:
		return errSyntax
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	d, err := s.db.Allow(ctx, string(args[1]), string(args[2]), cost, quipu.AllowOptions{DryRun: true})
	if err != nil {
		return err
	}
	s.decision(&d)
	return nil
}

// qForget forgets what a client of a limit has used: Q.FORGET name who.
func qForget(ctx context.Context, s *session, args [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	if err := s.db.ResetLimit(ctx, string(args[1]), string(args[2])); err != nil {
		return err
	}
	s.ok()
	return nil
}

func limitCommands() []*command {
	const asks = flagWrite | flagFast | flagEntries | flagLone
	commands := []*command{
		{name: "CL.THROTTLE", arity: -5, flags: asks, keys: oneKey.used("RW access update"), plan: planThrottle, since: "1.0.0", about: "Asks a token bucket, as the module redis-cell has it."},
		{name: "Q.ALLOW", arity: -3, flags: asks, plan: planQAllow, since: "1.0.0", about: "Asks the limits that are defined for a name whether a client may use a cost."},
		{name: "Q.PEEK", arity: -3, flags: flagRead, slow: qPeek, since: "1.0.0", about: "Returns what the limits of a name would answer."},
		{name: "Q.FORGET", arity: 3, flags: flagWrite, slow: qForget, since: "1.0.0", about: "Forgets what a client of a limit has used."},
	}
	return grouped("limit", commands)
}
