package node_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A carrier carries batches to servers that have four partitions each, and takes note of
// its trips.
type carrier struct {
	storetest.Keeper
	mu    sync.Mutex // guards trips
	trips [][]int    // the partitions of each
}

func carrying(s store.Store) *carrier {
	return &carrier{Keeper: s.(storetest.Keeper)}
}

func (*carrier) Route(partition int) int { return partition / 4 }

func (c *carrier) Carry(ctx context.Context, batches []*store.Batch, replies []*store.Reply, done func(i int, err error)) {
	var trip []int
	for _, b := range batches {
		trip = append(trip, b.Partition)
	}
	slices.Sort(trip)
	c.mu.Lock()
	c.trips = append(c.trips, trip)
	c.mu.Unlock()
	storetest.Carry(ctx, c.Keeper, batches, replies, done)
}

// since returns the trips since there were so many.
func (c *carrier) since(n int) [][]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.trips[n:])
}

// runCarried runs a test over a store of eight partitions on two servers. All lanes have
// their writers.
func runCarried(t *testing.T, test func(k *kit, c *carrier)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kit{T: t, shelf: &shelf{memstore.New(memstore.Options{Partitions: 8})}, ctx: t.Context()}
		c := carrying(storetest.Wrap(k.shelf, &k.hooks))
		k.store = c
		k.hook()
		k.node = k.open(node.Options{})
		for p := range 8 {
			k.do(in(p)).results()
		}
		test(k, c)
		k.shut(k.node)
	})
}

// in returns an add to a cell of a partition, of eight.
func in(partition int) store.Delta {
	for i := 0; ; i++ {
		if d := add("k"+strconv.Itoa(i), 1); store.PartitionOf(d.Cell, 8) == partition {
			return want(d)
		}
	}
}

// What waits for partitions that are on one server goes there together, each in a
// batch of its own, and not with what goes elsewhere.
func TestTrain(t *testing.T) {
	runCarried(t, func(k *kit, c *carrier) {
		release := k.hang()
		first := []*call{k.do(in(1)), k.do(in(6))}
		var calls []*call
		for p := range 8 {
			calls = append(calls, k.do(in(p)), k.do(in(p)))
		}
		before := len(c.since(0))
		release()
		for _, call := range append(first, calls...) {
			if r := call.results()[0]; r.Outcome != store.Applied {
				t.Errorf("result %+v", r)
			}
		}
		trips := c.since(before)
		slices.SortFunc(trips, slices.Compare)
		if len(trips) != 2 || !slices.Equal(trips[0], []int{0, 1, 2, 3}) || !slices.Equal(trips[1], []int{4, 5, 6, 7}) {
			t.Errorf("trips %v", trips)
		}
		for p := range 8 {
			n := int64(3)
			if p == 1 || p == 6 {
				n = 4
			}
			k.holds(in(p).Cell.Key, n)
		}
	})
}

// A batch that is not answered, or fails, holds up neither those on the same trip nor
// those that come after it.
func TestTrainLeavesOneBehind(t *testing.T) {
	f := func(name string, hold func(k *kit) (release func())) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			runCarried(t, func(k *kit, _ *carrier) {
				release := k.hang()
				first := k.do(in(0))
				held := k.do(in(1))
				beside := k.do(in(2))
				release()
				first.results()
				held.results()
				beside.results()

				let := hold(k)
				held = k.start(k.ctx, k.batch(in(1)))
				beside = k.start(k.ctx, k.batch(in(2)))
				begun := time.Now()
				beside.results()
				for range 3 {
					k.start(k.ctx, k.batch(in(2))).results()
					k.start(k.ctx, k.batch(in(3))).results()
				}
				if took := time.Since(begun); took > 300*time.Millisecond {
					t.Errorf("others took %v", took)
				}
				if held.over() {
					t.Error("what was held is over")
				}
				let()
				if r := held.results()[0]; r.Outcome != store.Applied || r.After != 3 {
					t.Errorf("what was held: %+v", r)
				}
			})
		})
	}
	f("hung", func(k *kit) func() { return k.hangPart(1) })
	f("failing", func(k *kit) func() {
		k.onFlights(func(c *storetest.Call) error {
			if c.In(1) {
				return store.ErrUnknown
			}
			return c.Pass()
		})
		return func() { k.onFlights() }
	})
}

// A node keeps the laws over a store that carries.
func TestLawsCarried(t *testing.T) {
	storetest.Run(t, func(t testing.TB, c storetest.Config) *storetest.Instance {
		return &storetest.Instance{Store: over(t, carrying(memory(8, c))), Probes: true}
	})
}
