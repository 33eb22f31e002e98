package port

import (
	"cmp"
	"context"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

// released is what the token of a hold's end remembers in the place of an amount, if the
// hold was released.
const released = -1

// Commit takes a part of what is reserved for good, and gives back the rest. With call.All
// it takes all.
func (p *Port) Commit(ctx context.Context, id string, amount int64, want bool) (call.Reservation, error) {
	h, err := p.parse(id)
	if err != nil {
		return call.Reservation{}, err
	}
	if amount == call.All {
		amount = h.Amount
	}
	if amount < 0 || amount > h.Amount {
		return call.Reservation{}, store.Errorf(store.KindInvalid, "commit of %d: want 0 to %d, which are reserved", amount, h.Amount)
	}
	return p.finish(ctx, h, doCommit, amount, want)
}

// Release gives back all that is reserved.
func (p *Port) Release(ctx context.Context, id string, want bool) (call.Reservation, error) {
	h, err := p.parse(id)
	if err != nil {
		return call.Reservation{}, err
	}
	return p.finish(ctx, h, doRelease, 0, want)
}

// parse returns the hold that an id names, or why nothing can be done with it.
func (p *Port) parse(id string) (hold.Hold, error) {
	if p.err != nil {
		return hold.Hold{}, p.err
	}
	return hold.ParseID(p.namespace, id)
}

// ReservedKey returns the counter of the reservation that an id names.
func (p *Port) ReservedKey(id string) (string, error) {
	h, err := p.parse(id)
	return h.Key, err
}

// finish ends a hold, once: whoever removes it does, and a repeat is told what that was.
func (p *Port) finish(ctx context.Context, h hold.Hold, do doing, taken int64, want bool) (call.Reservation, error) {
	if err := p.mayWrite(); err != nil {
		return call.Reservation{}, err
	}
	token, mended := h.EndToken(), false
	for range holdTries {
		deadline, err := p.deadline(ctx, &h)
		if err != nil {
			return call.Reservation{}, err
		}
		if deadline == 0 {
			return p.past(ctx, h, do, taken, want)
		}
		d, fact := p.endOf(h, do, taken, deadline, token)
		r, durability, err := p.step(ctx, &d, fact)
		if err != nil {
			return call.Reservation{}, err
		}
		used := false
		switch {
		case r.Outcome == store.Applied && !r.Replayed:
			p.due.Changed(p.namespace, -1)
			out := p.told(&h, deadline, call.HoldReleased)
			if out.Durability = durability; do == doCommit {
				out.State, out.Committed = call.HoldCommitted, taken
			}
			if want {
				err = p.withStock(ctx, &out)
			}
			return out, err
		case r.Outcome == store.Barred:
			return call.Reservation{}, p.Why(ctx, &d, &fact)
		case r.Outcome == store.Untimely: // It has expired, or somebody has extended it in between.
		case r.Outcome == store.Unmet, token != "" && (r.Replayed || r.Outcome == store.Mismatch || r.Outcome == store.Expired):
			used = true // by the end of this hold, or of one before it
		default:
			return call.Reservation{}, r.Outcome.Err()
		}
		now, err := p.deadline(ctx, &h)
		switch {
		case err != nil:
			return call.Reservation{}, err
		case now != deadline: // It goes on with what has become of it.
		case !used:
			return call.Reservation{}, call.EndedError(call.HoldExpired, 0)
		case !mended:
			if mended, err = p.mend(ctx, p.Cell(h.Key)); err != nil {
				return call.Reservation{}, err
			}
			if token = ""; mended { // The token that the hold had remembers that it was refused.
				token = h.EndTokenAgain()
			}
			continue
		default:
			return call.Reservation{}, errMortal
		}
		if used && now != 0 { // The token is of an earlier hold that had the same one.
			token = ""
		}
	}
	return call.Reservation{}, errBusy
}

// mend takes the deadline away that a counter has got in the moment in which it was reserved,
// when nobody could know: what is given back needs the counter. It reports whether there was one.
func (s *shared) mend(ctx context.Context, cell store.Cell) (mended bool, err error) {
	p := (&Port{shared: s, source: "expiry"}).In(cell.Namespace)
	if p.err != nil {
		return false, p.err
	}
	d := store.Delta{Cell: cell, Op: store.OpExpire, Expiry: store.ExpiryClear}
	r, _, err := p.step(ctx, &d, Fact{})
	switch {
	case err != nil:
		return false, err
	case r.Outcome == store.Unmet: // It has none.
		return false, nil
	default:
		return true, r.Outcome.Err()
	}
}

// errBusy is that a hold was changed each time that it was to be.
var errBusy = store.Errorf(store.KindUnavailable, "others changed the reservation during each attempt: try again")

// endOf returns the delta that ends a hold, and its fact. The token may be empty.
func (p *Port) endOf(h hold.Hold, do doing, taken, deadline int64, token string) (store.Delta, Fact) {
	d := store.Delta{Cell: p.Cell(h.Key), Op: store.OpDelete, N: taken, Guard: store.Guard{Exists: store.ExistsMust}}
	if do == doRelease {
		d.N = released
	}
	fact := Fact{hold: &act{do: do, hold: h, deadline: deadline, taken: taken}}
	if d.Guard.Token = token; token != "" {
		d.Guard.Digest = Digest(&d, &fact)
	}
	return d, fact
}

// past returns what is known of a hold that is not there any more, if that is what the call
// was to do; else an error that says how it has ended.
func (p *Port) past(ctx context.Context, h hold.Hold, do doing, taken int64, want bool) (call.Reservation, error) {
	state, committed, err := p.end(ctx, &h)
	if err != nil {
		return call.Reservation{}, err
	}
	if do == doCommit && (state != call.HoldCommitted || committed != taken) || do == doRelease && state != call.HoldReleased {
		return call.Reservation{}, call.EndedError(state, committed)
	}
	out := p.told(&h, 0, state)
	out.Committed, out.Replayed = committed, true
	out.Durability = min(p.Rules().Policy(h.Key).Durability, p.traits.Durability)
	if want {
		err = p.withStock(ctx, &out)
	}
	return out, err
}

// Extend has a reservation expire so long after now, unless it would expire later anyway.
func (p *Port) Extend(ctx context.Context, id string, ttl time.Duration, want bool) (call.Reservation, error) {
	h, err := p.parse(id)
	if err == nil {
		err = p.mayWrite()
	}
	if err == nil {
		err = hold.CheckTTL(ttl, 0)
	}
	if err != nil {
		return call.Reservation{}, err
	}
	cell := p.Cell(h.Key)
	was := int64(0)
	for range holdTries {
		deadline, err := p.deadline(ctx, &h)
		switch {
		case err != nil:
			return call.Reservation{}, err
		case deadline == 0:
			state, committed, err := p.end(ctx, &h)
			if err == nil {
				err = call.EndedError(state, committed)
			}
			return call.Reservation{}, err
		case deadline == was: // Nobody has extended it in between.
			return call.Reservation{}, call.EndedError(call.HoldExpired, 0)
		}
		a := &act{do: doExtend, hold: h, ttl: ttl, deadline: deadline, next: max(deadline, p.NowMS(cell)*1000+ttl.Microseconds())}
		if err := p.due.Hint(ctx, cell, a.next, p.Rules().Policy(h.Key).Durability); err != nil {
			return call.Reservation{}, err
		}
		d := store.Delta{Cell: cell, Op: store.OpMax, N: a.next}
		fact := Fact{hold: a}
		r, durability, err := p.step(ctx, &d, fact)
		switch {
		case err != nil:
			return call.Reservation{}, err
		case r.Outcome == store.Applied:
			out := p.told(&h, a.next, call.HoldOpen)
			if out.Durability = durability; want {
				err = p.withStock(ctx, &out)
			}
			return out, err
		case r.Outcome == store.Barred:
			return call.Reservation{}, p.Why(ctx, &d, &fact)
		case r.Outcome == store.Untimely:
			was = deadline
		case r.Outcome != store.Unmet:
			return call.Reservation{}, r.Outcome.Err()
		default: // Somebody has, or the counter has a deadline.
			now, err := p.deadline(ctx, &h)
			mended := false
			if err == nil && now == deadline {
				mended, err = p.mend(ctx, cell)
			}
			if err != nil || now == deadline && !mended {
				return call.Reservation{}, cmp.Or(err, error(errMortal))
			}
		}
	}
	return call.Reservation{}, errBusy
}

// Reservation returns what has become of a reservation, and what its counter has.
func (p *Port) Reservation(ctx context.Context, id string) (call.Reservation, error) {
	h, err := p.parse(id)
	if err != nil {
		return call.Reservation{}, err
	}
	out, err := p.asItIs(ctx, p.told(&h, 0, call.HoldOpen), h)
	if err == nil {
		out.Stock, err = p.Stock(ctx, h.Key)
		out.HasStock = err == nil
	}
	return out, err
}
