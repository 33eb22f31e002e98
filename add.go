package quipu

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// Add adds delta, which may be negative or zero, to a counter. A counter that
// did not exist exists afterwards.
func (db *DB) Add(ctx context.Context, key string, delta int64, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpAdd, key, delta, nil, opts)
}

// Set assigns a value to a counter, and creates the counter if it does not
// exist. Each concurrent add is applied before it or after it.
func (db *DB) Set(ctx context.Context, key string, value int64, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpSet, key, value, nil, opts)
}

// Reset sets a counter to zero. With WantValue it also returns the count:
// Before is what was counted since the last Reset, and no add is lost in
// between.
func (db *DB) Reset(ctx context.Context, key string, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpSet, key, 0, &port.Fact{Kind: ledger.Reset}, opts)
}

// Delete removes a counter. Deleting a counter that does not exist is no error.
// The tokens of its writes are still remembered.
func (db *DB) Delete(ctx context.Context, key string, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpDelete, key, 0, nil, opts)
}

// write decides one write, of which a fact may be known besides. The store checks the
// key.
func (db *DB) write(ctx context.Context, op store.Op, key string, n int64, fact *port.Fact, opts []WriteOption) (r Receipt, err error) {
	if err := db.port.Err(); err != nil {
		return r, err
	}
	c := db.port.NewCall(1)
	d := &c.Deltas[0]
	d.Cell.Key, d.Op, d.N = key, op, n
	want := false
	if fact != nil {
		c.Facts = append(c.Facts[:0], *fact)
	}
	if len(opts) > 0 {
		want, err = applyOptions(c, opts)
	}
	if err == nil {
		err = db.port.Send(ctx, c, store.DurabilityDefault)
	}
	if err == nil {
		err = db.receipt(ctx, &r, d, c.Fact(0), &c.Replies[0], 0, want)
	}
	if err != nil && errors.Is(err, store.ErrToken) {
		err = db.reused(ctx, d)
	}
	db.port.Free(c)
	return r, err
}

// receipt fills out with the store's result for a delta, which is the nth of a
// reply, with its value if the caller wants that, or returns the error that names
// the refusal.
func (db *DB) receipt(ctx context.Context, out *Receipt, d *store.Delta, fact *port.Fact, reply *store.Reply, nth int, want bool) error {
	if reply.Err != nil {
		return reply.Err
	}
	r := &reply.Results[nth]
	switch r.Outcome {
	case store.Applied:
	case store.Bounded:
		return boundError(d, r)
	case store.Barred:
		return db.port.Why(ctx, d, fact)
	case store.Unmet:
		if fact != nil && fact.Undoes != nil && r.Refused != 0 {
			return errUndone
		}
		err := db.refusal(d, r.Outcome)
		if r.Forgotten {
			err = store.Errorf(store.KindUnmet, "%s"+call.Forgotten, strings.TrimPrefix(err.Error(), "quipu: "))
		}
		return err
	default:
		return db.refusal(d, r.Outcome)
	}
	out.Key = d.Cell.Key
	out.Namespace = d.Cell.Namespace
	out.Replayed = r.Replayed
	out.Late = r.Late
	if out.Duplicate = r.Once; r.Once {
		out.DuplicateError = db.port.OnceError(d.Cell.Key)
	}
	out.Version = spread.Told(r)
	out.Durability = reply.Durability
	if d.Op == store.OpAdd && !r.Once {
		out.Applied = d.N
	}
	if b := d.Guard.Bound; b != nil && b.Saturate {
		out.Applied = change(r.Before, r.After)
	}
	if !want {
		return nil
	}
	if r.Replayed && r.Before == 0 && r.After == 0 && !r.Once {
		// The first has a value only if it asked for one too.
		if d.N != 0 && d.Guard.Bound == nil {
			return nil // With one, not both were 0.
		}
		f, err := db.port.Store().Lookup(ctx, d.Cell, d.Guard.Token)
		if err != nil { // whatever its kind says of the look-up, the write counted
			return store.Errorf(store.KindUnknown, "the write was applied before, but its first result can't be read: %w", err)
		}
		if !f.Want {
			return nil
		}
	}
	withValue(out, r)
	return nil
}

// withValue fills what only a write that asked for its value knows.
func withValue(r *Receipt, from *store.Result) {
	r.HasValue = true
	r.Before, r.Value = from.Before, from.After
	r.Applied = change(from.Before, from.After)
}

// change returns after-before, held at the limits of int64.
func change(before, after int64) int64 {
	d := after - before
	switch {
	case after >= before && d < 0:
		return math.MaxInt64
	case after < before && d >= 0:
		return math.MinInt64
	}
	return d
}

// boundError returns why a bound refused a delta.
func boundError(d *store.Delta, r *store.Result) error {
	e := &call.BoundError{Value: r.Before, Asked: d.N, Set: d.Op == store.OpSet, Forgotten: r.Forgotten}
	b := d.Guard.Bound
	if r.Replayed && !refuses(b, d, r.Before) { // Another definition has done it.
		return store.Errorf(store.KindBound, "this write was refused by a floor or a ceiling before, when the counter was %d, and its token stands for that refusal: send the write again with another token", r.Before)
	}
	e.Above = d.N > 0
	if e.Set {
		e.Above = d.N > b.High
	}
	if e.Limit = b.Low; e.Above {
		e.Limit = b.High
	}
	return e
}

// refuses reports whether a bound, which may be nil, refuses a delta to a counter with a value.
func refuses(b *store.Bound, d *store.Delta, value int64) bool {
	switch {
	case b == nil:
		return false
	case d.Op == store.OpSet:
		return !b.Has(d.N)
	}
	low, high := b.Limits(value, d.N)
	sum := value + d.N
	return (sum > value) != (d.N > 0) && d.N != 0 || sum < low || sum > high
}

// applyOptions puts the options of a write into the call that it is all of, and reports
// whether the caller wants the value.
func applyOptions(c *port.Call, opts []WriteOption) (want bool, err error) {
	d := &c.Deltas[0]
	t, err := call.WriteTermsOf(opts, d.Op == store.OpAdd)
	if err == nil {
		err = checkTerms(&t)
	}
	if err != nil {
		return false, err
	}
	if len(c.Facts) == 0 && hasFact(&t) {
		c.Facts = append(c.Facts, port.Fact{})
	}
	applyTerms(d, c.Fact(0), &t)
	return t.WantValue, nil
}

// hasFact reports whether terms say something that no delta can.
func hasFact(t *call.WriteTerms) bool {
	return t.HasAt || t.Who != "" || len(t.Dims) > 0 || t.Because != call.Correction{}
}

// checkTerms returns an error if no write can have these terms.
func checkTerms(t *call.WriteTerms) error {
	if t.HasToken {
		if err := store.CheckToken(t.Token); err != nil {
			return err
		}
	}
	switch {
	case t.HasAt && t.AtMS < 0 && t.AtMS != port.NoTimeMS:
		return store.Errorf(store.KindInvalid, "an event before 1970 can't be counted")
	case t.HasFloor && t.HasCeiling && t.Floor > t.Ceiling:
		return store.Errorf(store.KindInvalid, "a floor of %d is above the ceiling of %d", t.Floor, t.Ceiling)
	case t.HasTTL && t.TTL < time.Millisecond:
		return store.Errorf(store.KindInvalid, "a ttl of %s: want 1ms or more", t.TTL)
	}
	return cmp.Or(call.CheckWho(t.Who), t.Because.CheckTexts())
}

// applyTerms puts terms that were checked into a delta that has none, and into its fact,
// which may be nil if they say nothing of it.
func applyTerms(d *store.Delta, fact *port.Fact, t *call.WriteTerms) {
	if hasFact(t) {
		fact.Who, fact.Dims = t.Who, t.Dims
		if t.HasBecause {
			fact.Reason, fact.Actor = t.Because.Reason, t.Because.Actor
		}
		if t.HasAt && t.AtMS != port.NoTimeMS {
			fact.AtMS = t.AtMS
		}
	}
	d.Want, d.Lot = t.WantValue, port.Lot(t.Who)
	d.Guard.Match, d.Guard.Version = t.HasVersion, t.Version
	if t.HasFloor || t.HasCeiling || t.Saturate {
		b := store.Unbounded()
		if b.Saturate = t.Saturate; t.HasFloor {
			b.Low = t.Floor
		}
		if t.HasCeiling {
			b.High = t.Ceiling
		}
		d.Guard.Bound = &b
		d.Want = true // A refusal says what the counter is, and a saturated add what it added.
	}
	if t.HasTTL {
		d.Expiry, d.DeadlineMS = store.ExpirySet|store.ExpiryAfter, t.TTL.Milliseconds()
	}
	if t.HasToken {
		d.Guard.Token = t.Token
		d.Guard.Digest = port.Digest(d, fact)
	}
}
