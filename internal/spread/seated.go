package spread

import (
	"context"
	"slices"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// errSeated returns the error of what no seat of a counter can decide.
func errSeated(c store.Cell, n int) error {
	return store.Errorf(store.KindUnsupported, "the users of %q are laid over %d shards, and this needs the whole of it: reactions, reset and delete are possible", c.Key, n)
}

// settles reports whether a batch settles a token, which may be with any seat.
func settles(batches []store.Batch) bool {
	return slices.ContainsFunc(batches, func(b store.Batch) bool {
		return slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return d.Op == store.OpSettle })
	})
}

// findSeats finds out which counters have seats whose tokens are settled.
func (s *Store) findSeats(ctx context.Context, batches []store.Batch) error {
	for i := range batches {
		for j := range batches[i].Deltas {
			if d := &batches[i].Deltas[j]; d.Op == store.OpSettle {
				if _, err := s.Seats(ctx, d.Cell); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sit does what is left to do of batches after their homes have answered: what homes refuse
// because users are elsewhere, and tokens that are settled in every seat. What a batch asks
// of one counter is done in its order.
func (s *Store) sit(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		b, r := &batches[i], &replies[i]
		if r.Err != nil {
			if store.KindOf(r.Err) == store.KindSplit {
				for j := range b.Deltas {
					if n := s.seats.several(b.Deltas[j].Cell); n > 0 {
						*r = store.Reply{Err: errSeated(b.Deltas[j].Cell, n), Results: r.Results[:0]}
						break
					}
				}
			}
			continue
		}
		for j := range r.Results {
			d := &b.Deltas[j]
			n := s.seats.several(d.Cell)
			if n == 0 || r.Results[j].Outcome != store.Split && d.Op != store.OpSettle {
				continue
			}
			one, err := s.decide(ctx, b, d, n, r.Results[j])
			if err != nil {
				fail(r, err, j)
				if r.Err != nil {
					break
				}
				continue
			}
			r.Results[j] = one
		}
	}
	return told(replies)
}

// decide decides one delta on a counter with seats, of which home could not.
func (s *Store) decide(ctx context.Context, b *store.Batch, d *store.Delta, n int, was store.Result) (store.Result, error) {
	switch {
	case d.Op == store.OpSettle:
		return s.settle(ctx, b, d, n, was)
	case s.seat(d) > 0:
		if err := s.clear(ctx, store.ShardCell(d.Cell, s.seat(d))); err != nil {
			return was, err
		}
		return s.one(ctx, b, *d)
	case d.Event != nil && d.Event.Part != "":
		return was, errSeated(d.Cell, n)
	case d.Op == store.OpGet:
		var value [1]store.Value
		if err := s.Read(ctx, []store.Cell{d.Cell}, value[:]); err != nil {
			return was, err
		}
		v := value[0]
		if d.Guard.Exists == store.ExistsMust && !v.Exists || d.Guard.Exists == store.ExistsNot && v.Exists {
			return store.Result{Outcome: store.Unmet, Before: v.N, After: v.N, Existed: v.Exists}, nil
		}
		return store.Result{Outcome: store.Applied, Before: v.N, After: v.N, Existed: v.Exists, Version: v.Version}, nil
	case d.Op == store.OpSet && d.N == 0, d.Op == store.OpDelete:
		return s.empty(ctx, b, *d, n)
	default:
		return was, errSeated(d.Cell, n)
	}
}

// one applies one delta of a batch by itself.
func (s *Store) one(ctx context.Context, b *store.Batch, d store.Delta) (store.Result, error) {
	alone := []store.Batch{{Partition: store.PartitionOf(d.Cell, s.partitions), Durability: b.Durability, Books: b.Books, Apart: true, Deltas: []store.Delta{d}}}
	var replies [1]store.Reply
	if err := s.apply(ctx, alone, replies[:]); err != nil {
		return store.Result{}, err
	}
	if replies[0].Err != nil {
		return store.Result{}, replies[0].Err
	}
	return replies[0].Results[0], nil
}

// clear takes the word away that a server has given a seat which rested while it split the
// counter: home will never name it.
func (s *Store) clear(ctx context.Context, seat store.Cell) error {
	var value [1]store.Value
	if err := s.under.Read(ctx, []store.Cell{seat}, value[:]); err != nil || hot.Of(value[0]) == 0 {
		return err
	}
	of, _, _ := store.ShardOf(seat)
	_, err := s.make(ctx, s.changes(s.defined(of), layout(seat, hot.Of(value[0]), 0)))
	return s.unlessOutdated(err)
}

// empty resets a counter with seats, or deletes it: home decides, and its seats follow.
func (s *Store) empty(ctx context.Context, b *store.Batch, d store.Delta, n int) (store.Result, error) {
	switch {
	case d.Guard.Match: // What is the sum of cells has the version of none.
		return store.Result{Outcome: store.Changed}, nil
	case !raisesGeneration(d.Event):
		return store.Result{}, store.Errorf(store.KindUnsupported, "%q has users in %d shards, and no choices by its definition: define them again before it is reset or deleted", d.Cell.Key, n)
	case d.Guard.Exists != store.ExistsAny:
		var value [1]store.Value
		if err := s.Read(ctx, []store.Cell{d.Cell}, value[:]); err != nil {
			return store.Result{}, err
		}
		if v := value[0]; v.Exists != (d.Guard.Exists == store.ExistsMust) {
			return store.Result{Outcome: store.Unmet, Before: v.N, After: v.N, Existed: v.Exists}, nil
		}
		d.Guard.Exists = store.ExistsAny
	}
	home := laid(d, hot.Seats(n))
	if d.Op == store.OpDelete {
		e := *d.Event
		e.Riders = append(slices.Clip(e.Riders), store.Rider{Part: partDeletes, Op: store.OpAdd, N: 1})
		home.Op, home.N, home.Event = store.OpSet, 0, &e
	}
	alone := []store.Batch{{Partition: store.PartitionOf(d.Cell, s.partitions), Durability: b.Durability, Books: b.Books, Apart: true, Deltas: []store.Delta{home}}}
	got, err := s.make(ctx, []call{{apply: alone}})
	if err != nil {
		return store.Result{}, err
	}
	res := got.replies[0].Results[0]
	if res.Outcome != store.Applied {
		return res, nil
	}
	r, err := s.raise(ctx, d.Cell, n)
	if err != nil {
		return res, store.Errorf(store.KindUnknown, "%q is being emptied, and not all of its shards could be reached: whoever reads or changes it next goes on: %w", d.Cell.Key, err)
	}
	if !res.Replayed && d.Want {
		res.Before, res.Existed = res.Before+r.sum, r.existed || res.Before != 0
	}
	res.Version |= OfShards
	return res, nil
}

// raisesGeneration reports whether an event takes the users of a counter away.
func raisesGeneration(e *store.Event) bool {
	if e == nil {
		return false
	}
	for i := range e.Len() {
		if e.Rider(i).Part == partGeneration {
			return true
		}
	}
	return false
}

// settle settles a token in the seats too, after home. If one has it, that is the answer.
func (s *Store) settle(ctx context.Context, b *store.Batch, d *store.Delta, n int, home store.Result) (store.Result, error) {
	if home.Outcome != store.Settled {
		return home, nil
	}
	var deltas []store.Delta
	for _, c := range seatCells(d.Cell, n) {
		one := *d
		one.Cell = c
		deltas = append(deltas, one)
	}
	calls := s.changes(defined{}, deltas...)
	for i := range calls[0].apply {
		calls[0].apply[i].Books, calls[0].apply[i].Apart = b.Books, true
	}
	got, err := s.make(ctx, calls)
	if err != nil {
		return home, err
	}
	for i := range got.replies {
		for _, res := range got.replies[i].Results {
			if res.Outcome != store.Settled {
				return res, nil
			}
		}
	}
	return home, nil
}

// Lookup reports what is known of a token. Tokens are with the counter's home, or with the
// seat of the user whom the write was of. One that is settled in some of these only may
// still be applied.
func (s *Store) Lookup(ctx context.Context, c store.Cell, token string) (store.Fate, error) {
	fate, err := s.under.Lookup(ctx, c, token)
	if err != nil || fate.State == store.TokenApplied || fate.State == store.TokenRefused {
		return fate, err
	}
	cells, err := s.Seats(ctx, c)
	if err != nil || cells[0] == c {
		return fate, err
	}
	for _, seat := range cells {
		switch f, err := s.under.Lookup(ctx, seat, token); {
		case err != nil:
			return fate, err
		case f.State == store.TokenApplied || f.State == store.TokenRefused:
			return f, nil
		case f.State == store.TokenUnknown:
			fate = f
		}
	}
	return fate, nil
}
