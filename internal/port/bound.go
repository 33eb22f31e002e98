package port

import (
	"math"

	"github.com/quipudb/quipu/store"
)

// bind makes writes keep the floors and ceilings of the policies, however they
// were asked for: every way to the store leads through here.
func (s *shared) bind(batches []store.Batch) {
	if s.policies.Load() != nil { // Fast path, small enough to be inlined: BenchmarkAddOverhead.
		s.bindEach(batches)
	}
}

func (s *shared) bindEach(batches []store.Batch) {
	if set := s.policies.Load(); set == nil || !set.Bounded {
		return
	}
	for i := range batches {
		for j := range batches[i].Deltas {
			d := &batches[i].Deltas[j]
			if d.Op != store.OpAdd && d.Op != store.OpSet || d.Cell.Namespace == "" {
				continue
			}
			if r := s.rulesIn(d.Cell.Namespace).Of(d.Cell.Key); r != nil && r.Bound != nil {
				d.Guard.Bound = joined(r.Bound, d.Guard.Bound)
				d.Want = d.Want || batches[i].Writer == 0 // so that a refusal can say what the counter is
			}
		}
	}
}

// joined returns the bound that keeps a policy's and a call's, which may be nil.
// The policy's is shared, and not changed. Only a call can ask to be saturated.
func joined(policy, call *store.Bound) *store.Bound {
	if call == nil {
		return policy
	}
	b := store.Bound{Low: max(policy.Low, call.Low), High: min(policy.High, call.High), Saturate: call.Saturate}
	// A strict bound without limits asks for no more than an inward one does.
	b.Inward = call.Inward || call.Low == math.MinInt64 && call.High == math.MaxInt64
	if b.Low > b.High && !b.Inward {
		b.Saturate = false // There is no value to go to.
	}
	return &b
}

// CheckValue returns ErrBound if the policy of a key has a floor above a value or a
// ceiling below it: for doors that make one step of several changes, of which none
// may be refused alone.
func (p *Port) CheckValue(key string, value int64) error {
	r := p.Rules().Of(key)
	if r == nil || r.Bound == nil || r.Bound.Has(value) {
		return nil
	}
	return store.Errorf(store.KindBound, "%d is outside the floor and the ceiling that the policy has: %d to %d", value, r.Bound.Low, r.Bound.High)
}
