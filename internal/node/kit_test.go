package node_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A shelf is where a store stands: another can be put in its place.
type shelf struct{ *memstore.Store }

// A kit is a node over a store that does what a test says, in a bubble of synctest.
type kit struct {
	*testing.T
	hooks storetest.Hooks
	shelf *shelf
	store store.Store // what is on the shelf, behind the hooks
	node  *node.Node
	ctx   context.Context

	sent            storetest.Record // the flights
	flight, through []storetest.Hook // before flights, and before other calls of Apply
}

// isFlight reports whether a call is one by which a node sends what it has combined.
func isFlight(c *storetest.Call) bool {
	return c.Ctx.Value(ownKey{}) != nil && c.Batches[0].Writer != 0
}

func isOther(c *storetest.Call) bool { return !isFlight(c) }

// onFlights puts hooks before flights, in place of those that were there.
func (k *kit) onFlights(hooks ...storetest.Hook) {
	k.flight = hooks
	k.hook()
}

// onOthers puts hooks before other calls of Apply.
func (k *kit) onOthers(hooks ...storetest.Hook) {
	k.through = hooks
	k.hook()
}

func (k *kit) hook() {
	hooks := []storetest.Hook{storetest.If(isFlight, k.sent.Hook)}
	for _, h := range k.flight {
		hooks = append(hooks, storetest.If(isFlight, h))
	}
	for _, h := range k.through {
		hooks = append(hooks, storetest.If(isOther, h))
	}
	k.hooks.On(storetest.OnApply, hooks...)
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
		k := &kit{T: t, shelf: &shelf{memstore.New(m)}, ctx: t.Context()}
		k.store = storetest.Wrap(k.shelf, &k.hooks)
		k.hook()
		k.node = k.open(o)
		test(k)
		k.shut(k.node)
	})
}

// open returns another node over the store.
func (k *kit) open(o node.Options) *node.Node {
	k.Helper()
	n := node.New(context.WithValue(k.ctx, ownKey{}, true), k.store, o)
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
	return store.Batch{Partition: store.PartitionOf(ds[0].Cell, k.store.Traits().Partitions), Deltas: ds}
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
func (k *kit) flights() []store.Batch { return k.sent.Batches() }

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
	k.onFlights(storetest.Nth(0, 1, storetest.Hang(hold, store.KindOther)))
	first := k.do(add("first", 1))
	return func() {
		close(hold)
		first.results()
		synctest.Wait()
	}
}

// failures makes the next flights fail, and lets later ones pass.
func (k *kit) failures(errs ...error) { k.onFlights(inTurn(errs)...) }

// inTurn fails one call after the other.
func inTurn(errs []error) (hooks []storetest.Hook) {
	for _, err := range errs {
		hooks = append(hooks, storetest.Nth(0, 1, storetest.Fail(err)))
	}
	return hooks
}

// away makes every call fail by an error, and flights by others first.
func (k *kit) away(err error, flights ...error) {
	k.hooks.On(storetest.OnRead, storetest.Fail(err))
	k.onFlights(append(inTurn(flights), storetest.Fail(err))...)
	k.onOthers(storetest.Fail(err))
}

// back lets every call pass.
func (k *kit) back() {
	k.hooks.On(storetest.OnRead)
	k.onFlights()
	k.onOthers()
}

// hang makes every call hang until it is cut short, or the function that is returned
// is called.
func (k *kit) hang() (release func()) {
	return k.hangIf(func(*storetest.Call) bool { return true })
}

// hangPart does the same with calls to one partition.
func (k *kit) hangPart(partition int) (release func()) {
	return k.hangIf(func(c *storetest.Call) bool { return c.In(partition) })
}

func (k *kit) hangIf(match func(*storetest.Call) bool) (release func()) {
	hold := make(chan struct{})
	hang := storetest.If(match, storetest.Hang(hold, store.KindUnknown))
	k.hooks.On(storetest.OnRead, hang)
	k.hooks.On(storetest.OnApply, storetest.If(isFlight, k.sent.Hook), hang)
	return func() {
		k.hooks.On(storetest.OnRead)
		k.hook()
		close(hold)
		synctest.Wait()
	}
}

// loseReplies lets the store do what the next flights say, and loses its answers.
func (k *kit) loseReplies(n int) { k.onFlights(storetest.Nth(0, n, storetest.Lose(store.ErrUnknown))) }

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }
