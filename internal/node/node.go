// Package node lets many servers share one store.
//
// A Node is a store.Store on top of a store.Store that other processes use too.
// It keeps no state of its own that matters: the store has everything that the
// node has acknowledged. A node does two things.
//
// It combines writes. While a batch is under way to the store, it collects the
// writes of other callers and then sends them as one batch. So the store gets
// only as many batches as it can handle, however many callers there are.
//
// It repeats batches. A combined batch has a number of the node's own writer,
// and is sent again, unchanged, until there is a definite answer. So a caller
// that waits learns the outcome of its write even if a connection broke.
//
// DESIGN.md says why this is correct.
package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

// Options are the settings of a node. The zero value of a field means its
// default.
type Options struct {
	// Lanes is how many batches may be on their way at once to a store of one
	// partition; default 4. One lane combines all that can share a batch, the others
	// are for what can't. A store of more partitions has a lane for each.
	Lanes int

	// Calls is how many calls may be at a partition at once with what is not
	// combined: batches that are numbered already or have conditions; default 64.
	Calls int

	// QueueDeltas and QueueBytes bound what waits in the node or is on its way;
	// default 100,000 and 64 MiB. Each partition has an equal share, so that one that
	// does not answer takes no room from others. When it is full, callers wait for
	// room as long as their contexts last.
	QueueDeltas int
	QueueBytes  int

	// AttemptTimeout is when a batch that was not answered is sent again;
	// default 5 s.
	AttemptTimeout time.Duration

	// Patience is for how long a partition may fail to answer, counted from when the
	// call began, before those who wait and new callers are refused as unavailable,
	// without waiting any longer; default 1 s.
	Patience time.Duration

	// CloseTimeout is how long Close tries to send what is queued; default 2 s.
	CloseTimeout time.Duration

	// ReadOnly says that nothing is written: a partition that can be read is well.
	ReadOnly bool

	// Logger is told when the store can't be reached, and when it can again; by
	// default nobody is.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Lanes = cmp.Or(o.Lanes, 4)
	o.Calls = cmp.Or(o.Calls, 64)
	o.QueueDeltas = cmp.Or(o.QueueDeltas, 100_000)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, 5*time.Second)
	o.Patience = cmp.Or(o.Patience, time.Second)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, 2*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// A Node is a store around a store that others share. It is safe for concurrent
// use.
type Node struct {
	under   store.Store
	traits  store.Traits
	limits  store.Limits // those of the traits, with defaults
	options Options
	carrier store.Carrier // under, or nil if it is none
	lanes   []lane        // by partition; of one partition, as many as the options say
	trains  []train       // by lane, or by the route of its partition if the store is a carrier
	pulses  []pulse       // by partition

	ctx     context.Context // ends when the node gives up
	cancel  context.CancelFunc
	running sync.WaitGroup // calls, and lanes with work

	life   sync.Mutex // guards closed
	closed bool

	enlisting chan struct{} // has one element while a lane uses writer
	writer    store.Writer  // the last that was enlisted

	freeEntries sync.Pool // of *entry
	freeFlights sync.Pool // of *flight
	outage      outage
	meters
}

var (
	_ store.Store       = (*Node)(nil)
	_ store.Auditor     = (*Node)(nil)
	_ store.Meter       = (*Node)(nil)
	_ store.Namespacer  = (*Node)(nil)
	_ store.Prober      = (*Node)(nil)
	_ store.Clock       = (*Node)(nil)
	_ store.Sizer       = (*Node)(nil)
	_ store.Snapshotter = (*Node)(nil)
	_ store.Witness     = (*Node)(nil)
)

// New returns a node over a store, which it closes when it is closed. What it does
// by itself has the values of ctx. It writes nothing before a caller does.
func New(ctx context.Context, s store.Store, o Options) *Node {
	o = o.withDefaults()
	n := &Node{
		under:     s,
		traits:    s.Traits(),
		limits:    s.Traits().Limits.WithDefaults(),
		options:   o,
		enlisting: make(chan struct{}, 1),
	}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.freeEntries.New = func() any { return &entry{done: make(chan struct{}, 1)} }
	n.freeFlights.New = func() any { return new(flight) }
	n.lanes = make([]lane, n.traits.Partitions)
	if n.traits.Partitions == 1 {
		n.lanes = make([]lane, o.Lanes)
	}
	n.pulses = make([]pulse, n.traits.Partitions)
	for i := range n.pulses {
		p := &n.pulses[i]
		p.node, p.partition, p.calls = n, i, make(chan struct{}, o.Calls)
		p.ctx, p.cancel = context.WithCancel(n.ctx)
		p.room.deltasMax, p.room.bytesMax = max(o.QueueDeltas/len(n.pulses), 1), max(o.QueueBytes/len(n.pulses), 1)
	}
	n.carrier, _ = s.(store.Carrier)
	n.trains = make([]train, len(n.lanes))
	for i := range n.lanes {
		t, l := &n.trains[i], &n.lanes[i]
		t.node, t.all = n, make(chan struct{}, 1)
		l.node, l.number, l.runs = n, i, make(map[runKey]int)
		if n.traits.Partitions > 1 {
			l.partition = i
		}
		l.pulse = &n.pulses[l.partition]
	}
	return n
}

// Apply applies each batch. Those that are not numbered and have no conditions
// are combined with those of other callers.
func (n *Node) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "apply %d batches into %d replies", len(batches), len(replies))
	}
	if err := n.begin(ctx); err != nil {
		return err
	}
	defer n.running.Done()
	ctx, span := n.span(ctx, "apply")
	err := n.apply(ctx, batches, replies)
	end(span, err)
	return err
}

// apply applies batches, those that go one way after those that go the other.
func (n *Node) apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	// The batches of a call are applied in their order, so what goes one way waits
	// for what goes the other.
	for from := 0; from < len(batches); {
		through, to := passes(&batches[from]), from+1
		for to < len(batches) && passes(&batches[to]) == through {
			to++
		}
		send := n.combine
		if through {
			send = n.pass
		}
		if err := send(ctx, batches[from:to], replies[from:to]); err != nil {
			return stopped(err, replies, from, to)
		}
		from = to
	}
	return nil
}

// stopped returns what to say of a call that stopped at some of its batches: those
// before were answered, and those after were not sent.
func stopped(err error, replies []store.Reply, from, to int) error {
	errs := make([]error, len(replies))
	for i := from; i < len(errs); i++ {
		errs[i] = err
		if i >= to && store.KindOf(err) == store.KindUnknown {
			errs[i] = store.Errorf(store.KindUnavailable, "not sent, after a batch whose outcome is unknown: %w", err)
		}
	}
	return store.Answer(errs, replies)
}

// begin enters a call, or says why it can't be served.
func (n *Node) begin(ctx context.Context) error {
	n.life.Lock()
	defer n.life.Unlock()
	if n.closed {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n.running.Add(1)
	return nil
}

// passes reports whether a batch goes to the store as it is. One that retires
// writers does, because it may retire those of the node.
func passes(b *store.Batch) bool {
	if b.Writer != 0 || len(b.If) > 0 || len(b.Floors) > 0 || len(b.Deltas) == 0 {
		return true
	}
	for i := range b.Deltas {
		if b.Deltas[i].Op == store.OpRetire {
			return true
		}
	}
	return false
}

// pass gives batches to the store as they are, those of each partition by
// themselves.
func (n *Node) pass(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	return store.Apart(batches, replies, func(some []store.Batch, told []store.Reply) error {
		return n.pulseOf(some[0].Partition).pass(ctx, some, told)
	})
}

// pulseOf returns the pulse of a partition, and any if there is no such partition:
// the store says so.
func (n *Node) pulseOf(partition int) *pulse {
	if partition < 0 || partition >= len(n.pulses) {
		partition = 0
	}
	return &n.pulses[partition]
}

// pass gives batches of the partition to the store as they are.
func (p *pulse) pass(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	n := p.node
	changes := slices.ContainsFunc(batches, func(b store.Batch) bool { return b.Changes() })
	if err := p.refused(!changes); err != nil {
		return err
	}
	select {
	case p.calls <- struct{}{}:
	case <-ctx.Done():
		return store.Errorf(store.KindUnavailable, "too many calls are under way: %w", ctx.Err())
	case <-p.ctx.Done():
		return store.ErrClosed
	}
	defer func() { <-p.calls }()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	defer p.watch()()
	err := n.under.Apply(within, coarseBatches(batches), replies)
	p.failed(err)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil && store.KindOf(err) == store.KindOther {
		err = store.ErrClosed // the node gave up, not the caller
	}
	if err != nil {
		return err
	}
	for i := range replies {
		fineResults(replies[i].Results)
	}
	return nil
}

// combine queues batches in the lanes they belong to and waits for the answers.
// The outcome of one says nothing of the others.
func (n *Node) combine(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	var fewEntered [1]*entry
	var fewErrs [1]error
	entered, errs := fewEntered[:], fewErrs[:]
	if len(batches) > 1 {
		entered, errs = make([]*entry, len(batches)), make([]error, len(batches))
	}
	lane := n.laneOf(batches)
	var call *store.Batch
	if len(batches) > 1 {
		call = &batches[0]
	}
	for i := range batches {
		b, r := &batches[i], &replies[i]
		*r = store.Reply{Results: r.Results[:0]}
		if r.Err = n.check(b); r.Err != nil {
			continue
		}
		var era uint64
		if era, r.Err = n.pulses[b.Partition].fence.admit(b); r.Err != nil {
			continue
		}
		l := lane
		if l == nil {
			l = &n.lanes[b.Partition]
		}
		entered[i], errs[i] = l.enter(ctx, b, r, call, era)
	}
	for i, e := range entered {
		if e != nil {
			errs[i] = e.wait(ctx)
		}
	}
	return store.Answer(errs, replies)
}

// laneOf returns the lane that all batches of a call take, so that they stay in their
// order, if the store has one partition; otherwise nil. What can share a flight takes
// the first lane. A call with a batch that needs a flight of its own takes one of the
// others: such flights combine nothing, so only side by side do they share a commit.
func (n *Node) laneOf(batches []store.Batch) *lane {
	if n.traits.Partitions > 1 {
		return nil
	}
	if others := len(n.lanes) - 1; others > 0 {
		for i := range batches {
			if isAlone(&batches[i]) {
				return &n.lanes[1+store.PartitionOf(batches[0].Deltas[0].Cell, others)]
			}
		}
	}
	return &n.lanes[0]
}

// check returns an error if the store would refuse a batch: then it must not be
// combined with others.
func (n *Node) check(b *store.Batch) error {
	if err := store.CheckBatch(b, n.traits.Partitions); err != nil {
		return err
	}
	if n.traits.Partitions == 1 {
		return nil
	}
	for i := range b.Deltas {
		if home := store.PartitionOf(b.Deltas[i].Cell, n.traits.Partitions); home != b.Partition {
			return store.Errorf(store.KindInvalid, "delta %d: its cell is in partition %d, the batch in %d", i, home, b.Partition)
		}
	}
	return nil
}

// read makes a call that reads from the partitions of some cells, or from all
// partitions if there are none, unless one of those can't be read.
func (n *Node) read(cells []store.Cell, call func() error) error {
	asked := n.pulses
	if len(cells) == 1 {
		p := store.PartitionOf(cells[0], len(n.pulses))
		asked = n.pulses[p : p+1]
	}
	if n.outage.down.Load() > 0 {
		if err := unreadable(n.pulses, asked, cells); err != nil {
			return err
		}
	}
	doubt := func(since time.Time, err error) {
		for i := range asked {
			asked[i].doubt(since, err)
		}
	}
	began := time.Now()
	defer time.AfterFunc(n.options.Patience/2, func() { doubt(began, nil) }).Stop()
	err := call()
	if store.KindOf(err) == store.KindUnavailable {
		if len(asked) == 1 {
			doubt(time.Now(), err)
		} else { // nobody knows of which it is
			doubt(time.Now(), nil)
		}
	}
	return err
}

// unreadable returns why some cells can't be read; or if there are none or one, the
// partitions that would be asked.
func unreadable(all, asked []pulse, cells []store.Cell) error {
	if len(cells) < 2 {
		for i := range asked {
			if err := asked[i].refused(true); err != nil {
				return err
			}
		}
	}
	for _, c := range cells {
		if err := all[store.PartitionOf(c, len(all))].refused(true); err != nil {
			return err
		}
	}
	return nil
}

// Read fills values[i] with the durable value of cells[i].
func (n *Node) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if len(cells) == 0 {
		return n.under.Read(ctx, cells, values)
	}
	n.looked(ctx, len(cells))
	ctx, span := n.span(ctx, "read")
	err := n.read(cells, func() error { return n.under.Read(ctx, cells, values) })
	end(span, err)
	if err != nil {
		return err
	}
	for i := range values {
		values[i].Version = fine(values[i].Version)
	}
	return nil
}

// Scan returns up to count cells of a namespace in key order.
func (n *Node) Scan(ctx context.Context, r store.Range, count int) (found []store.Entry, err error) {
	ctx, span := n.span(ctx, "scan")
	err = n.read(nil, func() error {
		found, err = n.under.Scan(ctx, r, count)
		return err
	})
	end(span, err)
	for i := range found {
		found[i].Value.Version = fine(found[i].Value.Version)
	}
	return found, err
}

// Lookup reports what is known of a token now.
func (n *Node) Lookup(ctx context.Context, c store.Cell, token string) (f store.Fate, err error) {
	ctx, span := n.span(ctx, "lookup")
	err = n.read([]store.Cell{c}, func() error {
		f, err = n.under.Lookup(ctx, c, token)
		return err
	})
	end(span, err)
	f.Result.Version = fine(f.Result.Version)
	return f, err
}

// Traits are those of the store under the node.
func (n *Node) Traits() store.Traits { return n.traits }

// Audit checks the store under the node. What it was found to have lost before is
// drift for as long as the node lives.
func (n *Node) Audit(ctx context.Context) (store.Audit, error) {
	under, ok := n.under.(store.Auditor)
	if !ok {
		return store.Audit{}, n.unsupported("keeps no record to check against")
	}
	a, err := under.Audit(ctx)
	if lost := n.lost.Load(); err == nil && lost > 0 {
		a.Drift = append(a.Drift, store.Drift{
			What: "times that the store had forgotten what it had acknowledged to this server", Have: strconv.FormatUint(lost, 10), Want: "0",
		})
	}
	return a, err
}

// NowMS returns the time of the store under the node, as far as that tells it.
func (n *Node) NowMS(c store.Cell) int64 {
	if s, ok := n.under.(store.Clock); ok {
		return s.NowMS(c)
	}
	return 0
}

// Size returns the number of cells of a namespace.
func (n *Node) Size(ctx context.Context, namespace string) (int64, error) {
	if s, ok := n.under.(store.Sizer); ok {
		var size int64
		err := n.read(nil, func() (err error) {
			size, err = s.Size(ctx, namespace)
			return err
		})
		return size, err
	}
	return 0, n.unsupported("can't count its keys")
}

// Namespaces returns up to count namespaces that have a cell, in order.
func (n *Node) Namespaces(ctx context.Context, after string, count int) ([]string, error) {
	if s, ok := n.under.(store.Namespacer); ok {
		var names []string
		err := n.read(nil, func() (err error) {
			names, err = s.Namespaces(ctx, after, count)
			return err
		})
		return names, err
	}
	return nil, n.unsupported("can't list its namespaces")
}

// Lost reports whether the change that gave a cell a version is missing, as far as
// the store under the node can tell. The adds of a run are one change to it.
func (n *Node) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	w, ok := n.under.(store.Witness)
	if !ok {
		lacks, _ := v.Lacks(version)
		return lacks, nil
	}
	v.Version >>= versionBits
	var lost bool
	err := n.read([]store.Cell{c}, func() (err error) {
		lost, err = w.Lost(ctx, c, (version-1)>>versionBits+1, v)
		return err
	})
	return lost, err
}

// Snapshot writes a consistent copy of the store under the node.
func (n *Node) Snapshot(ctx context.Context, w io.Writer) error {
	if s, ok := n.under.(store.Snapshotter); ok {
		return s.Snapshot(ctx, w)
	}
	return n.unsupported("can't copy itself")
}

func (n *Node) unsupported(why string) error {
	return store.Errorf(store.KindUnsupported, "the %s store %s", n.traits.Name, why)
}

// Close refuses new calls, sends what is queued as long as Options.CloseTimeout
// lets it, and closes the store. A partition that is down is not waited for. What could not be sent by then is told
// ErrClosed if it certainly changed nothing, and ErrUnknown otherwise. A second
// Close returns nil.
func (n *Node) Close() error {
	n.life.Lock()
	was := n.closed
	n.closed = true
	n.life.Unlock()
	if was {
		n.running.Wait()
		return nil
	}
	for i := range n.pulses {
		if p := &n.pulses[i]; p.down.Load() != nil {
			p.giveUp()
		}
	}
	enough := time.AfterFunc(n.options.CloseTimeout, n.cancel)
	n.running.Wait()
	enough.Stop()
	n.cancel()
	return n.under.Close()
}
