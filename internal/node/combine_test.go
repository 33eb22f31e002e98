package node_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestIdleSendsAtOnce(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		for i := range int64(3) {
			k.do(want(add("a", 1))).told(store.Result{Outcome: store.Applied, Before: i, After: i + 1, Existed: i > 0})
		}
		if n := len(k.flights()); n != 3 {
			t.Errorf("%d flights, want 3", n)
		}
	})
}

func TestAddsOfOneCellAreOneDelta(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		release := k.blocked()
		var calls []*call
		for i := range 100 {
			d := add("a", 2)
			d.Want = i == 10 || i == 99
			calls = append(calls, k.do(d))
		}
		other := k.do(add("b", 7))
		down := k.do(want(add("a", -3)))
		release()

		ds := k.deltas(1)
		if len(ds) != 3 || ds[0] != want(add("a", 200)) || ds[1] != add("b", 7) || ds[2] != want(add("a", -3)) {
			t.Errorf("the store was given %+v", ds)
		}
		last := uint64(0)
		for i, c := range calls {
			r := store.Result{Outcome: store.Applied}
			if i == 10 || i == 99 {
				r.Before, r.After, r.Existed = int64(2*i), int64(2*i+2), true
			}
			c.told(r)
			if v := c.results()[0].Version; v <= last {
				t.Errorf("version %d after %d", v, last)
			} else {
				last = v
			}
		}
		other.told(store.Result{Outcome: store.Applied})
		down.told(store.Result{Outcome: store.Applied, Before: 200, After: 197, Existed: true})
		k.holds("a", 197)
		if v := k.value("a"); v.Version != down.results()[0].Version || v.Version <= last {
			t.Errorf("the cell is at version %d, the last change made %d, and the one before %d", v.Version, down.results()[0].Version, last)
		}
		if n := len(k.flights()); n != 2 {
			t.Errorf("%d flights, want 2", n)
		}
	})
}

// The first add of a run is the one that may make the cell.
func TestRunMakesTheCell(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		release := k.blocked()
		a, b, c := k.do(want(add("a", 0))), k.do(want(add("a", 1))), k.do(want(add("a", 0)))
		release()
		a.told(store.Result{Outcome: store.Applied})
		b.told(store.Result{Outcome: store.Applied, After: 1, Existed: true})
		c.told(store.Result{Outcome: store.Applied, Before: 1, After: 1, Existed: true})
		if n := len(k.deltas(1)); n != 1 {
			t.Errorf("%d deltas, want 1", n)
		}
	})
}

// Whoever was told a version and writes only at that one is refused if anyone
// changed the cell after it, be it in the same run.
func TestVersionsOfARun(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 5)).results()
		was := k.value("a").Version
		release := k.blocked()
		var calls []*call
		for range 3 {
			calls = append(calls, k.do(want(add("a", 1))))
		}
		release()
		at := func(version uint64) store.Delta {
			d := store.Delta{Cell: cell("a"), Op: store.OpSet, N: 100}
			d.Guard.Match, d.Guard.Version = true, version
			return d
		}
		for _, version := range []uint64{0, was, calls[0].results()[0].Version, calls[1].results()[0].Version} {
			k.do(at(version)).told(store.Result{Outcome: store.Changed})
			given := k.batch(add("a", 1))
			given.If = []store.Condition{{Cell: cell("a"), Version: version}}
			if c := k.begin(k.ctx, given); c.err != nil || store.KindOf(c.replies[0].Err) != store.KindChanged {
				t.Errorf("a condition on version %d: %v, %v", version, c.err, c.replies[0].Err)
			}
		}
		last := calls[2].results()[0].Version
		if found, err := k.node.Scan(k.ctx, store.Range{Namespace: "n", Prefix: "a"}, 9); err != nil || len(found) != 1 || found[0].Value.Version != last {
			t.Errorf("scan finds %+v, %v; the cell is at version %d", found, err, last)
		}
		b := k.batch(at(last), at(last))
		b.If = []store.Condition{{Cell: cell("a"), Version: last}}
		k.begin(k.ctx, b).told(store.Result{Outcome: store.Applied}, store.Result{Outcome: store.Changed})
		if b.If[0].Version != last || b.Deltas[0].Guard.Version != last {
			t.Errorf("the caller's batch was changed to %+v", b)
		}
		k.holds("a", 100)
	})
}

// What has a guard, or is not alone in its call, is not a part of a run.
func TestOnlyPlainAddsJoinRuns(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		release := k.blocked()
		bounded, expiring, absent := add("a", 1), add("a", 1), add("a", 1)
		bounded.Guard.Bound = &store.Bound{High: 100}
		expiring.Expiry, expiring.DeadlineMS = store.ExpirySet, math.MaxInt64
		absent.Guard.Exists = store.ExistsMust
		set := store.Delta{Cell: cell("a"), Op: store.OpSet, N: 10}
		calls := []*call{
			k.do(add("a", 1)), k.do(once(add("a", 1), "t")), k.do(bounded), k.do(expiring), k.do(absent),
			k.do(add("a", 1), add("a", 1)), k.begin(k.ctx, k.batch(add("a", 1)), k.batch(add("a", 1))), k.do(set), k.do(add("a", 1)),
		}
		release()
		for _, c := range calls {
			c.results()
		}
		if ds := k.deltas(1); len(ds) != 10 || ds[0].N != 2 {
			t.Errorf("the store was given %+v", ds)
		}
		k.holds("a", 10)
	})
}

// Overflow is refused for the one write alone.
func TestOverflowOfOne(t *testing.T) {
	f := func(at int64, outcomes []store.Outcome, after int64, ns ...int64) {
		t.Helper()
		run(t, node.Options{}, func(k *kit) {
			t.Helper()
			k.do(store.Delta{Cell: cell("a"), Op: store.OpSet, N: at}).results()
			release := k.blocked()
			var calls []*call
			for _, n := range ns {
				calls = append(calls, k.do(want(add("a", n))))
			}
			other := k.do(add("b", 1))
			release()
			other.told(store.Result{Outcome: store.Applied})
			var got []store.Outcome
			for _, c := range calls {
				r := c.results()[0]
				got = append(got, r.Outcome)
				if r.Outcome == store.Applied && r.Version == 0 || r.Outcome != store.Applied && r != (store.Result{Outcome: r.Outcome}) {
					t.Errorf("result %+v", r)
				}
			}
			if !slices.Equal(got, outcomes) {
				t.Errorf("%d and %d: outcomes %d, want %d", at, ns, got, outcomes)
			}
			k.holds("a", after)
			if n := k.meter("quipu_node_queue_deltas"); n != 0 {
				t.Errorf("%v deltas wait", n)
			}
		})
	}
	const yes, no = store.Applied, store.Overflow
	f(math.MaxInt64-2, []store.Outcome{yes, yes, no, no}, math.MaxInt64, 1, 1, 1, 1)
	f(math.MaxInt64-2, []store.Outcome{yes, no, yes, no}, math.MaxInt64, 1, 5, 1, 1)
	f(math.MinInt64+2, []store.Outcome{yes, no, yes}, math.MinInt64, -1, -2, -1)
	f(0, []store.Outcome{yes, no, no}, math.MaxInt64, math.MaxInt64, 1, math.MaxInt64) // the sum itself is too much
	f(0, []store.Outcome{yes, no, no}, math.MinInt64, math.MinInt64, -1, math.MinInt64)
	f(1, []store.Outcome{no, yes}, 1-math.MaxInt64, math.MaxInt64, -math.MaxInt64) // their sum would do
	f(math.MaxInt64, []store.Outcome{yes, yes}, math.MaxInt64, 0, 0)
}

// The adds of a refused run come before those that were queued meanwhile.
func TestRefusedRunComesFirst(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(store.Delta{Cell: cell("a"), Op: store.OpSet, N: math.MaxInt64 - 3}).results()
		release := k.blocked()
		var calls []*call
		for _, n := range []int64{1, 5, 2} {
			calls = append(calls, k.do(want(add("a", n))))
		}
		late := make(chan *call, 1)
		// While the run is refused, another comes.
		k.onFlights(storetest.Nth(0, 1, storetest.Before(func() { late <- k.late(want(add("a", -1))) })))
		release()
		calls = append(calls, <-late)
		for i, r := range []store.Result{
			{Outcome: store.Applied, Before: math.MaxInt64 - 3, After: math.MaxInt64 - 2, Existed: true},
			{Outcome: store.Overflow},
			{Outcome: store.Applied, Before: math.MaxInt64 - 2, After: math.MaxInt64, Existed: true},
			{Outcome: store.Applied, Before: math.MaxInt64, After: math.MaxInt64 - 1, Existed: true},
		} {
			calls[i].told(r)
		}
		if n := len(k.deltas(3)); n != 4 {
			t.Errorf("%d deltas, want 4", n)
		}
	})
}

// A run that a full namespace has no room for is refused to all.
func TestFull(t *testing.T) {
	runOn(t, memstore.Options{Limits: store.Limits{KeysMax: 1}}, node.Options{}, func(k *kit) {
		release := k.blocked() // takes the room
		a, b := k.do(add("a", 1)), k.do(want(add("a", 1)))
		again := k.do(want(add("first", 1)))
		release()
		a.told(store.Result{Outcome: store.Full})
		b.told(store.Result{Outcome: store.Full})
		again.told(store.Result{Outcome: store.Applied, Before: 1, After: 2, Existed: true})
	})
}

// What does not fit into one batch goes with the next, in order.
func TestLimitsOfAFlight(t *testing.T) {
	f := func(each, calls int, key string, flights ...int) {
		t.Helper()
		run(t, node.Options{}, func(k *kit) {
			t.Helper()
			release := k.blocked()
			var begun []*call
			for i := range calls {
				ds := make([]store.Delta, each)
				for j := range ds {
					ds[j] = want(add(key, int64(i)))
				}
				b := k.batch(ds...)
				b.Apart = true
				begun = append(begun, k.begin(k.ctx, b))
			}
			release()
			sum := int64(0)
			for i, c := range begun {
				for _, r := range c.results() {
					if r.Before != sum || r.After != sum+int64(i) {
						t.Fatalf("call %d: result %+v, want it to begin at %d", i, r, sum)
					}
					sum += int64(i)
				}
			}
			var got []int
			for _, b := range k.flights()[1:] {
				got = append(got, len(b.Deltas))
			}
			if !slices.Equal(got, flights) {
				t.Errorf("flights of %d deltas, want %d", got, flights)
			}
		})
	}
	f(4000, 5, "a", 8000, 8000, 4000)
	f(store.BatchDeltasMax, 2, "a", store.BatchDeltasMax, store.BatchDeltasMax)
	long := strings.Repeat("k", store.KeyBytesMax) // and the namespace: 8,176 fit
	f(4000, 5, long, 8000, 8000, 4000)
	f(5000, 3, long, 5000, 5000, 5000)
	f(1, 2500, "a", 3) // runs of 1,024
}

// A lane that had many runs at once has none of them left over.
func TestManyCells(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		for range 2 {
			release := k.blocked()
			calls := make([]*call, 4000)
			for i := range calls {
				calls[i] = k.start(k.ctx, k.batch(add(fmt.Sprint(i%2000), 1)))
			}
			synctest.Wait()
			release()
			for _, c := range calls {
				c.results()
			}
		}
		for i := range 2000 {
			k.holds(fmt.Sprint(i), 4)
		}
		if n := len(k.flights()); n != 4 {
			t.Errorf("%d flights, want 4", n)
		}
	})
}

func TestStrongestDurability(t *testing.T) {
	f := func(want store.Durability, asked ...store.Durability) {
		t.Helper()
		run(t, node.Options{}, func(k *kit) {
			t.Helper()
			release := k.blocked()
			var calls []*call
			for i, d := range asked {
				b := k.batch(add(fmt.Sprint(i/2), 1))
				b.Durability = d
				calls = append(calls, k.begin(k.ctx, b))
			}
			release()
			for _, c := range calls {
				c.results()
				if d := c.replies[0].Durability; d != store.Memory {
					t.Errorf("told %v, the store said %v", d, store.Memory)
				}
			}
			if d := k.flights()[1].Durability; d != want {
				t.Errorf("asked for %v, the store was asked for %v", asked, d)
			}
		})
	}
	f(store.Memory, store.Memory, store.Memory)
	f(store.Written, store.Memory, store.Written)
	f(store.Written, store.Written, store.Memory, store.Memory)
	f(store.Synced, store.Memory, store.Synced, store.Written)
	f(store.Synced, store.Memory, store.DurabilityDefault)
}

// Numbered batches, those with conditions and those that retire go past a lane
// that waits, each as it is.
func TestPassThrough(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		w, err := store.Enlist(k.ctx, k.store)
		if err != nil {
			t.Fatal(err)
		}
		release := k.blocked()
		numbered := k.batch(want(add("a", 1)))
		numbered.Writer, numbered.Seq = w, 7
		given := k.batch(want(add("a", 1)))
		given.If = []store.Condition{{Cell: cell("b")}}
		k.begin(k.ctx, numbered).told(store.Result{Outcome: store.Applied, After: 1})
		c := k.begin(k.ctx, numbered)
		c.told(store.Result{Outcome: store.Applied, After: 1, Replayed: true})
		if r := c.replies[0]; r.Mark != 7 || !r.Replayed {
			t.Errorf("reply %+v", r)
		}
		k.begin(k.ctx, given).told(store.Result{Outcome: store.Applied, Before: 1, After: 2, Existed: true})
		k.do(store.Delta{Op: store.OpRetire, N: int64(w)}).told(store.Result{Outcome: store.Applied})
		if c := k.begin(k.ctx, numbered); store.KindOf(c.replies[0].Err) != store.KindRetired {
			t.Errorf("a retired writer: %+v", c.replies[0])
		}
		queued := k.do(add("a", 1))
		if queued.over() {
			t.Errorf("the lane did not wait")
		}
		release()
		queued.results()
		if n := len(k.flights()); n < 2 {
			t.Errorf("%d flights", n)
		}
	})
}

// The batches of a call are applied in their order, whichever way they go, also
// if they begin with cells of different lanes.
func TestOrderOfACall(t *testing.T) {
	run(t, node.Options{Lanes: 8}, func(k *kit) {
		w, err := store.Enlist(k.ctx, k.store)
		if err != nil {
			t.Fatal(err)
		}
		release := k.blocked()
		var bs []store.Batch
		for i := range 40 {
			b := k.batch(add(fmt.Sprint(i), 1), want(add("sum", 1)))
			if i%4 == 1 {
				b.Writer, b.Prev, b.Seq = w, uint64(i), uint64(i+4)
				if i == 1 {
					b.Prev = 0
				}
			}
			bs = append(bs, b)
		}
		c := k.begin(k.ctx, bs...)
		release()
		c.results()
		for i, r := range c.replies {
			if r.Err != nil || r.Results[1].Before != int64(i) {
				t.Fatalf("batch %d: %+v", i, r)
			}
		}
	})
}

// A bad batch is refused alone, not with those it would have been combined with.
func TestBadBatchIsRefusedAlone(t *testing.T) {
	runOn(t, memstore.Options{Partitions: 8}, node.Options{}, func(k *kit) {
		release := k.blocked()
		good := k.do(add("first", 1))
		bad := []store.Batch{k.batch(add("first", 1), store.Delta{Cell: cell("first")}), k.batch(add("first", 1), add("", 1)), k.batch(add("first", 1))}
		for i := 0; len(bad[2].Deltas) == 1; i++ {
			if b := k.batch(add(fmt.Sprint(i), 1)); b.Partition != bad[2].Partition {
				bad[2].Deltas = append(bad[2].Deltas, b.Deltas...)
			}
		}
		c := k.begin(k.ctx, append(bad, k.batch(want(add("first", 1))))...)
		release()
		good.results()
		for i, r := range c.replies[:3] {
			if store.KindOf(r.Err) != store.KindInvalid || len(r.Results) != 0 {
				t.Errorf("bad batch %d: %+v", i, r)
			}
		}
		if r := c.replies[3]; c.err != nil || r.Err != nil || r.Results[0].After != 3 {
			t.Errorf("its good neighbour: %+v, %v", r, c.err)
		}
		if n := len(k.flights()); n != 2 {
			t.Errorf("%d flights, want 2", n)
		}
	})
}

// Each partition has its own lane, and all share a writer. Over one partition a lane
// combines what can be combined, and what can't is sent beside it.
func TestLanes(t *testing.T) {
	writers := func(k *kit) map[store.Writer]bool {
		release := k.blocked()
		for i := range 40 {
			k.do(add(fmt.Sprint(i), 1))
		}
		release()
		found := map[store.Writer]bool{}
		for _, b := range k.flights() {
			found[b.Writer] = true
		}
		return found
	}
	runOn(t, memstore.Options{Partitions: 8}, node.Options{}, func(k *kit) {
		if n := len(writers(k)); n != 1 {
			t.Errorf("%d writers for 8 partitions, want 1", n)
		}
	})
	run(t, node.Options{Lanes: 3}, func(k *kit) {
		if n := len(writers(k)); n != 1 {
			t.Errorf("%d writers for what can share a flight, want 1", n)
		}
		if n := len(k.flights()); n != 2 {
			t.Errorf("%d flights, want one and one for all who waited", n)
		}
	})
	run(t, node.Options{Lanes: 3}, func(k *kit) {
		release := k.blocked()
		var calls []*call
		for i := range 40 {
			calls = append(calls, k.do(want(add(fmt.Sprint(i), 1)), add("all", 1)))
		}
		found := map[store.Writer]bool{}
		for _, b := range k.flights() {
			found[b.Writer] = true
		}
		if len(found) != 3 {
			t.Errorf("%d flights at once, want that of the first lane, and two of those that fly alone", len(found))
		}
		release()
		for _, c := range calls {
			c.results()
		}
		k.holds("all", 40)
	})
}

// Callers who write one after the other gather in one flight, whatever they began
// with, as long as they keep coming back, and a lane waits for them no longer than it has to.
func TestLinger(t *testing.T) {
	f := func(name string, between, apart time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			run(t, node.Options{}, func(k *kit) {
				const callers, times, takes = 16, 50, 8 * time.Millisecond
				k.onFlights(storetest.Before(func() { pass(takes) }))
				began := time.Now()
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						pass(time.Duration(i) * time.Millisecond)
						for range times {
							if _, err := send(k.ctx, k.node, k.batch(add("a", 1))); err != nil {
								t.Error(err)
								return
							}
							pass(between + time.Duration(i)*apart) // They have something to do in between.
						}
					})
				}
				wg.Wait()
				k.holds("a", callers*times)
				// All of them together take a flight and what they do in between. If they were
				// two halves, they would take two flights.
				if took, most := time.Since(began), times*(takes+between+callers*apart)*5/4; took > most {
					t.Errorf("it took %v, and %d flights; want %v at most", took, len(k.flights()), most)
				}
			})
		})
	}
	f("at once", time.Millisecond, 0)
	f("one by one", time.Millisecond, 250*time.Microsecond)
}

// A caller who comes after others were answered is held up for half a flight at most if
// nobody follows, and for one flight at most if others keep coming.
func TestLingerEnds(t *testing.T) {
	f := func(name string, after time.Duration, followers int, most time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			run(t, node.Options{}, func(k *kit) {
				const takes = 8 * time.Millisecond
				k.onFlights(storetest.Before(func() { pass(takes) }))
				calls := []*call{k.do(add("a", 1))}
				for range 100 {
					calls = append(calls, k.do(add("a", 1)))
				}
				for _, c := range calls {
					c.results()
				}
				pass(after)
				began, last := time.Now(), k.do(add("a", 1))
				var wg sync.WaitGroup
				wg.Go(func() {
					for range followers {
						pass(500 * time.Microsecond)
						k.start(k.ctx, k.batch(add("a", 1)))
					}
				})
				last.results()
				if took := time.Since(began) - takes; took > most {
					t.Errorf("it was held up for %v, want %v at most", took, most)
				}
				wg.Wait()
			})
		})
	}
	f("nobody follows", time.Millisecond, 0, 4*time.Millisecond)
	f("others follow", time.Millisecond, 40, 8*time.Millisecond)
	f("nobody is waited for any more", time.Second, 40, 0)
}
