package memstore

import (
	"context"
	"slices"

	"github.com/quipudb/quipu/store"
)

// Apply applies each batch in turn and fills replies[i] for batches[i].
func (s *Store) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "apply %d batches into %d replies", len(batches), len(replies))
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i := range batches {
		b, r := &batches[i], &replies[i]
		*r = store.Reply{Durability: store.Memory, Results: r.Results[:0]}
		if r.Err = s.check(b); r.Err == nil {
			s.apply(b, r)
		}
	}
	return nil
}

// Start is Apply: it never waits, and calls done before it returns.
func (s *Store) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	done(s.Apply(context.Background(), batches, replies))
	return true
}

// check returns an error if b is no batch for this store.
func (s *Store) check(b *store.Batch) error {
	if err := store.CheckBatch(b, len(s.parts)); err != nil {
		return err
	}
	for i := range b.If {
		if home := store.PartitionOf(b.If[i].Cell, len(s.parts)); home != b.Partition {
			return store.Errorf(store.KindInvalid, "condition %d: its cell is in partition %d, the batch in %d", i, home, b.Partition)
		}
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Op == store.OpRetire {
			continue
		}
		if home := store.PartitionOf(d.Cell, len(s.parts)); home != b.Partition {
			return store.Errorf(store.KindInvalid, "delta %d: its cell is in partition %d, the batch in %d", i, home, b.Partition)
		}
	}
	return nil
}

// apply applies a valid batch if its mark and its conditions let it.
func (s *Store) apply(b *store.Batch, r *store.Reply) {
	p := &s.parts[b.Partition]
	if b.Writer == 0 {
		if r.Err = s.unchanged(b.If); r.Err == nil {
			s.decideAll(b, r, p, &p.unnumbered)
		}
		return
	}
	m := p.marks[b.Writer]
	if m == nil {
		if r.Err = s.admit(p, b.Writer); r.Err != nil {
			return
		}
		m = &mark{}
	}
	r.Mark = m.seq
	digest := b.Digest()
	switch {
	case m.seq == b.Seq && m.digest == digest:
		r.Replayed = true
		for _, first := range m.results {
			first.Replayed = true
			r.Results = append(r.Results, first)
		}
		return
	case m.seq != b.Prev:
		r.Err = store.Errorf(store.KindMark, "batch (%d, %d] of writer %d does not follow its mark %d",
			b.Prev, b.Seq, b.Writer, m.seq)
		return
	}
	if r.Err = s.unchanged(b.If); r.Err != nil {
		return
	}
	s.decideAll(b, r, p, &m.record)
	m.seq, m.digest, m.results = b.Seq, digest, slices.Clone(r.Results)
	p.marks[b.Writer] = m
	r.Mark = m.seq
}

// decideAll decides the deltas of a batch in their order and enters what was
// changed in the record.
func (s *Store) decideAll(b *store.Batch, r *store.Reply, p *partition, rec *record) {
	for i := range b.Deltas {
		d := &b.Deltas[i]
		var res store.Result
		switch d.Op {
		case store.OpRetire:
			p.retire(store.Writer(d.N))
			res.Outcome = store.Applied
		case store.OpSettle:
			res = s.settle(d)
		default:
			res = s.decide(d, rec)
		}
		r.Results = append(r.Results, res)
	}
}

// unchanged returns an error if a cell is not at the version a condition names.
func (s *Store) unchanged(conditions []store.Condition) error {
	for i := range conditions {
		c := &conditions[i]
		if at := s.cells[c.Cell].Version; at != c.Version {
			return store.Errorf(store.KindChanged, "condition %d: %q is at version %d, not %d", i, c.Cell.Key, at, c.Version)
		}
	}
	return nil
}

// decide decides what becomes of a cell: the token first, then the version
// asked for, then the rest.
func (s *Store) decide(d *store.Delta, rec *record) store.Result {
	if d.Guard.Token != "" {
		if res, ok := s.repeat(d); ok {
			return res
		}
	}
	old := s.cells[d.Cell]
	if d.Guard.Match && d.Guard.Version != old.Version {
		return store.Result{Outcome: store.Changed}
	}
	v, outcome := s.next(d, old)
	res := store.Result{Outcome: outcome}
	made := v.N
	switch outcome {
	case store.Applied:
		if v.DeadlineMS != 0 && v.DeadlineMS <= s.nowMS {
			v = store.Value{} // it is over already
		}
		if d.Op != store.OpGet {
			v.Version = s.put(d.Cell, v)
			rec.enter(d.Cell, uint64(v.N)-uint64(old.N))
		}
		res.Version = v.Version
	case store.Unmet, store.Bounded: // v is the cell as it is
	default:
		return res
	}
	if d.Want {
		res.Before, res.After, res.Existed, res.DeadlineMS = old.N, made, old.Exists, v.DeadlineMS
	}
	if d.Guard.Token != "" && outcome == store.Applied {
		s.remember(d, token{
			op: d.Op, n: d.N, want: d.Want, digest: d.Guard.Digest, atMS: s.nowMS, result: res,
		})
	}
	return res
}

// next returns what d makes of a cell, or the cell as it is and why d is
// refused: the conditions on existence and on the deadline are judged first,
// then the room for a new key, then the sum.
func (s *Store) next(d *store.Delta, old store.Value) (store.Value, store.Outcome) {
	if (d.Guard.Exists == store.ExistsMust || d.Op == store.OpExpire) && !old.Exists ||
		d.Guard.Exists == store.ExistsNot && old.Exists {
		return old, store.Unmet
	}
	if d.Op == store.OpGet {
		return old, store.Applied
	}
	if d.Op == store.OpDelete {
		return store.Value{}, store.Applied
	}
	ms, met := deadline(d, old.DeadlineMS)
	if d.Op == store.OpExpire && !met {
		return old, store.Unmet
	}
	if !old.Exists && s.keysFull(d.Cell.Namespace) {
		return old, store.Full
	}
	v := store.Value{N: old.N, Exists: true, DeadlineMS: ms}
	if d.Op == store.OpSet {
		v.N = d.N
	}
	if d.Op == store.OpAdd {
		var outcome store.Outcome
		if v.N, outcome = sum(old.N, d.N, d.Guard.Bound); outcome != store.Applied {
			return old, outcome
		}
	}
	return v, store.Applied
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
	low := wraps && n < 0 || !wraps && after < b.Low
	high := wraps && n > 0 || !wraps && after > b.High
	switch {
	case !low && !high:
		return after, store.Applied
	case !b.Saturate:
		return 0, store.Bounded
	case low:
		after = b.Low
	default:
		after = b.High
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

// put makes a cell v and returns its new version; a v that does not exist
// removes it.
func (s *Store) put(c store.Cell, v store.Value) uint64 {
	existed := s.cells[c].Exists
	s.due.set(c, v.DeadlineMS)
	if !v.Exists {
		if existed {
			delete(s.cells, c)
			s.keys[c.Namespace]--
		}
		return 0
	}
	if !existed {
		s.keys[c.Namespace]++
	}
	s.version++
	v.Version = s.version
	s.cells[c] = v
	return s.version
}

// keysFull reports whether a namespace has no room for a new key. The store's
// own namespace has no limit.
func (s *Store) keysFull(namespace string) bool {
	return namespace != "" && (s.keys[namespace] >= s.limits.KeysMax || s.oneTooMany(namespace))
}

// oneTooMany reports whether a namespace is a new one that there is no room
// for. One without keys and tokens is none.
func (s *Store) oneTooMany(namespace string) bool {
	if s.keys[namespace] > 0 || len(s.decided[namespace]) > 0 {
		return false
	}
	n := 0
	for ns := range s.keys {
		if ns != "" && s.keys[ns] > 0 {
			n++
		}
	}
	for ns := range s.decided {
		s.forget(ns)
		if ns != "" && len(s.decided[ns]) > 0 && s.keys[ns] == 0 {
			n++
		}
	}
	return n >= s.limits.NamespacesMax
}
