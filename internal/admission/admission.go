// Package admission lets values into dimensions. A counter tells up to a limit of values
// apart in each dimension, and counts all further ones as one, so that nobody fills a store
// by making values up. The store decides: a value is admitted by an event of its own, at the
// counter's home, before anything is counted under it, and it is never withdrawn. So a
// verdict may be remembered, and most events need no question.
package admission

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// A Desk asks a store for admissions, and remembers its verdicts. It is safe for concurrent
// use.
type Desk struct {
	apply      func(ctx context.Context, batches []store.Batch, replies []store.Reply) error
	partitions int
	seed       maphash.Seed
	max        int // rows

	rows atomic.Pointer[[]row] // none before there is a verdict
	mu   sync.Mutex            // held by whoever changes one
}

// rowsMax is how many rows are remembered: a million verdicts, in 8 MiB.
const rowsMax = 1 << 17

// A row is the verdicts of seats that share it. Those that were asked for lately are in its
// first half: so most questions change nothing, and need no lock.
type row [8]atomic.Uint64

// A verdict is a hash of the seat, and if its value was refused, of the book that it was
// refused by: another may have another limit. 0 is none. Once in 10^13 times a value that is
// not known is taken for another. If that is admitted, one more than the limit is told apart.
type verdict uint64

// A Seat is a value of a dimension of a counter.
type Seat struct {
	Cell store.Cell
	View uint16 // of the dimension
	Name string // of the value's part
}

// New returns a desk for a store of so many partitions, whose Apply is given.
func New(partitions int, apply func(ctx context.Context, batches []store.Batch, replies []store.Reply) error) *Desk {
	return &Desk{apply: apply, partitions: partitions, seed: maphash.MakeSeed(), max: rowsMax}
}

// A Want is a value that is to be counted, and how many a counter may have.
type Want struct {
	Seat
	Limit int64
}

// Look reports whether a value is admitted, and whether that is known here. Of a value that
// was refused by another book it is not.
func (d *Desk) Look(at Seat, book int64) (admitted, known bool) {
	rows := d.rows.Load()
	if rows == nil {
		return false, false
	}
	hash := d.hash(&at)
	r := &(*rows)[hash%uint64(len(*rows))]
	if d.find(r, verdictOf(hash, 0)) {
		return true, true
	}
	return false, d.find(r, verdictOf(hash, book))
}

// hash returns that of a seat.
func (d *Desk) hash(at *Seat) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(d.seed, at.Cell.Key) + odd*maphash.String(d.seed, at.Name)
	return bits.RotateLeft64(h, 29)*odd + bits.RotateLeft64(maphash.String(d.seed, at.Cell.Namespace), 17) + uint64(at.View)*odd
}

// verdictOf returns that on the seat with a hash: that it was refused by a book, or if there
// is none, admitted.
func verdictOf(hash uint64, book int64) verdict {
	return verdict(hash^uint64(book)<<32) | 1
}

// find reports whether a row has a verdict. Someone who looks while another is moved may
// miss it, and asks the store once more.
func (d *Desk) find(r *row, v verdict) bool {
	for i := range r {
		if verdict(r[i].Load()) == v {
			if i >= len(r)/2 && d.mu.TryLock() {
				r.put(v)
				d.mu.Unlock()
			}
			return true
		}
	}
	return false
}

// put makes a verdict the first one. It takes the place that it had, or that of the last.
func (r *row) put(v verdict) {
	at := 0
	for at < len(r)-1 && verdict(r[at].Load()) != v {
		at++
	}
	for ; at > 0; at-- {
		r[at].Store(r[at-1].Load())
	}
	r[0].Store(uint64(v))
}

// remember keeps a verdict.
func (d *Desk) remember(at Seat, book int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := d.rows.Load()
	if rows == nil {
		made := make([]row, d.max)
		rows = &made
		d.rows.Store(rows)
	}
	hash := d.hash(&at)
	(*rows)[hash%uint64(len(*rows))].put(verdictOf(hash, book))
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
	switch {
	case r.Outcome == store.Applied, r.Outcome == store.Unmet && r.Existed:
		d.remember(w.Seat, 0)
	case r.Outcome == store.Unmet: // The counter has a deadline, and takes no event at all.
	case r.Outcome == store.Bounded:
		d.remember(w.Seat, book)
	default:
		return r.Outcome.Err()
	}
	return nil
}
