package port

import (
	"context"
	"slices"

	"github.com/quipudb/quipu/store"
)

// attemptsMax is how often a write is made anew because definitions have changed, or
// because windows have gone, before its caller is told so. It takes another change to be
// refused once more, or twice if somebody else has read the definitions before it.
const attemptsMax = 32

// writeEvents is Write for namespaces that have definitions, or may have, and for deltas
// that have facts.
func (p *Port) writeEvents(ctx context.Context, batches []store.Batch, replies []store.Reply, facts []Fact, attempt int) error {
	f, err := p.newFrame(ctx, batches, facts)
	if err != nil {
		return err
	}
	if err = f.frame(ctx, batches, facts); err != nil {
		f.undo(batches, nil)
		return p.remake(ctx, f.made(), batches, replies, facts, attempt, err)
	}
	var stale bool
	if cuts := cutLarge(batches); cuts == nil {
		stale, err = p.give(ctx, batches, replies)
	} else {
		stale, err = p.giveCut(ctx, batches, replies, cuts)
	}
	if err != nil {
		f.undo(batches, nil)
	} else {
		f.undo(batches, replies)
	}
	if !stale { // What is made anew is counted then, by the definitions that it is made by.
		p.others.Add(f.others)
		return err
	}
	return p.remake(ctx, f.made(), batches, replies, facts, attempt, err)
}

// isStale reports whether a write was refused because of what its server knew: made anew it
// may be taken. Nothing of it was applied.
func isStale(err error) bool {
	if err == nil {
		return false
	}
	kind := store.KindOf(err)
	return kind == store.KindOutdated || kind == store.KindLate
}

// staleResult reports whether a delta was refused alone so: its counter is split, and its
// shard is in another partition.
func staleResult(r *store.Result) bool { return r.Outcome == store.Outdated || r.Outcome == store.Late }

// staleIn returns why a batch, or some of its deltas, was refused so; nil if none was.
func staleIn(r *store.Reply) error {
	if isStale(r.Err) {
		return r.Err
	}
	for i := range r.Results {
		if staleResult(&r.Results[i]) {
			return r.Results[i].Outcome.Err()
		}
	}
	return nil
}

// anyStale returns why a batch, or a delta, was refused so; nil if none was.
func anyStale(replies []store.Reply) error {
	for i := range replies {
		if err := staleIn(&replies[i]); err != nil {
			return err
		}
	}
	return nil
}

// A stale is a batch that is made anew: all of it, or some of its deltas.
type stale struct {
	batch  int
	deltas []int // nil for all
}

// remake writes that again which was refused because of what was known, all of it or some.
// Made is the book that it was made under, and err what the attempt has returned.
func (p *Port) remake(ctx context.Context, made store.Book, batches []store.Batch, replies []store.Reply, facts []Fact, attempt int, err error) error {
	why := err
	if err == nil {
		why = anyStale(replies)
	}
	if !isStale(why) || attempt == attemptsMax {
		return err
	}
	again := p.renew(ctx, made, why)
	if err != nil {
		if again != nil {
			return again
		}
		return p.writeEvents(ctx, batches, replies, facts, attempt+1)
	}
	places, some, their := staleOf(batches, replies, facts)
	told := make([]store.Reply, len(some))
	if again == nil {
		again = p.writeEvents(ctx, some, told, their, attempt+1)
	}
	for i, place := range places {
		if again != nil {
			told[i] = store.Reply{Err: again}
		}
		if place.deltas == nil {
			replies[place.batch] = told[i]
			continue
		}
		for j, at := range place.deltas {
			replies[place.batch].Results[at] = resultOf(&told[i], j)
			batches[place.batch].Deltas[at].Guard.Bound = some[i].Deltas[j].Guard.Bound // by which it was decided
		}
	}
	return nil
}

// staleOf returns what of batches was refused because of what was known, and its facts.
func staleOf(batches []store.Batch, replies []store.Reply, facts []Fact) (places []stale, some []store.Batch, their []Fact) {
	at := 0
	for i := range batches {
		b, from := batches[i], at
		at += len(b.Deltas)
		if isStale(replies[i].Err) {
			places, some = append(places, stale{batch: i}), append(some, b)
			if len(facts) > 0 {
				their = append(their, facts[from:at]...)
			}
			continue
		}
		p := stale{batch: i}
		for j := range replies[i].Results {
			if staleResult(&replies[i].Results[j]) {
				p.deltas = append(p.deltas, j)
				if len(facts) > 0 {
					their = append(their, facts[from+j])
				}
			}
		}
		if p.deltas == nil {
			continue
		}
		b.Deltas = make([]store.Delta, 0, len(p.deltas))
		for _, j := range p.deltas {
			b.Deltas = append(b.Deltas, batches[i].Deltas[j])
		}
		places, some = append(places, p), append(some, b)
	}
	return places, some, their
}

// resultOf returns what became of a delta of a batch that was cut off from others, which
// may have been applied.
func resultOf(r *store.Reply, i int) store.Result {
	switch kind := store.KindOf(r.Err); {
	case r.Err == nil:
		return r.Results[i]
	case kind == store.KindUnavailable:
		return store.Result{Outcome: store.Unavailable}
	case kind == store.KindOutdated:
		return store.Result{Outcome: store.Outdated}
	case kind == store.KindLate:
		return store.Result{Outcome: store.Late}
	default:
		return store.Result{Outcome: store.Unknown}
	}
}

// renew finds out what the server did not know.
func (s *shared) renew(ctx context.Context, made store.Book, err error) error {
	s.remade.Add(1)
	if store.KindOf(err) == store.KindLate {
		return nil // The store has told its time by now.
	}
	return s.books.Renew(ctx, made.Namespace, made.ID)
}

// A cutting is where a batch was cut off: some of the deltas of batch of.
type cutting struct {
	of       int
	from, to int
}

// cutLarge returns how batches have to be cut, because some have more riders than fit into
// one; nil if all fit. Those that are numbered, or whose deltas belong together, stay as
// they are.
func cutLarge(batches []store.Batch) (cuts []cutting) {
	if !slices.ContainsFunc(batches, isLarge) {
		return nil
	}
	for i := range batches {
		b := &batches[i]
		from, cells, bytes := 0, 0, 0
		for j := range b.Deltas {
			c, size := sizeOf(&b.Deltas[j])
			if cells, bytes = cells+c, bytes+size; j > from && tooLarge(cells, bytes) && divisible(b) {
				cuts = append(cuts, cutting{i, from, j})
				from, cells, bytes = j, c, size
			}
		}
		cuts = append(cuts, cutting{i, from, len(b.Deltas)})
	}
	return cuts
}

// surelyFit is how many deltas fit into a batch, whatever events they are: what is merged
// counts for more bytes than it has.
const surelyFit = store.BatchDeltasMax / (store.EventRidersMax + 1) / 2

// isLarge reports whether a batch has to be cut.
func isLarge(b store.Batch) bool {
	if len(b.Deltas) <= surelyFit { // Fast path: BenchmarkAddViews.
		return false
	}
	cells, bytes := 0, 0
	for i := range b.Deltas {
		c, size := sizeOf(&b.Deltas[i])
		cells, bytes = cells+c, bytes+size
	}
	return tooLarge(cells, bytes) && divisible(&b)
}

func tooLarge(cells, bytes int) bool {
	return cells > store.BatchDeltasMax || bytes > store.BatchBytesMax
}

// divisible reports whether the deltas of a batch need not be applied together.
func divisible(b *store.Batch) bool { return b.Writer == 0 && divides(b) }

// sizeOf returns how many cells a delta changes, and how large it is.
func sizeOf(d *store.Delta) (cells, bytes int) {
	cells, bytes = 1, len(d.Cell.Namespace)+len(d.Cell.Key)+len(d.Guard.Token)
	if d.Event != nil {
		riders, more := d.Event.Weight()
		cells, bytes = cells+riders, bytes+more
	}
	return cells, bytes
}

// giveCut is give for batches that have to be cut into pieces.
func (s *shared) giveCut(ctx context.Context, batches []store.Batch, replies []store.Reply, cuts []cutting) (stale bool, err error) {
	some, told := make([]store.Batch, len(cuts)), make([]store.Reply, len(cuts))
	for i, c := range cuts {
		some[i] = batches[c.of]
		some[i].Deltas = some[i].Deltas[c.from:c.to]
	}
	if stale, err = s.give(ctx, some, told); err != nil {
		return stale, err
	}
	for i := range replies {
		replies[i].Results = replies[i].Results[:0]
	}
	for i, c := range cuts {
		to, one := &replies[c.of], &told[i]
		results := to.Results
		if n := c.to - c.from; one.Err != nil && n < len(batches[c.of].Deltas) {
			for j := range n {
				results = append(results, resultOf(one, j))
			}
			one.Err = nil
		} else {
			results = append(results, one.Results...)
		}
		*to = *one
		to.Results = results
	}
	return stale, nil
}
