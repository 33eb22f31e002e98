package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// A train takes the flights of some lanes to the store, all that are ready together:
// those whose partitions are on one server, if the store is a store.Carrier; and else
// those of one lane. It has a goroutine while it has work.
type train struct {
	node *Node

	mu      sync.Mutex // guards the fields below up to trip
	ready   []*lane
	running bool  // the goroutine runs
	trip    *trip // under way with the goroutine, or nil

	callers atomic.Int32  // those who were answered since the last trip began
	awaited atomic.Int32  // writes that the train lingers for: as many as were answered
	all     chan struct{} // says that those have come
}

// trainOf returns the train that goes to where the partition of a lane is.
func (n *Node) trainOf(l *lane) *train {
	if n.carrier == nil {
		return &n.trains[l.number]
	}
	return &n.trains[n.carrier.Route(l.partition)]
}

// board takes a lane along on the next trip, which begins at once if the train is idle.
func (t *train) board(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = append(t.ready, l)
	t.start()
}

// start starts the goroutine, if it is needed.
func (t *train) start() {
	if !t.running && len(t.ready) > 0 {
		t.running = true
		t.node.running.Add(1)
		go t.run()
	}
}

// run makes one trip after the other, until no lane is ready.
func (t *train) run() {
	defer t.node.running.Done()
	for {
		trip := t.depart()
		if trip == nil {
			return
		}
		trip.fly()
		took := time.Since(trip.begun)
		if !t.back(trip) {
			return
		}
		t.linger(took)
	}
}

// depart begins a trip of the lanes that are ready. It returns nil if there are none.
func (t *train) depart() *trip {
	for {
		t.mu.Lock()
		lanes := t.ready
		if t.running = len(lanes) > 0; !t.running {
			t.mu.Unlock()
			return nil
		}
		trip := &trip{train: t, begun: time.Now()}
		t.ready, t.trip = nil, trip
		t.mu.Unlock()
		t.callers.Store(0)
		t.awaited.Store(0)
		select {
		case <-t.all:
		default:
		}
		trip.ctx, trip.cancel = context.WithTimeout(t.node.ctx, t.node.options.AttemptTimeout)
		for _, l := range lanes {
			trip.take(l)
		}
		if len(trip.flights) > 0 {
			return trip
		}
		trip.cancel()
	}
}

// back reports whether the goroutine that made a trip is still the train's.
func (t *train) back(trip *trip) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trip != trip {
		return false
	}
	t.trip = nil
	return true
}

// relieve lets another goroutine take the lanes that are ready since a trip began: it
// takes long, and may be that of a server that hangs.
func (t *train) relieve(trip *trip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trip == trip {
		t.trip, t.running = nil, false
		t.start()
	}
}

// told takes notice of callers who are about to be answered.
func (t *train) told(callers, writes int) {
	t.callers.Add(int32(callers))
	t.awaited.Add(int32(writes))
}

// came takes notice of writes that were queued.
func (t *train) came(writes int) {
	if t.awaited.Load() > 0 && t.awaited.Add(-int32(writes)) <= 0 {
		select {
		case t.all <- struct{}{}:
		default:
		}
	}
}

// linger waits a little for as many writes as have just been answered: most callers
// come back at once with their next one. Without it the first of them would fly
// alone and the others wait for that, or two halves would take turns. One caller
// by himself is not waited for, and is sent at once when he comes.
//
// It waits as long as others keep coming. While nobody is ready, nobody is held up.
func (t *train) linger(took time.Duration) {
	left := t.awaited.Load()
	if left <= 0 || t.callers.Load() < 2 && !t.waiting() {
		return
	}
	pause := min(took/lingerShare, lingerMax)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for range lingerShare {
		select {
		case <-t.all:
			return
		case <-t.node.ctx.Done():
			return
		case <-timer.C:
		}
		was := left
		if left = t.awaited.Load(); left == was && t.waiting() {
			return
		}
		timer.Reset(pause)
	}
}

// waiting reports whether a lane is ready.
func (t *train) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ready) > 0
}

// How long a train lingers for the next one to come: a part of what its last trip took,
// and no longer than this. In all it does not linger longer than for the whole.
const (
	lingerShare = 4
	lingerMax   = 4 * time.Millisecond
)

// lateAfter is after how long a trip does not hold up the other lanes of its train.
const lateAfter = 50 * time.Millisecond

// A trip is flights that are sent together, once. What becomes of one says nothing of
// the others.
type trip struct {
	train   *train
	begun   time.Time
	flights []*flight
	batches []*store.Batch
	replies []*store.Reply

	ctx    context.Context
	cancel context.CancelFunc // at the end, or if the node gives one of its partitions up
	watch  *time.Timer        // notices if it takes long

	mu    sync.Mutex // guards the fields below
	lanes []*lane    // of the flights, nil where there is an answer
	left  int        // how many are not
}

// take takes the flight of a lane along. One that has no writer to number it goes by
// itself: to get one may take long.
func (t *trip) take(l *lane) {
	f := l.freeze(t)
	switch {
	case f == nil:
	case l.writer == 0 || l.stale || l.pulse.ctx.Err() != nil:
		go l.insist(f, errUnsent)
	default:
		l.assign(f)
		f.sent = true
		t.flights, t.lanes, t.left = append(t.flights, f), append(t.lanes, l), t.left+1
		f.depart()
		t.batches, t.replies = append(t.batches, &f.batches[0]), append(t.replies, &f.replies[0])
	}
}

// fly sends the flights.
func (t *trip) fly() {
	n := t.train.node
	t.watch = time.AfterFunc(n.options.Patience/2, t.doubt)
	if n.carrier == nil { // Then there is one flight.
		f := t.flights[0]
		t.done(0, n.under.Apply(t.ctx, f.batches[:], f.replies[:]))
		return
	}
	defer time.AfterFunc(lateAfter, func() { t.train.relieve(t) }).Stop()
	n.carrier.Carry(t.ctx, t.batches, t.replies, t.done)
}

// doubt puts the partitions in doubt that have not answered yet.
func (t *trip) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lanes {
		if l != nil {
			l.pulse.doubt(t.begun, nil)
		}
	}
}

// done takes the answer to a flight. One that was not applied goes on by itself.
func (t *trip) done(i int, err error) {
	f := t.flights[i]
	if err == nil {
		err = f.replies[0].Err
	}
	f.arrive(err)
	t.mu.Lock()
	t.lanes[i] = nil
	if t.left--; t.left == 0 {
		t.cancel()
		t.watch.Stop()
	}
	t.mu.Unlock()
	if err != nil {
		go f.lane.insist(f, err)
		return
	}
	f.lane.acknowledged(f)
	f.lane.ended(f, nil)
}
