package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/pgtest"
)

// Two nodes disagree about hot counters: one wants eight shards of each, the other
// one cell, and is asked for values. So they are split and folded all the time. The
// first one is never asked: it would leave them alone for a while.
const (
	wantsShards = `{pattern: "hot:*", shards: 8}`
	wantsOne    = `{pattern: "hot:*", single: true}`
)

// TestSplitPostgres breaks nodes over PostgreSQL, and what is between, while
// counters are split and folded under load.
func TestSplitPostgres(t *testing.T) {
	rng := replay(t)
	_, addr := startPostgres(t)
	var nodes [2]*node
	for i, policy := range []string{wantsShards, wantsOne} {
		way := newProxy(t, addr)
		url := "postgres://" + pgtest.User + "@" + way.Listen + "/postgres?sslmode=disable"
		nodes[i] = newNode(t, strconv.Itoa(i), url, []*proxy{way}, "--config", policyFile(t, policy))
	}
	newHot(t, "PostgreSQL", rng, nodes).endure(t, append(wayFaults(false), nodeKilled(), slowKilled()), "slow node killed", "resets")
}

// TestSplitCluster does the same over a Redis Cluster.
func TestSplitCluster(t *testing.T) {
	rng := replay(t)
	c, url, ways := startCluster(t)
	var nodes [2]*node
	for i, policy := range []string{wantsShards, wantsOne} {
		nodes[i] = newNode(t, strconv.Itoa(i), url, ways, "--config", policyFile(t, policy))
	}
	faults := append(wayFaults(true), nodeKilled(), slowKilled(), c.failover(), c.slotMoved())
	newHot(t, "Redis Cluster", rng, nodes).endure(t, faults, "slow node killed")
}

// slowKilled kills a node whose splits and folds take long, so that one of them
// is likely to be left half done.
func slowKilled() fault {
	return fault{name: "slow node killed", run: func(ctx context.Context, w *world) error {
		n := w.nodes[w.rng.IntN(2)]
		for _, p := range n.ways {
			if err := p.spoil(back, "latency", `"latency":40`); err != nil {
				return err
			}
		}
		pause(time.Duration(200+w.rng.IntN(400))*time.Millisecond, ctx.Done())
		n.kill()
		if err := w.heal(ctx); err != nil {
			return err
		}
		w.hold(ctx)
		return n.start(ctx)
	}}
}

// policyFile makes a configuration file with policies.
func policyFile(t *testing.T, policies ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "quipu.yaml")
	text := "policies:\n"
	for _, p := range policies {
		text += "  - " + p + "\n"
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// hot is a world whose counters are all hot.
type hot struct{ *world }

func newHot(t *testing.T, store string, rng *rand.Rand, nodes [2]*node) hot {
	t.Helper()
	w := &world{t: t, store: store, rng: rng, nodes: nodes}
	for i := range 3 {
		w.guarded = append(w.guarded, &counter{key: fmt.Sprint("hot:", i)})
	}
	for i, n := range nodes {
		w.doors[i] = newREST(n)
		t.Cleanup(w.doors[i].CloseIdleConnections)
	}
	return hot{w}
}

// endure has the world live through faults, as suffers does, and folds the
// counters at the end.
func (w hot) endure(t *testing.T, faults []fault, short ...string) {
	t.Helper()
	if w.live(t, w.round, faults, short) {
		w.fail(t, w.folded(t.Context()))
	}
}

// round makes a fault while counters are split and folded under load, and judges.
func (w hot) round(t *testing.T, f fault) {
	t.Helper()
	ctx := t.Context()
	w.fail(t, w.begin(ctx))
	stop := make(chan struct{})
	done := w.load(ctx, stop)
	err := w.restless(ctx)
	var r row
	if err == nil {
		r, err = w.suffer(ctx, f)
	}
	if err == nil {
		err = w.restless(ctx) // it goes on as before
	}
	close(stop)
	done.Wait()
	w.fail(t, err)
	w.fail(t, w.judge(ctx))
	w.table = append(w.table, r)
}

// load has callers add to the counters, with tokens and without, and some ask for
// the value at the node that wants no shards, which folds.
func (w hot) load(ctx context.Context, stop <-chan struct{}) *sync.WaitGroup {
	var done sync.WaitGroup
	for i := range w.nodes {
		for worker := range 4 {
			rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
			asks := i == 1 && worker == 0
			done.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if !w.add(ctx, i, rng, asks) || asks {
						pause(20*time.Millisecond, stop)
					}
				}
			})
		}
	}
	return &done
}

// add makes one write, and reports whether it counted.
func (w hot) add(ctx context.Context, i int, rng *rand.Rand, asks bool) bool {
	q := &write{counter: w.guarded[rng.IntN(len(w.guarded))], delta: 1 + rng.Int64N(9), node: i}
	if asks || rng.IntN(2) == 0 {
		q.token = w.newToken()
	}
	r, err := w.send(ctx, q, asks)
	if err != nil {
		w.problem(err)
		r.outcome = doubtful
	}
	w.took(q, r)
	if r.outcome == counted && q.token != "" && rng.IntN(8) == 0 { // what is sent again is of any time
		q.counter.mu.Lock()
		q.counter.proofs[rng.IntN(len(q.counter.proofs))] = q
		q.counter.mu.Unlock()
	}
	return r.outcome == counted
}

// send sends a write. One that does not ask for the value leaves a counter split.
func (w hot) send(ctx context.Context, q *write, asks bool) (reply, error) {
	var header []string
	if !asks {
		header = append(header, "Prefer", "return=minimal")
	}
	if q.token != "" {
		header = append(header, "Idempotency-Key", q.token)
	}
	d := w.doors[q.node]
	a, err := d.call(ctx, http.MethodPost, "/api/v1/counters/"+q.counter.key+"/increment", fmt.Sprintf(`{"delta":%d}`, q.delta), header...)
	if errors.Is(err, errDown) {
		return reply{outcome: doubtful}, nil
	}
	if err != nil {
		return reply{}, err
	}
	return d.written(a)
}

// insist sends a write until it is counted.
func (w hot) insist(ctx context.Context, q *write) (r reply, err error) {
	e := await(ctx, fmt.Sprintf("%v is counted", q), func() bool {
		r, err = w.send(ctx, q, false)
		return err != nil || r.outcome == counted
	})
	return r, errors.Join(err, e)
}

// restless waits until counters are split and folded.
func (w hot) restless(ctx context.Context) error {
	var splits, folds [2]float64
	var err error
	count := func(name string) float64 {
		sum := 0.0
		for _, d := range w.doors {
			n, e := d.meter(ctx, name)
			if e != nil {
				err = e
			}
			sum += n
		}
		return sum
	}
	splits[0], folds[0] = count("quipu_splits_total"), count("quipu_folds_total")
	e := await(ctx, "counters are split and folded", func() bool {
		splits[1], folds[1] = count("quipu_splits_total"), count("quipu_folds_total")
		return err != nil || splits[1] > splits[0] && folds[1] > folds[0]
	})
	return errors.Join(err, e)
}

// meter returns the value of a meter of the node.
func (r *rest) meter(ctx context.Context, name string) (float64, error) {
	a, err := r.call(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(a.body)) {
		if is, value, _ := strings.Cut(strings.TrimSpace(line), " "); is == name {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("node %s: no meter %s", r.node.name, name)
}

// judge compares the counters with what was told, sends again by the other node
// what has a token and is in doubt, and compares again.
func (w hot) judge(ctx context.Context) error {
	var errs []error
	compare := func(c *counter, when string) error {
		value, err := w.agreed(ctx, c.key)
		if err != nil {
			return err
		}
		if low, high := c.bounds(); value < low || value > high {
			return fmt.Errorf("%s is %d %s: want %d to %d", c.key, value, when, low, high)
		}
		return nil
	}
	for _, c := range w.guarded {
		errs = append(errs, compare(c, "after healing"))
		doubts := c.doubts
		c.doubts = nil
		for _, q := range doubts {
			if q.token == "" { // nobody can tell
				c.doubts = append(c.doubts, q)
				continue
			}
			q.node = 1 - q.node
			r, err := w.insist(ctx, q)
			if err != nil {
				return err
			}
			q.told(r)
		}
		for _, q := range c.proofs { // they were acknowledged
			other := *q
			other.node = 1 - q.node
			if r, err := w.insist(ctx, &other); err != nil || !r.replayed {
				errs = append(errs, err, fmt.Errorf("%v: its repeat is told %+v", q, r))
			}
		}
		errs = append(errs, compare(c, "after all that has a token was sent again"))
	}
	return errors.Join(append(errs, w.doors[w.rng.IntN(2)].sound(ctx))...)
}

// folded starts the node anew that wants shards, with the policy of the other,
// and waits until each counter is one cell.
func (w hot) folded(ctx context.Context) error {
	n := w.nodes[0]
	n.kill()
	n.args = slices.Concat(n.args[:len(n.args)-1], w.nodes[1].args[len(n.args)-1:])
	if err := n.start(ctx); err != nil {
		return err
	}
	for _, c := range w.guarded {
		before, err := w.agreed(ctx, c.key)
		if err != nil {
			return err
		}
		var got struct {
			Value  int64 `json:"value"`
			Shards int   `json:"shards"`
		}
		for _, d := range w.doors {
			e := await(ctx, c.key+" is one cell", func() bool {
				err = d.get(ctx, http.MethodGet, "/api/v1/counters/"+c.key+"/exact", &got)
				return err != nil || got.Shards == 1
			})
			if err := errors.Join(err, e); err != nil {
				return err
			}
			if got.Value != before {
				return fmt.Errorf("%s is %d when it is folded, and was %d", c.key, got.Value, before)
			}
		}
	}
	return w.doors[0].sound(ctx)
}
