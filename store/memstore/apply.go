package memstore

import (
	"context"

	"github.com/quipudb/quipu/internal/decide"
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
		if r.Err = store.CheckBatch(b, len(s.parts)); r.Err == nil {
			r.Err = decide.Homes(b, len(s.parts))
		}
		if r.Err == nil {
			for j := range b.Deltas {
				s.writes += uint64(max(1, b.Deltas[j].Writes))
			}
			s.apply(b, r)
		}
	}
	return nil
}

// Start is Apply: it never waits, and calls done before it returns. Batches that are
// not valid are for Apply to refuse, as in every store.
func (s *Store) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	for i := range batches {
		if store.CheckBatch(&batches[i], len(s.parts)) != nil {
			return false
		}
	}
	done(s.Apply(context.Background(), batches, replies))
	return true
}

// Flush does nothing: Start has left nothing to do.
func (s *Store) Flush(bool) {}

// apply applies a valid batch if its mark and its conditions let it.
func (s *Store) apply(b *store.Batch, r *store.Reply) {
	p := &s.parts[b.Partition]
	if b.Writer == 0 {
		if s.admits(p, b, r) {
			decide.Deltas(state{s}, s.at(), b, r, &p.unnumbered, p.retire)
		}
		return
	}
	m := p.marks[b.Writer]
	if m == nil {
		if r.Err = decide.Admit(b.Writer, p.floor, len(p.marks), s.limits.WritersMax); r.Err != nil {
			return
		}
		m = &decide.Mark{}
	}
	digest := b.Digest()
	if !m.Judge(b, digest, r) || !s.admits(p, b, r) {
		return
	}
	decide.Deltas(state{s}, s.at(), b, r, &m.Record, p.retire)
	m.Set(b, digest, r)
	p.marks[b.Writer] = m
}

// admits reports whether a batch may be applied by its books, the floors and its
// conditions, and keeps its books and floors then; otherwise it has filled r.
func (s *Store) admits(p *partition, b *store.Batch, r *store.Reply) bool {
	if r.Err = p.books.Judge(b); r.Err == nil {
		r.Err = p.floors.Judge(b)
	}
	if r.Err == nil {
		r.Err = decide.Conditions(state{s}, b)
	}
	if r.Err != nil {
		return false
	}
	p.books.Raise(b)
	if p.floors.Raise(b) {
		s.drop()
	}
	return true
}

func (s *Store) at() decide.Clock {
	return decide.Clock{NowMS: s.nowMS, NowUS: s.nowUS, Window: s.limits.TokenWindow}
}

// A state is a store as batches are decided on it. The store is locked.
type state struct{ s *Store }

// Cell returns a cell as it is now.
func (d state) Cell(c store.Cell) store.Value { return d.s.cells[c] }

// Put makes a cell v and returns its new version; a v that does not exist
// removes it.
func (d state) Put(c store.Cell, v store.Value) uint64 {
	s := d.s
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

// Token returns what is remembered of a token.
func (d state) Token(c store.Cell, name string) (decide.Token, bool) {
	t, ok := d.s.tokens[tokenID{c, name}]
	return t, ok
}

// Remember keeps the decision on a token.
func (d state) Remember(c store.Cell, name string, t decide.Token) {
	s := d.s
	s.forget(c.Namespace)
	id := tokenID{c, name}
	s.tokens[id] = t
	s.decided[c.Namespace] = append(s.decided[c.Namespace], id)
	if t.Refused() {
		s.refused[c.Namespace]++
	}
}

// Full reports whether a namespace has no room for n more keys or tokens. The
// store's own namespace has no limit.
func (d state) Full(namespace string, what decide.Room, n int64) bool {
	s := d.s
	if namespace == "" {
		return false
	}
	if what == decide.Keys {
		return s.keys[namespace]+n > s.limits.KeysMax || s.oneTooMany(namespace)
	}
	s.forget(namespace)
	if what == decide.Refusals && s.refused[namespace]+n > s.limits.RefusalsMax() {
		return true
	}
	return int64(len(s.decided[namespace]))+n > s.limits.TokensMax || s.oneTooMany(namespace)
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
