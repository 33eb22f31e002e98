package retention

import (
	"context"
	"errors"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

const (
	// goneMax is how many users who are gone, and counters that were reset, a round looks at.
	// The next round goes on from there.
	goneMax = 20_000

	gonePage = 1_000

	// goneEach is how many rows one step removes: an event has one rider for each of them, one
	// that names the generation, and one that says what is done.
	goneEach = store.EventRidersMax - 2
)

// A place is where the next round goes on: at which row of which namespace.
type place struct {
	namespace, row string
}

// Members removes the users who are gone because their counter was reset or deleted. It goes
// through all counters for which that ever happened, a piece at a time, and reports whether
// there is more to do at once. Each step names the generation that it has read, and so
// removes nobody who counts: it does not matter how many servers do this, or when. It is not
// to be called twice at the same time.
func (w *Worker) Members(ctx context.Context) (more bool, err error) {
	namespaces, err := w.Books.Namespaces(ctx)
	if err != nil {
		return false, err
	}
	budget := goneMax
	var errs []error
	for _, namespace := range namespaces {
		if namespace < w.gone.namespace {
			continue
		}
		known, err := w.Books.Get(ctx, namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !everChosen(known.Book) {
			continue
		}
		if namespace != w.gone.namespace {
			w.gone = place{namespace: namespace}
		}
		done, err := w.resets(ctx, known.Fence, &budget)
		if errs = append(errs, err); err == nil && !done {
			return true, errors.Join(errs...)
		}
	}
	w.gone = place{}
	return false, errors.Join(errs...)
}

// everChosen reports whether a namespace may have users who have chosen something.
func everChosen(b *book.Book) bool {
	for i := range b.Entries {
		if len(b.Entries[i].Definition.Choices) > 0 {
			return true
		}
	}
	return len(b.Chosen) > 0
}

// A reset is a cell whose users have gone at least once: the generation that it is at, and
// the one below which they are known to be removed.
type reset struct {
	cell                store.Cell
	generation, cleared int64
}

// resets goes through the cells of a namespace that were reset, and reports whether it has
// come to their end.
func (w *Worker) resets(ctx context.Context, fence []store.Book, budget *int) (done bool, err error) {
	rows := store.RowsUnder(w.gone.namespace, store.PartFields{Kind: store.PartGeneration}, "")
	for {
		if w.gone.row != "" {
			rows.From = w.gone.row
		}
		found, err := w.Store.ScanParts(ctx, rows, gonePage)
		if err != nil {
			return false, err
		}
		all := resetsOf(found)
		full := len(found) == gonePage && len(all) > 1
		if full { // The last may have further rows.
			w.gone.row = rowOf(all[len(all)-1].cell)
			all = all[:len(all)-1]
		}
		for i := range all {
			r := &all[i]
			*budget--
			for left := r.cleared < r.generation; left; {
				if *budget <= 0 {
					w.gone.row = rowOf(r.cell)
					return false, nil
				}
				if left, err = w.clear(ctx, fence, r, budget); err != nil {
					return false, err
				}
			}
		}
		if !full {
			return true, nil
		}
	}
}

// rowOf returns the first row that a cell which was reset has.
func rowOf(c store.Cell) string {
	_, row := store.AppendRow(nil, c, view.Generation())
	return string(row)
}

// resetsOf returns the cells that rows of generations are of.
func resetsOf(found []store.PartEntry) (all []reset) {
	for i := range found {
		e := &found[i]
		if len(all) == 0 || all[len(all)-1].cell != e.Cell {
			all = append(all, reset{cell: e.Cell})
		}
		r := &all[len(all)-1]
		if e.Part == view.Generation() {
			r.generation = e.Content.N
		} else if e.Part == view.Cleared() {
			r.cleared = e.Content.N
		}
	}
	return all
}

// clear removes some of the users who are gone from a cell, and how many they were, and
// reports whether there may be more of them.
func (w *Worker) clear(ctx context.Context, fence []store.Book, r *reset, budget *int) (left bool, err error) {
	from, to := store.PartFields{Kind: store.PartMember}, store.PartFields{Kind: store.PartMember, Position: r.generation}
	found, err := w.Store.ScanParts(ctx, store.RowsOf(r.cell, from, to), gonePage)
	if err != nil {
		return false, err
	}
	if len(found) < gonePage { // Those who are left are counted until then.
		counts, err := w.Store.ScanParts(ctx, store.RowsOf(r.cell, counts(0), counts(r.generation)), gonePage-len(found))
		if err != nil {
			return false, err
		}
		found = append(found, counts...)
	}
	var own [1]store.Value
	if err := w.Store.Read(ctx, []store.Cell{r.cell}, own[:]); err != nil {
		return false, err
	}
	*budget -= len(found)
	left = len(found) == gonePage
	b := store.Batch{Partition: store.PartitionOf(r.cell, len(w.raised)), Books: fence, Apart: true, Durability: store.Memory}
	for i := 0; i < len(found) || i == 0; i += goneEach {
		some := found[i:min(i+goneEach, len(found))]
		last := i+goneEach >= len(found) && !left
		b.Deltas = append(b.Deltas, clearing(r, some, own[0].Exists, last))
	}
	var replies [1]store.Reply
	if err := w.Store.Apply(ctx, []store.Batch{b}, replies[:]); err != nil {
		return false, err
	}
	if err := replies[0].Err; err != nil {
		if store.KindOf(err) == store.KindOutdated { // The next time with the next book.
			err = nil
		}
		return false, err
	}
	for i := range replies[0].Results {
		if replies[0].Results[i].Outcome != store.Applied { // Somebody has reset it again, or made or deleted it.
			return false, nil
		}
		w.cleared.Add(uint64(min(goneEach, len(found)-i*goneEach)))
	}
	return left, nil
}

// counts returns where the numbers of users of a generation begin.
func counts(generation int64) store.PartFields {
	f, _ := view.Members(generation, 0).Fields()
	return f
}

// clearing returns the delta that removes rows of a cell, which neither makes nor changes it;
// the last one says that all below the generation are removed.
func clearing(r *reset, rows []store.PartEntry, exists, last bool) store.Delta {
	d := store.Delta{Cell: r.cell, Op: store.OpDelete, Guard: store.Guard{Exists: store.ExistsNot}}
	if exists {
		d.Op, d.Guard.Exists = store.OpAdd, store.ExistsMust
	}
	e := &store.Event{Riders: make([]store.Rider, 0, len(rows)+2)}
	e.Riders = append(e.Riders, store.Rider{
		Part: view.Generation(), Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: r.generation},
	})
	for i := range rows {
		e.Riders = append(e.Riders, store.Rider{Part: rows[i].Part, Op: store.OpDelete})
	}
	if last {
		e.Riders = append(e.Riders, store.Rider{Part: view.Cleared(), Op: store.OpMax, N: r.generation})
	}
	d.Event = e
	return d
}
