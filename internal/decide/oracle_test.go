package decide_test

import (
	"math"
	"math/big"

	"github.com/quipudb/quipu/store"
)

// oracle is decide.Cell written to be obviously right: in the words of the
// contract, with unbounded integers, and without Needs.
func oracle(is store.Value, d store.Delta, nowMS int64, full bool) (store.Value, store.Result) {
	n, ms, why := after(is, d, nowMS, full)
	if why != store.Applied {
		r := store.Result{Outcome: why}
		if d.Want && (why == store.Unmet || why == store.Bounded) {
			r.Before, r.After, r.Existed, r.DeadlineMS = is.N, is.N, is.Exists, is.DeadlineMS
		}
		return is, r
	}
	v := store.Value{}
	if n != nil && (ms == 0 || ms > nowMS) {
		v = store.Value{N: n.Int64(), Version: is.Version, Exists: true, DeadlineMS: ms, Layout: is.Layout}
		if d.Op == store.OpLayout {
			v.Layout = d.N
		}
	}
	r := store.Result{Outcome: store.Applied, Version: v.Version}
	if d.Want {
		r.Before, r.Existed, r.DeadlineMS = is.N, is.Exists, v.DeadlineMS
		if n != nil {
			r.After = n.Int64()
		}
	}
	return v, r
}

// after returns what d makes of a cell, nil if it leaves it absent, and its
// deadline; or why it does not.
func after(is store.Value, d store.Delta, nowMS int64, full bool) (*big.Int, int64, store.Outcome) {
	set, ms := newDeadline(is, d, nowMS)
	var n *big.Int
	if is.Exists {
		n = big.NewInt(is.N)
	}
	switch {
	case d.Guard.Match && d.Guard.Version != is.Version:
		return nil, 0, store.Changed
	case d.Guard.Laid && d.Guard.Layout != is.Layout, d.Op == store.OpLayout && is.DeadlineMS != 0:
		return nil, 0, store.Unmet
	case is.Layout == store.LayoutObject && (d.Op == store.OpAdd || d.Op == store.OpSet || d.Op == store.OpLayout),
		is.Layout != 0 && is.Layout != store.LayoutObject && needsWhole(d):
		return nil, 0, store.Split
	case d.Guard.Exists == store.ExistsMust && !is.Exists,
		d.Guard.Exists == store.ExistsNot && is.Exists,
		d.Op == store.OpExpire && (!is.Exists || !set):
		return nil, 0, store.Unmet
	case d.Op == store.OpGet:
		return n, is.DeadlineMS, store.Applied
	case d.Op == store.OpDelete:
		return nil, 0, store.Applied
	case !is.Exists && full:
		return nil, 0, store.Full
	case d.Op == store.OpSet:
		if b := d.Guard.Bound; b != nil && (d.N < b.Low || d.N > b.High) {
			return nil, 0, store.Bounded
		}
		n = big.NewInt(d.N)
	case d.Op == store.OpLayout:
		if b := d.Guard.Bound; b != nil && (is.N < b.Low || is.N > b.High) {
			return nil, 0, store.Bounded
		}
		n = big.NewInt(is.N)
	case d.Op == store.OpAdd:
		var why store.Outcome
		if n, why = boundedSum(is.N, d); why != store.Applied {
			return nil, 0, why
		}
	}
	if is.Layout == store.LayoutObject {
		ms = min(ms, store.ObjectDeadlineMax)
	}
	return n, ms, store.Applied
}

// needsWhole reports whether a part of a counter can't decide d.
func needsWhole(d store.Delta) bool {
	if d.Guard.Laid || d.Op == store.OpSettle || d.Op == store.OpRetire {
		return false
	}
	d.Guard.Token, d.Guard.Digest = "", 0
	return d.Op != store.OpAdd || d.Want || d.Expiry != store.ExpiryKeep || d.Guard != (store.Guard{}) ||
		d.N > store.AddMax || d.N < -store.AddMax
}

// newDeadline returns the deadline of a cell that d changes, and whether d's
// conditions on it hold.
func newDeadline(is store.Value, d store.Delta, nowMS int64) (held bool, ms int64) {
	has := is.DeadlineMS != 0
	if d.Expiry == store.ExpiryKeep {
		return true, is.DeadlineMS
	}
	if d.Expiry == store.ExpiryClear {
		return has, 0
	}
	// None is later than all others.
	old := big.NewInt(is.DeadlineMS)
	if !has {
		old.Lsh(big.NewInt(1), 64)
	}
	until := big.NewInt(d.DeadlineMS)
	if last := big.NewInt(math.MaxInt64); d.Expiry&store.ExpiryAfter != 0 {
		if until.Add(until, big.NewInt(nowMS)); until.Cmp(last) > 0 {
			until = last
		}
	}
	order := until.Cmp(old)
	for condition, holds := range map[store.Expiry]bool{
		store.ExpiryIfNone: !has, store.ExpiryIfSome: has, store.ExpiryIfLater: order > 0, store.ExpiryIfSooner: order < 0,
	} {
		if d.Expiry&condition != 0 && !holds {
			return false, is.DeadlineMS
		}
	}
	return true, until.Int64()
}

// inward returns the limits of a bound that holds against what moves outwards
// only.
func inward(old, n int64, b store.Bound) (low, high *big.Int) {
	low, high = big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)
	switch {
	case n < 0 && b.Saturate && old < b.Low, n > 0 && b.Saturate && old > b.High:
		return big.NewInt(old), big.NewInt(old)
	case n < 0:
		low = big.NewInt(b.Low)
	case n > 0:
		high = big.NewInt(b.High)
	}
	return low, high
}

// boundedSum returns the sum that an add makes, or why it does not.
func boundedSum(old int64, d store.Delta) (*big.Int, store.Outcome) {
	before := big.NewInt(old)
	after := new(big.Int).Add(before, big.NewInt(d.N))
	if b := d.Guard.Bound; b != nil {
		low, high := big.NewInt(b.Low), big.NewInt(b.High)
		if b.Inward {
			low, high = inward(old, d.N, *b)
		}
		out := after.Cmp(low) < 0 || after.Cmp(high) > 0
		if out && !b.Saturate {
			return nil, store.Bounded
		}
		if after.Cmp(low) < 0 {
			after = low
		}
		if after.Cmp(high) > 0 {
			after = high
		}
		if out && !new(big.Int).Sub(after, before).IsInt64() {
			return nil, store.Overflow
		}
	}
	if !after.IsInt64() {
		return nil, store.Overflow
	}
	return after, store.Applied
}
