// Package transfer copies every counter of one store into another, with its
// value and its deadline.
//
// It walks both stores in the order of their keys, up to three times. The first
// walk compares, so that a target with counters that the source does not have
// is refused before anything is written. The second writes the differences; it
// may be interrupted and run again. The third compares again.
//
// Every walk computes a digest of the versions in the source. If the last two
// digests are equal, no counter of the source changed between its two visits.
// So there was a moment between these walks at which the source was equal to
// the target. If they differ, something still writes.
//
// Definitions are not copied, nor their windows, dimensions and ledgers: a
// namespace that has some is refused, unless only totals are wanted. So is a
// namespace with limits that clients have used, whose usage is not copied. A
// namespace with open reservations is always refused, because its counters
// would lack the reserved amounts.
//
// Tokens and marks are not copied: the target can't recognise a write that was
// made to the source and is sent again.
package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/store"
)

// Options say what is copied and how.
type Options struct {
	Namespaces []string // default all
	Overwrite  bool     // delete what is in the target and not in the source
	DryRun     bool     // only compare
	Totals     bool     // leave windows, dimensions, ledgers and what clients of limits have used behind

	// Progress, if not nil, is told how far it has come, after each page.
	Progress func(Report)
}

// A Report is what was found and done.
type Report struct {
	Walk     Walk  // the last one begun
	Walked   int64 // counters seen by it, those of both stores once
	Counters int64 // counters of the source it saw
	Equal    int64 // of them, those that the target had alike
	Differ   int64 // of them, those that the target had otherwise or not at all
	Extra    int64 // counters that only the target had

	Namespaces int   // that have a counter in either store
	Copied     int64 // counters set in the target
	Deleted    int64 // counters deleted from it
}

// A Walk is one way through both stores.
type Walk string

// The walks, in their order.
const (
	Compare Walk = "compare"
	Copy    Walk = "copy"
	Check   Walk = "check"
)

// ExtraError is returned when the target has counters that the source has not.
// Nothing was written.
type ExtraError struct {
	Extra int64
	First store.Cell
}

// Error says how many, and names one.
func (e *ExtraError) Error() string {
	return fmt.Sprintf("the target has %d counters that the source has not, the first is %q in namespace %q", e.Extra, e.First.Key, e.First.Namespace)
}

// ChangedError is returned when a store was written to meanwhile.
type ChangedError struct {
	AtLeast int64 // counters that changed
}

// Error says how many.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("at least %d counters changed while they were copied", e.AtLeast)
}

// DefinedError is returned when a namespace has definitions: what they make the store
// keep beside totals is not copied. Nothing was written.
type DefinedError struct {
	Namespace string
	Store     string // the name of the store that has them
}

// Error names the namespace.
func (e *DefinedError) Error() string {
	return fmt.Sprintf("namespace %q of the %s store has definitions, or had some, and they are not copied, nor what they have the store keep beside totals", e.Namespace, e.Store)
}

// HeldError is returned when a namespace has open reservations. Nothing was written.
type HeldError struct {
	Of    store.Cell // one counter that has some
	Store string     // the name of the store
}

// Error names a counter.
func (e *HeldError) Error() string {
	return fmt.Sprintf("reservations of %q in namespace %q of the %s store are open, and reservations are not copied", e.Of.Key, e.Of.Namespace, e.Store)
}

// UsedError is returned when clients have used limits of a namespace. Nothing was written.
type UsedError struct {
	Namespace, Limit string
	Store            string // the name of the store
}

// Error names a limit.
func (e *UsedError) Error() string {
	return fmt.Sprintf("clients have used limit %q in namespace %q of the %s store, and what they have used is not copied", e.Limit, e.Namespace, e.Store)
}

const (
	// pageCells is how many cells are read or written by one call. As many keys of
	// the greatest length are less than store.BatchBytesMax.
	pageCells = 5000

	// skewMS is how far the clocks of the stores and this one may be apart. What
	// expires within it may be gone in one store and not in the other.
	skewMS = 60_000

	attemptsMax = 10
	waitFirst   = 100 * time.Millisecond // doubles
	waitMax     = 5 * time.Second
)

// Run makes the target hold what the source holds, and returns nil only if it
// does. A call that a store could not answer is made again for some time.
func Run(ctx context.Context, from, to store.Store, o Options) (Report, error) {
	r := &run{from: from, to: to, o: o}
	if err := r.refuse(ctx); err != nil {
		return r.Report, err
	}
	if err := r.walk(ctx, Compare); err != nil {
		return r.Report, err
	}
	if r.Extra > 0 && !o.Overwrite {
		return r.Report, &ExtraError{r.Extra, r.firstExtra}
	}
	if o.DryRun {
		return r.Report, nil
	}
	if r.Differ+r.Extra > 0 {
		if err := r.walk(ctx, Copy); err != nil {
			return r.Report, err
		}
	}
	before := r.digest
	if err := r.walk(ctx, Check); err != nil {
		return r.Report, err
	}
	moved := before.moved(r.digest, time.Now().UnixMilli()+skewMS)
	if changed := max(moved, r.Differ+r.Extra); changed > 0 {
		return r.Report, &ChangedError{changed}
	}
	return r.Report, nil
}

type run struct {
	Report
	from, to   store.Store
	o          Options
	firstExtra store.Cell
	digest     *digest
	deltas     []store.Delta // to be written
}

// refuse returns an error if there is something that the copy would not heed: definitions
// and limits of the source, if more than totals is wanted, definitions of the target, and
// open reservations of either.
func (r *run) refuse(ctx context.Context) error {
	r.Walk = Compare
	spaces, err := r.namespaces(ctx)
	if err != nil {
		return err
	}
	for _, s := range []store.Store{r.from, r.to} {
		for _, ns := range spaces {
			if err := refuseHeld(ctx, s, ns); err != nil {
				return err
			}
		}
		if s == r.from && r.o.Totals {
			continue
		}
		all := books.New(s, true)
		defined, err := r.defined(ctx, all, spaces)
		if err != nil {
			return err
		}
		for _, ns := range defined {
			var known *books.Known
			err := insist(ctx, func() (err error) {
				known, err = all.Get(ctx, ns)
				return err
			})
			if err != nil {
				return err
			}
			// A source may have had reservations, without a definition.
			if b := known.Book; b.ID != 0 && (s == r.to || len(b.Entries)+len(b.Former) > 0) {
				return &DefinedError{ns, s.Traits().Name}
			}
		}
	}
	if r.o.Totals {
		return nil
	}
	return r.refuseUsed(ctx, spaces)
}

// defined returns the namespaces whose definitions are looked at: those that are walked,
// and if all are, those that have definitions and no counters.
func (r *run) defined(ctx context.Context, all *books.Books, spaces []string) ([]string, error) {
	if len(r.o.Namespaces) > 0 {
		return spaces, nil
	}
	var more []string
	err := insist(ctx, func() (err error) {
		more, err = all.Namespaces(ctx)
		return err
	})
	return append(slices.Clone(spaces), more...), err
}

// refuseHeld returns an error if a namespace of a store has open reservations.
func refuseHeld(ctx context.Context, s store.Store, ns string) error {
	rows := store.RowsUnder(ns, store.PartFields{Kind: store.PartHold}, "")
	return insist(ctx, func() error {
		found, err := s.ScanParts(ctx, rows, 1)
		if err == nil && len(found) > 0 {
			err = &HeldError{found[0].Cell, s.Traits().Name}
		}
		return err
	})
}

// refuseUsed returns an error if the source knows what clients have used of limits of the
// namespaces. Limits are cells of the store's own namespace.
func (r *run) refuseUsed(ctx context.Context, spaces []string) error {
	at := cursor{store: r.from, at: store.Range{Prefix: store.LimitsPrefix}}
	for {
		if err := at.fill(ctx); err != nil {
			return err
		}
		e := at.head()
		if e.Key == "" {
			return nil
		}
		ns, name, _, ok := store.LimitOf(store.Cell{Key: e.Key})
		if ok && e.Value.N != 0 && (len(r.o.Namespaces) == 0 || slices.Contains(spaces, ns)) {
			return &UsedError{ns, name, r.from.Traits().Name}
		}
		at.next()
	}
}

// walk goes through both stores.
func (r *run) walk(ctx context.Context, w Walk) error {
	r.Report = Report{Walk: w, Copied: r.Copied, Deleted: r.Deleted}
	r.digest = newDigest()
	spaces, err := r.namespaces(ctx)
	if err != nil {
		return err
	}
	for _, ns := range spaces {
		before := r.Walked
		if err := r.walkNamespace(ctx, ns); err != nil {
			return err
		}
		if r.Walked > before {
			r.Namespaces++
		}
	}
	return r.write(ctx)
}

func (r *run) walkNamespace(ctx context.Context, ns string) error {
	from := cursor{store: r.from, at: store.Range{Namespace: ns}}
	to := cursor{store: r.to, at: store.Range{Namespace: ns}}
	for {
		if len(from.page) == 0 || len(to.page) == 0 {
			if err := errors.Join(from.fill(ctx), to.fill(ctx)); err != nil {
				return err
			}
		}
		f, t := from.head(), to.head()
		switch order := cmp.Compare(f.Key, t.Key); {
		case f.Key == "" && t.Key == "":
			return nil
		case t.Key == "", f.Key != "" && order < 0:
			t = store.Entry{Key: f.Key}
			from.next()
		case f.Key == "", order > 0:
			f = store.Entry{Key: t.Key}
			to.next()
		default:
			from.next()
			to.next()
		}
		r.visit(store.Cell{Namespace: ns, Key: f.Key}, f.Value, t.Value)
		if r.Walked%pageCells == 0 && r.o.Progress != nil {
			r.o.Progress(r.Report)
		}
		if len(r.deltas) == pageCells {
			if err := r.write(ctx); err != nil {
				return err
			}
		}
	}
}

// visit counts a cell, and sees to it that it is written if that is to be.
func (r *run) visit(c store.Cell, from, to store.Value) {
	r.Walked++
	if from.Exists {
		r.Counters++
		r.digest.add(c, from)
	}
	nowMS := time.Now().UnixMilli()
	switch {
	case from.Exists && to.Exists && from.N == to.N && from.DeadlineMS == to.DeadlineMS:
		r.Equal++
	case !from.Exists && leaving(to, nowMS):
	case r.Walk == Check && !to.Exists && leaving(from, nowMS):
	case from.Exists:
		r.Differ++
		if r.Walk == Copy {
			d := store.Delta{Cell: c, Op: store.OpSet, N: from.N, Expiry: store.ExpiryClear}
			if from.DeadlineMS != 0 {
				d.Expiry, d.DeadlineMS = store.ExpirySet, from.DeadlineMS
			}
			r.deltas = append(r.deltas, d)
		}
	default:
		if r.Extra++; r.Extra == 1 {
			r.firstExtra = c
		}
		if r.Walk == Copy && r.o.Overwrite {
			r.deltas = append(r.deltas, store.Delta{Cell: c, Op: store.OpDelete})
		}
	}
}

// leaving reports whether a cell will be gone soon, or is by another clock.
func leaving(v store.Value, nowMS int64) bool {
	return v.DeadlineMS != 0 && v.DeadlineMS <= nowMS+skewMS
}

// write applies what was collected, a batch for each partition.
func (r *run) write(ctx context.Context) error {
	if len(r.deltas) == 0 {
		return nil
	}
	parts := r.to.Traits().Partitions
	batches := make([]store.Batch, 0, min(parts, len(r.deltas)))
	of := make(map[int]int, cap(batches)) // partitions, in batches
	for _, d := range r.deltas {
		home := store.PartitionOf(d.Cell, parts)
		i, ok := of[home]
		if !ok {
			i = len(batches)
			of[home] = i
			batches = append(batches, store.Batch{Partition: home})
		}
		batches[i].Deltas = append(batches[i].Deltas, d)
	}
	r.deltas = r.deltas[:0]
	var replies []store.Reply
	err := insist(ctx, func() error {
		replies = make([]store.Reply, len(batches))
		if err := r.to.Apply(ctx, batches, replies); err != nil {
			return err
		}
		for i := range replies {
			if err := replies[i].Err; err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write to the target: %w", err)
	}
	for i, reply := range replies {
		for j, result := range reply.Results {
			d := &batches[i].Deltas[j]
			if err := result.Outcome.Err(); err != nil {
				return fmt.Errorf("write %q in namespace %q to the target: %w", d.Cell.Key, d.Cell.Namespace, err)
			}
			if d.Op == store.OpDelete {
				r.Deleted++
			} else {
				r.Copied++
			}
		}
	}
	return nil
}

// namespaces returns those that are walked, in order.
func (r *run) namespaces(ctx context.Context) ([]string, error) {
	all := slices.Clone(r.o.Namespaces)
	if len(all) == 0 {
		for _, s := range []store.Store{r.from, r.to} {
			some, err := namespaces(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("list the namespaces of the %s store: %w", s.Traits().Name, err)
			}
			all = append(all, some...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func namespaces(ctx context.Context, s store.Store) (all []string, err error) {
	n, ok := s.(store.Namespacer)
	if !ok {
		return nil, store.Errorf(store.KindUnsupported, "it does not know them: name them")
	}
	for after := ""; ; after = all[len(all)-1] {
		var some []string
		err := insist(ctx, func() (err error) {
			some, err = n.Namespaces(ctx, after, pageCells)
			return err
		})
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(some) < pageCells {
			return all, nil
		}
	}
}

// A cursor reads the cells of a namespace, a page at a time.
type cursor struct {
	store store.Store
	at    store.Range
	page  []store.Entry
	end   bool // there is no further page
}

// fill reads the next page if there is nothing left of the one before.
func (c *cursor) fill(ctx context.Context) error {
	if len(c.page) > 0 || c.end {
		return nil
	}
	err := insist(ctx, func() (err error) {
		c.page, err = c.store.Scan(ctx, c.at, pageCells)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the %s store: %w", c.store.Traits().Name, err)
	}
	if c.end = len(c.page) < pageCells; !c.end {
		c.at.After = c.page[pageCells-1].Key
	}
	return nil
}

// head returns the next cell; its key is empty at the end.
func (c *cursor) head() store.Entry {
	if len(c.page) == 0 {
		return store.Entry{}
	}
	return c.page[0]
}

func (c *cursor) next() { c.page = c.page[1:] }

// insist makes a call until it is answered, or for as long as makes sense. All
// that is sent here may be sent twice.
func insist(ctx context.Context, call func() error) error {
	for attempt, wait := 1, waitFirst; ; attempt, wait = attempt+1, min(2*wait, waitMax) {
		err := call()
		kind := store.KindOf(err)
		if err == nil || attempt == attemptsMax || kind != store.KindUnavailable && kind != store.KindUnknown {
			return err
		}
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
