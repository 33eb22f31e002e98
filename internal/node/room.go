package node

import (
	"container/list"
	"context"
	"sync"

	"github.com/quipudb/quipu/store"
)

// A room is how much may wait. Those who find it full get in in their order.
type room struct {
	deltasMax, bytesMax int

	mu            sync.Mutex // guards the fields below
	deltas, bytes int        // taken
	waiting       list.List  // of *guest
}

// A guest waits for room.
type guest struct {
	deltas, bytes int
	in            chan struct{} // closed when it is
}

// take waits for room for so much. What is larger than the room takes all of it.
func (r *room) take(ctx context.Context, deltas, bytes int) error {
	deltas, bytes = r.fit(deltas, bytes)
	r.mu.Lock()
	if r.waiting.Len() == 0 && r.fits(deltas, bytes) { // Fast path: there is room.
		r.deltas += deltas
		r.bytes += bytes
		r.mu.Unlock()
		return nil
	}
	g := &guest{deltas: deltas, bytes: bytes, in: make(chan struct{})}
	at := r.waiting.PushBack(g)
	r.mu.Unlock()
	select {
	case <-g.in:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-g.in: // just so
		return nil
	default:
	}
	r.waiting.Remove(at)
	r.admit() // those behind it may be smaller
	return store.Errorf(store.KindUnavailable, "the queue is full: %w", ctx.Err())
}

// give gives back what was taken.
func (r *room) give(deltas, bytes int) {
	deltas, bytes = r.fit(deltas, bytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deltas -= deltas
	r.bytes -= bytes
	r.admit()
}

func (r *room) fit(deltas, bytes int) (int, int) {
	return min(deltas, r.deltasMax), min(bytes, r.bytesMax)
}

func (r *room) fits(deltas, bytes int) bool {
	return r.deltas+deltas <= r.deltasMax && r.bytes+bytes <= r.bytesMax
}

// admit lets those in who have waited longest, as far as there is room.
func (r *room) admit() {
	for at := r.waiting.Front(); at != nil; at = r.waiting.Front() {
		g := at.Value.(*guest)
		if !r.fits(g.deltas, g.bytes) {
			return
		}
		r.waiting.Remove(at)
		r.deltas += g.deltas
		r.bytes += g.bytes
		close(g.in)
	}
}

// taken returns how many deltas there are.
func (r *room) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deltas
}
