package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/quipudb/quipu"
)

// A fault is something that happens to a world, and ends.
type fault struct {
	name  string
	loses bool // it may lose what was acknowledged
	run   func(ctx context.Context, w *world) error
}

// A row is what a round has shown.
type row struct {
	fault            string
	dark             time.Duration // the longest that no write was counted at one of the nodes
	stuck            time.Duration // the longest that none to one of the counters was
	recovery         time.Duration // from the end of the fault until all counters took writes from both nodes
	counted, refused int64
	doubtful, told   int64
	missing, twice   int64
}

// round has the world live through a fault, and judges.
func (w *world) round(t *testing.T, f fault) {
	t.Helper()
	w.loses = f.loses
	ctx := t.Context()
	w.fail(t, w.begin(ctx))
	stop := make(chan struct{})
	done := w.load(ctx, stop)
	end := func() {
		close(stop)
		done.Wait()
	}
	r, err := w.suffer(ctx, f)
	end()
	w.fail(t, err)
	w.fail(t, w.judge(ctx, &r))
	w.table = append(w.table, r)
}

// begin reads all counters.
func (w *world) begin(ctx context.Context) error {
	for i := range w.told {
		w.told[i].begin()
	}
	w.losses.Store(0)
	for _, list := range [][]*counter{w.guarded, w.plain, w.combined} {
		for _, c := range list {
			n, err := w.agreed(ctx, c.key)
			if err != nil {
				return err
			}
			c.begin(n)
		}
	}
	return nil
}

// agreed reads a counter by both nodes, which must say the same.
func (w *world) agreed(ctx context.Context, key string) (int64, error) {
	a, err := w.doors[0].read(ctx, key)
	if err != nil {
		return 0, err
	}
	b, err := w.doors[1].read(ctx, key)
	if err == nil && a != b {
		err = fmt.Errorf("%s is %d at one node, and %d at the other", key, a, b)
	}
	return a, err
}

// suffer makes the fault under load, and returns when it is over.
func (w *world) suffer(ctx context.Context, f fault) (r row, err error) {
	r.fault = f.name
	if err := w.flows(ctx, "load"); err != nil {
		return r, err
	}
	pause(time.Duration(w.rng.IntN(200))*time.Millisecond, ctx.Done())
	before, err := w.metered(ctx)
	if err != nil {
		return r, err
	}
	at := time.Now()
	w.each(func(c *counter) { c.mark(at) })
	for i := range w.told {
		w.told[i].mark(at)
	}
	if err := f.run(ctx, w); err != nil {
		return r, err
	}
	healed := time.Now()
	if err := w.flows(ctx, "after the fault"); err != nil {
		return r, err
	}
	r.recovery = time.Since(healed)
	for i := range w.nodes {
		r.dark = max(r.dark, w.told[i].longest())
		r.counted += w.told[i].counted.Load()
		r.refused += w.told[i].refused.Load()
		r.doubtful += w.told[i].doubtful.Load()
		if err := w.says(ctx, i, true); err != nil {
			return r, err
		}
	}
	w.each(func(c *counter) { r.stuck = max(r.stuck, c.longest()) })
	after, err := w.metered(ctx)
	r.told = w.losses.Load() + int64(max(0, after-before)) // a node that was killed begins at 0
	return r, err
}

// flows waits until every counter takes writes from both nodes.
func (w *world) flows(ctx context.Context, when string) error {
	since := time.Now()
	err := await(ctx, when+": both nodes write to all counters", func() bool {
		all := true
		w.each(func(c *counter) { all = all && c.countedSince(since) })
		w.mu.Lock()
		defer w.mu.Unlock()
		return all || len(w.problems) > 0
	})
	if err != nil {
		w.each(func(c *counter) {
			if !c.countedSince(since) {
				err = fmt.Errorf("%w; %s does not", err, c.key)
			}
		})
	}
	return err
}

// metered returns how often the nodes have found something lost.
func (w *world) metered(ctx context.Context) (sum float64, err error) {
	for _, d := range w.doors {
		n, e := d.losses(ctx)
		sum, err = sum+n, errors.Join(err, e)
	}
	return sum, err
}

// says waits until a node says that it is ready, or that it is not.
func (w *world) says(ctx context.Context, node int, ready bool) error {
	var last error
	err := await(ctx, fmt.Sprintf("node %d says that ready is %v", node, ready), func() bool {
		got, err := w.doors[node].ready(ctx)
		last = err
		return err == nil && got == ready
	})
	return errors.Join(err, last)
}

// outage returns when the nodes that can't reach their store say so: of
// themselves, and to whoever writes or reads exactly. The others serve.
func (w *world) outage(ctx context.Context, cut ...int) error {
	out := map[int]bool{}
	for _, i := range cut {
		out[i] = true
		before := w.told[i].refused.Load()
		if err := w.says(ctx, i, false); err != nil {
			return err
		}
		if err := await(ctx, fmt.Sprintf("node %d refuses writes", i), func() bool { return w.told[i].refused.Load() > before }); err != nil {
			return err
		}
		if err := w.readsOut(ctx, i); err != nil {
			return err
		}
	}
	for i := range w.nodes {
		if out[i] {
			continue
		}
		if err := w.says(ctx, i, true); err != nil {
			return err
		}
	}
	return nil
}

// readsOut reads by a node that can't reach its store. What it says then is not
// exact.
func (w *world) readsOut(ctx context.Context, node int) error {
	path := "/api/v1/counters/" + w.guarded[0].key
	a, err := w.doors[node].call(ctx, http.MethodGet, path+"/exact", "")
	if err != nil {
		return err
	}
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		return fmt.Errorf("node %d can't reach its store, and reads exactly: status %d: %s", node, a.status, a.body)
	}
	var c count
	if err := w.doors[node].get(ctx, http.MethodGet, path+"?max_staleness=1h", &c); err != nil {
		return err
	}
	if c.Exact {
		return fmt.Errorf("node %d can't reach its store, and says that it read exactly", node)
	}
	return nil
}

// judge compares what is served with what was told, sends again by the other node
// what is in doubt, and compares again.
func (w *world) judge(ctx context.Context, r *row) error {
	var errs []error
	for _, comb := range w.combs {
		errs = append(errs, w.flush(ctx, comb.Flush))
	}
	missing := func(c *counter, low, value int64) {
		if value < low && w.loses {
			r.missing += low - value
		} else if value < low {
			errs = append(errs, fmt.Errorf("%s is %d: %d is missing of what was acknowledged", c.key, value, low-value))
		}
	}
	for _, list := range [][]*counter{w.guarded, w.plain, w.combined} {
		for _, c := range list {
			value, err := w.agreed(ctx, c.key)
			if err != nil {
				return err
			}
			low, high := c.bounds()
			if value > high {
				errs = append(errs, fmt.Errorf("%s is %d: something counted twice, at most %d was attempted%s", c.key, value, high, c.holes(value)))
			}
			if again, err := w.again(ctx, c); err != nil {
				errs = append(errs, err)
			} else if again {
				if value, err = w.agreed(ctx, c.key); err != nil {
					return err
				}
				low, high = c.bounds()
				if value > high {
					errs = append(errs, fmt.Errorf("%s is %d after all was sent again: want %d", c.key, value, high))
				}
			}
			missing(c, low, value)
			if overlaps := c.overlaps(value); w.loses {
				r.twice += int64(len(overlaps))
			} else {
				errs = append(errs, overlaps...)
			}
		}
	}
	if r.missing > 0 && r.told == 0 {
		errs = append(errs, fmt.Errorf("%d of what was acknowledged is missing, and nobody was told", r.missing))
	}
	lost := 0
	for i, d := range w.doors {
		n, err := d.verify(ctx)
		errs = append(errs, err)
		if n > w.lost[i] && !w.loses {
			errs = append(errs, fmt.Errorf("node %d's verify finds %d losses, and %d before the fault", i, n, w.lost[i]))
		}
		w.lost[i] = n
		lost += n
	}
	if r.missing > 0 && lost == 0 {
		errs = append(errs, fmt.Errorf("%d of what was acknowledged is missing, and no node's verify says so", r.missing))
	}
	return errors.Join(errs...)
}

// flush waits until a combining writer has shipped all. What was lost is told
// once.
func (w *world) flush(ctx context.Context, flush func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := flush(ctx)
	for w.loses && errors.Is(err, quipu.ErrLost) {
		err = flush(ctx)
	}
	return err
}

// again sends the writes of a counter again that are in doubt, each by the other
// node, and some that were acknowledged. It reports whether none is in doubt any
// more.
func (w *world) again(ctx context.Context, c *counter) (bool, error) {
	doubts := c.doubts
	for _, q := range doubts {
		if q.token == "" {
			return false, nil // nobody can tell
		}
	}
	c.doubts = nil
	for _, q := range doubts {
		q.node = 1 - q.node
		r, err := w.insist(ctx, q)
		if err != nil {
			return false, err
		}
		q.told(r)
	}
	if w.loses {
		return true, nil
	}
	for _, q := range c.proofs {
		other := *q
		other.node = 1 - q.node
		r, err := w.insist(ctx, &other)
		if err != nil {
			return false, err
		}
		if !r.replayed || r.value != q.value {
			return false, fmt.Errorf("%v: told %d, and its repeat %+v", q, q.value, r)
		}
	}
	return true, nil
}

// insist sends a write until it is counted.
func (w *world) insist(ctx context.Context, q *write) (r reply, err error) {
	e := await(ctx, fmt.Sprintf("%v is counted", q), func() bool {
		r, err = w.doors[q.node].add(ctx, q.counter.key, q.delta, q.token)
		return err != nil || r.outcome == counted
	})
	return r, errors.Join(err, e)
}

// hold is how long a fault lasts that nobody waits for.
func (w *world) hold(ctx context.Context) {
	pause(time.Duration(500+w.rng.IntN(1000))*time.Millisecond, ctx.Done())
}
