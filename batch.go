package quipu

import (
	"context"
	"errors"
	"slices"

	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// AddBatch adds up to EventsMax events in one call. It is not one transaction:
// each event is decided by itself, exactly as Add would, and a refused one has
// Err set in its receipt. Receipts are in the order of the events. Events of
// one counter are decided in their order.
//
// An error means that the fate of all events is unknown. After ErrUnknown, send
// the same events again if they have tokens.
func (db *DB) AddBatch(ctx context.Context, events []Event) ([]Receipt, error) {
	if err := db.port.Err(); err != nil {
		return nil, err
	}
	if len(events) > EventsMax {
		return nil, store.Errorf(store.KindTooLarge, "batch of %d events: at most %d", len(events), EventsMax)
	}
	receipts := make([]Receipt, len(events))
	c := db.port.NewCall(len(events))
	defer db.port.Free(c)
	for i := range events {
		receipts[i].Namespace, receipts[i].Key = db.port.Namespace(), events[i].Key
		receipts[i].Err = fill(c, i, &events[i])
	}
	if err := db.port.Send(ctx, c, store.DurabilityDefault); err != nil {
		return nil, err
	}
	reused := 0
	c.Each(func(i int, d *store.Delta, reply *store.Reply, n int) {
		to := &receipts[i]
		to.Err = db.receipt(ctx, to, d, c.Fact(i), reply, n, events[i].WantValue)
		if reused < reusedMax && errors.Is(to.Err, store.ErrToken) {
			reused++
			to.Err = db.reused(ctx, d)
		}
	})
	return receipts, nil
}

// reusedMax is of how many events of a batch it is looked up what their tokens
// were used for.
const reusedMax = 10

// fill makes delta i of a call what e does to its counter, or returns why no store would
// take it. Then the delta is nothing to be sent.
func fill(c *port.Call, i int, e *Event) error {
	d := &c.Deltas[i]
	*d = store.Delta{}
	t := e.Terms()
	err := store.CheckKey(e.Key)
	if err == nil {
		err = checkTerms(&t)
	}
	if err != nil {
		return err
	}
	if len(c.Facts) == 0 && hasFact(&t) {
		c.Facts = slices.Grow(c.Facts, len(c.Deltas))[:len(c.Deltas)]
	}
	d.Cell.Key, d.Op, d.N = e.Key, store.OpAdd, e.Delta
	applyTerms(d, c.Fact(i), &t)
	return nil
}
