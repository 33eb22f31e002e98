package port

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/due"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

// holdTries is how often a step in the life of a hold is made anew because another step of
// it, or the time, came in between.
const holdTries = 8

// A Reserve is what is to be reserved.
type Reserve struct {
	Key, Who string
	Amount   int64
	TTL      time.Duration
	Token    string // empty is none
	Floor    *int64 // below which nothing is reserved; nil is that of the definition, or 0
	Want     bool   // what the counter has is wanted
}

// Reserve takes an amount out of a counter for a time.
func (p *Port) Reserve(ctx context.Context, r Reserve) (call.Reservation, error) {
	if err := p.mayWrite(); err != nil {
		return call.Reservation{}, err
	}
	h := hold.Hold{Key: r.Key, Amount: r.Amount, Who: r.Who}
	if err := h.Check(); err != nil {
		return call.Reservation{}, err
	}
	if err := hold.CheckTTL(r.TTL, 0); err != nil {
		return call.Reservation{}, err
	}
	if r.Token != "" {
		if err := store.CheckToken(r.Token); err != nil {
			return call.Reservation{}, err
		}
		h.Name = hold.NameOf(p.namespace, r.Key, r.Token)
	} else {
		var raw [12]byte
		_, _ = rand.Read(raw[:]) // It never fails.
		h.Name = hold.NameFrom(raw)
	}
	for try := 1; ; try++ {
		out, err := p.reserve(ctx, &r, h)
		if store.KindOf(err) != store.KindUntimely || try == holdTries {
			return out, err
		}
		// The store's time was known too badly, or it took too long: it has told it by now.
	}
}

func (p *Port) mayWrite() error {
	if p.err == nil && p.readOnly {
		return store.ErrReadOnly
	}
	return p.err
}

// reserve is one attempt of Reserve.
func (p *Port) reserve(ctx context.Context, r *Reserve, h hold.Hold) (call.Reservation, error) {
	cell := p.Cell(h.Key)
	a := &act{do: doReserve, hold: h, ttl: r.TTL, floor: r.Floor, deadline: p.NowMS(cell)*1000 + r.TTL.Microseconds()}
	if err := p.roomForHold(ctx, r, cell); err != nil {
		return call.Reservation{}, err
	}
	if err := p.books.Hold(ctx, p.namespace); err != nil {
		return call.Reservation{}, err
	}
	if err := p.due.Hint(ctx, cell, a.deadline, p.Rules().Policy(h.Key).Durability); err != nil {
		return call.Reservation{}, err
	}
	d := store.Delta{Cell: cell, Op: store.OpAdd, N: -h.Amount, Want: true}
	if r.Floor != nil {
		d.Guard.Bound = &store.Bound{Low: *r.Floor, High: store.Unbounded().High, Inward: true}
	}
	fact := Fact{hold: a, Who: h.Who}
	if d.Guard.Token = r.Token; r.Token != "" {
		d.Guard.Digest = Digest(&d, &fact)
	}
	res, durability, err := p.step(ctx, &d, fact)
	if err != nil {
		return call.Reservation{}, err
	}
	if res.Outcome != store.Applied {
		return call.Reservation{}, p.notReserved(ctx, &d, &fact, &res)
	}
	out := p.told(&h, a.deadline, call.HoldOpen)
	out.Durability, out.Replayed = durability, res.Replayed
	if res.Replayed {
		if out, err = p.asItIs(ctx, out, h); err != nil {
			return out, err
		}
	} else {
		p.due.Changed(p.namespace, 1)
	}
	if r.Want {
		err = p.withStock(ctx, &out)
	}
	return out, err
}

// roomForHold returns an error if the namespace has as many open holds as it may have, unless
// the call is a repeat.
func (p *Port) roomForHold(ctx context.Context, r *Reserve, cell store.Cell) error {
	open := p.due.Open(p.namespace)
	if open < p.most.HoldsMax {
		return nil
	}
	if r.Token != "" {
		if fate, err := p.store.Lookup(ctx, cell, r.Token); err != nil || fate.State == store.TokenApplied {
			return err
		}
	}
	p.full.Add(1)
	p.refused.Add(1)
	return store.Errorf(store.KindFull, "namespace %q has about %d open reservations, and may have %d (--hold-quota)", p.namespace, open, p.most.HoldsMax)
}

// step sends one delta, and returns what became of it.
func (p *Port) step(ctx context.Context, d *store.Delta, fact Fact) (res store.Result, durability store.Durability, err error) {
	c := p.NewCall(1)
	defer p.Free(c)
	c.Deltas[0] = *d
	c.Facts = append(c.Facts[:0], fact)
	if err := p.Send(ctx, c, store.DurabilityDefault); err != nil {
		return res, 0, err
	}
	if err := c.Replies[0].Err; err != nil {
		return res, 0, err
	}
	d.Guard, d.Event = c.Deltas[0].Guard, c.Deltas[0].Event
	return c.Replies[0].Results[0], c.Replies[0].Durability, nil
}

// notReserved returns why an amount was not reserved.
func (p *Port) notReserved(ctx context.Context, d *store.Delta, fact *Fact, r *store.Result) error {
	switch {
	case r.Outcome == store.Bounded && r.Refused == 0:
		return call.NotEnough(&call.BoundError{Value: r.Before, Asked: d.N, Limit: d.Guard.Bound.Low, Forgotten: r.Forgotten})
	case r.Outcome == store.Bounded:
		return p.limited(d, fact, r)
	case r.Outcome == store.Barred:
		return p.Why(ctx, d, fact)
	case r.Outcome == store.Unmet && r.Refused == 0:
		return errMortal
	case r.Outcome == store.Unmet: // It was made before the token was forgotten, and is still open.
		return store.Errorf(store.KindExpired, "%s, and its reservation is still open", store.ErrExpired.Detail)
	default:
		return r.Outcome.Err()
	}
}

// errMortal is why a counter that has a deadline takes no step of a hold.
var errMortal = store.Errorf(store.KindUnmet, "the counter has a deadline, but a counter with reservations can't have one: remove the deadline first")

// limited returns the error of a limit on reservations.
func (p *Port) limited(d *store.Delta, fact *Fact, r *store.Result) error {
	of, limit := "the limit", int64(0)
	if d.Event != nil && int(r.Refused) <= d.Event.Len() {
		rider := d.Event.Rider(int(r.Refused) - 1)
		if f, ok := rider.Part.Fields(); ok && rider.Bound != nil {
			limit = rider.Bound.High
			if of = "open at once"; f.Position == 0 {
				of = "reserved at once"
			}
			if f.Name != "" {
				of += fmt.Sprintf(" for %q", f.Name)
			}
		}
	}
	return store.Errorf(store.KindBound, "%d asked for, and a limit on reservations refuses it: at most %d are %s", fact.hold.hold.Amount, limit, of)
}

// told returns what is known of a hold that has a deadline, 0 if that is not known.
func (p *Port) told(h *hold.Hold, deadline int64, state call.HoldState) call.Reservation {
	out := call.Reservation{ID: h.ID(p.namespace), Namespace: p.namespace, Key: h.Key, Amount: h.Amount, Who: h.Who, State: state}
	if deadline != 0 {
		out.ExpiresAt = time.UnixMicro(deadline)
	}
	return out
}

// withStock fills in what the counter has, after a step of a hold was made.
func (p *Port) withStock(ctx context.Context, out *call.Reservation) (err error) {
	out.Stock, err = p.Stock(ctx, out.Key)
	out.HasStock = err == nil
	if err != nil && store.KindOf(err) != store.KindInvalid {
		err = store.Errorf(store.KindUnknown, "the write was applied, but the counter can't be read: %w", err)
	}
	return err
}

// asItIs fills in what has become of a hold.
func (p *Port) asItIs(ctx context.Context, out call.Reservation, h hold.Hold) (call.Reservation, error) {
	deadline, state, err := p.stateOf(ctx, &h)
	if err != nil {
		return out, err
	}
	out.State, out.ExpiresAt = state, time.Time{}
	if deadline != 0 {
		out.ExpiresAt = time.UnixMicro(deadline)
	} else {
		out.State, out.Committed, err = p.end(ctx, &h)
	}
	return out, err
}

// stateOf reads the deadline of a hold, and whether it has come: a sweep may be late. The
// deadline is 0 if the hold is gone.
func (p *Port) stateOf(ctx context.Context, h *hold.Hold) (deadline int64, state call.HoldState, err error) {
	cell := p.Cell(h.Key)
	for range holdTries {
		began := p.NowMS(cell) * 1000
		deadline, err = p.deadline(ctx, h)
		switch {
		case err != nil || deadline == 0:
			return 0, 0, err
		case began > deadline: // From its deadline on, only its expiry ends it.
			return deadline, call.HoldExpired, nil
		case p.NowMS(cell)*1000 <= deadline:
			return deadline, call.HoldOpen, nil
		}
		// Its deadline came while it was read: it may have been committed before that.
	}
	return 0, 0, errBusy
}

// deadline reads that of a hold; 0 if it is not open.
func (p *Port) deadline(ctx context.Context, h *hold.Hold) (int64, error) {
	var content [1]store.Content
	err := p.store.ReadParts(ctx, []store.PartCell{{Cell: p.Cell(h.Key), Part: h.Part()}}, content[:])
	return content[0].N, err
}

// end returns how a hold has ended that is not there any more.
func (p *Port) end(ctx context.Context, h *hold.Hold) (state call.HoldState, committed int64, err error) {
	fate, err := p.store.Lookup(ctx, p.Cell(h.Key), h.EndToken())
	if err == nil && fate.State == store.TokenRefused {
		fate, err = p.store.Lookup(ctx, p.Cell(h.Key), h.EndTokenAgain())
	}
	switch {
	case err != nil:
		return 0, 0, err
	case fate.State != store.TokenApplied:
		return call.HoldExpired, 0, nil
	case fate.N < 0:
		return call.HoldReleased, 0, nil
	default:
		return call.HoldCommitted, fate.N, nil
	}
}

// Stock returns what there is of a counter that has reservations: at one moment, if it can be
// caught at rest, and else Stock.Exact is not set.
func (p *Port) Stock(ctx context.Context, key string) (s call.Stock, err error) {
	if p.err != nil {
		return s, p.err
	}
	if err := store.CheckKey(key); err != nil {
		return s, err
	}
	cells := []store.Cell{p.Cell(key)}
	parts := []store.PartCell{{Cell: cells[0], Part: hold.Sum("")}, {Cell: cells[0], Part: hold.Number("")}}
	var before, after [1]store.Value
	var held [2]store.Content
	if err := p.store.Read(ctx, cells, before[:]); err != nil {
		return s, err
	}
	for range holdTries {
		if err := p.store.ReadParts(ctx, parts, held[:]); err != nil {
			return s, err
		}
		if err := p.store.Read(ctx, cells, after[:]); err != nil {
			return s, err
		}
		if before[0].Version == after[0].Version {
			s.Exact = true
			break
		}
		before = after
	}
	s.Value, s.Reserved, s.Available, s.Open = after[0].N+held[0].N, held[0].N, after[0].N, held[1].N
	return s, nil
}

// sweep ends what is due of the counters that a hint names.
func (s *shared) sweep(ctx context.Context, h hold.Hint) (n due.Swept, err error) {
	p := (&Port{shared: s, source: "expiry"}).In(h.Namespace)
	if p.err != nil {
		return n, p.err
	}
	cell := p.Cell(h.Key)
	until := max(h.At, p.NowMS(cell)*1000)
	rows := hold.DueRows(cell, until)
	if h.Prefix {
		rows = store.RowsUnder(h.Namespace, store.PartFields{Kind: store.PartDue}, h.Key)
	}
	const page = 200
	for {
		found, err := s.store.ScanParts(ctx, rows, page)
		if err != nil {
			return n, err
		}
		if err := p.expire(ctx, found, until, &n); err != nil || len(found) < page {
			return n, err
		}
		last := &found[page-1]
		_, row := store.AppendRow(nil, last.Cell, last.Part)
		rows.From = string(row) + "\x00"
	}
}

// expire ends the holds that are due of those that were found.
func (p *Port) expire(ctx context.Context, found []store.PartEntry, until int64, n *due.Swept) error {
	var acts []*act
	for i := range found {
		h, deadline, ok := hold.Of(found[i].Cell.Key, found[i].Part, found[i].Content.N)
		if ok && deadline <= until {
			acts = append(acts, &act{do: doExpire, hold: h, deadline: deadline})
		}
	}
	if len(acts) == 0 {
		return nil
	}
	c := p.NewCall(len(acts))
	defer p.Free(c)
	c.Facts = resized(c.Facts, len(acts))
	for i, a := range acts {
		c.Deltas[i] = store.Delta{Cell: p.Cell(a.hold.Key), Op: store.OpDelete}
		c.Facts[i] = Fact{hold: a}
	}
	if err := p.Send(ctx, c, store.DurabilityDefault); err != nil {
		return err
	}
	var failed error
	var unmet []store.Cell
	c.Each(func(i int, _ *store.Delta, reply *store.Reply, nth int) {
		if reply.Err != nil {
			failed = reply.Err
			return
		}
		switch r := &reply.Results[nth]; r.Outcome {
		case store.Applied:
			n.Ended++
			if due.Late(acts[i].deadline, p.NowMS(p.Cell(acts[i].hold.Key))) {
				n.Late++
			}
		case store.Untimely:
			n.Early = true
		case store.Unmet: // Somebody else has ended or extended it, or the counter has a deadline.
			if cell := p.Cell(acts[i].hold.Key); !slices.Contains(unmet, cell) {
				unmet = append(unmet, cell)
			}
		default:
			failed = r.Outcome.Err()
		}
	})
	if len(unmet) == 0 {
		return failed
	}
	values := make([]store.Value, len(unmet))
	if err := p.store.Read(ctx, unmet, values); err != nil {
		return err
	}
	for i := range unmet {
		if values[i].DeadlineMS == 0 {
			continue
		}
		if _, err := p.mend(ctx, unmet[i]); err != nil {
			return err
		}
		n.Early = true // It is given back the next time.
	}
	return failed
}

// cleanHeld removes the counts of those who hold nothing of a counter any more.
func (s *shared) cleanHeld(ctx context.Context, cell store.Cell, who []string) error {
	p := (&Port{shared: s, source: "expiry"}).In(cell.Namespace)
	if p.err != nil {
		return p.err
	}
	for _, name := range who {
		fact := Fact{hold: &act{do: doClean, who: name}}
		d := store.Delta{Cell: cell, Op: store.OpAdd, Guard: store.Guard{Exists: store.ExistsMust}}
		r, _, err := p.step(ctx, &d, fact)
		if err == nil && r.Outcome == store.Unmet && r.Refused == 0 { // There is no counter, and none is to come of this.
			d = store.Delta{Cell: cell, Op: store.OpDelete, Guard: store.Guard{Exists: store.ExistsNot}}
			_, _, err = p.step(ctx, &d, fact)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
