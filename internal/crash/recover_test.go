package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// keptMax is how many requests of former lives are kept to be repeated.
const keptMax = 100

// judge compares what a server that has just started serves with what was
// acknowledged, makes definite what was not, and compares again. It can be cut
// off at any moment by a server that goes down, and begun again with the next.
func (w *world) judge(ctx context.Context, c *client) error {
	if err := w.reckon(ctx, c); err != nil {
		return err
	}
	if err := w.resolve(ctx, c); err != nil {
		return err
	}
	if err := w.recount(ctx, c); err != nil {
		return err
	}
	if err := w.recountViews(ctx, c); err != nil {
		return err
	}
	return w.repeatSome(ctx, c)
}

// reckon has every counter compare its recent writes with what is there now.
func (w *world) reckon(ctx context.Context, c *client) error {
	counts, err := c.readAll(ctx, w.counters)
	if err != nil {
		return err
	}
	fates, err := w.fates(ctx, c)
	if err != nil {
		return err
	}
	var wrong error
	for i, counter := range w.counters {
		decided, gone, err := counter.reckon(counts[i], fates)
		wrong = errors.Join(wrong, err)
		w.decided += len(decided)
		for _, x := range decided {
			if r := x.request; x == r.writes[0] && r.repeatable() && (x.is(settled) || w.rng.IntN(20) == 0) {
				w.sample = append(w.sample, r)
			}
		}
		for _, x := range gone {
			if !x.request.owed {
				x.request.owed = true
				w.owed = append(w.owed, x.request)
			}
		}
		w.gone += len(gone)
	}
	return wrong
}

// fates looks up the tokens of the doubtful writes.
func (w *world) fates(ctx context.Context, c *client) (map[*write]fate, error) {
	var doubts []*write
	for _, counter := range w.counters {
		doubts = append(doubts, counter.doubts()...)
	}
	fates := map[*write]fate{}
	var mu sync.Mutex
	err := each(doubts, func(x *write) error {
		f, err := c.lookup(ctx, x)
		mu.Lock()
		defer mu.Unlock()
		fates[x] = f
		return err
	})
	w.doubts += len(doubts)
	return fates, err
}

// resolve sends again what did not count, until the answer is definite; some
// of it is settled first, and then must be refused.
func (w *world) resolve(ctx context.Context, c *client) error {
	settling := map[*request]bool{}
	for _, r := range w.owed {
		settling[r] = w.rng.IntN(4) == 0 && r.repeatable()
	}
	err := each(w.owed, func(r *request) error {
		for _, x := range r.writes {
			if settling[r] && x.is(absent) {
				if err := settle(ctx, c, x); err != nil {
					return err
				}
			}
		}
		for range 20 {
			if err := deliver(ctx, c, r); err != nil {
				return err
			}
			if !r.is(unknown, absent) {
				return nil
			}
			pause(50*time.Millisecond, w.process.Exited)
		}
		return fmt.Errorf("%v: no definite answer after 20 attempts", r.writes)
	})
	if err != nil {
		return err
	}
	for _, r := range w.owed {
		r.owed = false
	}
	w.owed = nil
	return nil
}

// recount compares every counter with all that is known now, and with the list
// of counters.
func (w *world) recount(ctx context.Context, c *client) error {
	counts, err := c.readAll(ctx, w.counters)
	if err != nil {
		return err
	}
	listed, err := c.list(ctx)
	if err != nil {
		return err
	}
	var wrong error
	for i, counter := range w.counters {
		wrong = errors.Join(wrong, counter.recount(counts[i]))
		if got := listed[counter.key]; got != counts[i] {
			wrong = errors.Join(wrong, fmt.Errorf("%s reads %+v, but is listed with %+v", counter.key, counts[i], got))
		}
		delete(listed, counter.key)
	}
	if len(listed) > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("counters that nobody wrote to: %v", listed))
	}
	return wrong
}

// repeatSome repeats requests of the last life and of former ones: each must
// return what it returned at first.
func (w *world) repeatSome(ctx context.Context, c *client) error {
	err := each(append(w.sample, w.kept...), func(r *request) error {
		if err := deliver(ctx, c, r); err != nil {
			return err
		}
		x := r.writes[len(r.writes)-1]
		f, err := c.lookup(ctx, x)
		if err != nil {
			return err
		}
		w.repeats.Add(1)
		return x.noteFate(f)
	})
	if err != nil {
		return err
	}
	for _, r := range w.sample {
		if len(w.kept) < keptMax {
			w.kept = append(w.kept, r)
		} else {
			w.kept[w.rng.IntN(keptMax)] = r
		}
	}
	w.sample = nil
	return nil
}

// each calls f for everything in list, some at a time, until one fails.
func each[T any](list []T, f func(T) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	errs := make([]error, workers)
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() {
			for !failed.Load() {
				n := next.Add(1) - 1
				if n >= int64(len(list)) {
					return
				}
				if errs[i] = f(list[n]); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	done.Wait()
	for _, err := range errs { // a wrong answer goes before a server that is down
		if err != nil && !errors.Is(err, errDown) {
			return err
		}
	}
	return errors.Join(errs...)
}
