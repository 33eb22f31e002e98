// Package admission admits new values to dimensions. In each dimension a
// counter tells a limited number of values apart, and counts all others
// together, so that invented values can't fill a store. The store decides: an
// event of its own admits a value, at the counter's home, before anything is
// counted under it. An admission is never withdrawn, so it may be cached, and
// most events need no question.
package admission

import (
	"context"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// A Desk asks a store for admissions, and remembers its verdicts. It is safe for concurrent
// use.
type Desk struct {
	store      Store
	partitions int
	seed       maphash.Seed
	max        int // rows

	rows atomic.Pointer[rows] // none before there is a verdict
	mu   sync.Mutex           // held by whoever changes one
}

// rowsMax is how many rows are remembered: a million verdicts, in 8 MiB.
const rowsMax = 1 << 17

// A row is the verdicts of seats that share it. Those that were asked for lately are in its
// first half: so most questions change nothing, and need no lock.
type row [8]atomic.Uint64

type rows []row

// of returns the row of a seat with a hash.
func (rs rows) of(hash uint64) *row { return &rs[hash%uint64(len(rs))] }

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

// A Store is what a desk needs of a store.
type Store interface {
	Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error
	ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error
}

// New returns a desk for a store of so many partitions.
func New(partitions int, s Store) *Desk {
	return &Desk{store: s, partitions: partitions, seed: maphash.MakeSeed(), max: rowsMax}
}

// A Want is a value that is to be counted, and how many a counter may have.
type Want struct {
	Seat
	Limit int64
}

// A Question is about a value of a dimension. An event that brings none has an empty name,
// which is always admitted.
type Question struct {
	View uint16 // of the dimension
	Name string // of the value's part

	// Admitted and Known are answers. Of a value that was refused by another book nothing
	// is known.
	Admitted, Known bool

	hash uint64
}

// Look answers questions about one counter, as far as that is possible without the store.
func (d *Desk) Look(of store.Cell, book int64, all []Question) {
	rs, counter := d.rows.Load(), d.counter(&of)
	for i := range all {
		q := &all[i]
		q.Known = q.Name == ""
		if q.Admitted = q.Known; rs != nil && !q.Known {
			q.hash = d.hash(counter, q.View, q.Name)
			rs.of(q.hash)[0].Load() // So the processor fetches all rows at once, and not one by one.
		}
	}
	if rs == nil {
		return
	}
	for i := range all {
		if q := &all[i]; !q.Known {
			r := rs.of(q.hash)
			q.Admitted = d.find(r, verdictOf(q.hash, 0))
			q.Known = q.Admitted || d.find(r, verdictOf(q.hash, book))
		}
	}
}

const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio

// counter returns the share of a counter in the hashes of its seats.
func (d *Desk) counter(of *store.Cell) uint64 {
	return maphash.String(d.seed, of.Key) + bits.RotateLeft64(maphash.String(d.seed, of.Namespace), 17)
}

// hash returns that of a seat.
func (d *Desk) hash(counter uint64, view uint16, name string) uint64 {
	return bits.RotateLeft64(counter+odd*maphash.String(d.seed, name), 29)*odd + uint64(view)*odd
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
	rs := d.rows.Load()
	if rs == nil {
		made := make(rows, d.max)
		rs = &made
		d.rows.Store(rs)
	}
	hash := d.hash(d.counter(&at.Cell), at.View, at.Name)
	rs.of(hash).put(verdictOf(hash, book))
}

// Ask asks the store for values, under a book, and remembers its verdicts. Most values were
// admitted once, and a desk that is new does not know it: so it reads, which costs less than
// a decision, and has the store decide on the others alone. Those that the store can't
// decide on, because their counter takes no event, are not known afterwards.
func (d *Desk) Ask(ctx context.Context, book store.Book, wants []Want) error {
	var open []Want
	for some := range slices.Chunk(wants, perBatch) {
		left, err := d.read(ctx, some)
		if err != nil {
			return err
		}
		open = append(open, left...)
	}
	if len(open) == 0 {
		return nil
	}
	return d.decide(ctx, book, open)
}

// read remembers which values are admitted already, and returns the others.
func (d *Desk) read(ctx context.Context, wants []Want) (open []Want, err error) {
	parts, contents := make([]store.PartCell, len(wants)), make([]store.Content, len(wants))
	for i := range wants {
		parts[i] = store.PartCell{Cell: wants[i].Cell, Part: wants[i].part()}
	}
	if err := d.store.ReadParts(ctx, parts, contents); err != nil {
		return nil, err
	}
	for i := range wants {
		if contents[i].Exists {
			d.remember(wants[i].Seat, 0)
		} else {
			open = append(open, wants[i])
		}
	}
	return open, nil
}

// decide has the store decide on values.
func (d *Desk) decide(ctx context.Context, book store.Book, wants []Want) error {
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
	if err := d.store.Apply(ctx, batches, replies); err != nil {
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

// perBatch is how many values one batch, or one read, asks for: in a batch each has a
// rider, and names that may be long.
const perBatch = 2000

// part returns the part that says that the value of a seat is admitted.
func (s *Seat) part() store.Part {
	return store.PartFields{Kind: store.PartAdmitted, View: s.View, Name: s.Name}.Part()
}

// delta returns what admits a value: the value leads, and their number rides, within its
// limit.
func (w *Want) delta() store.Delta {
	limit := store.Unbounded()
	limit.High = w.Limit
	number := store.PartFields{Kind: store.PartAdmitted, View: w.View}
	return store.Delta{
		Cell: w.Cell, Op: store.OpSet, N: 1, Want: true, Guard: store.Guard{Exists: store.ExistsNot},
		Event: &store.Event{Part: w.part(), Riders: []store.Rider{{Part: number.Part(), Op: store.OpAdd, N: 1, Bound: &limit}}},
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
