package decide

import "github.com/quipudb/quipu/store"

// Cell decides what a delta makes of one cell: what the contract says, in one pure
// function that every store calls, and that each fast path is tested against.
// Tokens come before it: see Recall.
//
// V is the cell as it is now: absent if its deadline has passed. The time matters
// only to a delta that has an Expiry. Full, that there is no room for a key,
// matters only to one that would make a key.
//
// If the outcome is Applied, v has become what the cell is to be; otherwise it is as
// it was. A store that keeps it gives it a version, which is the result's too. An
// OpGet changes nothing.
func Cell(v *store.Value, d *store.Delta, nowMS int64, full bool) (res store.Result) {
	before, existed := v.N, v.Exists
	res.Outcome = change(v, d, nowMS, full)
	after := v.N
	switch res.Outcome {
	case store.Applied:
		if v.DeadlineMS != 0 && v.DeadlineMS <= nowMS {
			*v = store.Value{} // it is over already
		}
		res.Version = v.Version
	case store.Unmet, store.Bounded:
	default:
		return res
	}
	if d.Want {
		res.Before, res.After, res.Existed, res.DeadlineMS = before, after, existed, v.DeadlineMS
	}
	return res
}

// change makes v what d makes of it, or says why d is refused: the version is judged
// first, then the layout, then the conditions on existence and on the deadline, then
// the room for a new key, then the sum.
func change(v *store.Value, d *store.Delta, nowMS int64, full bool) store.Outcome {
	g := &d.Guard
	switch {
	case g.Match && g.Version != v.Version:
		return store.Changed
	case g.Laid && g.Layout != v.Layout, d.Op == store.OpLayout && v.DeadlineMS != 0:
		return store.Unmet
	case d.Splits(v.Layout):
		return store.Split
	case (g.Exists == store.ExistsMust || d.Op == store.OpExpire) && !v.Exists, g.Exists == store.ExistsNot && v.Exists:
		return store.Unmet
	case d.Op == store.OpGet:
		return store.Applied
	case d.Op == store.OpDelete:
		*v = store.Value{}
		return store.Applied
	}
	ms, met := v.DeadlineMS, true
	if d.Expiry != store.ExpiryKeep {
		ms, met = d.Deadline(ms, nowMS)
	}
	n, layout := v.N, v.Layout
	if layout == store.LayoutObject {
		ms = min(ms, store.ObjectDeadlineMax)
	}
	switch {
	case d.Op == store.OpExpire && !met:
		return store.Unmet
	case !v.Exists && full:
		return store.Full
	case d.Op == store.OpAdd:
		var outcome store.Outcome
		if n, outcome = sum(n, d.N, g.Bound); outcome != store.Applied {
			return outcome
		}
	case d.Op == store.OpSet:
		if n = d.N; g.Bound != nil && !g.Bound.Has(n) {
			return store.Bounded
		}
	case d.Op == store.OpLayout:
		if layout = d.N; g.Bound != nil && !g.Bound.Has(n) {
			return store.Bounded
		}
	case d.Op != store.OpExpire:
		return 0 // a cell can't do it
	}
	v.N, v.Exists, v.DeadlineMS, v.Layout = n, true, ms, layout
	return store.Applied
}

// sum adds n to old within a bound, or says why it can't.
func sum(old, n int64, b *store.Bound) (int64, store.Outcome) {
	after, wraps := plus(old, n)
	if b == nil {
		if wraps {
			return 0, store.Overflow
		}
		return after, store.Applied
	}
	// A sum that leaves int64 leaves it on the side of n.
	low, high := b.Limits(old, n)
	below := wraps && n < 0 || !wraps && after < low
	above := wraps && n > 0 || !wraps && after > high
	switch {
	case !below && !above:
		return after, store.Applied
	case !b.Saturate:
		return 0, store.Bounded
	case below:
		after = low
	default:
		after = high
	}
	if old < 0 && after-old < after || old > 0 && after-old > after {
		return 0, store.Overflow // the difference is no int64
	}
	return after, store.Applied
}

// plus returns a+b and whether it wraps around.
func plus(a, b int64) (n int64, wraps bool) {
	n = a + b
	return n, (n > a) != (b > 0)
}
