package spread

import (
	"errors"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

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

// stays reports whether a batch stays as it is: those of numbered batches are where
// their writer wants them, those that belong together stay together, and floors are of the
// partition that they are sent to.
func stays(b *store.Batch) bool {
	return b.Writer != 0 || len(b.If) > 0 || len(b.Floors) > 0 || b.Together()
}

// shardServes is what an add that any shard can take may ask for. Riders are of the
// shard that takes it.
const shardServes = store.NeedRiders | store.NeedBook | store.NeedBytes

// shardable reports whether any shard can take a delta. Those with a token stay
// with home, which knows the tokens; those that take away do, so that shards only
// grow; and so do bytes that have one place.
func shardable(d *store.Delta) bool {
	needs := d.Needs()
	if needs&^shardServes != 0 || d.N < 0 || d.N > store.AddMax {
		return false
	}
	if needs&store.NeedBytes != 0 {
		for i := range d.Event.Len() {
			if r := d.Event.Rider(i); r.Op == store.OpPut && r.Place != store.PlaceVersion {
				return false
			}
		}
	}
	return true
}

// A routed is a call as it goes to the store.
type routed struct {
	batches []store.Batch
	from    [][]place // of each delta
}

// A place is where a delta comes from, its batch and its number in it, and to
// which shard it went of a counter; 0 is home. Of is nil if it could go nowhere else: it
// stays home, or it is of a user, who has one seat.
type place struct {
	batch, delta int
	shard        int
	of           *counter
}

// A moved is a batch of what moves to shards: its place, and how large it is.
type moved struct{ at, bytes int }

// A picker returns which of so many shards an add goes to.
type picker func(d *store.Delta, shards int) int

// target returns the counter whose shards may take d, or nil.
func (m *core) target(d *store.Delta) *counter {
	if !shardable(d) {
		return nil
	}
	c := m.known.get(d.Cell)
	if c == nil || c.word.Folding() {
		return nil
	}
	if d.Event != nil && !c.wide.Load() { // Nobody would look for its parts there.
		c.narrow.Store(true)
		return nil
	}
	return c
}

// route sends adds to the shards of counters that have some. It returns nil if
// none goes anywhere.
func (m *core) route(batches []store.Batch, pick picker) *routed {
	if !slices.ContainsFunc(batches, m.moves) {
		return nil
	}
	r := &routed{}
	for i := range batches {
		if m.moves(batches[i]) {
			m.divide(r, batches, i, pick)
			continue
		}
		from := make([]place, len(batches[i].Deltas))
		for j := range from {
			from[j] = place{batch: i, delta: j}
		}
		r.batches, r.from = append(r.batches, batches[i]), append(r.from, from)
	}
	return r
}

// moves reports whether a delta of a batch may go to a shard.
func (m *core) moves(b store.Batch) bool {
	return !stays(&b) && slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return m.target(&d) != nil || m.seat(&d) > 0 })
}

// divide routes a batch: what stays, and what moves to each partition.
func (m *core) divide(r *routed, batches []store.Batch, i int, pick picker) {
	b := &batches[i]
	stay := *b
	stay.Deltas = nil
	var kept []place
	apart := map[int]moved{} // by partition
	for j := range b.Deltas {
		d := b.Deltas[j]
		to := place{batch: i, delta: j}
		if c := m.target(&d); c != nil {
			to.of, to.shard = c, m.move(&d, c, pick)
		}
		if seat := m.seat(&d); seat > 0 {
			to.shard, d.Cell = seat, store.ShardCell(d.Cell, seat)
		}
		if to.shard == 0 {
			stay.Deltas, kept = append(stay.Deltas, d), append(kept, to)
			continue
		}
		p := store.PartitionOf(d.Cell, m.partitions)
		batch, ok := apart[p]
		size := len(d.Cell.Namespace) + len(d.Cell.Key)
		if d.Event != nil {
			_, parts := d.Event.Weight()
			size += parts
		}
		if !ok || batch.bytes+size > store.BatchBytesMax { // The names of shards are longer than the counter's.
			batch = moved{at: len(r.batches)}
			r.batches = append(r.batches, store.Batch{Partition: p, Durability: b.Durability, Books: b.Books, Apart: true})
			r.from = append(r.from, nil)
		}
		batch.bytes += size
		apart[p] = batch
		r.batches[batch.at].Deltas = append(r.batches[batch.at].Deltas, d)
		r.from[batch.at] = append(r.from[batch.at], to)
	}
	if len(kept) > 0 {
		r.batches, r.from = append(r.batches, stay), append(r.from, kept)
	}
}

// move sends an add to a shard, and returns which: 0 is home, where it stays.
func (m *core) move(d *store.Delta, c *counter, pick picker) int {
	// Where cells are read at different moments, home is left to what may take away:
	// shards only grow, so a sum is sound if home was the same before and after.
	rest := 0
	if m.partitions > 1 {
		rest = 1
	}
	i := rest + pick(d, len(c.cells)-rest)
	if i > 0 {
		d.Cell = c.cells[i]
		*d = laid(*d, hot.Open(c.word.Gen()))
	}
	return i
}

// timed notes how long the call took, for each shard that it wrote to.
func (r *routed) timed(took time.Duration, now time.Time) {
	for i := range r.from {
		for _, p := range r.from[i] {
			if p.of != nil {
				p.of.paces[p.shard].note(took, now)
			}
		}
	}
}

// gather puts the replies together again. A batch whose parts were acknowledged
// differently is told the weakest. A part that moved to a partition which can't be
// reached, or did not answer, says so of its own deltas only, and so does one that is
// outdated or late. If a part is refused otherwise, and another is not, no reply can say
// so, and its batch has an error.
func (r *routed) gather(told []store.Reply, batches []store.Batch, replies []store.Reply) {
	taken := make([]bool, len(replies))  // a part of it
	fates := make([]error, len(replies)) // of some of its deltas
	for i := range replies {
		results := slices.Grow(replies[i].Results[:0], len(batches[i].Deltas))[:len(batches[i].Deltas)]
		replies[i] = store.Reply{Durability: store.Synced, Results: results}
	}
	for i := range told {
		from := &told[i]
		if len(r.from[i]) == 0 { // a batch without deltas: it is the only one of its caller's
			continue
		}
		batch := r.from[i][0].batch
		to := &replies[batch]
		outcome := fate(from.Err)
		stale := outcome == store.Outdated || outcome == store.Late
		if outcome != 0 && (r.from[i][0].shard > 0 || stale) {
			for _, p := range r.from[i] {
				to.Results[p.delta] = store.Result{Outcome: outcome}
			}
			if outcome != store.Unavailable {
				taken[batch], fates[batch] = taken[batch] || !stale, from.Err
			}
			to.Mark = max(to.Mark, from.Mark)
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
		if outcome := fate(fates[i]); outcome != 0 && !slices.ContainsFunc(results, func(r store.Result) bool { return r.Outcome != outcome }) {
			err = fates[i] // which says more
		}
		if err != nil {
			replies[i] = store.Reply{Err: store.Partly(err, taken[i]), Mark: replies[i].Mark, Results: results[:0]}
		}
	}
}

// fate returns what an error says of a delta by itself, 0 if it is not that its
// partition is out of reach, or knows more than the server that sent it.
func fate(err error) store.Outcome {
	if err == nil {
		return 0
	}
	switch store.KindOf(err) {
	case store.KindUnavailable:
		return store.Unavailable
	case store.KindUnknown:
		return store.Unknown
	case store.KindOutdated:
		return store.Outdated
	case store.KindLate:
		return store.Late
	default:
		return 0
	}
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
