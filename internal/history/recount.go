package history

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

// Recount makes a counter and its views add up again, in one step that is written down as
// an adjustment. The total is believed, unless all views that can tell agree on another
// one. What a view then lacks of it is outside of the view. Where views differ from each
// other they stay as they are: nothing says which of them is right.
func (r *Reader) Recount(ctx context.Context, key string, c call.Correction) (call.Recounted, error) {
	if _, err := r.views(key); err != nil {
		return call.Recounted{}, err
	}
	q := r.equations(r.Known.Book.Of(key))
	for range verifyTries {
		counted, total, versions, err := r.gather(ctx, q, key)
		if err != nil {
			return call.Recounted{}, err
		}
		if counted == nil {
			continue
		}
		if len(versions) > 1 { // One cell decides what is right.
			if err := r.fold(ctx, r.cell(key)); err != nil {
				return call.Recounted{}, err
			}
			continue
		}
		done, riders := q.repair(counted, total, versions)
		done.Key = key
		if len(done.Repaired) == 0 {
			return done, nil
		}
		err = r.adjust(ctx, key, versions[0], done, riders, c)
		if store.KindOf(err) == store.KindChanged {
			continue
		}
		return done, err
	}
	return call.Recounted{}, store.Errorf(store.KindUnavailable, "%q was changed during each attempt to recount it: try again", key)
}

// repair returns what makes a counter add up: its total as it should be, and how much has
// to be added to what is outside of its views.
func (q *equations) repair(c *counted, total store.Value, versions []uint64) (call.Recounted, []store.Rider) {
	done := call.Recounted{Before: total.N, After: total.N}
	c.settle(q)
	var told []int // views that can tell the total
	for i := range q.views {
		if q.whole[i] && c.began(q.views[i].View, versions) {
			told = append(told, i)
		}
	}
	has := func(i int) int64 { return int64(c.views[i].outside + c.views[i].cells) }
	agreed := len(told) > 1
	for _, i := range told {
		agreed = agreed && has(i) == has(told[0])
	}
	if agreed {
		done.After = has(told[0])
	}
	if done.After != done.Before {
		done.Repaired = append(done.Repaired, fmt.Sprintf("the total was %d, and is %d", done.Before, done.After))
	}
	var riders []store.Rider
	for _, i := range told {
		will := has(i)
		if q.views[i].Kind == store.PartEntries {
			will += done.After - done.Before // the line that says so
		}
		lacks := done.After - will
		if lacks != 0 {
			part := store.PartFields{Kind: store.PartOutside, View: q.views[i].View.ID}.Part()
			riders = append(riders, store.Rider{Part: part, Op: store.OpAdd, N: lacks})
		}
		if has(i) != done.After {
			done.Repaired = append(done.Repaired, fmt.Sprintf("%s: %d more are outside of it", q.names[i], lacks))
		}
	}
	for _, f := range q.among(c) {
		if f.sure {
			done.Left = append(done.Left, fmt.Sprintf("%s: %d, and not %d", f.what, int64(f.have), int64(f.want)))
		}
	}
	return done, riders
}

// adjust changes a total and what is outside of its views, if the counter is at a version,
// and writes that down.
func (r *Reader) adjust(ctx context.Context, key string, version uint64, done call.Recounted, riders []store.Rider, c call.Correction) error {
	k := r.Known.Of(key)
	at, ok := k.Line(r.Now, true)
	if !ok {
		at = store.PartFields{Kind: store.PartEntries, Epoch: store.EpochForever}
	}
	l := ledger.Line{Kind: ledger.Adjust, Amount: done.After - done.Before, Actor: c.Actor, Reason: "recount: " + c.Reason, Source: r.Source}
	line, err := l.Append(nil)
	if err != nil {
		return err
	}
	riders = append(riders, store.Rider{Part: at.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: line})
	outcome, err := r.apply(ctx, store.Batch{Deltas: []store.Delta{{
		Cell: r.cell(key), Op: store.OpAdd, N: l.Amount, Guard: store.Guard{Match: true, Version: version},
		Event: &store.Event{Plan: k.Touch.Plan, Riders: riders},
	}}})
	if err == nil {
		err = outcome.Err()
	}
	return err
}
