package node

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store"
)

// A flight is a combined batch, from when it is frozen until the last of its
// callers has its results.
type flight struct {
	lane    *lane
	batches [1]store.Batch
	replies [1]store.Reply
	members []int // for each delta, how many adds are in it
	deltas  int   // and riders
	bytes   int
	entries []*entry
	refs    atomic.Int32
	begun   time.Time   // when it was frozen
	room    []byte      // to combine what is asked
	span    *trace.Span // of the present attempt, or nil

	sent  bool // it was given to the store at least once
	doubt bool // and perhaps it was applied
}

// A runKey names a run: adds in a flight to one cell that have the same sign, so
// that their sum overflows if and only if one of them does, and that ask for the
// same layout if any; and if they are events, have the same plan; and if they have a
// bound, have the same one.
type runKey struct {
	cell     store.Cell
	negative bool
	laid     bool
	event    bool
	bounded  bool
	layout   int64
	plan     *store.Plan
	bound    store.Bound
}

func keyOf(d *store.Delta) runKey {
	key := runKey{cell: d.Cell, negative: d.N < 0, laid: d.Guard.Laid, layout: d.Guard.Layout}
	if d.Event != nil {
		key.event, key.plan = true, d.Event.Plan
	}
	if d.Guard.Bound != nil {
		key.bounded, key.bound = true, *d.Guard.Bound
	}
	return key
}

// runServes is what the adds of a run may ask for.
const runServes = store.NeedValue | store.NeedLayout | store.NeedRiders | store.NeedBook | store.NeedBytes | store.NeedBound

// isRun reports whether a batch is one add that may join a run.
func isRun(b *store.Batch) bool {
	if len(b.Deltas) != 1 {
		return false
	}
	d := &b.Deltas[0]
	return d.Needs()&^runServes == 0 && (d.Event == nil || joins(d.Event)) && (d.Guard.Bound == nil || adds(d.Guard.Bound))
}

// adds reports whether a bound lets adds of one sign through, one after the other, if and
// only if it lets their sum through. A strict one does not: the first of them may leave the
// side that the others come back from. Nor is a sum cut short as its adds are.
func adds(b *store.Bound) bool { return b.Inward && !b.Saturate }

// isAlone reports whether a batch takes a flight of its own: if a counter is
// split, it is refused as a whole, and others must not be with it. Adds that any part of a
// counter takes are refused by an object, which is rare: see apart.
func isAlone(b *store.Batch) bool {
	return b.Together() && slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return d.NeedsWhole() })
}

// apart returns the entries of a flight that was refused because of a cell that can't
// take a delta, so that those whose deltas belong together fly alone. It returns none if
// none of them has been with others.
func (f *flight) apart() (all []*entry) {
	if len(f.entries) == 1 {
		return nil
	}
	for _, e := range f.entries {
		if e.gone {
			continue
		}
		e.alone = e.batch.Together()
		all = append(all, e)
	}
	return all
}

// board puts an entry into the flight, and reports false if there is no room.
func (f *flight) board(e *entry, runs map[runKey]int) bool {
	b := &f.batches[0]
	var key runKey
	if e.run {
		key = keyOf(&e.batch.Deltas[0])
		if at, ok := runs[key]; ok && f.join(e, at) {
			return true
		}
	}
	if f.deltas+e.deltas > store.BatchDeltasMax || f.bytes+e.bytes > store.BatchBytesMax {
		return false
	}
	e.at, e.nth, e.before = len(b.Deltas), 0, 0
	for _, d := range e.batch.Deltas {
		if d.Guard.Match {
			d.Guard.Version = coarse(d.Guard.Version)
		}
		if d.Guard.Bound != nil {
			bound := *d.Guard.Bound // the caller may change it when it has left
			d.Guard.Bound = &bound
		}
		d.Event = frozenEvent(d.Event)
		b.Deltas = append(b.Deltas, d)
		f.members = append(f.members, 1)
	}
	if e.run {
		runs[key] = e.at
	}
	f.deltas, f.bytes = f.deltas+e.deltas, f.bytes+e.bytes
	f.under(e.batch)
	return true
}

// under makes the flight name the books of a batch, which is of its era, and be as
// durable.
func (f *flight) under(of *store.Batch) {
	b := &f.batches[0]
	b.Durability = max(b.Durability, strength(of.Durability))
	for _, book := range of.Books {
		at := slices.IndexFunc(b.Books, func(is store.Book) bool { return is.Namespace == book.Namespace })
		if at < 0 {
			b.Books = append(b.Books, book)
		} else { // one that is of no delta may be lower
			b.Books[at].ID = max(b.Books[at].ID, book.ID)
		}
	}
}

// join adds an entry to a run, and reports false if that is too long, or its sum
// too large.
func (f *flight) join(e *entry, at int) bool {
	b := &f.batches[0]
	run, d := &b.Deltas[at], &e.batch.Deltas[0]
	sum := run.N + d.N
	if f.members[at] == runMax || (d.N < 0) != (sum < run.N) || !f.continues(run.Event, d.Event) {
		return false
	}
	e.at, e.nth, e.before = at, f.members[at], run.N
	run.N = sum
	run.Want = run.Want || d.Want
	f.members[at]++
	f.under(e.batch)
	return true
}

// strength makes durabilities comparable.
func strength(d store.Durability) store.Durability {
	if d == store.DurabilityDefault {
		return store.Synced
	}
	return d
}

// refusedRun reports whether an entry is one of several in a run that the store
// refused. That changed nothing.
func (f *flight) refusedRun(e *entry) bool {
	return f.members[e.at] > 1 && f.replies[0].Results[e.at].Outcome != store.Applied
}

// again returns the entries that are to be sent again, in their order: those of runs that
// were refused, each for itself, or those of a flight that is to be divided, or some of
// which are to fly alone.
func (f *flight) again(err error) (some []*entry) {
	if store.KindOf(err) == store.KindSplit {
		return f.apart()
	}
	if err != nil {
		return f.divide(err)
	}
	for _, e := range f.entries {
		if !e.gone && f.refusedRun(e) {
			e.run = false
			some = append(some, e)
		}
	}
	return some
}

// take fills the reply of an entry that has landed, or returns why there is none.
func (e *entry) take() error {
	n, err := e.lane.node, e.err
	if err == nil {
		e.fill()
	} else if refusal(err) {
		e.reply.Err, err = err, nil
	}
	if e.flight != nil { // else it was refused in the queue
		e.flight.release(n)
	}
	e.free()
	return err
}

// fill fills the reply with what the store said, as if the batch had been
// applied alone.
func (e *entry) fill() {
	f, to := e.flight, e.reply
	from := &f.replies[0]
	to.Durability, to.Waited, to.Retries = from.Durability, from.Waited, from.Retries
	for i := range e.batch.Deltas {
		r, d := from.Results[e.at+i], &e.batch.Deltas[i]
		if d.Guard.Token == "" {
			r.Replayed = false // Only the flight was repeated, not the caller's write.
		}
		r.Version = fine(r.Version)
		if members := f.members[e.at]; members > 1 {
			r.Version -= uint64(members - 1 - e.nth)
			r.Existed = r.Existed || e.nth > 0
			r.Before += e.before
			r.After = r.Before + d.N
			if !d.Want {
				r = store.Result{Outcome: r.Outcome, Version: r.Version}
			}
		}
		to.Results = append(to.Results, r)
	}
}

// release lets the flight be used again when the last one needs it no more.
func (f *flight) release(n *Node) {
	if f.refs.Add(-1) > 0 {
		return
	}
	clear(f.entries)
	clear(f.batches[0].Deltas)
	f.batches[0] = store.Batch{Deltas: f.batches[0].Deltas[:0], Books: f.batches[0].Books[:0]}
	f.replies[0].Results = f.replies[0].Results[:0]
	f.entries, f.members = f.entries[:0], f.members[:0]
	f.lane, f.deltas, f.bytes, f.sent, f.doubt = nil, 0, 0, false, false
	n.freeFlights.Put(f)
}
