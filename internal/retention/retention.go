// Package retention removes data that is no longer kept. It raises the floors
// of a store, below which parts do not exist; the store removes those by
// itself. It also removes the old usage of limits, the users of counters that
// were reset, and pieces of large sketches that no key names any more.
//
// Every server does so. A floor only rises, and its value follows from the book
// (the definitions) of the namespace and the store's time. So it does not
// matter how many servers do it, or when.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// Every is how often floors are looked at. They rise once in an epoch, which is an hour or
// more.
const Every = time.Minute

// Soon is how long after a round that has removed something the next one begins, if there is more.
const Soon = time.Second

// Options are what a worker needs.
type Options struct {
	Store  store.Store // one that knows no layouts: a batch is of one partition
	Books  *books.Books
	NowMS  func(store.Cell) int64 // the store's time
	Logger *slog.Logger           // takes reports of what failed; the default is slog.Default()
}

// A Worker raises floors from time to time.
type Worker struct {
	Options
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex // guards raised
	raised []map[store.Floor]store.Epoch

	walked string // where the next walk through what clients of limits have used goes on
	gone   place  // where the next walk through counters that were reset goes on
	census census // of users
	pieces pieces // of large sketches

	floors, failures, lapsed, cleared atomic.Uint64
}

// New returns a worker that does nothing by itself.
func New(o Options) *Worker {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	w := &Worker{Options: o, stop: func() {}, raised: make([]map[store.Floor]store.Epoch, o.Store.Traits().Partitions)}
	for i := range w.raised {
		w.raised[i] = make(map[store.Floor]store.Epoch)
	}
	return w
}

// Start makes it work until Close.
func (w *Worker) Start() {
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.done.Go(func() {
		tick, soon := time.NewTicker(Every), time.NewTimer(Every)
		defer tick.Stop()
		defer soon.Stop()
		members, pieces := true, true // whether there are more of them to look at at once
		for {
			var errs [4]error
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				errs[0] = w.Sweep(ctx)
				members, pieces = true, true
			case <-soon.C:
			}
			if members {
				members, errs[1] = w.Members(ctx)
				errs[2] = w.Count(ctx)
			}
			if pieces {
				before := w.pieces.removed.Load()
				done, err := w.Pieces(ctx)
				pieces, errs[3] = !done && err == nil && w.pieces.removed.Load() != before, err
			}
			if err := errors.Join(errs[:]...); err != nil && ctx.Err() == nil {
				w.failures.Add(1)
				w.Logger.Warn("removing expired data failed and will be retried", "err", err)
			}
			if members || pieces {
				soon.Reset(Soon)
			}
		}
	})
}

// Close ends the work.
func (w *Worker) Close() {
	w.stop()
	w.done.Wait()
}

// Meters calls f for each meter.
func (w *Worker) Meters(f func(name, help string, value float64)) {
	f("quipu_retention_floors_total", "Floors raised, below which windows and ledgers are removed, by this server.", float64(w.floors.Load()))
	f("quipu_limits_lapsed_total", "Clients of limits that were forgotten, because they had used nothing for long enough, by this server.", float64(w.lapsed.Load()))
	f("quipu_members", "Choices that users have of counters, each counted once, as this server has counted last.", float64(w.census.all()))
	f("quipu_members_cleared_total", "Rows of users who were gone, because their counter was reset or deleted, that this server has removed.", float64(w.cleared.Load()))
	f("quipu_sketch_pieces", "Pieces of large sketches that keys hold, as this server has counted last.", float64(w.pieces.used.Load()))
	f("quipu_sketch_pieces_removed_total", "Pieces of large sketches that were deleted, replaced or have expired, which this server has removed.", float64(w.pieces.removed.Load()))
	f("quipu_retention_failures_total", "Attempts to remove what is not kept any more that failed.", float64(w.failures.Load()))
}

// Sweep raises the floors of all namespaces that have definitions, and forgets a piece of what
// clients of limits have used. It is not to be called twice at the same time.
func (w *Worker) Sweep(ctx context.Context) error {
	namespaces, err := w.Books.Namespaces(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, namespace := range namespaces {
		errs = append(errs, w.namespace(ctx, namespace))
	}
	return errors.Join(append(errs, w.forget(ctx))...)
}

// namespace raises the floors of one namespace, in each partition by its own time.
func (w *Worker) namespace(ctx context.Context, namespace string) error {
	known, err := w.Books.Get(ctx, namespace)
	if err != nil || known.InForce == 0 {
		return err
	}
	for i := range w.raised {
		cell := cellOf(namespace, i, len(w.raised))
		risen := w.risen(i, Floors(known, w.NowMS(cell)))
		if len(risen) == 0 {
			continue
		}
		// Looking at a cell of the namespace makes the partition refuse what was made
		// under an earlier book, which may keep less.
		b := store.Batch{Partition: i, Books: known.Fence, Floors: risen, Deltas: []store.Delta{{Cell: cell, Op: store.OpGet}}}
		var replies [1]store.Reply
		if err := w.Store.Apply(ctx, []store.Batch{b}, replies[:]); err != nil {
			return err
		}
		switch err := replies[0].Err; {
		case store.KindOf(err) == store.KindOutdated: // The next time with the next book.
			return nil
		case err != nil:
			return err
		}
		w.keep(i, risen)
	}
	return nil
}

// cellOf returns a cell of a namespace that is in a partition, of n.
func cellOf(namespace string, partition, n int) store.Cell {
	for i := 0; ; i++ {
		if c := (store.Cell{Namespace: namespace, Key: "probe." + strconv.Itoa(i)}); store.PartitionOf(c, n) == partition {
			return c
		}
	}
}

// risen returns the floors that are higher than those that were raised in a partition.
func (w *Worker) risen(partition int, floors []store.Floor) (risen []store.Floor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range floors {
		if f.Epoch > w.raised[partition][shelf(f)] {
			risen = append(risen, f)
		}
	}
	return risen
}

// keep remembers the floors that were raised in a partition.
func (w *Worker) keep(partition int, floors []store.Floor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range floors {
		w.raised[partition][shelf(f)] = f.Epoch
	}
	w.floors.Add(uint64(len(floors)))
}

// shelf returns what a floor is of.
func shelf(f store.Floor) store.Floor {
	f.Epoch = 0
	return f
}

// Floors returns those of a namespace at a time. They are an epoch and a window behind what
// is kept. Views that are not counted any more have no windows left; their lines are kept
// for as long as they were to be. What has no retention, such as the values of a dimension
// for all time, stays.
func Floors(known *books.Known, now int64) (floors []store.Floor) {
	b := known.Book
	for i := range b.Entries {
		floors = append(floors, view.New(b, &b.Entries[i]).Floors(known.Namespace, now)...)
	}
	for _, r := range b.Retired {
		for _, kind := range []store.PartKind{store.PartWindow, store.PartWindowDim, store.PartOnce, store.PartWindowSketch, store.PartWindowShared, store.PartEntries} {
			if kind == store.PartEntries && (r.Keep == 0 || now < r.At+time.Duration(r.Keep).Milliseconds()+book.Ahead) {
				continue
			}
			floors = append(floors, store.Floor{Namespace: known.Namespace, Kind: kind, View: r.ID, Epoch: store.EpochForever})
		}
	}
	return floors
}
