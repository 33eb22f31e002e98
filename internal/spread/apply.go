package spread

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// Apply applies each batch, as if every counter were one cell.
func (s *Store) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "apply %d batches into %d replies", len(batches), len(replies))
	}
	if s.options.Members != nil && settles(batches) {
		if err := s.findSeats(ctx, batches); err != nil {
			return err
		}
	}
	if s.starter != nil && len(batches) == 1 && len(batches[0].Deltas) == 1 && s.known.count.Load() == 0 && !s.seats.some.Load() {
		return s.applyOne(ctx, batches, replies)
	}
	if lays(batches) {
		return s.refuse(ctx, batches, replies)
	}
	err := s.applyNoted(ctx, batches, replies)
	if s.seats.some.Load() && (err == nil || store.KindOf(err) == store.KindSplit) {
		return s.sit(ctx, batches, replies)
	}
	return err
}

// applyNoted is Apply of batches that name no layout, of which some are looked at.
func (s *Store) applyNoted(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if !s.chosen() {
		return s.apply(ctx, batches, replies)
	}
	began := s.options.Now()
	err := s.apply(ctx, batches, replies)
	if err == nil {
		now := s.options.Now()
		s.note(batches, replies, now, now.Sub(began))
	}
	return err
}

// applyOne is Apply of one delta, in a store that nobody else uses and where
// nothing is split: the fast path of a program that counts.
func (s *Store) applyOne(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if lays(batches) {
		return s.refuse(ctx, batches, replies)
	}
	timed := s.takeTurn()
	var began time.Time
	if timed {
		began = s.options.Now()
	}
	if err := s.under.Apply(ctx, batches, replies); err != nil {
		return err
	}
	r := &replies[0]
	if r.Err != nil || r.Results[0].Outcome == store.Split {
		if !anySplit(replies) {
			return nil
		}
		s.drive(ctx, s.newRepair(batches, replies, batches))
		if s.seats.some.Load() {
			return s.sit(ctx, batches, replies)
		}
		return told(replies)
	}
	if timed {
		s.took(batches, began)
	}
	// A hash tells the writes apart, and costs less than chance.
	const golden = 0x9e3779b97f4a7c15
	if r.Results[0].Version*golden>>32%sample == 0 {
		s.note(batches, replies, s.options.Now(), 0)
	}
	return nil
}

// apply is Apply of batches that name no layout.
func (s *Store) apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	var m *write
	if s.concerns(batches) {
		now := s.options.Now()
		m = s.newWrite(batches, replies, func(d *store.Delta, shards int) int {
			return hot.Pick(s.options.Policy(d.Cell).Spread, shards, s.server, d.Lot, now)
		})
	} else {
		given := batches
		batches = inOrder(batches)
		if err := s.under.Apply(ctx, batches, replies); err != nil || !anySplit(replies) {
			return err
		}
		m = s.newRepair(batches, replies, given)
	}
	if s.drive(ctx, m); m.err != nil {
		return m.err
	}
	return told(replies)
}

// concerns reports whether batches write to a counter that is known to be split, or to have
// seats.
func (s *Store) concerns(batches []store.Batch) bool {
	if s.known.count.Load() == 0 && !s.seats.some.Load() {
		return false
	}
	for i := range batches {
		for j := range batches[i].Deltas {
			if c := batches[i].Deltas[j].Cell; s.known.get(c) != nil || s.seats.several(c) > 0 {
				return true
			}
		}
	}
	return false
}

// told returns the error of a call of one batch: its callers look there first.
func told(replies []store.Reply) error {
	if len(replies) != 1 {
		return nil
	}
	switch err := replies[0].Err; store.KindOf(err) {
	case store.KindUnavailable, store.KindUnknown, store.KindClosed, store.KindOther:
		return err
	default:
		return nil
	}
}

// refuse applies a call without the batches that name layouts.
func (s *Store) refuse(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		if lays(batches[i : i+1]) {
			replies[i] = store.Reply{Err: store.Errorf(store.KindUnsupported, "layouts are not for callers"), Results: replies[i].Results[:0]}
		} else if err := s.Apply(ctx, batches[i:i+1], replies[i:i+1]); err != nil {
			return store.Partly(err, i > 0)
		}
	}
	return nil
}

// Start is Apply for callers that can't wait. It is for a store that nobody else
// uses: what is split is known.
func (s *Store) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	if s.starter == nil || lays(batches) || !s.loaded.Load() || !s.splitting.TryRLock() {
		return false
	}
	defer s.splitting.RUnlock()
	if s.concerns(batches) {
		return false
	}
	if s.takeTurn() {
		began, told := s.options.Now(), done
		done = func(err error) {
			if err == nil {
				s.took(batches, began)
			}
			told(err)
		}
	}
	if !s.starter.Start(batches, replies, done) {
		return false
	}
	if s.chosen() {
		s.note(batches, nil, s.options.Now(), 0)
	}
	return true
}

// Flush makes what was started durable.
func (s *Store) Flush(here bool) {
	if s.starter != nil {
		s.starter.Flush(here)
	}
}
