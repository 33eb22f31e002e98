package node

import (
	"context"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store"
)

// A lane has one batch on its way to the store, and the callers who came since in
// a queue behind it. A train takes its batches there, together with those of other
// lanes, as long as all goes well.
type lane struct {
	node      *Node
	number    int // among the lanes
	partition int
	pulse     *pulse // of the partition

	mu          sync.Mutex // guards the fields below up to runs, and the states of entries
	first, last *entry     // the queue
	flying      bool       // a batch is on its way, or the lane is ready for a train
	train       *train     // that it was ready for last, or nil
	trip        *trip      // that has its batch, or nil
	runs        map[runKey]int
	short       shorts

	// For whoever has the batch that is on its way: its numbers.
	writer store.Writer
	mark   uint64 // the last acknowledged
	stale  bool   // the writer must not be used any more
}

// An entry is a batch of a caller in a lane. The batch and the reply are the
// caller's: only the caller touches the reply, and the batch is read by nobody
// else once it is frozen.
type entry struct {
	lane  *lane
	batch *store.Batch
	reply *store.Reply
	done  chan struct{}

	deltas int // and riders
	bytes  int
	writes int // of callers

	// Guarded by lane.mu until the entry has landed.
	state      entryState
	prev, next *entry       // in the queue
	call       *store.Batch // the first of its call, nil if it is the only one
	era        uint64       // only those of one era share a flight
	run        bool         // it is one add that may join a run
	alone      bool         // it takes a flight of its own
	gone       bool         // nobody waits for it any more
	flight     *flight
	at         int   // its first delta in the flight
	nth        int   // its place in a run
	before     int64 // the sum of those before it in the run
	err        error // why it has no results

	span *trace.Span // of the call, or nil
}

type entryState uint8

const (
	queued entryState = iota // nothing of it was sent
	frozen                   // it is a part of a flight
	landed                   // there is an answer, and done says so
)

// enter queues a batch, and sends it at once if the lane is idle. Call is what the
// batches of its call have in common, nil if it has no other.
func (l *lane) enter(ctx context.Context, b *store.Batch, r *store.Reply, call *store.Batch, era uint64) (*entry, error) {
	n := l.node
	reading := !b.Changes()
	if err := l.pulse.refused(reading); err != nil {
		return nil, err
	}
	deltas, bytes, writes := weigh(b)
	if err := l.pulse.room.take(ctx, deltas, bytes); err != nil {
		return nil, err
	}
	e := n.freeEntries.Get().(*entry)
	e.lane, e.batch, e.reply, e.deltas, e.bytes, e.writes = l, b, r, deltas, bytes, writes
	l.mu.Lock()
	if err := l.pulse.refused(reading); err != nil { // since then, and what was queued was refused before this came
		l.mu.Unlock()
		l.pulse.room.give(e.deltas, e.bytes)
		e.free()
		return nil, err
	}
	e.state, e.run, e.alone, e.gone, e.err = queued, call == nil && isRun(b) && !l.short.has(&b.Deltas[0]), isAlone(b), false, nil
	e.call, e.era, e.span = call, era, trace.From(ctx)
	l.insert(e, l.last)
	if !l.flying {
		l.flying = true
		n.running.Add(1)
		l.board()
	}
	l.train.came(writes)
	if !store.IsUnheard(ctx) { // else no caller has written it
		n.writes.Add(uint64(writes))
	}
	l.mu.Unlock()
	return e, nil
}

// weigh returns how many deltas and riders a batch has, how many bytes, and how many
// writes of callers.
func weigh(b *store.Batch) (deltas, bytes, writes int) {
	deltas = len(b.Deltas)
	for i := range b.Deltas {
		d := &b.Deltas[i]
		bytes += len(d.Cell.Namespace) + len(d.Cell.Key) + len(d.Guard.Token)
		writes += max(int(d.Writes), 1)
		if d.Event != nil {
			riders, more := d.Event.Weight()
			deltas, bytes = deltas+riders, bytes+more
		}
	}
	return deltas, bytes, writes
}

// board makes the lane ready for the next train to where its partition is.
func (l *lane) board() {
	l.train = l.node.trainOf(l)
	l.train.board(l)
}

// refuse gives the callers in the queue an error: nothing of theirs was sent.
func (l *lane) refuse(err error) {
	l.mu.Lock()
	var told []*entry
	for e := l.first; e != nil; e = l.first {
		l.remove(e)
		e.state, e.err = landed, err
		told = append(told, e)
	}
	l.mu.Unlock()
	for _, e := range told {
		l.pulse.room.give(e.deltas, e.bytes)
		e.done <- struct{}{}
	}
}

// insert puts e behind another entry of the queue; nil is the front.
func (l *lane) insert(e, behind *entry) {
	e.prev, e.next = behind, l.first
	if behind != nil {
		e.next = behind.next
		behind.next = e
	} else {
		l.first = e
	}
	if e.next != nil {
		e.next.prev = e
	} else {
		l.last = e
	}
}

// remove takes e out of the queue.
func (l *lane) remove(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.last = e.prev
	}
	e.prev, e.next = nil, nil
}

// wait waits until the entry has landed and fills its reply. If the context ends
// before, the entry is taken out of the queue, or the outcome is unknown.
func (e *entry) wait(ctx context.Context) error {
	select {
	case <-e.done:
		return e.take()
	case <-ctx.Done():
	}
	changes := e.batch.Changes() // An entry that was left is another's.
	switch e.leave() {
	case queued:
		return ctx.Err()
	case frozen:
		kind := store.KindUnknown
		if !changes {
			kind = store.KindUnavailable
		}
		return store.Errorf(kind, "sent, and not answered yet: %w", ctx.Err())
	default:
		<-e.done
		return e.take()
	}
}

// leave gives the entry up and returns the state it was in. One that has landed
// is still to be taken.
func (e *entry) leave() entryState {
	l := e.lane
	l.mu.Lock()
	was := e.state
	switch was {
	case queued:
		l.remove(e)
	case frozen:
		e.gone = true
	case landed:
	}
	l.mu.Unlock()
	if was == queued {
		l.pulse.room.give(e.deltas, e.bytes)
		e.free()
	}
	return was
}

// free makes the entry ready for another caller.
func (e *entry) free() {
	n := e.lane.node
	e.lane, e.batch, e.reply, e.call, e.flight, e.span = nil, nil, nil, nil, nil, nil
	n.freeEntries.Put(e)
}

// freeze makes a flight of as much of the queue as fits into a batch, for a trip. It
// returns nil if the queue is empty: then the lane is idle. From here on the flight has
// its own copy of everything.
func (l *lane) freeze(t *trip) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.rests()
		return nil
	}
	f := l.node.freeFlights.Get().(*flight)
	f.lane, l.trip = l, t
	f.batches[0].Partition, f.batches[0].Apart = l.partition, !l.first.alone
	era := l.first.era
	for e := l.first; e != nil && e.era == era && (len(f.entries) == 0 || !e.alone) && f.board(e, l.runs); e = l.first {
		l.remove(e)
		e.state, e.flight = frozen, f
		f.entries = append(f.entries, e)
		if e.alone {
			break
		}
		if e.batch.Together() { // If it has to be refused as a whole, all are, and sent again.
			f.batches[0].Apart = false
		}
	}
	if len(l.runs) > runsKept {
		l.runs = make(map[runKey]int)
	}
	clear(l.runs)
	f.begun = time.Now()
	return f
}

// rests makes the lane idle.
func (l *lane) rests() {
	l.flying = false
	l.node.running.Done()
}

// ended gives the callers of a flight their answer, and makes the lane ready for the
// next train, if others are queued.
func (l *lane) ended(f *flight, err error) {
	l.node.count(f, time.Since(f.begun))
	l.land(f, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.rests()
		return
	}
	l.board()
}

// runsKept is up to how many runs a lane clears its map of them, rather than
// making a new one.
const runsKept = 1024

// land gives the callers of a flight their answer. The adds of a run that was
// refused are queued again, before all others, each for itself: the sum of a run
// may be too much where some of its adds are not. So are those of a flight that was
// refused because some of them are outdated or late, in two flights.
func (l *lane) land(f *flight, err error) {
	n := l.node
	deltas, bytes, writes := 0, 0, 0
	told := f.entries[:0]
	l.mu.Lock()
	l.trip = nil
	var last *entry
	for _, e := range f.again(err) {
		if err == nil {
			l.short.add(&e.batch.Deltas[0])
		}
		e.state, e.flight = queued, nil
		l.insert(e, last)
		last = e
	}
	for _, e := range f.entries {
		if e.state == queued {
			continue
		}
		deltas += e.deltas
		bytes += e.bytes
		writes += e.writes
		if e.gone {
			e.free()
			continue
		}
		e.state, e.err = landed, err
		told = append(told, e)
	}
	l.train.told(len(told), writes)
	l.mu.Unlock()
	l.pulse.room.give(deltas, bytes)
	f.refs.Store(int32(len(told)) + 1)
	for _, e := range told {
		e.done <- struct{}{}
	}
	f.release(n)
}
