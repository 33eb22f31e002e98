package retention

import (
	"context"
	"errors"

	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/store"
)

const (
	// walkMax is how much of what clients of limits have used is looked at each time. The
	// next time goes on from there.
	walkMax = 20_000

	walkPage = 1_000

	// lapsedUS is for how long it has been as good as none before it goes: calls that were
	// told an earlier time may be on their way.
	lapsedUS = 10 * limit.SkewUS
)

// forget removes what clients of limits have used so long ago that it is as good as nothing,
// and limits that have no clients. It goes through them a piece at a time, around and around.
// It does not matter how many servers do: what has changed since it was read stays.
func (w *Worker) forget(ctx context.Context) error {
	of := store.PartFields{Kind: store.PartLimit}
	for looked := 0; looked < walkMax; {
		rows := store.RowsUnder("", of, store.LimitsPrefix)
		if w.walked != "" {
			rows.From = w.walked
		}
		found, err := w.Store.ScanParts(ctx, rows, walkPage)
		if err != nil {
			return err
		}
		if err := w.lapse(ctx, found); err != nil {
			return err
		}
		looked += len(found)
		if len(found) < walkPage {
			w.walked = ""
			return w.empty(ctx)
		}
		last := found[len(found)-1]
		_, row := store.AppendRow(nil, last.Cell, last.Part)
		w.walked = string(row) + "\x00"
	}
	return nil
}

// lapse removes those parts that are as good as none by the time of their partitions.
func (w *Worker) lapse(ctx context.Context, found []store.PartEntry) error {
	home := make(map[string]*store.Batch) // by namespace and partition
	var keys []string
	for i := range found {
		e := &found[i]
		end, ok := limit.Ends(e.Content.Bytes)
		if !ok || end+lapsedUS > w.NowMS(e.Cell)*1000 {
			continue
		}
		d := store.Delta{Cell: e.Cell, Op: store.OpDelete, Event: &store.Event{
			Part: e.Part, Is: store.Met{Kind: store.MetEqual, N: e.Content.N}, NotBefore: end,
			Riders: []store.Rider{{Op: store.OpAdd, N: -1}},
		}}
		if err := w.gather(ctx, home, &keys, d); err != nil {
			return err
		}
	}
	return w.send(ctx, home, keys, true)
}

// empty removes limits that have no clients.
func (w *Worker) empty(ctx context.Context) error {
	for r := (store.Range{Prefix: store.LimitsPrefix}); ; {
		home := make(map[string]*store.Batch)
		var keys []string
		found, err := w.Store.Scan(ctx, r, walkPage)
		if err != nil {
			return err
		}
		for _, e := range found {
			if r.After = e.Key; e.Value.N != 0 {
				continue
			}
			d := store.Delta{Cell: store.Cell{Key: e.Key}, Op: store.OpDelete, Guard: store.Guard{Match: true, Version: e.Value.Version}}
			if err := w.gather(ctx, home, &keys, d); err != nil {
				return err
			}
		}
		if err := w.send(ctx, home, keys, false); err != nil || len(found) < walkPage {
			return err
		}
	}
}

// gather puts a delta into the batch of its partition and its namespace.
func (w *Worker) gather(ctx context.Context, home map[string]*store.Batch, keys *[]string, d store.Delta) error {
	namespace := store.SpaceOf(d.Cell)
	partition := store.PartitionOf(d.Cell, len(w.raised))
	key := namespace + "/" + string(rune(partition))
	b := home[key]
	if b == nil {
		known, err := w.Books.Get(ctx, namespace)
		if err != nil {
			return err
		}
		b = &store.Batch{Partition: partition, Books: known.Fence, Apart: true, Durability: store.Memory}
		home[key], *keys = b, append(*keys, key)
	}
	b.Deltas = append(b.Deltas, d)
	return nil
}

// send sends batches one after the other. What is refused because others have changed it stays.
func (w *Worker) send(ctx context.Context, home map[string]*store.Batch, keys []string, counts bool) error {
	var errs []error
	for _, key := range keys {
		var replies [1]store.Reply
		if err := w.Store.Apply(ctx, []store.Batch{*home[key]}, replies[:]); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := replies[0].Err; err != nil && store.KindOf(err) != store.KindOutdated { // the next time with the next book
			errs = append(errs, err)
		}
		for _, r := range replies[0].Results {
			if counts && r.Outcome == store.Applied {
				w.lapsed.Add(1)
			}
		}
	}
	return errors.Join(errs...)
}
