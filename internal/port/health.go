package port

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

// A Health is which partitions of its store a DB can use now.
type Health struct {
	Partitions int
	Down       []int // those that take no writes or, if the DB is read-only, can't be read
	Err        error // why the first of them does not, nil if all are well
}

// Health finds out which partitions of the store can be used. It goes all the way
// that a write or a read goes, but waits no longer than half a second: a partition
// that has not answered by then is down. Callers that ask at the same time share one
// look at the store, so that it has little to do for those who ask often.
func (p *Port) Health(ctx context.Context) Health {
	if p.err != nil {
		return Health{Partitions: p.traits.Partitions, Err: p.err}
	}
	c := p.checkup()
	select {
	case <-c.done:
		return c.health
	case <-ctx.Done():
		return Health{Partitions: p.traits.Partitions, Err: ctx.Err()}
	}
}

// A checkup is one look at all partitions of the store.
type checkup struct {
	done   chan struct{} // closed when health is there
	health Health
}

// checkups are the looks at the store: there is one at a time.
type checkups struct {
	mu  sync.Mutex // guards now
	now *checkup   // under way, or nil
}

// checkup returns the look at the store that is under way, and otherwise begins one.
// Nobody who gives up takes it away from the others.
func (p *Port) checkup() *checkup {
	p.checkups.mu.Lock()
	defer p.checkups.mu.Unlock()
	if c := p.checkups.now; c != nil {
		return c
	}
	c := &checkup{done: make(chan struct{})}
	p.checkups.now = c
	go func() {
		c.health = p.lookAt()
		p.checkups.mu.Lock()
		p.checkups.now = nil
		p.checkups.mu.Unlock()
		close(c.done)
	}()
	return c
}

// lookAt looks at all partitions of the store.
func (p *Port) lookAt() Health {
	h := Health{Partitions: p.traits.Partitions}
	ctx, cancel := context.WithTimeout(store.Unheard(context.Background()), healthWait)
	defer cancel()
	late := time.NewTimer(healthWait + healthWait/4) // so that those can say why who heed their context
	defer late.Stop()
	type answer struct {
		partition int
		err       error
	}
	answers := make(chan answer, h.Partitions) // with room, since nobody waits for the late ones
	for i := range h.Partitions {
		go func() { answers <- answer{i, p.probe(ctx, i)} }()
	}
	errs := make([]error, h.Partitions)
	for i := range errs {
		errs[i] = store.Errorf(store.KindUnavailable, "the store does not answer")
	}
	for range h.Partitions {
		select {
		case a := <-answers:
			errs[a.partition] = a.err
			continue
		case <-late.C:
		}
		break
	}
	for i, err := range errs {
		if err != nil {
			h.Down = append(h.Down, i)
			h.Err = cmp.Or(h.Err, err)
		}
	}
	p.unreachable.Store(int64(len(h.Down)))
	return h
}

// Ready returns nil if at least one partition can be used, and otherwise why not.
func (h Health) Ready() error {
	if len(h.Down) < h.Partitions && len(h.Down) > 0 {
		return nil
	}
	return h.Err
}

// healthWait is how long Health waits for a partition.
const healthWait = 500 * time.Millisecond

// probe finds out whether a partition can be written to, or read.
func (p *Port) probe(ctx context.Context, partition int) error {
	if p.readOnly {
		return p.store.Read(ctx, []store.Cell{store.ProbeCell(partition, p.traits.Partitions)}, make([]store.Value, 1))
	}
	return store.Probe(ctx, p.store, partition)
}
