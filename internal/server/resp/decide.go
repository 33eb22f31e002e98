package resp

import (
	"context"
	"sync"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// apply decides the deltas of one caller and waits until the results can be told. If
// some of them are one step, all are: otherwise those of a counter that is split
// might be applied to its shards, or later.
func (c *cycle) apply(ctx context.Context, conditions []store.Condition) {
	c.room()
	switch {
	case len(c.deltas) == 0 && len(conditions) == 0:
		return
	case c.joined || len(conditions) > 0:
		c.err = c.db.Port().ApplyIf(ctx, conditions, c.deltas, c.results)
	default:
		c.err = c.db.Port().Apply(ctx, c.deltas, c.results)
	}
	if c.joined && len(conditions) == 0 && server.KindOf(c.err) == store.KindNotCount {
		c.err = c.without(ctx, c.err)
	}
	if c.err != nil {
		return
	}
	if at := c.redo(all); len(at) > 0 {
		from := at[0]
		c.err = store.Partly(c.db.Port().Apply(ctx, c.deltas[from:], c.results[from:]), true)
	}
	if at := c.stale(all); len(at) > 0 && c.err == nil && !c.joined {
		c.err = c.again(ctx, at)
	}
	if c.err == nil {
		c.lookAt(ctx, c.uncounted(all))
	}
}

// without applies a step that was refused as a whole because an addition met a key that holds no count: it
// leaves out such additions, which are refused by themselves, as in Redis. They may be another caller's, and
// nothing to what makes the cycle one step. Err is why the step was refused.
func (c *cycle) without(ctx context.Context, err error) error {
	var keys []string
	for i := range c.deltas {
		keys = append(keys, c.deltas[i].Cell.Key)
	}
	values := make([]store.Value, len(keys))
	if err := c.db.Port().Values(ctx, keys, values); err != nil {
		return err
	}
	var rest []store.Delta
	var at []int
	anew := make(map[string]bool) // keys that a delta before has made something else
	for i := range c.deltas {
		d := &c.deltas[i]
		if d.Op == store.OpAdd && d.Event == nil && values[i].IsObject() && !anew[d.Cell.Key] {
			c.results[i] = store.Result{Outcome: store.NotCount}
			continue
		}
		anew[d.Cell.Key] = anew[d.Cell.Key] || d.Op != store.OpAdd && d.Op != store.OpGet
		rest, at = append(rest, *d), append(at, i)
	}
	if len(at) == len(c.deltas) { // What the step has met is gone, or is met by something else.
		return err
	}
	results := make([]store.Result, len(rest))
	if len(rest) > 0 {
		if err := c.db.Port().ApplyIf(ctx, nil, rest, results); err != nil {
			return err
		}
	}
	for n, i := range at {
		c.results[i] = results[n]
	}
	return nil
}

// A portion is what one partition of the store decides of a cycle. What becomes of
// it says nothing of the others.
type portion struct {
	home int32
	at   []int // its deltas
	runs []int // those that wait for it
}

// all is the home of every delta.
const all = -1

// divide makes portions of the deltas.
func (c *cycle) divide() []portion {
	c.room()
	c.errs, c.split = make([]error, len(c.deltas)), true
	var portions []portion
	byPartition := map[int]int32{}
	for i := range c.deltas {
		partition := c.db.Port().Partition(c.deltas[i].Cell.Key)
		home, ok := byPartition[partition]
		if !ok {
			home = int32(len(portions))
			byPartition[partition] = home
			portions = append(portions, portion{home: home})
		}
		c.homes = append(c.homes, home)
		portions[home].at = append(portions[home].at, i)
	}
	from := 0
	for i := range c.runs {
		r := &c.runs[i]
		for j := range c.entries[from:r.to] {
			at, to := c.deltasOf(&c.entries[from+j])
			for ; at < to; at++ {
				p := &portions[c.homes[at]]
				if n := len(p.runs); n == 0 || p.runs[n-1] != i {
					p.runs = append(p.runs, i)
					r.left++
				}
			}
		}
		from = r.to
	}
	return portions
}

// deltasOf returns from where to where the deltas are that a reply depends on.
func (c *cycle) deltasOf(e *entry) (from, to int32) {
	switch {
	case e.kind.ofResults():
		return e.at, e.at + e.n
	case e.kind == textual || e.kind == asked || !c.lane.Each[e.at].Left:
		return 0, 0
	}
	s := c.lane.spelled[e.at]
	if s.sum {
		return s.at, s.at + 1
	}
	return s.at + e.nth, s.at + e.nth + e.n
}

// decide decides a portion, and waits until its results can be told.
func (c *cycle) decide(ctx context.Context, p *portion) {
	at := p.at
	defer func() {
		if fault := recover(); fault != nil {
			c.took(at, nil, panicError(fault))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, i := range p.runs {
			c.runs[i].left--
		}
	}()
	for len(at) > 0 {
		c.mu.Lock()
		deltas, results := make([]store.Delta, len(at)), make([]store.Result, len(at))
		for i, n := range at {
			deltas[i] = c.deltas[n]
		}
		c.mu.Unlock()
		at = c.took(at, results, c.db.Port().Apply(ctx, deltas, results))
		if len(at) > 0 {
			at = c.redo(p.home)
		}
	}
	if at := c.stale(p.home); len(at) > 0 {
		if err := c.again(ctx, at); err != nil {
			c.took(at, nil, err)
		}
	}
	c.lookAt(ctx, c.uncounted(p.home))
}

// gathered decides what commands of their own do, each by itself, unless some of it
// is one step.
func (c *cycle) gathered(ctx context.Context) {
	c.allow(ctx)
	c.unite()
	c.lane.leave()
	c.spell()
	if c.joined || len(c.deltas) == 0 {
		c.apply(ctx, nil)
		return
	}
	portions := c.divide()
	var wg sync.WaitGroup
	for i := range portions[1:] {
		wg.Go(func() { c.decide(ctx, &portions[1+i]) })
	}
	c.decide(ctx, &portions[0])
	wg.Wait()
}

// took takes the results of some deltas, or why there are none, and returns those
// that were decided.
func (c *cycle) took(at []int, results []store.Result, err error) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range at {
		if c.errs[n] = err; err == nil {
			c.results[n] = results[i]
		}
	}
	if err != nil {
		return nil
	}
	return at
}

// read fills the results of a cycle that changes nothing, from each partition by
// itself.
func (c *cycle) read(ctx context.Context) {
	byPartition := map[int][]int{}
	for i, name := range c.names {
		partition := c.db.Port().Partition(name)
		byPartition[partition] = append(byPartition[partition], i)
	}
	values := make([]store.Value, len(c.names))
	if len(byPartition) == 1 {
		if c.err = c.db.Port().Values(ctx, c.names, values); c.err == nil {
			c.take(values)
			c.err = c.readTexts(ctx, values, nil)
		}
		return
	}
	c.errs = make([]error, len(c.names))
	var wg sync.WaitGroup
	for _, at := range byPartition {
		wg.Go(func() {
			names, some := make([]string, len(at)), make([]store.Value, len(at))
			for i, n := range at {
				names[i] = c.names[n]
			}
			err := c.db.Port().Values(ctx, names, some)
			for i, n := range at {
				values[n], c.errs[n] = some[i], err
			}
		})
	}
	wg.Wait()
	c.take(values)
	if err := c.readTexts(ctx, values, c.errs); err != nil {
		c.err = err
	}
}

// take makes results of values.
func (c *cycle) take(values []store.Value) {
	c.room()
	for i := range values {
		v := &values[i]
		c.results[i] = store.Result{
			Outcome: store.Applied, Before: v.N, After: v.N, Version: v.Version, Existed: v.Exists, DeadlineMS: v.DeadlineMS,
		}
	}
}
