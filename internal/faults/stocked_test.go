package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quipudb/quipu"
)

// holdsMax is how many reservations a history may have.
const holdsMax = 256

// A claim is what a caller asks of a stock, or what time does to it.
type claim struct {
	verb string // add, read, reserve, commit, release, extend, look; lapse and expire are of time
	hold int    // which reservation
	n    int64  // the amount
	by   int    // the name of the deadline that an extension makes, or that has passed
}

// A verdict is what a caller was told.
type verdict struct {
	value   int64 // of an add, a read, and a refusal that was not a repeat
	refused bool  // for want of stock
	repeat  bool  // it may be that of an earlier attempt, or of somebody else
	unknown bool  // nobody knows whether it was done
	state   quipu.HoldState
	taken   int64 // of a commit, and of what was committed
}

// A held is a reservation in the model. The zero held was not made yet.
type held struct {
	state  quipu.HoldState
	lapsed bool  // its time is over, so that it can only expire
	by     int16 // the name of its deadline
	amount int16
	taken  int16
}

// A stock is a counter that is reserved, in the model.
type stock struct {
	own   int64 // what is available
	holds [holdsMax]held
}

// stockModel is what one counter and its reservations must look like to all callers together.
// Time is a caller too: it lapses a reservation at its deadline, and lets it expire at any
// moment from then on. Both meet the deadline that they were told of, or do nothing.
var stockModel = porcupine.Model{
	Init: func() any { return stock{} },
	Step: func(state, input, output any) (bool, any) {
		s, c, v := state.(stock), input.(claim), output.(verdict)
		ok := s.step(c, v)
		return ok, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// step reports whether a claim can have been told so, and does it.
func (s *stock) step(c claim, v verdict) bool {
	h := &s.holds[c.hold]
	open := h.state == quipu.HoldOpen && !h.lapsed
	switch c.verb {
	case "add":
		s.own += c.n
		return v.value == s.own
	case "read":
		return v.value == s.own
	case "reserve":
		if v.refused {
			return s.own < c.n && (v.repeat || v.value == s.own)
		}
		if h.state != 0 || s.own < c.n {
			return false
		}
		s.own -= c.n
		*h = held{state: quipu.HoldOpen, amount: int16(c.n)}
		return true
	case "lapse":
		if h.state == quipu.HoldOpen && int(h.by) == c.by {
			h.lapsed = true
		}
		return true
	case "expire":
		if h.state != quipu.HoldOpen || !h.lapsed {
			return false
		}
		h.state = quipu.HoldExpired
		s.own += int64(h.amount)
		return true
	case "extend":
		switch {
		case v.unknown && !open:
			return true
		case v.unknown || v.state == quipu.HoldOpen:
			h.by = int16(c.by)
			return open
		}
	case "commit", "release":
		ends, taken := quipu.HoldCommitted, c.n
		if c.verb == "release" {
			ends, taken = quipu.HoldReleased, 0
		}
		if v.state == ends && v.taken == taken && open {
			h.state, h.taken = ends, int16(taken)
			s.own += int64(h.amount) - taken
			return true
		}
		if v.state == ends && v.taken == taken && !v.repeat {
			return false
		}
	}
	if v.state == quipu.HoldOpen { // Also a look says that it has expired, before its amount is given back.
		return open
	}
	if v.state == quipu.HoldExpired {
		return h.lapsed
	}
	return h.state == v.state && int64(h.taken) == v.taken
}

// A stocked is a counter whose callers reserve.
type stocked struct {
	told
	holds []*reserved // guarded by mu
}

// A reserved is a reservation, as its maker was told.
type reserved struct {
	at     int // its place in the model
	id     string
	amount int64
	due    int64 // when it may expire first, Unix microseconds
	lasts  bool  // for as long as the history
}

func newStocked(key string) *stocked { return &stocked{told: told{key: key, start: time.Now()}} }

// act does one thing.
func (h *stocked) act(ctx context.Context, db decider, caller int, rng *rand.Rand) error {
	switch n := rng.IntN(20); {
	case n == 0:
		return h.add(ctx, db, caller, rng.Int64N(8))
	case n < 3:
		return h.read(ctx, db, caller)
	case n < 9:
		ttl := time.Hour
		if rng.IntN(2) == 0 {
			ttl = brief
		}
		return h.reserve(ctx, db, caller, 1+rng.Int64N(5), ttl)
	}
	r := h.pick(rng)
	if r == nil {
		return h.add(ctx, db, caller, 5)
	}
	if left := time.Duration(r.due-h.now()) * time.Microsecond; left > 0 && left < brief && rng.IntN(2) == 0 {
		pause(left+time.Duration(rng.IntN(80)-20)*time.Millisecond, ctx.Done()) // The call and the end of the time race.
	}
	switch n := rng.IntN(12); {
	case n < 5:
		return h.finish(ctx, db, caller, claim{verb: "commit", hold: r.at, n: rng.Int64N(r.amount + 1)}, r)
	case n < 7:
		return h.finish(ctx, db, caller, claim{verb: "release", hold: r.at}, r)
	case n < 10:
		return h.extend(ctx, db, caller, r)
	default:
		return h.finish(ctx, db, caller, claim{verb: "look", hold: r.at}, r)
	}
}

// pick returns one of the last reservations, if there is one.
func (h *stocked) pick(rng *rand.Rand) *reserved {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holds) == 0 {
		return nil
	}
	return h.holds[len(h.holds)-1-rng.IntN(min(len(h.holds), 5))]
}

func (h *stocked) add(ctx context.Context, db decider, caller int, n int64) error {
	call, token := h.now(), h.token()
	var r quipu.Receipt
	_, err := insist(ctx, func(ctx context.Context) (err error) {
		r, err = db.Add(ctx, h.key, n, token, quipu.WantValue())
		return err
	})
	h.record(caller, claim{verb: "add", n: n}, verdict{value: r.Value}, call, h.now())
	return err
}

func (h *stocked) read(ctx context.Context, db decider, caller int) error {
	var c quipu.Count
	call := h.now()
	_, err := insist(ctx, func(ctx context.Context) (err error) {
		call = h.now() // Only what was answered counts.
		c, err = db.Read(ctx, h.key, quipu.Exact())
		return err
	})
	h.record(caller, claim{verb: "read"}, verdict{value: c.Value}, call, h.now())
	return err
}

// reserve reserves, under a token until it is known what has become of it.
func (h *stocked) reserve(ctx context.Context, db decider, caller int, n int64, ttl time.Duration) error {
	call, token := h.now(), h.token()
	var r quipu.Reservation
	again, err := insist(ctx, func(ctx context.Context) (err error) {
		r, err = db.Reserve(ctx, h.key, n, ttl, token)
		return err
	})
	end := h.now()
	if e, ok := errors.AsType[*quipu.BoundError](err); ok {
		h.record(caller, claim{verb: "reserve", n: n}, verdict{refused: true, value: e.Value, repeat: again}, call, end)
		return nil
	}
	if err != nil {
		return err
	}
	due := r.ExpiresAt.UnixMicro()
	if r.Replayed || r.State != quipu.HoldOpen { // It may have been extended or ended, but by nobody: only its maker knows it.
		due = call + ttl.Microseconds()
	}
	h.mu.Lock()
	at := len(h.holds)
	made := &reserved{at: at, id: r.ID, amount: n, due: due, lasts: ttl > longer}
	if at < holdsMax {
		h.holds = append(h.holds, made)
	}
	h.mu.Unlock()
	if at == holdsMax {
		return fmt.Errorf("%s has more than %d reservations", h.key, holdsMax)
	}
	h.record(caller, claim{verb: "reserve", hold: at, n: n}, verdict{}, call, end)
	last := due
	if r.ExpiresAt.IsZero() {
		last = end + ttl.Microseconds()
	}
	h.lapse(made, 0, due, last)
	return nil
}

// lapse has a deadline of a reservation pass, within some time.
func (h *stocked) lapse(r *reserved, by int, from, to int64) {
	if !r.lasts {
		h.record(judges, claim{verb: "lapse", hold: r.at, by: by}, verdict{}, from-slack.Microseconds(), to+slack.Microseconds())
	}
}

// extend extends a reservation. It has no token: an attempt of which nobody knows what it
// did may do it at any time from then on.
func (h *stocked) extend(ctx context.Context, db decider, caller int, r *reserved) error {
	_, err := insist(ctx, func(ctx context.Context) error {
		c, call := claim{verb: "extend", hold: r.at, by: h.name()}, h.now()
		got, err := db.Extend(ctx, r.id, longer)
		if doubted(err) {
			h.record(caller, c, verdict{unknown: true}, call, unending)
			h.lapse(r, c.by, call+longer.Microseconds(), unending)
			return err
		}
		if errors.Is(err, quipu.ErrUnavailable) {
			return err
		}
		v, err := ended(got, err)
		if err != nil {
			return err
		}
		h.record(caller, c, v, call, h.now())
		if v.state == quipu.HoldOpen {
			due := got.ExpiresAt.UnixMicro()
			h.lapse(r, c.by, due, due)
		}
		return nil
	})
	return err
}

// finish commits, releases or looks at a reservation.
func (h *stocked) finish(ctx context.Context, db decider, caller int, c claim, r *reserved) error {
	var got quipu.Reservation
	call := h.now()
	_, err := insist(ctx, func(ctx context.Context) (err error) {
		switch c.verb {
		case "commit":
			got, err = db.Commit(ctx, r.id, c.n)
		case "release":
			got, err = db.Release(ctx, r.id)
		default:
			got, err = db.Reservation(ctx, r.id)
		}
		return err
	})
	v, err := ended(got, err)
	h.record(caller, c, v, call, h.now())
	return err
}

// ended returns what a call for a reservation says has become of it.
func ended(r quipu.Reservation, err error) (verdict, error) {
	if err == nil {
		return verdict{state: r.State, taken: r.Committed, repeat: r.Replayed}, nil
	}
	if !errors.Is(err, quipu.ErrEnded) {
		return verdict{}, err
	}
	v := verdict{state: quipu.HoldExpired, repeat: true}
	if _, how, ok := strings.Cut(err.Error(), "it was committed, with "); ok {
		v.state = quipu.HoldCommitted
		_, err = fmt.Sscan(how, &v.taken)
		return v, err
	}
	if strings.Contains(err.Error(), "it was released") {
		v.state = quipu.HoldReleased
	}
	return v, nil
}

// end looks at what has become of each reservation, when those that expire have.
func (h *stocked) end(ctx context.Context, db decider) error {
	lasting := map[string]bool{}
	var left quipu.ReservationPage
	var err error
	e := await(ctx, "what has expired is given back", func() bool {
		if left, err = db.Reservations(ctx, h.key, quipu.ReservationOptions{Limit: holdsMax}); err != nil {
			return !unclear(err)
		}
		clear(lasting)
		for _, r := range left.Reservations {
			lasting[r.ID] = time.Until(r.ExpiresAt) > time.Minute
			if !lasting[r.ID] {
				return false
			}
		}
		return left.Open == int64(len(left.Reservations)) // unless one expired after they were counted
	})
	if err := errors.Join(e, err); err != nil {
		return err
	}
	sum := int64(0)
	for _, r := range h.holds {
		got, err := db.Reservation(ctx, r.id)
		if err != nil {
			return err
		}
		if got.State == quipu.HoldExpired {
			h.record(judges, claim{verb: "expire", hold: r.at}, verdict{}, r.due-slack.Microseconds(), h.now())
		}
		if lasting[r.id] != (got.State == quipu.HoldOpen) {
			return fmt.Errorf("%+v is listed: %t", got, lasting[r.id])
		}
		if lasting[r.id] {
			sum += r.amount
		}
		if err := h.finish(ctx, db, 0, claim{verb: "look", hold: r.at}, r); err != nil {
			return err
		}
	}
	if left.Reserved != sum {
		return fmt.Errorf("%+v, and %d are reserved", left, sum)
	}
	return h.read(ctx, db, 0)
}

func (h *stocked) judge(t *testing.T) {
	t.Helper()
	h.judged(t, stockModel, porcupine.Ok)
}
