package spread

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// Near is how far a counter that is split may be from zero: far from the ends of
// int64, however much is added before someone looks again. Who is as far as far is
// looked at more often.
const (
	near = 1 << 61
	far  = 1 << 40
)

// one applies deltas to the cells of one partition, synced, and returns the
// results.
func (s *Store) one(ctx context.Context, deltas ...store.Delta) ([]store.Result, error) {
	b := store.Batch{
		Partition: store.PartitionOf(deltas[0].Cell, s.traits.Partitions), Durability: store.Synced, Deltas: deltas,
	}
	replies := make([]store.Reply, 1)
	if err := s.under.Apply(ctx, []store.Batch{b}, replies); err != nil {
		return nil, err
	}
	return replies[0].Results, replies[0].Err
}

// layout is the delta that makes one word of another.
func layout(c store.Cell, now, then hot.Word) store.Delta {
	return store.Delta{Cell: c, Op: store.OpLayout, N: int64(then), Guard: store.Guard{Laid: true, Layout: int64(now)}}
}

// laid makes a delta depend on a word.
func laid(d store.Delta, w hot.Word) store.Delta {
	d.Guard.Laid, d.Guard.Layout = true, int64(w)
	return d
}

// home reads the home of a counter.
func (s *Store) home(ctx context.Context, c store.Cell) (store.Value, error) {
	var v [1]store.Value
	err := s.under.Read(ctx, []store.Cell{c}, v[:])
	return v[0], err
}

// split gives a counter as many shards as it says, and reports whether it has
// them. It does nothing if someone else is changing the layout, or the counter
// can't have one.
//
// A generation is of one split. If more shards were opened under one that home has
// already, a server that rests over it could open one after home has left that
// generation, and others, who have not heard of that, would add to it. So a counter
// that needs more shards is folded first. Nobody else knows a new generation before
// all of its shards were opened.
func (s *Store) split(ctx context.Context, c store.Cell, shards int) (bool, error) {
	k := s.get(c)
	v, err := s.home(ctx, c)
	if err != nil {
		return false, err
	}
	was := hot.Word(v.Layout)
	if !v.Exists || v.DeadlineMS != 0 || !isNear(v.N) || was.Folding() || was.Shards() >= shards {
		s.learn(c, k, newest(k, was), v.Version)
		return false, nil
	}
	if was != 0 {
		if err := s.Fold(ctx, c); err != nil {
			return false, err
		}
	}
	name, err := s.open(ctx, c, hot.Home(hot.Generation(rand.Uint64()), shards))
	if err != nil || name.N == 0 {
		return false, err
	}
	if s.starter != nil {
		s.splitting.Lock()
		defer s.splitting.Unlock()
	}
	r, err := s.one(ctx, name)
	if err != nil || r[0].Outcome != store.Applied {
		return false, err
	}
	s.named(c, hot.Word(name.N), r[0].Version)
	if name.Guard.Match {
		s.meters.reasserted.Add(1)
	} else {
		s.meters.splits.Add(1)
	}
	return true, nil
}

// isNear reports whether a counter is near enough to zero to be split.
func isNear(n int64) bool { return -near <= n && n <= near }

// open opens the shards that home is to name, which nobody adds to before that, and
// returns the delta that does. It is none if others are splitting the counter.
//
// What an earlier split has left is removed. It is in home's sum, or was never added
// to: closed shards of a split that home does not name any more have been taken in.
// So home is read after the shards. What was read of it before may be long ago: since
// then others may have split the counter, added to a shard and closed it, to take
// it in next. What is open and has counts, though home does not name it, is of a
// split that home has forgotten: it comes back as it was.
func (s *Store) open(ctx context.Context, c store.Cell, word hot.Word) (name store.Delta, err error) {
	cells := shardsOf(c, word)
	values := make([]store.Value, len(cells))
	open := hot.Open(word.Gen())
	for round := range roundsMax {
		if err := s.under.Read(ctx, cells, values); err != nil {
			return name, err
		}
		var home store.Value
		if slices.ContainsFunc(values, func(v store.Value) bool { return v.Exists && hot.Word(v.Layout) != open }) {
			if home, err = s.home(ctx, c); err != nil || home.Layout != 0 {
				return name, err
			}
		}
		var deltas []store.Delta
		var others uint64 // what else is open
		for i, v := range values {
			is := hot.Word(v.Layout)
			switch {
			case is == open:
			case v.Exists && !is.Folding() && v.N != 0:
				// Perhaps it was closed before home was read.
				if v, err = s.home(ctx, cells[i]); err != nil {
					return name, err
				}
				if hot.Word(v.Layout) == is {
					// If home is not any more what it was, it may have come back, and been folded.
					name = layout(c, 0, hot.Home(is.Gen(), hot.ShardsMax))
					name.Guard.Match, name.Guard.Version = true, home.Version
					return name, nil
				}
				deltas = append(deltas, layout(cells[i], 0, open)) // the next round will see
			case v.Exists:
				if !is.Folding() {
					others = mix(others, uint64(is))
				}
				gone := laid(store.Delta{Cell: cells[i], Op: store.OpDelete}, is)
				gone.Guard.Match, gone.Guard.Version = true, v.Version // nobody has added to it since
				deltas = append(deltas, gone, layout(cells[i], 0, open))
			default:
				deltas = append(deltas, layout(cells[i], 0, open))
			}
		}
		if others != 0 && (!s.abandoned(c, others) || round > 0) {
			return name, nil // someone else is at it
		}
		if len(deltas) == 0 {
			name = layout(c, 0, word)
			name.Guard.Exists = store.ExistsMust                    // It may have been deleted meanwhile, and stays so,
			name.Guard.Bound = &store.Bound{Low: -near, High: near} // or set to whatever.
			return name, nil
		}
		if err := s.each(ctx, deltas); err != nil {
			return name, err
		}
	}
	return name, store.Errorf(store.KindUnavailable, "others change the shards of %q all the time", c.Key)
}

// shardsOf returns the shards of a counter, home excepted.
func shardsOf(c store.Cell, word hot.Word) []store.Cell {
	cells := make([]store.Cell, word.Shards()-1)
	for i := range cells {
		cells[i] = store.ShardCell(c, i+1)
	}
	return cells
}

// A fold is one under way, for all who wait for it.
type fold struct {
	done chan struct{}
	err  error
}

// Fold makes a counter one cell again. It does what is left to do of a fold that
// someone has begun. Many who ask at once share one.
func (s *Store) Fold(ctx context.Context, c store.Cell) error {
	if s.options.ReadOnly {
		return store.ErrReadOnly
	}
	s.folding.Lock()
	f := s.folds[c]
	if f == nil {
		if s.closed {
			s.folding.Unlock()
			return store.ErrClosed
		}
		f = &fold{done: make(chan struct{})}
		s.folds[c] = f
		s.folders.Go(func() {
			within, cancel := context.WithTimeout(s.ctx, foldMax)
			defer cancel()
			f.err = s.fold(within, c)
			s.folding.Lock()
			delete(s.folds, c)
			s.folding.Unlock()
			close(f.done)
		})
	}
	s.folding.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return store.Errorf(store.KindUnavailable, "the counter is being put together: %w", ctx.Err())
	}
}

// foldMax is how long a fold may take before those who wait are told.
const foldMax = 10 * time.Second

func (s *Store) fold(ctx context.Context, c store.Cell) (err error) {
	var k *counter
	defer func() {
		if err == nil || s.starter == nil { // Start has to know what is split.
			s.forget(c, k)
		}
	}()
	for range roundsMax {
		k = s.get(c)
		v, err := s.home(ctx, c)
		if err != nil {
			return unchanged(err)
		}
		word := hot.Word(v.Layout)
		if word == 0 {
			if k != nil {
				if again, err := s.reassert(ctx, c, k, v.Version); err != nil {
					return unchanged(err)
				} else if again {
					continue
				}
			}
			return nil
		}
		k = s.named(c, word.Fold(), v.Version) // no more adds to its shards from here
		if !word.Folding() {
			r, err := s.one(ctx, layout(c, word, word.Fold()))
			if err != nil {
				return unchanged(err)
			}
			if r[0].Outcome != store.Applied {
				continue
			}
			word = word.Fold()
		}
		sum, err := s.closeShards(ctx, c, word)
		if err != nil {
			return unchanged(err)
		}
		done, err := s.takeIn(ctx, c, word, sum)
		switch {
		case store.KindOf(err) == store.KindOverflow:
			return err
		case err != nil:
			return unchanged(err)
		case !done:
			continue // someone else has done it
		}
		s.meters.folds.Add(1)
		s.removeShards(ctx, c, word)
		return nil
	}
	return store.Errorf(store.KindUnavailable, "others change the layout of %q all the time", c.Key)
}

// takeIn adds the sum of the shards, which are closed, to home, and makes that one
// cell. It reports whether it did.
//
// The add and the end of the layout stand or fall together. If the sum left int64
// they would not: the add alone would be refused. So home must be as it was when
// that was judged. If others keep changing it, and it is near zero, it need not:
// they can't bring it so far meanwhile.
func (s *Store) takeIn(ctx context.Context, c store.Cell, word hot.Word, sum int64) (done bool, err error) {
	claim, total := store.RollupCells(c) // What is one cell is its own total.
	b := store.Batch{
		Partition: store.PartitionOf(c, s.traits.Partitions), Durability: store.Synced,
		Deltas: []store.Delta{
			laid(store.Delta{Cell: c, Op: store.OpAdd, N: sum}, word), layout(c, word, 0),
			{Cell: claim, Op: store.OpDelete},
			{Cell: total, Op: store.OpDelete},
		},
	}
	for round := range roundsMax {
		v, err := s.home(ctx, c)
		if err != nil || hot.Word(v.Layout) != word {
			return false, err
		}
		after := v.N + sum
		if (after > v.N) != (sum > 0) && sum != 0 {
			return false, store.ErrOverflow
		}
		b.If = []store.Condition{{Cell: c, Version: v.Version}}
		if round >= roundsCalm && -near < min(v.N, after) && max(v.N, after) < near {
			b.If = nil
		}
		replies := make([]store.Reply, 1)
		if err := s.under.Apply(ctx, []store.Batch{b}, replies); err != nil {
			return false, err
		}
		switch r := &replies[0]; {
		case store.KindOf(r.Err) == store.KindChanged:
			continue
		case r.Err != nil:
			return false, r.Err
		default:
			return r.Results[1].Outcome == store.Applied, nil
		}
	}
	return false, store.Errorf(store.KindUnavailable, "%q is changed all the time", c.Key)
}

// unchanged makes of an error of a fold one that tells the waiting that their own
// write was not made: whatever became of the fold.
func unchanged(err error) error {
	return store.Errorf(store.KindUnavailable, "the counter could not be put together: %w", err)
}

// each applies deltas, those of one partition together. What is refused is left so.
func (s *Store) each(ctx context.Context, deltas []store.Delta) error {
	byPartition := map[int]int{}
	var batches []store.Batch
	for _, d := range deltas {
		p := store.PartitionOf(d.Cell, s.traits.Partitions)
		at, ok := byPartition[p]
		if !ok {
			at = len(batches)
			byPartition[p] = at
			batches = append(batches, store.Batch{Partition: p, Durability: store.Synced})
		}
		batches[at].Deltas = append(batches[at].Deltas, d)
	}
	replies := make([]store.Reply, len(batches))
	if err := s.under.Apply(ctx, batches, replies); err != nil {
		return err
	}
	for i := range replies {
		if replies[i].Err != nil {
			return replies[i].Err
		}
	}
	return nil
}

// closeShards closes the shards of a counter that is being folded, and returns
// their sum, which can't change any more.
func (s *Store) closeShards(ctx context.Context, c store.Cell, word hot.Word) (sum int64, err error) {
	open, cells := hot.Open(word.Gen()), shardsOf(c, word)
	deltas, values := make([]store.Delta, len(cells)), make([]store.Value, len(cells))
	for i := range cells {
		deltas[i] = layout(cells[i], open, open.Fold())
	}
	if err := s.each(ctx, deltas); err != nil {
		return 0, err
	}
	if err := s.under.Read(ctx, cells, values); err != nil {
		return 0, err
	}
	for i := range values {
		if hot.Word(values[i].Layout) == open.Fold() { // else it was never opened, or is gone with home's word
			sum += values[i].N
		}
	}
	return sum, nil
}

// removeShards deletes closed shards. If it fails, the next split does it.
func (s *Store) removeShards(ctx context.Context, c store.Cell, word hot.Word) {
	closed, cells := hot.Open(word.Gen()).Fold(), shardsOf(c, word)
	deltas := make([]store.Delta, len(cells))
	for i := range cells {
		deltas[i] = laid(store.Delta{Cell: cells[i], Op: store.OpDelete}, closed)
	}
	_ = s.each(ctx, deltas)
}
