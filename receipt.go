package quipu

import (
	"context"
	"math"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// receipt fills out with the store's result for a delta, with its value if the
// caller wants that, or returns the error that names the refusal.
func (s *shared) receipt(ctx context.Context, out *Receipt, d *store.Delta, r *store.Result, want bool, durability Durability) error {
	switch r.Outcome {
	case store.Applied:
	case store.Bounded:
		return boundError(d, r)
	default:
		return s.refusal(d, r.Outcome)
	}
	out.Key = d.Cell.Key
	out.Namespace = d.Cell.Namespace
	out.Replayed = r.Replayed
	out.Version = spread.Told(r)
	out.Durability = durability
	if d.Op == store.OpAdd {
		out.Applied = d.N
	}
	if b := d.Guard.Bound; b != nil && b.Saturate {
		out.Applied = change(r.Before, r.After)
	}
	if !want {
		return nil
	}
	if r.Replayed && r.Before == 0 && r.After == 0 {
		// The first has a value only if it asked for one too.
		if d.N != 0 && d.Guard.Bound == nil {
			return nil // With one, not both were 0.
		}
		f, err := s.store.Lookup(ctx, d.Cell, d.Guard.Token)
		if err != nil { // whatever its kind says of the look-up, the write counted
			return store.Errorf(store.KindUnknown, "a repeat, whose first result can't be read: %w", err)
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
