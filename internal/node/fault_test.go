package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A flight is sent again, unchanged, until there is an answer, and counts once.
func TestFrozen(t *testing.T) {
	f := func(name string, fail func(k *kit)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			run(t, node.Options{}, func(k *kit) {
				release := k.blocked()
				calls := []*call{k.do(want(add("a", 1))), k.do(want(add("a", 1))), k.do(once(add("b", 1), "t")), k.do(add("c", 1), add("a", 1))}
				k.onFlights()
				fail(k)
				release()
				late := k.do(want(add("a", 10)))
				calls[0].told(store.Result{Outcome: store.Applied, After: 1})
				calls[1].told(store.Result{Outcome: store.Applied, Before: 1, After: 2, Existed: true})
				if r := calls[2].results()[0]; r.Outcome != store.Applied || r.After != 1 {
					t.Errorf("with a token: %+v", r)
				}
				calls[3].told(store.Result{Outcome: store.Applied}, store.Result{Outcome: store.Applied})
				for _, c := range calls {
					if r := c.replies[0]; r.Mark != 0 || r.Replayed {
						t.Errorf("a batch without a writer was told %+v", r)
					}
				}
				late.told(store.Result{Outcome: store.Applied, Before: 3, After: 13, Existed: true})
				sent := k.flights()
				for i := 2; i < 4; i++ {
					if !reflect.DeepEqual(sent[i], sent[1]) {
						t.Errorf("sent %+v, and then %+v", sent[1], sent[i])
					}
				}
				if n := k.meter("quipu_node_resends_total"); n != 2 {
					t.Errorf("%v resends, want 2", n)
				}
				if last := sent[len(sent)-1]; last.Prev != sent[1].Seq || last.Writer != sent[1].Writer {
					t.Errorf("(%d, %d] of writer %d follows (%d, %d] of writer %d",
						last.Prev, last.Seq, last.Writer, sent[1].Prev, sent[1].Seq, sent[1].Writer)
				}
			})
		})
	}
	f("not sent", func(k *kit) { k.failures(store.ErrUnavailable, store.ErrUnavailable) })
	f("answers lost", func(k *kit) { k.loseReplies(2) })
	f("unknown", func(k *kit) { k.failures(store.ErrUnknown, errors.New("reset by peer")) })
	hang := storetest.Hang(nil, store.KindOther)
	f("hung", func(k *kit) { k.onFlights(storetest.Nth(0, 2, hang)) })
	f("applied, and hung", func(k *kit) {
		k.onFlights(storetest.Nth(0, 2, func(c *storetest.Call) error { return errors.Join(c.Pass(), hang(c)) }))
	})
}

// Attempts come less and less often, and not at the same moments for all.
func TestBackOff(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		var at []time.Duration
		begun := time.Now()
		k.onFlights(storetest.Before(func() { at = append(at, time.Since(begun)) }), storetest.Nth(0, 12, storetest.Fail(store.ErrUnknown)))
		k.do(add("a", 1)).results()
		for i := 1; i < len(at); i++ {
			most := min(50*time.Millisecond<<(i-1), 2*time.Second)
			if pause := at[i] - at[i-1]; pause < most/2 || pause > most {
				t.Errorf("pause %d is %v, want %v to %v", i, pause, most/2, most)
			}
		}
	})
}

// What certainly did not reach the store is given up after a while, with nothing
// changed; then callers are refused at once, until a probe finds that the store is
// back.
func TestGivesUp(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1)).results()
		k.away(store.ErrUnavailable)
		begun := time.Now()
		k.do(add("a", 1)).fails(store.KindUnavailable)
		if took := time.Since(begun); took < time.Second || took > 3*time.Second {
			t.Errorf("given up after %v", took)
		}
		attempts := len(k.flights())
		for range 10 {
			pass(100 * time.Millisecond)
			begun := time.Now()
			if k.do(add("a", 1)).fails(store.KindUnavailable); time.Since(begun) != 0 {
				t.Errorf("refused after %v", time.Since(begun))
			}
		}
		if n := len(k.flights()); n != attempts {
			t.Errorf("%d attempts for callers who were to be refused at once", n-attempts)
		}
		k.back()
		pass(time.Second)
		if r := k.do(want(add("a", 1))).results()[0]; r.After != 2 {
			t.Errorf("result %+v, want 2: what was given up was applied", r)
		}
		k.do(add("a", 1)).results()
	})
}

// A flight that fails though the store answers is given up as well.
func TestGivesUpAlone(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1)).results()
		k.onFlights(storetest.Fail(store.ErrUnavailable))
		begun, attempts := time.Now(), len(k.flights())
		k.do(add("a", 1)).fails(store.KindUnavailable)
		if took := time.Since(begun); took < time.Second || took > 3*time.Second {
			t.Errorf("given up after %v", took)
		}
		if n := len(k.flights()) - attempts; n > 10 {
			t.Errorf("%d attempts", n)
		}
	})
}

// A writer that was retired while it had nothing on its way makes room for a new
// one, and nobody notices.
func TestRetired(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		runOn(t, memstore.Options{Partitions: partitions}, node.Options{}, func(k *kit) {
			for i := range int64(4) {
				c := k.do(want(add("a", 1)))
				if r := c.results()[0]; r.After != i+1 {
					t.Errorf("result %+v, want %d", r, i+1)
				}
				last := k.flights()[len(k.flights())-1]
				retire := store.Batch{Partition: last.Partition, Deltas: []store.Delta{{Op: store.OpRetire, N: int64(last.Writer)}}}
				k.begin(k.ctx, retire).results()
			}
			k.holds("a", 4)
			if n := k.meter("quipu_node_retired_total"); n != 3 {
				t.Errorf("%v were retired, want 3", n)
			}
			if c := k.do(add("b", 1)); !c.over() {
				t.Errorf("a new writer had to be waited for")
			}
		})
	}
}

// If it was retired while the outcome of a batch was unknown, it stays unknown:
// the batch must not go under another writer.
func TestRetiredInDoubt(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1)).results()
		w := k.flights()[0].Writer
		k.loseReplies(1)
		c := k.do(add("a", 1))
		if c.over() {
			t.Fatalf("told %v", c.err)
		}
		k.begin(k.ctx, k.batch(store.Delta{Op: store.OpRetire, N: int64(w)})).results()
		c.fails(store.KindUnknown)
		k.do(add("a", 1)).results()
		k.holds("a", 3)
	})
}

// A mark below what was acknowledged is lost data.
func TestLost(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		for range 3 {
			k.do(add("a", 1)).results()
		}
		k.shelf.Store = memstore.New(memstore.Options{})
		for range 9 { // whoever failed over there knows of other writers
			if _, err := store.Enlist(k.ctx, k.store); err != nil {
				t.Fatal(err)
			}
		}
		k.do(add("a", 1)).fails(store.KindLost)
		if n := k.meter("quipu_node_lost_total"); n != 1 {
			t.Errorf("lost %v times, want 1", n)
		}
		k.do(add("a", 1)).results()
		k.holds("a", 1)
	})
}

// A store may see the loss by itself.
func TestLostSaysTheStore(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.failures(store.Errorf(store.KindLost, "a failover"))
		k.do(add("a", 1)).fails(store.KindLost)
		k.do(add("a", 1)).results()
		k.holds("a", 1)
		if fs := k.flights(); fs[0].Writer == fs[1].Writer {
			t.Errorf("went on under writer %d", fs[0].Writer)
		}
	})
}

// Another that uses the node's writer takes nothing from it.
func TestTakenWriter(t *testing.T) {
	f := func(lose bool, value int64, kind store.Kind) {
		t.Helper()
		run(t, node.Options{}, func(k *kit) {
			t.Helper()
			k.do(add("a", 1)).results()
			other := k.flights()[0]
			other.Prev, other.Seq = 1, 5
			if lose {
				k.loseReplies(1)
				c := k.do(add("a", 1))
				other.Prev = 2
				k.begin(k.ctx, other).results()
				c.fails(kind)
			} else {
				k.begin(k.ctx, other).results()
				k.do(add("a", 1)).results()
			}
			k.do(add("a", 1)).results()
			k.holds("a", value)
		})
	}
	f(false, 4, store.KindOther)
	f(true, 4, store.KindUnknown)
}

// A partition that holds as many marks as it may forgets the oldest.
func TestNoRoomForAMark(t *testing.T) {
	runOn(t, memstore.Options{Limits: store.Limits{WritersMax: 4}}, node.Options{}, func(k *kit) {
		for i := range 10 {
			b := k.batch(add("a", 1))
			w, err := store.Enlist(k.ctx, k.store)
			if err != nil {
				t.Fatal(err)
			}
			b.Writer, b.Seq = w, 1
			if c := k.begin(k.ctx, b); i < 4 && c.replies[0].Err != nil {
				t.Fatal(c.replies[0].Err)
			}
		}
		k.do(want(add("a", 1))).told(store.Result{Outcome: store.Applied, Before: 4, After: 5, Existed: true})
		k.do(add("a", 1)).results()
		k.holds("a", 6)
	})
}

// What the store refuses as a whole, each caller is told.
func TestRefusedFlight(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.failures(store.Errorf(store.KindUnsupported, "not today"))
		c := k.do(add("a", 1))
		if <-c.done; c.err != nil || store.KindOf(c.replies[0].Err) != store.KindUnsupported || len(c.replies[0].Results) != 0 {
			t.Errorf("%v, %+v", c.err, c.replies[0])
		}
		k.failures(store.ErrUnknown, store.ErrTooLarge)
		k.do(add("a", 1)).fails(store.KindUnknown)
		k.failures(store.ErrClosed)
		k.do(add("a", 1)).fails(store.KindClosed)
		k.failures()
		k.do(add("a", 1)).results()
		k.holds("a", 1)
	})
}

// A flight that was refused leaves its lane the writer that it has: the partition that
// issues writers may be out of reach.
func TestRefusedKeepsWriter(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1)).results()
		k.onOthers(storetest.Fail(store.ErrUnavailable))
		k.failures(store.ErrSplit)
		c := k.do(add("a", 1))
		if <-c.done; c.err != nil || store.KindOf(c.replies[0].Err) != store.KindSplit {
			t.Errorf("%v, %+v", c.err, c.replies[0])
		}
		k.failures()
		k.do(add("a", 1)).results()
		k.onOthers()
		k.holds("a", 2)
	})
}

// While the store is away, callers are refused at once, and told why, those too who
// wait; when it comes back, what was frozen counts, once.
func TestDownAndUp(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1)).results()
		refused := store.Errorf(store.KindUnavailable, "connection refused")
		// What is frozen must be sent until there is an answer.
		k.away(refused, store.Errorf(store.KindUnknown, "cut off"))
		begun := time.Now()
		frozen := k.do(add("a", 1))
		pass(900 * time.Millisecond)
		queued := k.do(add("a", 1))
		if queued.over() {
			t.Errorf("a caller was told %v before patience was at its end", queued.err)
		}
		pass(1200 * time.Millisecond)
		queued.fails(store.KindUnavailable)
		late := k.do(add("a", 1))
		if !late.over() {
			t.Fatalf("a caller waits for a store that is away")
		}
		late.fails(store.KindUnavailable)
		if err := late.err; !strings.Contains(err.Error(), begun.UTC().Format(time.RFC3339)) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("told %v", err)
		}
		if n := k.meter("quipu_node_store_reachable"); n != 0 {
			t.Errorf("reachable: %v", n)
		}
		if err := k.node.Read(k.ctx, []store.Cell{cell("a")}, make([]store.Value, 1)); store.KindOf(err) != store.KindUnavailable {
			t.Errorf("read: %v", err)
		}
		if frozen.over() {
			t.Errorf("told %v", frozen.err)
		}
		k.back()
		frozen.results()
		k.holds("a", 2)
		if n := k.meter("quipu_node_store_reachable"); n != 1 {
			t.Errorf("reachable: %v", n)
		}
		k.do(add("a", 1)).results()
	})
}

// That a caller was in a hurry says nothing of the store.
func TestHasty(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		pass(time.Minute)
		if err := k.node.Read(short, []store.Cell{cell("a")}, make([]store.Value, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		if n := k.meter("quipu_node_store_reachable"); n != 1 {
			t.Errorf("reachable: %v", n)
		}
	})
}

// A lane can't begin without a writer, and waits for one.
func TestNoWriter(t *testing.T) {
	run(t, node.Options{Lanes: 2, Patience: time.Hour}, func(k *kit) {
		k.do(add("a", 1)).results()
		k.onOthers(storetest.Fail(store.ErrUnknown))
		c := k.do(want(add("b", 1)), add("c", 1)) // takes the other lane
		pass(time.Minute)
		if c.over() {
			t.Fatalf("told %v", c.err)
		}
		k.onOthers()
		c.results()

		k.onOthers(storetest.Fail(store.ErrClosed))
		k.failures(store.ErrLost)
		k.do(add("a", 1)).fails(store.KindLost)
		k.do(add("a", 1)).fails(store.KindClosed)
		k.onOthers()
	})
}

func TestReadsOnly(t *testing.T) {
	h := new(storetest.Hooks)
	n := node.New(t.Context(), storetest.Wrap(memstore.New(memstore.Options{}), h), node.Options{})
	if err := n.Read(t.Context(), []store.Cell{cell("a")}, make([]store.Value, 1)); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if h.Calls(storetest.OnWrite) != 0 {
		t.Error("one that only reads has written")
	}
}

// Two nodes, one token, at the same instant: one applies, and both get the same
// answer.
func TestOneTokenTwoNodes(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		nodes := []*node.Node{k.node, k.open(node.Options{Lanes: 1})}
		for i := range int64(100) {
			token, fresh := fmt.Sprint(i), atomic.Int64{}
			var wg sync.WaitGroup
			for g := range 6 {
				wg.Go(func() {
					rs, err := send(k.ctx, nodes[g%2], k.batch(once(add("a", 1), token)))
					if err != nil {
						t.Error(err)
						return
					}
					r := rs[0].Results[0]
					if !r.Replayed {
						fresh.Add(1)
					}
					if r.Outcome != store.Applied || r.Before != i || r.After != i+1 {
						t.Errorf("round %d: %+v", i, r)
					}
				})
			}
			wg.Wait()
			if fresh.Load() != 1 {
				t.Errorf("%d applied it", fresh.Load())
			}
		}
		k.holds("a", 100)
		k.onFlights()
		k.shut(nodes[1])
		// The store is closed with the first node that is closed: here it is memory.
	})
}

// A node that the store answered, and that is gone before it could say so: the
// retry through another returns the first result.
func TestRetryThroughAnotherNode(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		other := k.open(node.Options{})
		k.onFlights(storetest.Nth(0, 1, func(c *storetest.Call) error {
			_ = c.Pass()
			<-c.Ctx.Done()
			return store.ErrUnknown
		}))
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		b := k.batch(once(add("a", 5), "t"))
		k.begin(short, b).fails(store.KindUnknown)
		rs, err := send(k.ctx, other, b)
		if err != nil || rs[0].Results[0].After != 5 || !rs[0].Results[0].Replayed {
			t.Errorf("%+v, %v", rs, err)
		}
		k.holds("a", 5)
		pass(time.Minute)
		k.holds("a", 5)
		k.shut(other)
	})
}

// The laws hold over a store that now and then does not take a flight, or loses the
// answer. It does not lose a refusal, nor the answer to a flight with a token:
// the first may be all there is to be had later, and a repeat under a token and a
// repeat of the flight look alike.
func TestLawsOverAnUnreliableStore(t *testing.T) {
	often := &dice{rng: rand.New(rand.NewPCG(1, 2))} // of all stores: some live for a few calls only
	storetest.Run(t, open(2, storetest.If(isFlight, func(c *storetest.Call) error {
		if often.falls(0.005) {
			return store.ErrUnavailable
		}
		err := c.Pass()
		tokened := slices.ContainsFunc(c.Batches[0].Deltas, func(d store.Delta) bool { return d.Guard.Token != "" })
		if !tokened && err == nil && c.Replies[0].Err == nil && often.falls(0.01) {
			return store.ErrUnknown
		}
		return err
	})))
}

// dice are random, for many goroutines.
type dice struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// falls reports true so often.
func (d *dice) falls(often float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < often
}

// Random callers at two nodes over a store that often fails: everything that was
// acknowledged counts, nothing counts twice, values handed out are unique and
// without a gap.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(30) {
		partitions := 1 + 7*int(seed%2)
		runOn(t, memstore.Options{Partitions: partitions}, node.Options{Lanes: 2, Patience: time.Hour}, func(k *kit) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			randomFaults(k, seed)
		})
	}
}

func randomFaults(k *kit, seed uint64) {
	k.onFlights(trouble(seed, 0.3)...)
	k.onOthers(trouble(seed+1000, 0.1)...)
	second := k.open(node.Options{Lanes: 2, Patience: time.Hour})
	nodes := []*node.Node{k.node, second}
	const callers, calls = 12, 30
	var (
		mu               sync.Mutex
		handed, tokened  []int64
		acked, attempted int64
		certain, sure    int64
	)
	var wg sync.WaitGroup
	for g := range callers {
		rng := rand.New(rand.NewPCG(seed, uint64(g)))
		wg.Go(func() {
			for i := range calls {
				n := nodes[rng.IntN(2)]
				switch rng.IntN(5) {
				case 0: // a value
					rs, err := send(k.ctx, n, k.batch(want(add("ids", 1))))
					if err != nil {
						k.Errorf("ids: %v", err)
						return
					}
					mu.Lock()
					handed = append(handed, rs[0].Results[0].After)
					mu.Unlock()
				case 1: // blind
					by := rng.Int64N(9) - 3
					if _, err := send(k.ctx, n, k.batch(add("blind", by))); err != nil {
						k.Errorf("blind: %v", err)
						return
					}
					mu.Lock()
					certain += by
					mu.Unlock()
				case 2: // with a context that may end
					ctx, cancel := context.WithTimeout(k.ctx, time.Duration(rng.Int64N(int64(300*time.Millisecond))))
					_, err := send(ctx, n, k.batch(add("short", 1)))
					cancel()
					mu.Lock()
					switch kind := store.KindOf(err); {
					case err == nil:
						acked++
						attempted++
					case kind == store.KindUnknown:
						attempted++
					case kind == store.KindUnavailable, errors.Is(err, context.DeadlineExceeded):
					default:
						k.Errorf("short: %v", err)
					}
					mu.Unlock()
				case 3: // with a token, through both nodes
					token := fmt.Sprintf("%d-%d", g, i)
					first, err := send(k.ctx, n, k.batch(once(add("once", 1), token)))
					if err != nil {
						k.Errorf("once: %v", err)
						return
					}
					again, err := send(k.ctx, nodes[rng.IntN(2)], k.batch(once(add("once", 1), token)))
					if err != nil || !again[0].Results[0].Replayed || again[0].Results[0].After != first[0].Results[0].After {
						k.Errorf("once: %+v, and then %+v, %v", first, again, err)
						return
					}
					mu.Lock()
					tokened = append(tokened, first[0].Results[0].After)
					mu.Unlock()
				case 4: // several at once
					rs, err := send(k.ctx, n, k.batch(add("sum", 1), want(add("sum", 1))))
					if err != nil || rs[0].Results[1].After != rs[0].Results[1].Before+1 {
						k.Errorf("sum: %+v, %v", rs, err)
						return
					}
					mu.Lock()
					sure += 2
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	k.back()
	pass(10 * time.Second) // what callers left behind is sent
	for name, values := range map[string][]int64{"ids": handed, "once": tokened} {
		slices.Sort(values)
		for i, v := range values {
			if v != int64(i+1) {
				k.Fatalf("%s: handed out %d where %d was due", name, v, i+1)
			}
		}
		k.holds(name, int64(len(values)))
	}
	k.holds("blind", certain)
	k.holds("sum", sure)
	if n := k.value("short").N; n < acked || n > attempted {
		k.Errorf("%d was acknowledged and %d attempted, the cell holds %d", acked, attempted, n)
	}
	if a, err := k.node.Audit(k.ctx); err != nil || len(a.Drift) != 0 {
		k.Errorf("audit: %+v, %v", a, err)
	}
	k.shut(second)
}

// trouble makes half of the calls wait, and some fail, before they are applied or
// after.
func trouble(seed uint64, often float64) []storetest.Hook {
	d := &dice{rng: rand.New(rand.NewPCG(seed, 7))}
	late := func(*storetest.Call) bool { return d.falls(0.5) }
	return []storetest.Hook{storetest.If(late, storetest.Delay(10*time.Millisecond, store.KindOther)), func(c *storetest.Call) error {
		switch {
		case !d.falls(often):
			return c.Pass()
		case d.falls(0.4):
			return store.ErrUnavailable
		case d.falls(0.8):
			_ = c.Pass()
		}
		return store.ErrUnknown
	}}
}
