package node_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A remote store does to flights what a test says.
type remote struct {
	*memstore.Store

	mu     sync.Mutex // guards the fields below
	sent   []store.Batch
	on     func(ctx context.Context, i int, apply func() error) error // the i-th time that a flight is sent
	others func(ctx context.Context, apply func() error) error        // any other call of Apply
	down   error                                                      // what Read returns

	hung func(ctx context.Context, partition int, call func() error) error // around every call, or nil
}

func (s *remote) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	apply := func() error { return s.Store.Apply(ctx, batches, replies) }
	s.mu.Lock()
	i, on, others, hung := len(s.sent), s.on, s.others, s.hung
	flight := ctx.Value(ownKey{}) != nil && batches[0].Writer != 0
	if flight {
		b := batches[0]
		b.Deltas = slices.Clone(b.Deltas)
		s.sent = append(s.sent, b)
	}
	s.mu.Unlock()
	switch {
	case hung != nil:
		return hung(ctx, batches[0].Partition, apply)
	case flight && on != nil:
		return on(ctx, i, apply)
	case !flight && others != nil:
		return others(ctx, apply)
	}
	return apply()
}

func (s *remote) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	s.mu.Lock()
	down, hung := s.down, s.hung
	s.mu.Unlock()
	read := func() error { return s.Store.Read(ctx, cells, values) }
	switch {
	case down != nil:
		return down
	case hung != nil:
		return hung(ctx, store.PartitionOf(cells[0], s.Traits().Partitions), read)
	}
	return read()
}

func (s *remote) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// A kit is a node over a remote store, in a bubble of synctest.
type kit struct {
	*testing.T
	remote *remote
	node   *node.Node
	ctx    context.Context
}

// run runs a test over a store of one partition, in a bubble. A lane is enough
// unless the options say more.
func run(t *testing.T, o node.Options, test func(k *kit)) {
	t.Helper()
	runOn(t, memstore.Options{}, o, test)
}

func runOn(t *testing.T, m memstore.Options, o node.Options, test func(k *kit)) {
	t.Helper()
	if o.Lanes == 0 {
		o.Lanes = 1
	}
	synctest.Test(t, func(t *testing.T) {
		k := &kit{T: t, remote: &remote{Store: memstore.New(m)}, ctx: t.Context()}
		k.node = k.open(o)
		test(k)
		k.shut(k.node)
	})
}

// open returns another node over the store.
func (k *kit) open(o node.Options) *node.Node {
	k.Helper()
	n := node.New(context.WithValue(k.ctx, ownKey{}, true), k.remote, o)
	return n
}

func (k *kit) shut(n *node.Node) {
	k.Helper()
	if err := n.Close(); err != nil {
		k.Errorf("Close: %v", err)
	}
}

func add(key string, n int64) store.Delta {
	return store.Delta{Cell: cell(key), Op: store.OpAdd, N: n}
}

func want(d store.Delta) store.Delta {
	d.Want = true
	return d
}

func once(d store.Delta, token string) store.Delta {
	d.Want = true
	d.Guard.Token, d.Guard.Digest = token, uint64(d.N)
	return d
}

// batch returns the batch of some deltas to cells of one partition.
func (k *kit) batch(ds ...store.Delta) store.Batch {
	return store.Batch{Partition: store.PartitionOf(ds[0].Cell, k.remote.Traits().Partitions), Deltas: ds}
}

func send(ctx context.Context, s store.Store, bs ...store.Batch) ([]store.Reply, error) {
	replies := make([]store.Reply, len(bs))
	err := s.Apply(ctx, bs, replies)
	return replies, err
}

// A call is one to Apply that may still be under way.
type call struct {
	k       *kit
	replies []store.Reply
	err     error
	done    chan struct{}
}

// begin starts a call, and returns when it waits for something.
func (k *kit) begin(ctx context.Context, bs ...store.Batch) *call {
	c := k.start(ctx, bs...)
	synctest.Wait()
	return c
}

func (k *kit) start(ctx context.Context, bs ...store.Batch) *call {
	c := &call{k: k, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.replies, c.err = send(ctx, k.node, bs...)
	}()
	return c
}

// late starts a call of one batch while a flight is at the store, and returns when
// it is queued.
func (k *kit) late(ds ...store.Delta) *call {
	c := k.start(k.ctx, k.batch(ds...))
	pass(time.Millisecond)
	return c
}

// do starts a call of one batch.
func (k *kit) do(ds ...store.Delta) *call { return k.begin(k.ctx, k.batch(ds...)) }

func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// results waits for the results of a call of one batch.
func (c *call) results() []store.Result {
	c.k.Helper()
	<-c.done
	if c.err != nil {
		c.k.Fatalf("Apply: %v", c.err)
	}
	if err := c.replies[0].Err; err != nil {
		c.k.Fatalf("Apply: refused with %v", err)
	}
	return c.replies[0].Results
}

// told checks everything but the versions of the results of a call.
func (c *call) told(want ...store.Result) {
	c.k.Helper()
	got := slices.Clone(c.results())
	for i := range got {
		got[i].Version = 0
	}
	if !slices.Equal(got, want) {
		c.k.Errorf("results %+v, want %+v", got, want)
	}
}

// fails waits for a call to fail with an error of a kind.
func (c *call) fails(kind store.Kind) {
	c.k.Helper()
	<-c.done
	if store.KindOf(c.err) != kind || c.err == nil {
		c.k.Errorf("error %v, want one of kind %d", c.err, kind)
	}
}

// each waits for a call whose batches end each by an error of its own, or nil.
func (c *call) each(errs ...error) {
	c.k.Helper()
	if <-c.done; c.err != nil {
		c.k.Errorf("error %v, want one for each batch", c.err)
	}
	for i, err := range errs {
		if !errors.Is(c.replies[i].Err, err) || errors.Is(c.replies[i].Err, store.ErrUnknown) != errors.Is(err, store.ErrUnknown) {
			c.k.Errorf("batch %d: %v, want %v", i, c.replies[i].Err, err)
		}
	}
}

// ends waits for a call to end by its context, having changed nothing.
func (c *call) ends(by error) {
	c.k.Helper()
	<-c.done
	if !errors.Is(c.err, by) || store.KindOf(c.err) == store.KindUnknown {
		c.k.Errorf("error %v, want %v", c.err, by)
	}
}

func (k *kit) value(key string) store.Value {
	k.Helper()
	v := make([]store.Value, 1)
	if err := k.node.Read(k.ctx, []store.Cell{cell(key)}, v); err != nil {
		k.Fatalf("Read: %v", err)
	}
	return v[0]
}

func (k *kit) holds(key string, n int64) {
	k.Helper()
	if v := k.value(key); v.N != n {
		k.Errorf("%q holds %d, want %d", key, v.N, n)
	}
}

// flights returns what was sent so far.
func (k *kit) flights() []store.Batch {
	k.remote.mu.Lock()
	defer k.remote.mu.Unlock()
	return slices.Clone(k.remote.sent)
}

// deltas returns the deltas of the i-th flight.
func (k *kit) deltas(i int) []store.Delta {
	k.Helper()
	fs := k.flights()
	if i >= len(fs) {
		k.Fatalf("flight %d of %d", i, len(fs))
	}
	return fs[i].Deltas
}

func (k *kit) meter(name string) float64 {
	k.Helper()
	found := -1.0
	k.node.Meters(func(n, _ string, value float64) {
		if n == name {
			found = value
		}
	})
	if found < 0 {
		k.Fatalf("no meter %q", name)
	}
	return found
}

// blocked holds the first flight at the store, with the add of a caller, until
// the function that is returned is called. What is queued meanwhile goes
// together.
func (k *kit) blocked() (release func()) {
	k.Helper()
	hold := make(chan struct{})
	from := len(k.flights())
	k.remote.set(func() {
		k.remote.on = func(ctx context.Context, i int, apply func() error) error {
			if i == from {
				select {
				case <-hold:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return apply()
		}
	})
	first := k.do(add("first", 1))
	return func() {
		close(hold)
		first.results()
		synctest.Wait()
	}
}

// failures makes the next flights fail, and lets later ones pass.
func (k *kit) failures(errs ...error) {
	from := len(k.flights())
	k.remote.set(func() {
		k.remote.on = func(_ context.Context, i int, apply func() error) error {
			if i-from < len(errs) {
				return errs[i-from]
			}
			return apply()
		}
	})
}

// away makes every call fail by an error, and flights by others first; nil ends it.
func (k *kit) away(err error, flights ...error) {
	from := len(k.flights())
	k.remote.set(func() {
		k.remote.down, k.remote.on, k.remote.others = err, nil, nil
		if err == nil {
			return
		}
		k.remote.on = func(_ context.Context, i int, _ func() error) error {
			if i-from < len(flights) {
				return flights[i-from]
			}
			return err
		}
		k.remote.others = func(context.Context, func() error) error { return err }
	})
}

// hang makes every call hang until it is cut short, or the function that is returned
// is called.
func (k *kit) hang() (release func()) { return k.hangPart(-1) }

// hangPart does the same with calls to one partition.
func (k *kit) hangPart(partition int) (release func()) {
	hold := make(chan struct{})
	wait := func(ctx context.Context, part int, apply func() error) error {
		if partition >= 0 && part != partition {
			return apply()
		}
		select {
		case <-hold:
			return apply()
		case <-ctx.Done():
			return store.Errorf(store.KindUnknown, "no answer: %w", ctx.Err())
		}
	}
	k.remote.set(func() {
		k.remote.hung = wait
	})
	return func() {
		k.remote.set(func() { k.remote.hung = nil })
		close(hold)
		synctest.Wait()
	}
}

// loseReplies lets the store do what the next flights say, and loses its answers.
func (k *kit) loseReplies(n int) {
	from := len(k.flights())
	k.remote.set(func() {
		k.remote.on = func(_ context.Context, i int, apply func() error) error {
			err := apply()
			if i-from < n {
				return store.ErrUnknown
			}
			return err
		}
	})
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }
