package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
)

// A world is two nodes over one store, and what is known of the counters in it.
type world struct {
	t     *testing.T
	store string // its name
	rng   *rand.Rand
	nodes [2]*node
	doors [2]*rest
	rpc   [2]*client.DB
	combs [2]*client.Writer
	loses bool   // whether the present fault may lose what was acknowledged
	lost  [2]int // what each node's verify has found to be lost so far

	guarded  []*counter // added to with tokens
	plain    []*counter // without
	combined []*counter // by combining writers

	told   [2]tally
	losses atomic.Int64 // that a caller was told of
	tokens atomic.Int64

	mu       sync.Mutex // guards problems
	problems []error

	table []row
}

// A tally is how the writes of a node ended.
type tally struct {
	counted, refused, doubtful atomic.Int64

	mu  sync.Mutex // guards gap
	gap gap
}

func (l *tally) begin() {
	l.counted.Store(0)
	l.refused.Store(0)
	l.doubtful.Store(0)
}

func (l *tally) mark(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap = gap{last: at}
}

func (l *tally) count() {
	l.counted.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap.end(time.Now())
}

func (l *tally) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gap.longest
}

// restWorkers is how many callers the REST door of each node has.
const restWorkers = 3

func newWorld(t *testing.T, store string, rng *rand.Rand, nodes [2]*node) *world {
	t.Helper()
	some := func(name string) (list []*counter) {
		for i := range 12 {
			list = append(list, &counter{key: fmt.Sprint(name, i)})
		}
		return list
	}
	w := &world{
		t: t, store: store, rng: rng, nodes: nodes, guarded: some("guarded:"), plain: some("plain:"), combined: some("combined:"),
	}
	for i, n := range nodes {
		w.doors[i] = newREST(n)
		db, err := client.Dial(t.Context(), n.rpc, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.rpc[i] = db
		w.combs[i], err = db.Writer(t.Context(), client.WriterOptions{
			Mode: client.Flush, Every: 5 * time.Millisecond, OnFailure: func(f client.Failure) { w.failure(f.Err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			if err := errors.Join(w.combs[i].Close(ctx), db.Close()); err != nil {
				t.Errorf("close the client of node %s: %v", n.name, err)
			}
			w.doors[i].CloseIdleConnections()
		})
	}
	return w
}

// problem takes an error from a goroutine.
func (w *world) problem(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 10 {
		w.problems = append(w.problems, err)
	}
}

// failure takes an error that a combining writer was told.
func (w *world) failure(err error) {
	if errors.Is(err, quipu.ErrLost) && w.loses {
		w.losses.Add(1)
		return
	}
	w.problem(fmt.Errorf("combining writer: %w", err))
}

// fail ends the test with all problems, if there are any.
func (w *world) fail(t *testing.T, errs ...error) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range w.nodes {
		if err := n.alive(); err != nil {
			errs = append(errs, fmt.Errorf("%d: %w", i, err))
		}
	}
	if err := errors.Join(append(errs, w.problems...)...); err != nil {
		t.Fatal(err)
	}
}

// took takes what a node said of a write.
func (w *world) took(q *write, r reply) {
	switch r.outcome {
	case counted:
		w.told[q.node].count()
	case refused:
		w.told[q.node].refused.Add(1)
	case lost:
		w.losses.Add(1)
		if !w.loses {
			w.problem(fmt.Errorf("%v: told that acknowledged data is lost", q))
		}
		fallthrough
	case doubtful:
		w.told[q.node].doubtful.Add(1)
	}
	q.told(r)
}

func (w *world) newToken() string { return fmt.Sprint("token-", w.tokens.Add(1)) }

// load has callers of all doors of both nodes add until stop is closed.
func (w *world) load(ctx context.Context, stop <-chan struct{}) *sync.WaitGroup {
	var done sync.WaitGroup
	until := func(f func(rng *rand.Rand) bool) {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !f(rng) { // so that nobody is asked all the time who can't
					pause(20*time.Millisecond, stop)
				}
			}
		})
	}
	for i := range w.nodes {
		for range restWorkers {
			until(func(rng *rand.Rand) bool { return w.overREST(ctx, i, rng) })
		}
		var c *resp
		until(func(rng *rand.Rand) (ok bool) {
			c, ok = w.overRESP(ctx, c, i, rng)
			return ok
		})
		until(func(rng *rand.Rand) bool {
			w.combine(ctx, i, rng)
			pause(time.Millisecond, stop)
			return true
		})
	}
	return &done
}

// overREST makes one write by the REST door.
func (w *world) overREST(ctx context.Context, i int, rng *rand.Rand) bool {
	q := &write{counter: w.guarded[rng.IntN(len(w.guarded))], delta: 1 + rng.Int64N(9), token: w.newToken(), node: i}
	r, err := w.doors[i].add(ctx, q.counter.key, q.delta, q.token)
	if err != nil {
		w.problem(err)
		r.outcome = doubtful
	}
	w.took(q, r)
	return r.outcome == counted
}

// overRESP sends a pipeline, on the connection that there is, or a new one.
func (w *world) overRESP(ctx context.Context, c *resp, i int, rng *rand.Rand) (*resp, bool) {
	if c == nil {
		var err error
		if c, err = dialRESP(ctx, w.nodes[i]); err != nil {
			return nil, false
		}
	}
	writes := make([]*write, 1+rng.IntN(16))
	commands := make([][]string, len(writes))
	for j := range writes {
		q := &write{counter: w.plain[rng.IntN(len(w.plain))], delta: 1, node: i}
		commands[j] = []string{"INCR", q.counter.key}
		if rng.IntN(2) == 0 {
			q = &write{counter: w.guarded[rng.IntN(len(w.guarded))], delta: 1 + rng.Int64N(9), token: w.newToken(), node: i}
			commands[j] = []string{"Q.ADD", q.counter.key, fmt.Sprint(q.delta), "ID", q.token}
		}
		writes[j] = q
	}
	ok := true
	err := c.run(commands, func(j int, r reply) {
		w.took(writes[j], r)
		ok = ok && r.outcome == counted
	})
	if err == nil {
		return c, ok
	}
	if !errors.Is(err, errDown) {
		w.problem(err)
	}
	_ = c.Close() // it is broken
	return nil, false
}

// combine adds by a combining writer, which sends until it knows.
func (w *world) combine(ctx context.Context, i int, rng *rand.Rand) {
	c, delta := w.combined[rng.IntN(len(w.combined))], 1+rng.Int64N(9)
	if err := w.combs[i].Add(ctx, c.key, delta); err != nil {
		w.problem(fmt.Errorf("combining writer: %w", err))
		return
	}
	c.mu.Lock()
	c.acked += delta
	c.mu.Unlock()
}

// each calls f for the counters that are added to by themselves.
func (w *world) each(f func(c *counter)) {
	for _, c := range w.guarded {
		f(c)
	}
	for _, c := range w.plain {
		f(c)
	}
}
