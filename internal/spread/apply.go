package spread

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

const (
	// roundsMax is how often a call is made again because a counter was split
	// meanwhile.
	roundsMax = 16
)

// Apply applies each batch, as if every counter were one cell.
func (s *Store) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "apply %d batches into %d replies", len(batches), len(replies))
	}
	if s.starter != nil && len(batches) == 1 && len(batches[0].Deltas) == 1 && s.known.Load() == 0 {
		return s.applyOne(ctx, batches, replies)
	}
	if lays(batches) {
		return s.refuse(ctx, batches, replies)
	}
	if !chosen() {
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
	if d := &batches[0].Deltas[0]; d.Guard.Laid || d.Op == store.OpLayout {
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
		s.repair(ctx, batches, replies, identity(batches, replies))
		return told(replies)
	}
	if timed {
		s.took(batches, began)
	}
	// What tells the writes apart costs less than chance.
	const golden = 0x9e3779b97f4a7c15
	if r.Results[0].Version*golden>>32%sample == 0 {
		s.note(batches, replies, s.options.Now(), 0)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if err := s.settle(ctx, batches); err != nil {
		return err
	}
	batches = inOrder(batches)
	r := s.route(batches)
	if r == nil {
		if err := s.under.Apply(ctx, batches, replies); err != nil {
			return err
		}
		if !anySplit(replies) {
			return nil
		}
		r = identity(batches, replies)
	} else {
		began := s.options.Now()
		if err := s.under.Apply(ctx, r.batches, r.replies); err != nil {
			if fate(err) == 0 {
				return err
			}
			for i := range r.replies { // what moved may fare better at home
				r.replies[i] = store.Reply{Err: err}
			}
		}
		r.timed(began, s.options.Now())
		r.gather(batches, replies)
		s.bringHome(ctx, batches, replies)
	}
	s.repair(ctx, batches, replies, r)
	return told(replies)
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

// lays reports whether a caller would change a layout, or names one: that is for
// this package alone.
func lays(batches []store.Batch) bool {
	for i := range batches {
		for j := range batches[i].Deltas {
			if d := &batches[i].Deltas[j]; d.Op == store.OpLayout || d.Guard.Laid {
				return true
			}
		}
	}
	return false
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

// anySplit reports whether a reply says that a counter is split.
func anySplit(replies []store.Reply) bool {
	for i := range replies {
		r := &replies[i]
		if r.Err != nil && store.KindOf(r.Err) == store.KindSplit {
			return true
		}
		for j := range r.Results {
			if r.Results[j].Outcome == store.Split {
				return true
			}
		}
	}
	return false
}

// settle folds the counters that are known to be split and that a batch needs
// whole. It is the order of a batch that asks for it: what comes after must not be
// applied before.
func (s *Store) settle(ctx context.Context, batches []store.Batch) error {
	if s.known.Load() == 0 {
		return nil
	}
	for i := range batches {
		for j := range batches[i].Deltas {
			d := &batches[i].Deltas[j]
			if !d.NeedsWhole() || s.get(d.Cell) == nil {
				continue
			}
			// If a shard is out of reach, that concerns this delta alone: it is refused when
			// its turn comes.
			if err := s.ask(ctx, d.Cell); err != nil && store.KindOf(err) != store.KindUnavailable {
				return err
			}
		}
	}
	return nil
}

// ask folds a counter because one cell has to decide.
func (s *Store) ask(ctx context.Context, c store.Cell) error {
	s.asked(c)
	return s.Fold(ctx, c)
}

// inOrder returns the batches, of which some must stay together: if a counter
// turned out to be split, what asks of it would be refused and applied later,
// after adds that come after it in the batch, or when the conditions of the batch
// do not hold any more.
func inOrder(batches []store.Batch) []store.Batch {
	copied := false
	for i := range batches {
		if !batches[i].Apart || len(batches[i].If) == 0 && !overtakes(batches[i].Deltas) {
			continue
		}
		if !copied {
			batches, copied = slices.Clone(batches), true
		}
		batches[i].Apart = false
	}
	return batches
}

// overtakes reports whether an add that any cell takes comes after something that
// asks of the same counter.
func overtakes(deltas []store.Delta) bool {
	var asked map[store.Cell]bool
	for i := range deltas {
		d := &deltas[i]
		switch {
		case d.NeedsWhole() && i+1 < len(deltas):
			if asked == nil {
				if !slices.ContainsFunc(deltas[i+1:], func(d store.Delta) bool { return !d.NeedsWhole() }) {
					return false
				}
				asked = make(map[store.Cell]bool)
			}
			asked[d.Cell] = true
		case asked[d.Cell]:
			return true
		}
	}
	return false
}

// A routed is a call as it goes to the store.
type routed struct {
	batches []store.Batch
	replies []store.Reply
	from    [][]place // of each delta
}

// A place is where a delta comes from, its batch and its number in it, and to
// which shard it went of a counter; 0 is home. Of is nil if it could go nowhere else.
type place struct {
	batch, delta int
	shard        int
	of           *counter
}

// A moved is a batch of what moves to shards: its place, and how large it is.
type moved struct{ at, bytes int }

// route sends adds to the shards of counters that have some. It returns nil if
// none goes anywhere.
func (s *Store) route(batches []store.Batch) *routed {
	if s.known.Load() == 0 {
		return nil
	}
	if !slices.ContainsFunc(batches, func(b store.Batch) bool { return s.moves(&b) }) {
		return nil
	}
	r := &routed{}
	now := s.options.Now()
	for i := range batches {
		b := &batches[i]
		if !s.moves(b) {
			r.append(*b, i)
			continue
		}
		stay := *b
		stay.Deltas = nil
		var kept []place
		apart := map[int]moved{} // by partition
		for j := range b.Deltas {
			d := b.Deltas[j]
			c := s.target(&d)
			to := place{batch: i, delta: j}
			if c != nil {
				to.of, to.shard = c, s.move(&d, c, now)
			}
			if to.shard == 0 {
				stay.Deltas, kept = append(stay.Deltas, d), append(kept, to)
				continue
			}
			p := store.PartitionOf(d.Cell, s.traits.Partitions)
			m, ok := apart[p]
			size := len(d.Cell.Namespace) + len(d.Cell.Key)
			if !ok || m.bytes+size > store.BatchBytesMax { // The names of shards are longer than the counter's.
				m = moved{at: len(r.batches)}
				r.batches = append(r.batches, store.Batch{Partition: p, Durability: b.Durability, Apart: true})
				r.from = append(r.from, nil)
			}
			m.bytes += size
			apart[p] = m
			r.batches[m.at].Deltas = append(r.batches[m.at].Deltas, d)
			r.from[m.at] = append(r.from[m.at], to)
		}
		if len(kept) > 0 {
			r.batches, r.from = append(r.batches, stay), append(r.from, kept)
		}
	}
	r.replies = make([]store.Reply, len(r.batches))
	return r
}

// append adds a batch that stays as it is.
func (r *routed) append(b store.Batch, i int) {
	from := make([]place, len(b.Deltas))
	for j := range from {
		from[j] = place{batch: i, delta: j}
	}
	r.batches, r.from = append(r.batches, b), append(r.from, from)
}

// stays reports whether a batch stays as it is: those of numbered batches are where
// their writer wants them, and those that belong together stay together.
func stays(b *store.Batch) bool { return b.Writer != 0 || len(b.If) > 0 || b.Together() }

// shardable reports whether any shard can take a delta. Those with a token stay
// with home, which knows the tokens; those that take away do, so that shards only
// grow.
func shardable(d *store.Delta) bool {
	return d.Needs() == 0 && d.N >= 0 && d.N <= store.AddMax
}

// moves reports whether a delta of a batch may go to a shard.
func (s *Store) moves(b *store.Batch) bool {
	if stays(b) {
		return false
	}
	for i := range b.Deltas {
		if s.target(&b.Deltas[i]) != nil {
			return true
		}
	}
	return false
}

// target returns the counter whose shards may take d, or nil.
func (s *Store) target(d *store.Delta) *counter {
	if !shardable(d) {
		return nil
	}
	c := s.get(d.Cell)
	if c == nil || c.word.Folding() {
		return nil
	}
	return c
}

// move sends an add to a shard, and returns which: 0 is home, where it stays.
func (s *Store) move(d *store.Delta, c *counter, now time.Time) int {
	// Where cells are read at different moments, home is left to what may take away:
	// shards only grow, so a sum is sound if home was the same before and after.
	rest := 0
	if s.traits.Partitions > 1 {
		rest = 1
	}
	i := rest + hot.Pick(s.options.Policy(d.Cell).Spread, len(c.cells)-rest, s.server, d.Lot, now)
	if i > 0 {
		d.Cell = c.cells[i]
		d.Guard.Laid, d.Guard.Layout = true, int64(hot.Open(c.word.Gen()))
	}
	return i
}

// timed notes how long the call took, for each shard that it wrote to.
func (r *routed) timed(began, now time.Time) {
	for i := range r.from {
		for _, p := range r.from[i] {
			if p.of != nil {
				p.of.paces[p.shard].note(now.Sub(began), now)
			}
		}
	}
}

// identity is a call that went to the store as it was.
func identity(batches []store.Batch, replies []store.Reply) *routed {
	r := &routed{replies: replies}
	for i := range batches {
		r.append(batches[i], i)
	}
	return r
}

// gather puts the replies together again. A batch whose parts were acknowledged
// differently is told the weakest. A part that moved to a partition which can't be
// reached, or did not answer, says so of its own deltas only. If a part is refused
// otherwise, and another is not, no reply can say so, and its batch has an error.
func (r *routed) gather(batches []store.Batch, replies []store.Reply) {
	taken := make([]bool, len(replies)) // a part of it
	doubts := make([]error, len(replies))
	for i := range replies {
		results := slices.Grow(replies[i].Results[:0], len(batches[i].Deltas))[:len(batches[i].Deltas)]
		replies[i] = store.Reply{Durability: store.Synced, Results: results}
	}
	for i := range r.replies {
		from := &r.replies[i]
		if len(r.from[i]) == 0 { // a batch without deltas: it is the only one of its caller's
			continue
		}
		batch := r.from[i][0].batch
		to := &replies[batch]
		if outcome := fate(from.Err); outcome != 0 && r.from[i][0].shard > 0 {
			for _, p := range r.from[i] {
				to.Results[p.delta] = store.Result{Outcome: outcome}
			}
			if outcome == store.Unknown {
				taken[batch], doubts[batch] = true, from.Err
			}
			continue
		}
		taken[batch] = taken[batch] || from.Err == nil
		to.Mark, to.Replayed, to.Err = from.Mark, from.Replayed, errors.Join(to.Err, from.Err)
		to.Durability = min(to.Durability, from.Durability)
		to.Waited, to.Retries = max(to.Waited, from.Waited), max(to.Retries, from.Retries)
		for j := range from.Results {
			p := r.from[i][j]
			to.Results[p.delta] = from.Results[j]
			if p.shard > 0 {
				to.Results[p.delta].Shard = uint16(p.shard)
				to.Results[p.delta].Version |= OfShards // a shard's says nothing of the counter
			}
		}
	}
	for i := range replies {
		err, results := replies[i].Err, replies[i].Results
		if doubts[i] != nil && !slices.ContainsFunc(results, func(r store.Result) bool { return r.Outcome != store.Unknown }) {
			err = doubts[i] // which says more
		}
		if err != nil {
			replies[i] = store.Reply{Err: store.Partly(err, taken[i]), Results: results[:0]}
		}
	}
}

// fate returns what an error says of a delta by itself, 0 if it is not that its
// partition is out of reach.
func fate(err error) store.Outcome {
	if err == nil {
		return 0
	}
	switch store.KindOf(err) {
	case store.KindUnavailable:
		return store.Unavailable
	case store.KindUnknown:
		return store.Unknown
	default:
		return 0
	}
}

// bringHome gives adds whose shards are out of reach to their homes, which take them
// whatever became of the shards.
func (s *Store) bringHome(ctx context.Context, batches []store.Batch, replies []store.Reply) {
	var away [1]store.Batch
	var reply [1]store.Reply
	for i := range batches {
		b, to := &batches[i], &replies[i]
		away[0] = store.Batch{Partition: b.Partition, Durability: b.Durability, Apart: true}
		var places []int
		for j := range to.Results {
			if to.Results[j].Outcome == store.Unavailable {
				away[0].Deltas, places = append(away[0].Deltas, b.Deltas[j]), append(places, j)
			}
		}
		if len(places) == 0 {
			continue
		}
		s.meters.rerouted.Add(uint64(len(places)))
		reply[0] = store.Reply{}
		err := s.under.Apply(ctx, away[:], reply[:])
		if err = cmp.Or(err, reply[0].Err); err != nil {
			fail(to, err, places...)
			continue
		}
		for n, j := range places {
			to.Results[j] = reply[0].Results[n]
		}
		to.Durability = min(to.Durability, reply[0].Durability)
	}
}

// repair does again what was refused because of a layout: adds whose shard was
// closed, and what found its counter split. Nothing of that was applied.
func (s *Store) repair(ctx context.Context, batches []store.Batch, replies []store.Reply, r *routed) {
	for i := range r.replies {
		for j, p := range r.from[i] {
			if p.shard == 0 || len(r.replies[i].Results) == 0 || r.replies[i].Results[j].Outcome == store.Applied {
				continue
			}
			if replies[p.batch].Err != nil { // nothing more can be said of it
				continue
			}
			// Home takes it, whatever became of the shard.
			d := batches[p.batch].Deltas[p.delta]
			s.forget(d.Cell, p.of)
			s.refused(d.Cell, p.of)
			s.meters.rerouted.Add(1)
			s.again(ctx, &batches[p.batch], &replies[p.batch], p.delta)
		}
	}
	for i := range replies {
		b, to := &batches[i], &replies[i]
		if to.Err != nil && store.KindOf(to.Err) == store.KindSplit {
			s.whole(ctx, b, to)
			continue
		}
		for j := 0; j < len(to.Results); j++ { // fewer when it fails
			if to.Results[j].Outcome != store.Split {
				continue
			}
			if len(b.If) > 0 { // Its only delta: the conditions must hold when it is applied.
				s.whole(ctx, b, to)
				break
			}
			s.again(ctx, b, to, j)
		}
	}
}

// again applies one delta of a batch to its counter, and puts the result where
// it belongs.
func (s *Store) again(ctx context.Context, b *store.Batch, to *store.Reply, j int) {
	d := b.Deltas[j]
	one := store.Batch{
		Partition: store.PartitionOf(d.Cell, s.traits.Partitions), Durability: b.Durability, Apart: true, Deltas: []store.Delta{d},
	}
	var reply store.Reply
	s.whole(ctx, &one, &reply)
	if reply.Err != nil {
		fail(to, reply.Err, j)
		return
	}
	to.Results[j] = reply.Results[0]
	to.Durability = min(to.Durability, reply.Durability)
}

// fail says of some deltas of a batch that they failed, and of the batch only if
// there are no others, or the error can't be said of a delta.
func fail(to *store.Reply, err error, places ...int) {
	outcome, others := fate(err), len(to.Results) > len(places)
	if outcome == 0 || !others {
		*to = store.Reply{Err: store.Partly(err, others), Results: to.Results[:0]}
		return
	}
	for _, j := range places {
		to.Results[j] = store.Result{Outcome: outcome}
	}
}

// whole applies a batch again, and folds the counters that it needs whole, as
// often as it takes. The reply has the error, if there is one.
func (s *Store) whole(ctx context.Context, b *store.Batch, to *store.Reply) {
	one, replies := [...]store.Batch{*b}, [...]store.Reply{{Results: to.Results[:0]}}
	err := func() error {
		for range roundsMax {
			s.retried(b)
			if err := s.under.Apply(ctx, one[:], replies[:]); err != nil {
				return err
			}
			if !anySplit(replies[:]) {
				return nil
			}
			for i := range b.Deltas {
				if d := &b.Deltas[i]; d.NeedsWhole() {
					if err := s.ask(ctx, d.Cell); err != nil {
						return err
					}
				}
			}
		}
		return store.Errorf(store.KindUnavailable, "the counter is split again and again while it is asked for its value")
	}()
	if *to = replies[0]; err != nil {
		*to = store.Reply{Err: err, Results: to.Results[:0]}
	}
}

// Start is Apply for callers that can't wait. It is for a store that nobody else
// uses: what is split is known.
func (s *Store) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	if s.starter == nil || lays(batches) || !s.loaded.Load() || !s.splitting.TryRLock() {
		return false
	}
	defer s.splitting.RUnlock()
	if s.known.Load() > 0 {
		for i := range batches {
			for j := range batches[i].Deltas {
				if s.get(batches[i].Deltas[j].Cell) != nil {
					return false
				}
			}
		}
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
	if chosen() {
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
