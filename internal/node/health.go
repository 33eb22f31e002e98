package node

import (
	"context"
	"iter"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// A pulse is whether one partition of the store answers. It is judged in the
// background, so that callers neither wait to find out nor have to try.
//
// A call that fails, or takes longer than half of Options.Patience, puts the
// partition in doubt. From then on it is probed until it answers: with a call of
// its own, so a slow write is not taken for a partition that hangs. If there was
// no answer for as long as Patience, the partition is down: what is queued for it
// and whoever comes is refused at once, until a probe or a write is answered.
type pulse struct {
	node      *Node
	partition int
	calls     chan struct{} // holds the calls under way that are not combined
	room      room          // for those that are
	fence     fence         // of them

	ctx    context.Context // of the batches on their way; ends when the node gives them up
	cancel context.CancelFunc

	down    atomic.Pointer[failure] // why it takes no writes, or nil
	deaf    atomic.Pointer[failure] // why it can't be read either, or nil
	doubted atomic.Bool             // it is in doubt, or down: written under mu

	mu      sync.Mutex    // guards the fields below
	since   time.Time     // the doubt began
	err     error         // what happened then, nil if it is only late
	up      chan struct{} // closed at the end of the doubt
	probing bool
}

// A failure is that a partition does not answer.
type failure struct {
	store string // what to call it
	since time.Time
	err   error // the last one
}

func (f *failure) unavailable() error {
	return store.Errorf(store.KindUnavailable, "%s is unreachable since %s: %w", f.store, f.since.UTC().Format(time.RFC3339), f.err)
}

// How often a partition in doubt is probed: at first, and at most.
const (
	probeFirst = 50 * time.Millisecond
	probeEvery = 500 * time.Millisecond
)

// refused returns why nothing is sent to the partition, or nil. Reading tells
// whether what is to be sent changes nothing.
func (p *pulse) refused(reading bool) error {
	f := p.down.Load()
	if reading {
		f = p.deaf.Load()
	}
	if f == nil {
		return nil
	}
	return f.unavailable()
}

// watch notices if a call that begins now takes long. It returns what ends that.
func (p *pulse) watch() (stop func() bool) {
	began := time.Now()
	return time.AfterFunc(p.node.options.Patience/2, func() { p.doubt(began, nil) }).Stop
}

// failed takes notice of a call that failed if that puts the partition in doubt. A
// call that its caller cut short does not: if it took long, that was noticed.
func (p *pulse) failed(err error) {
	if store.KindOf(err) == store.KindUnavailable {
		p.doubt(time.Now(), err)
	}
}

// doubt begins to probe the partition, and returns what is closed when it answers.
// The doubt is as old as the first call that was not answered.
func (p *pulse) doubt(since time.Time, err error) (up <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.doubted.Load() {
		p.since, p.err, p.up = since, nil, make(chan struct{})
		p.doubted.Store(true)
	}
	if err != nil {
		p.err = err
	}
	if !p.probing && p.node.ctx.Err() == nil {
		p.probing = true
		go p.probe()
	}
	return p.up
}

// answered takes notice of a write or a probe that was answered.
func (p *pulse) answered() {
	if !p.doubted.Load() { // Fast path.
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.doubted.Load() {
		return
	}
	p.doubted.Store(false)
	p.deaf.Store(nil)
	close(p.up)
	if p.down.Swap(nil) != nil {
		p.node.outage.end(p.node.options.Logger)
	}
}

// back returns what is closed when the partition answers again, nil if it is not
// down.
func (p *pulse) back() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down.Load() == nil {
		return nil
	}
	return p.up
}

// probe probes the partition until it is not in doubt any more.
func (p *pulse) probe() {
	n := p.node
	for d := probeFirst; ; d = min(2*d, probeEvery) {
		if write, read := p.try(); write == nil {
			p.answered()
		} else {
			p.judge(write, read)
		}
		p.mu.Lock()
		p.probing = p.doubted.Load() && n.ctx.Err() == nil
		more, up, left := p.probing, p.up, n.options.Patience-time.Since(p.since)
		p.mu.Unlock()
		if !more {
			return
		}
		if left > 0 { // so that it is not judged late
			d = min(d, left)
		}
		pause(n.ctx, d, up)
	}
}

// try probes the partition once, and returns why it takes no writes, and why it
// can't be read. It gives up in time whatever the store does with its context.
func (p *pulse) try() (write, read error) {
	n := p.node
	ctx, cancel := context.WithTimeout(store.Unheard(n.ctx), n.options.Patience/2)
	defer cancel()
	writes, reads := make(chan error, 1), make(chan error, 1)
	go func() {
		cell := store.ProbeCell(p.partition, n.traits.Partitions)
		reads <- n.under.Read(ctx, []store.Cell{cell}, make([]store.Value, 1))
	}()
	if n.options.ReadOnly {
		read = awaited(ctx, reads)
		return read, read
	}
	go func() { writes <- store.Probe(ctx, n.under, p.partition) }()
	if write = awaited(ctx, writes); write != nil {
		read = awaited(ctx, reads)
	}
	return write, read
}

// awaited returns what comes, or that nothing did in time.
func awaited(ctx context.Context, c <-chan error) error {
	select {
	case err := <-c:
		if err == nil || ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}
	return store.Errorf(store.KindUnavailable, "the store does not answer")
}

// judge takes notice of a probe that failed. If the doubt is old enough, the
// partition is down.
func (p *pulse) judge(write, read error) {
	n := p.node
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil { // what became of a call says more than what became of a probe
		p.err = write
	}
	if !p.doubted.Load() || time.Since(p.since) < n.options.Patience {
		return
	}
	f := &failure{n.named(p.partition), p.since, p.err}
	was := p.down.Swap(f)
	if read != nil {
		p.deaf.Store(&failure{f.store, p.since, read})
	} else {
		p.deaf.Store(nil)
	}
	if was != nil {
		return
	}
	n.outage.begin(n.options.Logger, f)
	for l := range p.lanes() {
		l.refuse(f.unavailable())
	}
	n.life.Lock()
	closed := n.closed
	n.life.Unlock()
	if closed {
		p.giveUp()
	}
}

// giveUp ends what is under way: the node is closed, and there is no time to wait for
// an answer.
func (p *pulse) giveUp() {
	p.cancel()
	for l := range p.lanes() {
		l.mu.Lock()
		if l.trip != nil {
			l.trip.cancel()
		}
		l.mu.Unlock()
	}
}

// lanes returns those of the partition.
func (p *pulse) lanes() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for i := range p.node.lanes {
			if l := &p.node.lanes[i]; l.pulse == p && !yield(l) {
				return
			}
		}
	}
}

// named returns what to call a partition.
func (n *Node) named(partition int) string {
	if n.traits.Partitions == 1 {
		return "the store"
	}
	return "partition " + strconv.Itoa(partition) + " of the store"
}

// Probe returns nil if a partition takes writes, and otherwise why not: at once if
// it is known to be down.
func (n *Node) Probe(ctx context.Context, partition int) error {
	if err := n.begin(ctx); err != nil {
		return err
	}
	defer n.running.Done()
	p := &n.pulses[partition]
	if err := p.refused(n.options.ReadOnly); err != nil {
		return err
	}
	select {
	case <-p.doubt(time.Now(), nil):
		return nil
	case <-ctx.Done():
	}
	if err := p.refused(n.options.ReadOnly); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubted.Load() && p.err != nil {
		return p.err
	}
	return store.Errorf(store.KindUnavailable, "%s has not answered yet: %w", n.named(partition), ctx.Err())
}

// tellEvery is how often the log is told of an outage at most. It is longer than
// logs hold back what they have just said.
const tellEvery = 15 * time.Second

// An outage is that some partitions are down, as the log is told of it: when the
// first goes, and when the last is back.
type outage struct {
	down atomic.Int32 // partitions; written under mu

	mu    sync.Mutex // guards the fields below
	since time.Time  // the first of them is
	told  bool       // the log knows
	last  time.Time  // when it was told so
}

// begin takes notice of a partition that is down.
func (o *outage) begin(log *slog.Logger, f *failure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down.Add(1) == 1 {
		o.since = f.since
	}
	if now := time.Now(); !o.told && (o.last.IsZero() || now.Sub(o.last) >= tellEvery) {
		o.told, o.last = true, now
		log.Warn("the store is unreachable", "what", f.store, "since", f.since.UTC(), "error", f.err)
	}
}

// end takes notice of one that is back.
func (o *outage) end(log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down.Add(-1) > 0 || !o.told {
		return
	}
	o.told = false
	log.Info("the store is back", "away", time.Since(o.since).Round(time.Millisecond))
}
