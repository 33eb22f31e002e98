package spread

import (
	"context"
	"math/rand/v2"
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
func (s *Store) split(ctx context.Context, c store.Cell, shards int) (bool, error) {
	v, err := s.home(ctx, c)
	if err != nil {
		return false, err
	}
	was := hot.Word(v.Layout)
	if !v.Exists || v.DeadlineMS != 0 || v.N > near || v.N < -near || was.Folding() || was.Shards() >= shards {
		s.learn(c, was, v.Version)
		return false, nil
	}
	gen := was.Gen()
	if was == 0 {
		gen = hot.Generation(rand.Uint64())
	}
	named := layout(c, was, hot.Home(gen, shards))
	for i := was.Shards(); i < shards; i++ {
		is, version, err := s.open(ctx, c, i, gen)
		if err != nil {
			return false, err
		}
		switch {
		case is == hot.Open(gen):
			continue
		case version == 0: // someone else has split it meanwhile
			s.forget(c)
			return false, nil
		case was != 0: // There is room for one split in home's word.
			return false, s.Fold(ctx, c)
		}
		// Home has forgotten its shards: they come back as they were. If home is not
		// any more what it was then, they may have come back, and been folded.
		named = layout(c, 0, hot.Home(is.Gen(), hot.ShardsMax))
		named.Guard.Match, named.Guard.Version = true, version
		break
	}
	if s.starter != nil {
		s.splitting.Lock()
		defer s.splitting.Unlock()
	}
	named.Guard.Exists = store.ExistsMust // It may have been deleted meanwhile, and stays so.
	r, err := s.one(ctx, named)
	if err != nil {
		return false, err
	}
	if r[0].Outcome != store.Applied {
		s.forget(c)
		return false, nil
	}
	s.learn(c, hot.Word(named.N), r[0].Version)
	if named.Guard.Match {
		s.meters.reasserted.Add(1)
	} else {
		s.meters.splits.Add(1)
	}
	return true, nil
}

// open opens a shard, which nobody adds to before home names it, and returns what
// the shard is then. That is another split's if home has been split meanwhile, or
// if home has forgotten that it was: then version is home's.
//
// What an earlier split has left is removed. It is in home's sum, or was never added
// to: closed shards of a split that home does not name any more have been taken in.
// So home is read after the shard. What was read of it before may be long ago: since
// then others may have split the counter, added to the shard and closed it, to take
// it in next.
func (s *Store) open(ctx context.Context, c store.Cell, i int, gen int64) (is hot.Word, version uint64, err error) {
	shard, word := store.ShardCell(c, i), hot.Open(gen)
	for range roundsMax {
		v, err := s.home(ctx, shard)
		if err != nil {
			return 0, 0, err
		}
		is := hot.Word(v.Layout)
		if is == word {
			return word, 0, nil
		}
		deltas := []store.Delta{layout(shard, 0, word)}
		if v.Exists {
			home, err := s.home(ctx, c)
			if err != nil {
				return 0, 0, err
			}
			if of := hot.Word(home.Layout); of != 0 && of.Gen() == is.Gen() {
				return is, 0, nil
			}
			if !is.Folding() && v.N != 0 {
				// Open, with counts, and not home's: but perhaps it was closed before home
				// was read.
				if v, err = s.home(ctx, shard); err != nil || hot.Word(v.Layout) == is {
					return is, home.Version, err
				}
				continue
			}
			gone := laid(store.Delta{Cell: shard, Op: store.OpDelete}, is)
			gone.Guard.Match, gone.Guard.Version = true, v.Version // nobody has added to it since
			deltas = []store.Delta{gone, deltas[0]}
		}
		r, err := s.one(ctx, deltas...)
		if err != nil {
			return 0, 0, err
		}
		if r[len(r)-1].Outcome == store.Applied {
			return word, 0, nil
		}
	}
	return 0, 0, store.Errorf(store.KindUnavailable, "others change the shard %q all the time", shard.Key)
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

func (s *Store) fold(ctx context.Context, c store.Cell) error {
	for range roundsMax {
		v, err := s.home(ctx, c)
		if err != nil {
			return unchanged(err)
		}
		word := hot.Word(v.Layout)
		if word == 0 {
			if k := s.get(c); k != nil {
				if again, err := s.reassert(ctx, c, k, v.Version); err != nil {
					return unchanged(err)
				} else if again {
					continue
				}
			}
			s.forget(c)
			return nil
		}
		s.learn(c, word.Fold(), v.Version) // no more adds to its shards from here
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
		s.forget(c)
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

// shards calls under for the shards of a counter, home excepted, each partition
// with its deltas.
func (s *Store) shards(ctx context.Context, c store.Cell, word hot.Word, delta func(shard store.Cell) store.Delta) error {
	byPartition := map[int]int{}
	var batches []store.Batch
	for i := 1; i < word.Shards(); i++ {
		shard := store.ShardCell(c, i)
		p := store.PartitionOf(shard, s.traits.Partitions)
		at, ok := byPartition[p]
		if !ok {
			at = len(batches)
			byPartition[p] = at
			batches = append(batches, store.Batch{Partition: p, Durability: store.Synced})
		}
		batches[at].Deltas = append(batches[at].Deltas, delta(shard))
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
	open := hot.Open(word.Gen())
	err = s.shards(ctx, c, word, func(shard store.Cell) store.Delta { return layout(shard, open, open.Fold()) })
	if err != nil {
		return 0, err
	}
	cells := make([]store.Cell, word.Shards()-1)
	for i := range cells {
		cells[i] = store.ShardCell(c, i+1)
	}
	values := make([]store.Value, len(cells))
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
	closed := hot.Open(word.Gen()).Fold()
	_ = s.shards(ctx, c, word, func(shard store.Cell) store.Delta {
		return laid(store.Delta{Cell: shard, Op: store.OpDelete}, closed)
	})
}
