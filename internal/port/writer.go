package port

import (
	"context"

	"github.com/quipudb/quipu/store"
)

// The calls of this file are for doors whose callers number their batches and
// send them again, unchanged, until they know what became of them.

// Enlist issues a writer. The store remembers a mark for each one that writes,
// and has room for Limits.WritersMax: so Enlist also retires those that were
// issued too long before. A writer that is retired under way is refused with
// store.ErrRetired, and enlists again.
func (p *Port) Enlist(ctx context.Context) (store.Writer, error) {
	if p.err != nil {
		return 0, p.err
	}
	if p.readOnly {
		return 0, store.ErrReadOnly
	}
	w, err := store.Enlist(ctx, p.store)
	if err != nil {
		return 0, err
	}
	room := store.Writer(p.traits.Limits.WithDefaults().WritersMax)
	keep, step := max(room/2, 1), max(room/4, 1)
	if w > keep && w%step == 0 {
		err = p.retire(ctx, w-keep)
	}
	return w, err
}

// retire forgets the marks of writers up to last, in every partition.
func (p *Port) retire(ctx context.Context, last store.Writer) error {
	batches := make([]store.Batch, p.traits.Partitions)
	for i := range batches {
		batches[i] = store.Batch{Partition: i, Deltas: []store.Delta{{Op: store.OpRetire, N: int64(last)}}}
	}
	replies := make([]store.Reply, len(batches))
	if err := p.Write(ctx, batches, replies, nil); err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// WriteBatches applies the numbered batches of writers and fills replies[i] for
// batches[i]: see store.Batch. The Cell of a delta names a counter by its Key;
// its Namespace, and how durable the batch must be, are filled in here: what is
// told together is as durable as the strongest of the counters' policies asks.
// If one's writer was never issued, all are refused: see CheckWriter. Facts, if there are
// any, are those of all deltas in their order.
func (p *Port) WriteBatches(ctx context.Context, batches []store.Batch, replies []store.Reply, facts ...Fact) error {
	if p.err != nil {
		return p.err
	}
	rules := p.Rules()
	for i := range batches {
		b := &batches[i]
		if err := p.CheckWriter(ctx, b.Writer); err != nil {
			return err
		}
		b.Durability = store.Synced
		if len(rules) > 0 && len(b.Deltas) > 0 {
			b.Durability = store.Memory
		}
		for j := range b.Deltas {
			cell := &b.Deltas[j].Cell
			cell.Namespace = p.namespace
			if len(rules) > 0 {
				b.Durability = max(b.Durability, rules.Policy(cell.Key).Durability)
			}
		}
	}
	return p.Write(ctx, batches, replies, facts)
}

// CheckWriter returns store.ErrMark if w was never issued. Without it, whoever
// makes up an id could take the place of a writer to come; and after an older
// backup was restored, a writer from before could share its id with a new one.
func (p *Port) CheckWriter(ctx context.Context, w store.Writer) error {
	if w != 0 && uint64(w) <= p.issued.Load() { // Fast path: ids only rise.
		return nil
	}
	last, err := store.Issued(ctx, p.store)
	if err != nil {
		return err
	}
	if w == 0 || w > last {
		return store.Errorf(store.KindMark, "writer %d was never issued: the last was %d", w, last)
	}
	p.issued.Store(uint64(w))
	return nil
}
