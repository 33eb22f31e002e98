package port

import (
	"context"
	"errors"
	"slices"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// Write gives batches of one namespace to the store, those of each partition by
// themselves, with what the definitions ask for. Facts are those of all deltas, in
// their order, or nil.
func (p *Port) Write(ctx context.Context, batches []store.Batch, replies []store.Reply, facts []Fact) error {
	if p.readOnly && changes(batches) {
		return store.ErrReadOnly
	}
	if len(facts) > 0 || p.books.Any() || p.due.Any() { // Small, for the sake of those that have neither: BenchmarkAddOverhead.
		return p.writeEvents(ctx, batches, replies, facts, 1)
	}
	stale, err := p.give(ctx, batches, replies)
	if stale { // There are definitions that nobody here knows of.
		return p.remake(ctx, store.Book{Namespace: namespaceOf(batches)}, batches, replies, nil, 1, err)
	}
	return err
}

// give gives batches to the store as they are, and reports whether it has refused some of
// it because of what this server knew.
func (s *shared) give(ctx context.Context, batches []store.Batch, replies []store.Reply) (stale bool, err error) {
	if len(batches) > 1 && s.traits.Partitions > 1 {
		err = s.applyApart(ctx, batches, replies)
		return isStale(err) || err == nil && anyStale(replies) != nil, err
	}
	began := s.totals.Begin()
	err = s.store.Apply(ctx, batches, replies)
	return s.ended(batches, replies, began, err), err
}

// namespaceOf returns the namespace of batches.
func namespaceOf(batches []store.Batch) string {
	for i := range batches {
		if len(batches[i].Deltas) > 0 {
			return batches[i].Deltas[0].Cell.Namespace
		}
	}
	return ""
}

// applyApart gives the batches of each partition to the store by themselves, so that
// what happens to one does not concern the others.
func (s *shared) applyApart(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	return store.Apart(batches, replies, func(some []store.Batch, told []store.Reply) error {
		began := s.totals.Begin()
		err := s.store.Apply(ctx, some, told)
		s.ended(some, told, began, err)
		return err
	})
}

// ended takes notice of a call of the store, and of what became of its deltas,
// before anyone is told. It reports whether some were refused because of what this server
// knew.
func (s *shared) ended(batches []store.Batch, replies []store.Reply, began rollup.Moment, err error) (stale bool) {
	if watchers := s.watchers.Load(); watchers != nil {
		changed(*watchers, batches, replies, err)
	}
	if err != nil {
		if errors.Is(err, store.ErrUnknown) {
			s.unknown.Add(1)
		}
		return isStale(err)
	}
	s.totals.End(batches, replies, began)
	for i := range replies {
		if err := replies[i].Err; err != nil {
			if errors.Is(err, store.ErrUnknown) {
				s.unknown.Add(1)
			}
			stale = stale || isStale(err)
		}
		for j := range replies[i].Results {
			r := &replies[i].Results[j]
			if r.Outcome == store.Applied && !r.Replayed && !replies[i].Replayed { // Fast path.
				continue
			}
			stale = stale || staleResult(r)
			if r.Outcome == store.NotCount || r.Outcome == store.Split {
				s.texts.found(batches[i].Deltas[j].Cell.Namespace)
			}
			s.count(batches[i].Deltas[j].Op, r)
		}
	}
	return stale
}

// count counts what is not plainly applied for the first time. Want of room is counted apart: that is
// for operators to make, and other refusals are their callers' affair. A condition
// that was not met is an answer, and so is that a token is settled to who settles it.
func (s *shared) count(op store.Op, r *store.Result) {
	switch {
	case r.Outcome == store.Unmet, op == store.OpSettle, staleResult(r):
	case r.Outcome == store.Applied:
		s.replayed.Add(1)
	case r.Outcome == store.Unknown:
		s.unknown.Add(1)
	case r.Outcome == store.Unavailable:
	case r.Outcome == store.Full:
		s.full.Add(1)
		s.refused.Add(1)
	default:
		s.refused.Add(1)
	}
}

// bookOf returns what package spread has to know of the definitions of a counter.
func (s *shared) bookOf(c store.Cell) (id int64, touch *store.Event) {
	known := s.books.Known(c.Namespace)
	if keys := known.Of(c.Key); keys != nil {
		touch = keys.Touch
	}
	return known.ID(), touch
}

// layoutOf returns how a counter is laid out.
func (s *shared) layoutOf(c store.Cell) spread.Policy {
	p := s.rulesIn(c.Namespace).Policy(c.Key)
	limits := hot.Limits{Shards: p.Shards, Max: p.MaxShards, CoolDown: p.CoolDown}
	if p.Single || s.books.Known(c.Namespace).Whole(c.Key) {
		limits.Shards, limits.Max = 1, 1
	}
	return spread.Policy{Limits: limits, Spread: hot.Spread(p.Spread)}
}

// changes reports whether batches may change anything.
func changes(batches []store.Batch) bool {
	return slices.ContainsFunc(batches, func(b store.Batch) bool { return b.Changes() })
}
