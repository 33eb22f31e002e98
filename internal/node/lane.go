package node

import (
	"context"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

// A lane has one batch on its way to the store, and the callers who came since in
// a queue behind it. It has a goroutine while it has work.
type lane struct {
	node      *Node
	partition int
	pulse     *pulse // of the partition
	room      room

	mu          sync.Mutex // guards the fields below up to all, and the states of entries
	first, last *entry     // the queue
	flying      bool       // the goroutine runs
	awaited     int        // how many callers the goroutine lingers for
	runs        map[runKey]int
	all         chan struct{} // says that those have come

	// For the goroutine alone: the numbers of its batches.
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

	deltas, bytes int

	// Guarded by lane.mu until the entry has landed.
	state      entryState
	prev, next *entry // in the queue
	run        bool   // it is one add that may join a run
	alone      bool   // it takes a flight of its own
	gone       bool   // nobody waits for it any more
	flight     *flight
	at         int   // its first delta in the flight
	nth        int   // its place in a run
	before     int64 // the sum of those before it in the run
	err        error // why it has no results
}

type entryState uint8

const (
	queued entryState = iota // nothing of it was sent
	frozen                   // it is a part of a flight
	landed                   // there is an answer, and done says so
)

// enter queues a batch, and sends it at once if the lane is idle.
func (l *lane) enter(ctx context.Context, b *store.Batch, r *store.Reply, bytes int, run bool) (*entry, error) {
	n := l.node
	reading := !b.Changes()
	if err := l.pulse.refused(reading); err != nil {
		return nil, err
	}
	if err := l.room.take(ctx, len(b.Deltas), bytes); err != nil {
		return nil, err
	}
	e := n.freeEntries.Get().(*entry)
	e.lane, e.batch, e.reply, e.deltas, e.bytes = l, b, r, len(b.Deltas), bytes
	l.mu.Lock()
	if err := l.pulse.refused(reading); err != nil { // since then, and what was queued was refused before this came
		l.mu.Unlock()
		l.room.give(e.deltas, e.bytes)
		e.free()
		return nil, err
	}
	e.state, e.run, e.alone, e.gone, e.err = queued, run, isAlone(b), false, nil
	l.insert(e, l.last)
	if l.awaited > 0 {
		if l.awaited--; l.awaited == 0 {
			l.all <- struct{}{}
		}
	}
	if !l.flying {
		l.flying = true
		n.running.Add(1)
		go l.fly()
	}
	l.mu.Unlock()
	return e, nil
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
		l.room.give(e.deltas, e.bytes)
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
		l.room.give(e.deltas, e.bytes)
		e.free()
	}
	return was
}

// free makes the entry ready for another caller.
func (e *entry) free() {
	n := e.lane.node
	e.lane, e.batch, e.reply, e.flight = nil, nil, nil, nil
	n.freeEntries.Put(e)
}

// fly sends what is queued, one flight after the other, until nothing is.
func (l *lane) fly() {
	defer l.node.running.Done()
	for {
		f := l.freeze()
		if f == nil {
			return
		}
		f.begun = time.Now()
		err := l.send(f)
		took := time.Since(f.begun)
		l.node.count(f, took)
		l.land(f, err)
		l.linger(took)
	}
}

// linger waits a little for as many callers as have just been answered: most come
// back at once with their next write. Without it the first of them would fly
// alone and the others wait for that, or two halves would take turns. One caller
// by himself is not waited for, and is sent at once when he comes.
func (l *lane) linger(took time.Duration) {
	l.mu.Lock()
	idle := l.awaited == 0 && len(l.all) == 0
	l.mu.Unlock()
	if idle {
		return
	}
	t := time.NewTimer(min(took/lingerShare, lingerMax))
	defer t.Stop()
	select {
	case <-l.all:
		return
	case <-t.C:
	case <-l.node.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == 0 { // they came just now
		<-l.all
	}
	l.awaited = 0
}

// How long a lane lingers: a part of what its last flight took, and no longer
// than this.
const (
	lingerShare = 4
	lingerMax   = 4 * time.Millisecond
)

// freeze makes a flight of as much of the queue as fits into a batch, nil if the
// queue is empty. From here on the flight has its own copy of everything.
func (l *lane) freeze() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.flying = false
		return nil
	}
	f := l.node.freeFlights.Get().(*flight)
	f.batches[0].Partition, f.batches[0].Apart = l.partition, !l.first.alone
	for e := l.first; e != nil && (len(f.entries) == 0 || !e.alone) && f.board(e, l.runs); e = l.first {
		l.remove(e)
		e.state, e.flight = frozen, f
		f.entries = append(f.entries, e)
		if e.alone {
			break
		}
	}
	if len(l.runs) > runsKept {
		l.runs = make(map[runKey]int)
	}
	clear(l.runs)
	return f
}

// runsKept is up to how many runs a lane clears its map of them, rather than
// making a new one.
const runsKept = 1024

// land gives the callers of a flight their answer. The adds of a run that was
// refused are queued again, before all others, each for itself: the sum of a run
// may be too much where some of its adds are not.
func (l *lane) land(f *flight, err error) {
	n := l.node
	deltas, bytes := 0, 0
	told := f.entries[:0]
	var again *entry // the last of those
	l.mu.Lock()
	for _, e := range f.entries {
		if err == nil && !e.gone && f.refusedRun(e) {
			e.state, e.flight, e.run = queued, nil, false
			l.insert(e, again)
			again = e
			continue
		}
		deltas += e.deltas
		bytes += e.bytes
		if e.gone {
			e.free()
			continue
		}
		e.state, e.err = landed, err
		told = append(told, e)
	}
	if l.first != nil || len(told) > 1 {
		l.awaited = len(told)
	}
	l.mu.Unlock()
	l.room.give(deltas, bytes)
	f.refs.Store(int32(len(told)) + 1)
	for _, e := range told {
		e.done <- struct{}{}
	}
	f.release(n)
}
