package storetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// Fail fails calls, which change nothing.
func Fail(err error) Hook { return func(*Call) error { return err } }

// Ignore answers calls with nothing. It makes Close leave a store to the others who
// share it.
func Ignore(*Call) error { return nil }

// Before does something before each call.
func Before(f func()) Hook {
	return func(c *Call) error {
		f()
		return c.Pass()
	}
}

// Lose lets calls pass and loses the answer: callers are told err instead.
func Lose(err error) Hook {
	return func(c *Call) error {
		if done := c.Done; done != nil {
			c.Done = func(error) { done(err) }
			return c.Pass()
		}
		if err := c.Pass(); err != nil {
			return err
		}
		return err
	}
}

// Wait lets calls pass when release is closed, whatever becomes of their contexts.
func Wait(release <-chan struct{}) Hook {
	return func(c *Call) error {
		<-release
		return c.Pass()
	}
}

// Hold does so with the first call that comes, and closes entered when it has come.
// Others pass at once.
func Hold(entered chan<- struct{}, release <-chan struct{}) Hook {
	return Nth(0, 1, func(c *Call) error {
		close(entered)
		<-release
		return c.Pass()
	})
}

// cantWait reports whether the call is for callers that can't.
func (c *Call) cantWait() bool { return c.Op&(OnStart|OnAdds|OnPeek) != 0 }

// Hang lets calls pass when release is closed, which may be nil. If a call's context
// ends before, the call fails by an error of a kind; KindOther is the context's own
// error. What can't wait does not.
func Hang(release <-chan struct{}, kind store.Kind) Hook {
	return func(c *Call) error {
		select {
		case <-release:
			return c.Pass()
		default:
		}
		if c.cantWait() {
			return errWaits
		}
		select {
		case <-release:
			return c.Pass()
		case <-c.Ctx.Done():
			if kind == store.KindOther {
				return c.Ctx.Err()
			}
			return store.Errorf(kind, "no answer: %w", c.Ctx.Err())
		}
	}
}

// Delay lets calls pass after some time, or as Hang ends them.
func Delay(d time.Duration, kind store.Kind) Hook {
	return func(c *Call) error {
		if c.cantWait() {
			return errWaits
		}
		passed := make(chan struct{})
		defer time.AfterFunc(d, func() { close(passed) }).Stop()
		return Hang(passed, kind)(c)
	}
}

// Nth is a hook for the calls from one to before another, counted from 0 on. Other
// calls pass.
func Nth(from, to int, h Hook) Hook {
	var n atomic.Int64
	return func(c *Call) error {
		if i := int(n.Add(1)) - 1; i < from || i >= to {
			return c.Pass()
		}
		return h(c)
	}
}

// If is a hook for the calls that match. Other calls pass.
func If(match func(*Call) bool, h Hook) Hook {
	return func(c *Call) error {
		if !match(c) {
			return c.Pass()
		}
		return h(c)
	}
}

// Cut fails what concerns a partition: the batches that are for it, and the reads
// and other calls that ask it. Other batches of the same call are applied.
func Cut(partition int, err error) Hook {
	return func(c *Call) error {
		switch {
		case !c.In(partition):
			return c.Pass()
		case c.Op != OnApply:
			return err
		}
		errs := make([]error, len(c.Batches))
		for i := range c.Batches {
			if errs[i] = err; c.Batches[i].Partition != partition {
				one := *c
				one.Batches, one.Replies = c.Batches[i:i+1], c.Replies[i:i+1]
				errs[i] = one.Pass()
			}
		}
		return store.Answer(errs, c.Replies)
	}
}

// Apart has each partition be read by a call of its own, all at once, as of a store
// that is several servers. Each of them passes.
func Apart(c *Call) error {
	groups := map[int][]int{}
	for i, cell := range c.Cells {
		p := store.PartitionOf(cell, c.parts)
		groups[p] = append(groups[p], i)
	}
	var wg sync.WaitGroup
	errs := make([]error, c.parts)
	for p, group := range groups {
		one := *c
		one.Cells, one.Values = make([]store.Cell, len(group)), make([]store.Value, len(group))
		for j, i := range group {
			one.Cells[j] = c.Cells[i]
		}
		wg.Go(func() {
			errs[p] = one.Pass()
			for j, i := range group {
				c.Values[i] = one.Values[j]
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A Record keeps the batches of the calls that pass its Hook.
type Record struct {
	mu      sync.Mutex // guards batches
	batches []store.Batch
}

// Hook records what is written, before it passes. Plain adds have to come as batches.
func (r *Record) Hook(c *Call) error {
	if c.Op == OnAdds {
		return errWaits
	}
	r.mu.Lock()
	for _, b := range c.Batches {
		b.If, b.Deltas, b.Books, b.Floors = slices.Clone(b.If), slices.Clone(b.Deltas), slices.Clone(b.Books), slices.Clone(b.Floors)
		for i := range b.Deltas {
			if bound := b.Deltas[i].Guard.Bound; bound != nil {
				b.Deltas[i].Guard.Bound = new(*bound)
			}
		}
		r.batches = append(r.batches, b)
	}
	r.mu.Unlock()
	return c.Pass()
}

// Batches returns what was recorded so far.
func (r *Record) Batches() []store.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}
