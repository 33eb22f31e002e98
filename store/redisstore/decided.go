package redisstore

import (
	"context"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// decide reads what a batch names, decides it, and writes the decision: again
// and again, until nothing has changed in between.
func (s *Store) decide(ctx context.Context, w *writing, r *store.Reply) error {
	b, swept := w.batch, false
	var missed []store.PartCell
	turn := s.turn(b)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for p := newPatient(conflictMax, conflictPatience); ; {
		st := newState(w.home, s.share)
		st.batch(b)
		for _, id := range missed {
			st.part(id.Cell, id.Part)
		}
		if err := s.load(ctx, st, b.Writer, plan.Versions(b), max(s.waits(b.Durability), s.shown())); err != nil {
			return err
		}
		*r = store.Reply{Results: r.Results[:0]}
		if err := s.decideOn(st, w, r); err != nil {
			return err
		}
		if len(st.missed) > 0 {
			missed = append(missed, st.missed...)
			continue
		}
		if st.full && !swept {
			// There is no room: perhaps when what has expired is gone.
			swept = true
			if err := s.makeRoom(ctx, w.home, st.crowded); err != nil {
				return err
			}
			continue
		}
		if !st.changes() {
			return nil
		}
		done, err := s.commit(ctx, st, b.Writer, s.waits(b.Durability))
		if done || err != nil {
			return err
		}
		s.meters.conflicts.Add(1)
		if !p.again(ctx) {
			return looked(ctx, store.Errorf(store.KindUnavailable, "what the batch names changes all the time"))
		}
		w.retries++
	}
}

// turn returns what a batch takes to be decided: batches of this store to one hot
// cell come one after the other, instead of in each other's way.
func (s *Store) turn(b *store.Batch) chan struct{} {
	c := store.Cell{}
	if len(b.Deltas) > 0 {
		c = b.Deltas[0].Cell
	}
	return s.turns[store.PartitionOf(c, len(s.turns))]
}

// decideOn decides a batch on a loaded state, if its mark and its conditions let
// it.
func (s *Store) decideOn(st *state, w *writing, r *store.Reply) error {
	b := w.batch
	if b.Writer != 0 {
		if apply, err := s.judge(w, st.mark, st.floor, st.marks, r); !apply || err != nil {
			return err
		}
	}
	d := decoder{}
	floor := store.Writer(d.uint(st.floor))
	st.looks(b)
	if r.Err = st.books.Judge(b); r.Err == nil {
		r.Err = st.floors.Judge(b)
	}
	if r.Err == nil {
		r.Err = decide.Conditions(st, b)
	}
	if r.Err == nil && d.err == nil {
		st.books.Raise(b)
		st.floors.Raise(b)
		at := decide.Clock{NowMS: st.nowMS, NowUS: st.nowUS, Window: s.limits.TokenWindow}
		decide.Deltas(st, at, b, r, &st.record, func(last store.Writer) {
			floor = max(floor, last)
			st.newFloor = floor
		})
		if b.Writer != 0 {
			m := decide.Mark{}
			m.Set(b, w.digest, r)
			st.newMark = markText(&m)
		}
	}
	return d.err
}
