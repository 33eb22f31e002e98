package quipu

import (
	"context"
	"errors"

	"github.com/quipudb/quipu/store"
)

// Add adds delta, which may be negative or zero, to a counter. A counter that
// did not exist exists afterwards.
func (db *DB) Add(ctx context.Context, key string, delta int64, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpAdd, key, delta, opts)
}

// Set makes the value of a counter the one given. A counter that did not exist
// exists afterwards. Concurrent adds land before it or after it.
func (db *DB) Set(ctx context.Context, key string, value int64, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpSet, key, value, opts)
}

// Reset sets a counter to zero. With WantValue it takes the count: Before is
// what was counted since the last Reset, and no add is lost between the two.
func (db *DB) Reset(ctx context.Context, key string, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpSet, key, 0, opts)
}

// Delete makes a counter not exist; deleting one that does not exist is no
// error. The tokens of its writes stay remembered.
func (db *DB) Delete(ctx context.Context, key string, opts ...WriteOption) (Receipt, error) {
	return db.write(ctx, store.OpDelete, key, 0, opts)
}

// A writeCall is what one write lends to the store. They are pooled, so that a
// plain Add allocates nothing (BenchmarkAddOverhead).
type writeCall struct {
	batches [1]store.Batch
	replies [1]store.Reply
	deltas  [1]store.Delta
	results [1]store.Result
}

func newWriteCall() any {
	c := new(writeCall)
	c.batches[0].Deltas = c.deltas[:]
	c.replies[0].Results = c.results[:0]
	return c
}

// write decides one write. The store checks the key.
func (db *DB) write(ctx context.Context, op store.Op, key string, n int64, opts []WriteOption) (r Receipt, err error) {
	if db.err != nil {
		return r, db.err
	}
	c := db.writes.Get().(*writeCall)
	d := &c.deltas[0]
	d.Cell.Namespace, d.Cell.Key = db.namespace, key
	d.Op, d.N = op, n
	want := false
	if len(opts) > 0 {
		want, err = applyOptions(d, opts)
	}
	if err == nil {
		err = db.send(ctx, c, db.durabilityOf(key))
	}
	if err == nil {
		err = db.receipt(ctx, &r, d, &c.replies[0].Results[0], want, c.replies[0].Durability)
	}
	if err != nil && errors.Is(err, store.ErrToken) {
		err = db.reused(ctx, d)
	}
	if len(opts) > 0 || d.Needs()&^store.NeedOp != 0 { // In the pool deltas are plain: clearing them all takes longer than finding them.
		*d = store.Delta{}
	}
	db.writes.Put(c)
	return r, err
}

// send gives the call's one delta to its partition, and returns an error if
// there is no result for it.
func (db *DB) send(ctx context.Context, c *writeCall, durability Durability) error {
	b, r := &c.batches[0], &c.replies[0]
	b.Partition = store.PartitionOf(c.deltas[0].Cell, db.traits.Partitions)
	b.Durability = durability
	if err := db.apply(ctx, c.batches[:], c.replies[:]); err != nil {
		return err
	}
	return r.Err
}
