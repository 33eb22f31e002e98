// Package due gives back expired reservations. Every server does so: the first
// one ends a reservation, and the others find nothing.
//
// Before a reservation is made, its server writes a hint into the store: the
// time by which the counter has something to give back. So another server finds
// the reservation if its server dies, and nobody has to search counters without
// reservations. If a hint is lost with a part of the store, a slow walk over
// all reservations writes it again.
package due

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

const (
	pollUsed   = hold.Grain             // how often hints are looked for, where others may put some
	pollUnused = 500 * time.Millisecond // the same, in a store that never had a hold
	walkEvery  = 10 * time.Minute
	retryAfter = time.Second
	patience   = time.Minute
	laneRows   = 1000
	hintedMax  = 100_000 // hints of this server that are remembered
)

// Options are what a worker needs.
type Options struct {
	Store  store.Store            // one that knows no layouts
	NowMS  func(store.Cell) int64 // the store's time
	Logger *slog.Logger           // takes reports of what failed; the default is slog.Default()

	// Sweep ends what is due of a counter, and returns how many holds that were. It
	// reports true if something is not due yet by the time of its partition.
	Sweep func(ctx context.Context, h hold.Hint) (n Swept, err error)

	// Clean removes what is left of those who have no hold any more.
	Clean func(ctx context.Context, cell store.Cell, who []string) error
}

// Swept is what became of the holds of a counter.
type Swept struct {
	Ended, Late int  // holds that were given back, and those of them more than a second late
	Early       bool // some are not due yet, by the clock of their partition
}

// A Worker looks for what is due. It is safe for concurrent use.
type Worker struct {
	Options
	lanes  []store.Cell
	shared bool
	stop   context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{}
	used   atomic.Pointer[map[string]bool] // namespaces that have ever had a hold
	next   atomic.Int64                    // when it looks again, in Unix microseconds; 0 is not known

	mu     sync.Mutex // guards the fields below
	hinted map[hold.Hint]*hinting
	open   map[string]int64 // by namespace: as the last walk has counted, and changed here since

	swept, late, failures, hints atomic.Uint64
}

// A hinting is a hint on its way to the store, or there.
type hinting struct {
	done chan struct{}
	err  error
}

// New returns a worker that does nothing by itself.
func New(o Options) *Worker {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	t := o.Store.Traits()
	w := &Worker{
		Options: o, lanes: hold.Lanes(t.Partitions), shared: t.Shared, stop: func() {},
		wake: make(chan struct{}, 1), hinted: make(map[hold.Hint]*hinting), open: make(map[string]int64),
	}
	w.used.Store(&map[string]bool{})
	return w
}

// Start makes it work until Close.
func (w *Worker) Start() {
	ctx, stop := context.WithCancel(store.Unheard(context.Background()))
	w.stop = stop
	w.done.Go(func() { w.run(ctx) })
}

// Close ends the work.
func (w *Worker) Close() {
	w.stop()
	w.done.Wait()
}

func (w *Worker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var walkAt time.Time
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		wait, err := w.patiently(ctx)
		if err == nil && !time.Now().Before(walkAt) {
			if err = w.Walk(ctx); err == nil {
				walkAt = time.Now().Add(walkEvery)
				wait = min(wait, pollUsed)
			}
		}
		if err == nil {
			wait, failing = min(wait, time.Until(walkAt)), false
		} else if wait = retryAfter; ctx.Err() == nil {
			w.failures.Add(1)
			if !failing { // It is said once, however long it lasts.
				w.Logger.Warn("giving back expired reservations failed and will be retried", "err", err)
			}
			failing = true
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// patiently is Tick, for as long as a store may take that is only slow.
func (w *Worker) patiently(ctx context.Context) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return w.Tick(ctx)
}

// Uses reports whether a namespace is known to have had a hold.
func (w *Worker) Uses(namespace string) bool { return (*w.used.Load())[namespace] }

// Any reports whether any namespace is.
func (w *Worker) Any() bool { return len(*w.used.Load()) > 0 }

// Open returns about how many holds of a namespace are open: what the last walk has counted,
// and what this server has changed since.
func (w *Worker) Open(namespace string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.open[namespace])
}

// Changed notes that this server has made so many holds of a namespace, or ended some.
func (w *Worker) Changed(namespace string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[namespace] += n
}

// Meters calls f for each meter.
func (w *Worker) Meters(f func(name, help string, value float64)) {
	open := int64(0)
	w.mu.Lock()
	for _, n := range w.open {
		open += max(0, n)
	}
	w.mu.Unlock()
	f("quipu_holds_open", "Reservations that are open, as this server has counted at most ten minutes ago, and changed since.", float64(open))
	f("quipu_holds_swept_total", "Reservations that have expired, and were given back by this server.", float64(w.swept.Load()))
	f("quipu_holds_swept_late_total", "Those of them that were given back more than a second after they had expired.", float64(w.late.Load()))
	f("quipu_holds_failures_total", "Attempts to look for expired reservations that failed.", float64(w.failures.Load()))
	f("quipu_holds_hints_total", "Hints to expiring reservations that were put into the store by this server.", float64(w.hints.Load()))
}

// Tick gives back what is due by now, and returns when to look again.
func (w *Worker) Tick(ctx context.Context) (wait time.Duration, err error) {
	if err := w.look(ctx); err != nil {
		return 0, err
	}
	if len(*w.used.Load()) == 0 {
		if w.shared {
			return pollUnused, nil
		}
		return walkEvery, nil
	}
	var errs []error
	next := int64(0)
	for _, lane := range w.lanes {
		at, err := w.lane(ctx, lane)
		if errs = append(errs, err); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	w.next.Store(next)
	switch {
	case w.shared:
		wait = pollUsed
	case next == 0:
		wait = walkEvery
	default:
		wait = max(time.Duration(next-w.NowMS(w.lanes[0])*1000)*time.Microsecond, 10*time.Millisecond)
	}
	return wait, errors.Join(errs...)
}

// look finds out which namespaces have had a hold.
func (w *Worker) look(ctx context.Context) error {
	var number [1]store.Content
	if err := w.Store.ReadParts(ctx, []store.PartCell{{Cell: hold.Used(), Part: hold.UsedNumber()}}, number[:]); err != nil {
		return err
	}
	if number[0].N <= int64(len(*w.used.Load())) {
		return nil
	}
	from, to := store.PartFields{Kind: store.PartDue}, store.PartFields{Kind: store.PartDue, Position: 1}
	found, err := w.Store.ScanParts(ctx, store.RowsOf(hold.Used(), from, to), store.ScanMax)
	if err != nil {
		return err
	}
	for i := range found {
		f, _ := found[i].Part.Fields()
		w.use(f.Name)
	}
	return nil
}

// use remembers that a namespace has had a hold.
func (w *Worker) use(namespace string) {
	for !w.Uses(namespace) {
		was := w.used.Load()
		all := maps.Clone(*was)
		all[namespace] = true
		w.used.CompareAndSwap(was, &all)
	}
}

// lane looks for the hints of a lane that are due, has their counters swept, and removes
// them. It returns when the next one is due; 0 is never.
func (w *Worker) lane(ctx context.Context, lane store.Cell) (next int64, err error) {
	now := w.NowMS(lane) * 1000
	rows := hold.DueRows(lane, now+int64(time.Hour*24*366*200/time.Microsecond))
	var errs []error
	for {
		page, err := w.Store.ScanParts(ctx, rows, laneRows)
		if err != nil {
			return 0, err
		}
		var done []store.Delta
		for i := range page {
			h, ok := hold.HintIn(page[i].Part, page[i].Content.N)
			if ok && h.At > now {
				return earlier(next, h.At), errors.Join(append(errs, w.put(ctx, lane, done, store.DurabilityDefault))...)
			}
			if ok {
				swept, err := w.Sweep(ctx, h)
				w.swept.Add(uint64(swept.Ended))
				w.Changed(h.Namespace, -int64(swept.Ended))
				w.late.Add(uint64(swept.Late))
				if err != nil || swept.Early {
					next = earlier(next, now+int64(hold.Grain/time.Microsecond))
					errs = append(errs, err)
					continue
				}
			}
			done = append(done, store.Delta{Cell: lane, Op: store.OpDelete, Event: &store.Event{Part: page[i].Part}})
		}
		if errs = append(errs, w.put(ctx, lane, done, store.DurabilityDefault)); len(page) < laneRows || ctx.Err() != nil {
			return next, errors.Join(errs...)
		}
		_, row := store.AppendRow(nil, lane, page[len(page)-1].Part)
		rows.From = string(row) + "\x00"
	}
}

func earlier(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// put applies deltas to a cell of the store's own namespace.
func (w *Worker) put(ctx context.Context, cell store.Cell, deltas []store.Delta, d store.Durability) error {
	if len(deltas) == 0 {
		return nil
	}
	b := store.Batch{Partition: store.PartitionOf(cell, w.Store.Traits().Partitions), Durability: d, Deltas: deltas}
	var replies [1]store.Reply
	if err := w.Store.Apply(ctx, []store.Batch{b}, replies[:]); err != nil {
		return err
	}
	if replies[0].Err != nil {
		return replies[0].Err
	}
	for i := range replies[0].Results {
		if o := replies[0].Results[i].Outcome; o != store.Applied && o != store.Unmet {
			return o.Err()
		}
	}
	return nil
}
