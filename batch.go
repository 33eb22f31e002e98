package quipu

import (
	"context"
	"errors"
	"slices"

	"github.com/quipudb/quipu/store"
)

// AddBatch adds many events in one call, up to EventsMax. It is not one
// transaction: each event is decided by itself, exactly as Add would, and a
// refused one has Err set in its receipt. Receipts are in the order of the
// events. Events of one counter are decided in their order.
//
// An error means that nothing can be said of any event; after ErrUnknown, send
// the same events again if they have tokens.
func (db *DB) AddBatch(ctx context.Context, events []Event) ([]Receipt, error) {
	if err := db.port.Err(); err != nil {
		return nil, err
	}
	if len(events) > EventsMax {
		return nil, store.Errorf(store.KindTooLarge, "batch of %d events: at most %d", len(events), EventsMax)
	}
	receipts := make([]Receipt, len(events))
	c := db.calls.batches.Get().(*batchCall)
	db.route(c, events, receipts)
	db.pack(c, events)
	var err error
	if len(c.batches) > 0 {
		err = db.port.Write(ctx, c.batches, c.replies)
	}
	if err == nil {
		db.scatter(ctx, c, events, receipts)
	}
	if c.reusable() {
		db.calls.batches.Put(c)
	}
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

// A batchCall is what one AddBatch lends to the store.
type batchCall struct {
	slots   []slot // of the valid events, sorted
	deltas  []store.Delta
	batches []store.Batch
	replies []store.Reply
}

// A slot is the place of an event among the deltas: its partition, its
// durability and its index, packed so that sorting brings together what may
// share a batch and keeps the order of the events.
type slot uint64

const (
	indexBits      = 20
	durabilityBits = 4
	groupShift     = indexBits
	partitionShift = indexBits + durabilityBits
)

func newSlot(partition int, d Durability, index int) slot {
	return slot(partition)<<partitionShift | slot(d)<<groupShift | slot(index)
}

func (s slot) index() int             { return int(s & (1<<indexBits - 1)) }
func (s slot) group() uint64          { return uint64(s >> groupShift) }
func (s slot) durability() Durability { return Durability(s >> groupShift & (1<<durabilityBits - 1)) }
func (s slot) partition() int         { return int(s >> partitionShift) }

// route fills c.slots, and the receipts of the events that are not valid.
func (db *DB) route(c *batchCall, events []Event, receipts []Receipt) {
	c.slots = c.slots[:0]
	rules := db.port.Rules()
	for i := range events {
		e := &events[i]
		receipts[i].Namespace, receipts[i].Key = db.port.Namespace(), e.Key
		if receipts[i].Err = checkEvent(e); receipts[i].Err != nil {
			continue
		}
		partition := store.PartitionOf(db.port.Cell(e.Key), db.port.Traits().Partitions)
		c.slots = append(c.slots, newSlot(partition, rules.Policy(e.Key).Durability, i))
	}
	slices.Sort(c.slots)
}

// checkEvent returns an error if no store would take e.
func checkEvent(e *Event) error {
	if err := store.CheckKey(e.Key); err != nil {
		return err
	}
	t := e.Terms()
	return checkTerms(&t)
}

// pack fills c.batches with the events in c.slots.
func (db *DB) pack(c *batchCall, events []Event) {
	c.deltas = slices.Grow(c.deltas[:0], len(c.slots))[:len(c.slots)]
	for i, s := range c.slots {
		fill(&c.deltas[i], &events[s.index()], db.port.Namespace())
	}
	c.batches = c.batches[:0]
	for start := 0; start < len(c.slots); {
		end := c.cut(start)
		c.batches = append(c.batches, store.Batch{
			Partition:  c.slots[start].partition(),
			Durability: c.slots[start].durability(),
			Apart:      true,
			Deltas:     c.deltas[start:end],
		})
		start = end
	}
	c.replies = slices.Grow(c.replies[:0], len(c.batches))[:len(c.batches)]
	for i := range c.replies {
		c.replies[i] = store.Reply{Results: c.replies[i].Results[:0]}
	}
}

// cut returns the end of the batch that begins at start: where the partition or
// the durability changes, or where it would grow over its limits.
func (c *batchCall) cut(start int) int {
	bytes := 0
	for end := start; end < len(c.slots); end++ {
		d := &c.deltas[end]
		bytes += len(d.Cell.Namespace) + len(d.Cell.Key) + len(d.Guard.Token)
		if c.slots[end].group() != c.slots[start].group() || end-start == store.BatchDeltasMax || bytes > store.BatchBytesMax {
			return end
		}
	}
	return len(c.slots)
}

// fill makes d what e does to its counter.
func fill(d *store.Delta, e *Event, namespace string) {
	*d = store.Delta{Cell: store.Cell{Namespace: namespace, Key: e.Key}, Op: store.OpAdd, N: e.Delta}
	t := e.Terms()
	applyTerms(d, &t)
}

// reusedMax is of how many events of a batch it is looked up what their tokens
// were used for.
const reusedMax = 10

// scatter puts what the store replied into the receipts of the events.
func (db *DB) scatter(ctx context.Context, c *batchCall, events []Event, receipts []Receipt) {
	slots, reused := c.slots, 0
	for i := range c.batches {
		b, reply := &c.batches[i], &c.replies[i]
		for j := range b.Deltas {
			at := slots[j].index()
			to := &receipts[at]
			if to.Err = reply.Err; to.Err == nil {
				to.Err = db.receipt(ctx, to, &b.Deltas[j], &reply.Results[j], events[at].WantValue, reply.Durability)
			}
			if reused < reusedMax && errors.Is(to.Err, store.ErrToken) {
				reused++
				to.Err = db.reused(ctx, &b.Deltas[j])
			}
		}
		slots = slots[len(b.Deltas):]
	}
}

// reusable makes c ready for another call, and reports whether it is small
// enough to be kept.
func (c *batchCall) reusable() bool {
	clear(c.deltas) // they hold the caller's strings
	return cap(c.deltas) <= store.BatchDeltasMax
}
