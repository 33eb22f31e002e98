// Package admission lets values into dimensions. A counter tells up to a limit of values
// apart in each dimension, and counts all further ones as one, so that nobody fills a store
// by making values up. The store decides: a value is admitted by an event of its own, at the
// counter's home, before anything is counted under it, and it is never withdrawn. So a
// verdict may be remembered, and most events need no question.
package admission

import (
	"context"
	"sync"

	"github.com/quipudb/quipu/store"
)

// A Desk asks a store for admissions, and remembers its verdicts. It is safe for concurrent
// use.
type Desk struct {
	apply      func(ctx context.Context, batches []store.Batch, replies []store.Reply) error
	partitions int
	max        int // verdicts of a generation

	mu         sync.Mutex // guards the fields below
	young, old map[Seat]verdict
}

// verdictsMax is how many verdicts are remembered, at least, and half of the most: some
// 10 MiB.
const verdictsMax = 1 << 16

// A Seat is a value of a dimension of a counter.
type Seat struct {
	Cell store.Cell
	View uint16 // of the dimension
	Name string // of the value's part
}

// A verdict says by which book a value was refused; 0 if it is admitted. Another book may
// have another limit.
type verdict int64

// New returns a desk for a store of so many partitions, whose Apply is given.
func New(partitions int, apply func(ctx context.Context, batches []store.Batch, replies []store.Reply) error) *Desk {
	return &Desk{apply: apply, partitions: partitions, max: verdictsMax, young: make(map[Seat]verdict)}
}

// A Want is a value that is to be counted, and how many a counter may have.
type Want struct {
	Seat
	Limit int64
}

// Look reports whether a value is admitted, and whether that is known here. Of a value that
// was refused by another book it is not.
func (d *Desk) Look(at Seat, book int64) (admitted, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.young[at]
	if !ok {
		if v, ok = d.old[at]; ok {
			d.remember(at, v)
		}
	}
	return ok && v == 0, ok && (v == 0 || int64(v) == book)
}

// remember keeps a verdict. The desk is locked.
func (d *Desk) remember(at Seat, v verdict) {
	if len(d.young) >= d.max {
		d.old, d.young = d.young, make(map[Seat]verdict)
	}
	d.young[at] = v
}

// Ask has the store decide on values, under a book, and remembers its verdicts. Those that
// it can't decide on, because their counter takes no event, are not known afterwards.
func (d *Desk) Ask(ctx context.Context, book store.Book, wants []Want) error {
	batches := make([]store.Batch, 0, 1)
	asked := make([][]*Want, 0, 1)
	open := map[int]int{} // the last batch of each partition
	for i := range wants {
		w := &wants[i]
		p := store.PartitionOf(w.Cell, d.partitions)
		at, ok := open[p]
		if !ok || len(asked[at]) == perBatch {
			at = len(batches)
			batches = append(batches, store.Batch{Partition: p, Apart: true, Books: []store.Book{book}})
			asked, open[p] = append(asked, nil), at
		}
		batches[at].Deltas = append(batches[at].Deltas, w.delta())
		asked[at] = append(asked[at], w)
	}
	replies := make([]store.Reply, len(batches))
	if err := d.apply(ctx, batches, replies); err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].Err; err != nil {
			return err
		}
		for j := range replies[i].Results {
			if err := d.told(asked[i][j], &replies[i].Results[j], book.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// perBatch is how many values one batch asks for: each has a rider, and names that may be
// long.
const perBatch = 2000

// delta returns what admits a value: the value leads, and their number rides, within its
// limit.
func (w *Want) delta() store.Delta {
	limit := store.Unbounded()
	limit.High = w.Limit
	number := store.PartFields{Kind: store.PartAdmitted, View: w.View}
	value := number
	value.Name = w.Name
	return store.Delta{
		Cell: w.Cell, Op: store.OpSet, N: 1, Want: true, Guard: store.Guard{Exists: store.ExistsNot},
		Event: &store.Event{Part: value.Part(), Riders: []store.Rider{{Part: number.Part(), Op: store.OpAdd, N: 1, Bound: &limit}}},
	}
}

// told remembers what the store has decided on a value.
func (d *Desk) told(w *Want, r *store.Result, book int64) error {
	v := verdict(0)
	switch {
	case r.Outcome == store.Applied, r.Outcome == store.Unmet && r.Existed:
	case r.Outcome == store.Unmet: // The counter has a deadline, and takes no event at all.
		return nil
	case r.Outcome == store.Bounded:
		v = verdict(book)
	default:
		return r.Outcome.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remember(w.Seat, v)
	return nil
}
