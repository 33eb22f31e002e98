package port

import (
	"math"

	"github.com/quipudb/quipu/store"
)

// A bounded is a delta that keeps a floor or a ceiling of its definition.
type bounded struct {
	batch, delta int
	own          *store.Bound // that it was given with, or nil
}

// bind makes a delta keep the floor and the ceiling that its counter has by definition,
// however it was asked for: every way to the store leads through here. It returns an error
// if an assignment would be refused that others must not go without.
func (f *frame) bind(batch, delta int, b *store.Batch) error {
	d := &b.Deltas[delta]
	if d.Op != store.OpAdd && d.Op != store.OpSet {
		return nil
	}
	bound := f.known.Bound(d.Cell.Key)
	if bound == nil {
		return nil
	}
	if d.Op == store.OpSet && b.Writer == 0 && !divides(b) && !bound.Has(d.N) {
		return outside(d.N, bound)
	}
	f.bounds = append(f.bounds, bounded{batch, delta, d.Guard.Bound})
	d.Guard.Bound = joined(bound, d.Guard.Bound)
	d.Want = d.Want || b.Writer == 0 // so that a refusal can say what the counter is
	return nil
}

// unbind gives deltas the bounds back that they were given with. If there are replies,
// those keep theirs that were decided by it: a refusal says which limit it was.
func (f *frame) unbind(batches []store.Batch, replies []store.Reply) {
	for _, b := range f.bounds {
		if replies == nil || isStale(replies[b.batch].Err) ||
			replies[b.batch].Err == nil && staleResult(&replies[b.batch].Results[b.delta]) {
			batches[b.batch].Deltas[b.delta].Guard.Bound = b.own
		}
	}
	f.bounds = f.bounds[:0]
}

// joined returns the bound that keeps a definition's and a call's, which may be nil.
// The definition's is shared, and not changed. Only a call can ask to be saturated.
func joined(defined, call *store.Bound) *store.Bound {
	if call == nil {
		return defined
	}
	b := store.Bound{Low: max(defined.Low, call.Low), High: min(defined.High, call.High), Saturate: call.Saturate}
	// A strict bound without limits asks for no more than an inward one does.
	b.Inward = call.Inward || call.Low == math.MinInt64 && call.High == math.MaxInt64
	if b.Low > b.High && !b.Inward {
		b.Saturate = false // There is no value to go to.
	}
	return &b
}

// Defined reports whether a key has a definition, as it is known here.
func (p *Port) Defined(key string) bool { return p.books.Known(p.namespace).Defines(key) != nil }

// CheckValue returns ErrBound if the definition of a key, as it is known here, has a floor
// above a value or a ceiling below it: for doors that make one step of several changes, of
// which none may be refused alone.
func (p *Port) CheckValue(key string, value int64) error {
	bound := p.books.Known(p.namespace).Bound(key)
	if bound == nil || bound.Has(value) {
		return nil
	}
	return outside(value, bound)
}

// CheckAdd is CheckValue for an addition to a counter that has a value.
func (p *Port) CheckAdd(key string, before, n int64) error {
	bound := p.books.Known(p.namespace).Bound(key)
	if bound == nil {
		return nil
	}
	if low, high := bound.Limits(before, n); before+n < low || before+n > high {
		return store.Bounded.Err()
	}
	return nil
}

func outside(value int64, b *store.Bound) error {
	return store.Errorf(store.KindBound, "%d is outside the floor and the ceiling that the definition has: %d to %d", value, b.Low, b.High)
}
