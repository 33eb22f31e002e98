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

// check returns an error if b is no batch for this store.
func (s *Store) check(b *store.Batch) error {
	if err := store.CheckBatch(b, len(s.parts)); err != nil {
		return err
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

// apply applies a valid batch if its mark lets it.
func (s *Store) apply(b *store.Batch, r *store.Reply) {
	p := &s.parts[b.Partition]
	if b.Writer == 0 {
		s.decideAll(b, r, p, &p.unnumbered)
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

// decide decides a change of a cell: its token first, then the version asked
// for, then the room for a new key, then the sum.
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
	if d.Op != store.OpDelete && !old.Exists && s.keysFull(d.Cell.Namespace) {
		return store.Result{Outcome: store.Full}
	}
	n, ok := after(d, old.N)
	if !ok {
		return store.Result{Outcome: store.Overflow}
	}
	res := store.Result{Outcome: store.Applied, Version: s.put(d, old.Exists, n)}
	if d.Want {
		res.Before, res.After = old.N, n
	}
	if d.Guard.Token != "" {
		s.remember(d, token{
			op: d.Op, n: d.N, want: d.Want, digest: d.Guard.Digest, atMS: s.nowMS, result: res,
		})
	}
	rec.enter(d.Cell, uint64(n)-uint64(old.N))
	return res
}

// after returns the value that d makes of old; ok is false if it leaves int64.
func after(d *store.Delta, old int64) (n int64, ok bool) {
	switch d.Op {
	case store.OpSet:
		return d.N, true
	case store.OpDelete:
		return 0, true
	default:
		n = old + d.N
		return n, (n > old) == (d.N > 0)
	}
}

// put stores the value that d made and returns the cell's new version.
func (s *Store) put(d *store.Delta, existed bool, n int64) uint64 {
	if d.Op == store.OpDelete {
		if existed {
			delete(s.cells, d.Cell)
			s.keys[d.Cell.Namespace]--
		}
		return 0
	}
	if !existed {
		s.keys[d.Cell.Namespace]++
	}
	s.version++
	s.cells[d.Cell] = store.Value{N: n, Version: s.version, Exists: true}
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
