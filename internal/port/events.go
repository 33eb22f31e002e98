package port

import (
	"context"
	"slices"

	"github.com/quipudb/quipu/store"
)

// attemptsMax is how often a write is made anew because definitions have changed, or
// because windows have gone, before its caller is told so. The definitions are read each
// time, so it takes another change to be refused once more.
const attemptsMax = 8

// writeEvents is Write for namespaces that have definitions, or may have, and for deltas
// that have facts.
func (s *shared) writeEvents(ctx context.Context, batches []store.Batch, replies []store.Reply, facts []Fact, attempt int) error {
	f, err := s.newFrame(ctx, batches, facts)
	if err != nil {
		return err
	}
	if err = f.frame(ctx, batches, facts); err != nil {
		f.undo(batches, nil)
		return s.remake(ctx, f.made(), batches, replies, facts, attempt, err)
	}
	if cuts := cutLarge(batches); cuts != nil {
		f.undo(batches, nil)
		return s.writeCut(ctx, batches, replies, cuts, facts, attempt)
	}
	if attempt == 1 {
		s.late.Add(f.late)
		s.others.Add(f.others)
	}
	if err = s.give(ctx, batches, replies); err != nil {
		f.undo(batches, nil)
	} else {
		f.undo(batches, replies)
	}
	return s.remake(ctx, f.made(), batches, replies, facts, attempt, err)
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

// anyStale reports whether a batch was refused so.
func anyStale(replies []store.Reply) bool {
	for i := range replies {
		if isStale(replies[i].Err) {
			return true
		}
	}
	return false
}

// remake writes those batches again that were refused because of what was known, all of
// them or some. Made is the book that they were made under, and err what the attempt has
// returned.
func (s *shared) remake(ctx context.Context, made store.Book, batches []store.Batch, replies []store.Reply, facts []Fact, attempt int, err error) error {
	switch {
	case err != nil && !isStale(err), err == nil && !anyStale(replies), attempt == attemptsMax:
		return err
	case err != nil:
		if err := s.renew(ctx, made, err); err != nil {
			return err
		}
		return s.writeEvents(ctx, batches, replies, facts, attempt+1)
	}
	var places []int
	var some []store.Batch
	var their []Fact
	at := 0
	for i := range batches {
		end := at + len(batches[i].Deltas)
		if isStale(replies[i].Err) {
			places, some = append(places, i), append(some, batches[i])
			if facts != nil {
				their = append(their, facts[at:end]...)
			}
		}
		at = end
	}
	told := make([]store.Reply, len(some))
	if err = s.renew(ctx, made, replies[places[0]].Err); err == nil {
		err = s.writeEvents(ctx, some, told, their, attempt+1)
	}
	for i, place := range places {
		if err != nil {
			told[i] = store.Reply{Err: err}
		}
		replies[place] = told[i]
	}
	return nil
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
	large := false
	for i := range batches {
		b := &batches[i]
		from, cells, bytes := 0, 0, 0
		for j := range b.Deltas {
			c, size := sizeOf(&b.Deltas[j])
			if cells, bytes = cells+c, bytes+size; j > from && (cells > store.BatchDeltasMax || bytes > store.BatchBytesMax) && b.Apart && len(b.If) == 0 {
				cuts = append(cuts, cutting{i, from, j})
				from, cells, bytes, large = j, c, size, true
			}
		}
		cuts = append(cuts, cutting{i, from, len(b.Deltas)})
	}
	if !large {
		return nil
	}
	return cuts
}

// sizeOf returns how many cells a delta changes, and how large it is.
func sizeOf(d *store.Delta) (cells, bytes int) {
	cells, bytes = 1, len(d.Cell.Namespace)+len(d.Cell.Key)+len(d.Guard.Token)
	if e := d.Event; e != nil {
		for i := range e.Len() {
			r := e.Rider(i)
			bytes += len(r.Part) + len(r.Bytes)
		}
		cells += e.Len()
	}
	return cells, bytes
}

// writeCut writes batches in the pieces that they have to be cut into.
func (s *shared) writeCut(ctx context.Context, batches []store.Batch, replies []store.Reply, cuts []cutting, facts []Fact, attempt int) error {
	some, told := make([]store.Batch, len(cuts)), make([]store.Reply, len(cuts))
	for i, c := range cuts {
		some[i] = batches[c.of]
		some[i].Deltas = some[i].Deltas[c.from:c.to]
	}
	if err := s.writeEvents(ctx, some, told, facts, attempt); err != nil {
		return err
	}
	for i := range replies {
		replies[i].Results = replies[i].Results[:0]
	}
	for i, c := range cuts {
		to, one := &replies[c.of], &told[i]
		if whole := c.to - c.from; one.Err != nil && whole < len(batches[c.of].Deltas) { // Others may have been applied.
			outcome := store.Unavailable
			if store.KindOf(one.Err) != store.KindUnavailable {
				outcome = store.Unknown
			}
			one.Results = slices.Repeat([]store.Result{{Outcome: outcome}}, whole)
			one.Err = nil
		}
		results := append(to.Results, one.Results...)
		*to = *one
		to.Results = results
	}
	return nil
}
