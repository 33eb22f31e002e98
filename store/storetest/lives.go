package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// lives are the laws of how a store, and a call to it, end.
func lives(s *suite) {
	s.law("after Close every call returns ErrClosed", func(k *kit) {
		c := cell("a")
		k.one(once(add(c, 1), "t"))
		k.close()
		for name, err := range k.callAll(k.ctx, c) {
			if !errors.Is(err, store.ErrClosed) {
				k.Fatalf("%s after Close: %v", name, err)
			}
		}
		k.close() // again, and again without an error
		k.close()
	})

	s.law("Close waits for the calls under way", func(k *kit) {
		c := cell("a")
		var acked atomic.Int64
		var closed atomic.Bool
		started := make(chan struct{}, 4)
		k.parallel(5, func(g int) error {
			if g == 4 {
				for range 4 {
					<-started
				}
				defer closed.Store(true)
				return k.store.Close()
			}
			for i := 0; ; i++ {
				late := closed.Load()
				_, err := k.try(k.batch(add(c, 1)))
				if i == 0 {
					started <- struct{}{}
				}
				switch {
				case errors.Is(err, store.ErrClosed):
					return nil
				case err != nil:
					return fmt.Errorf("a call under way when the store was closed: %w", err)
				case late:
					return errors.New("a call after Close was served")
				}
				acked.Add(1)
			}
		})
		if acked.Load() < 4 {
			k.Fatalf("only %d writes before Close", acked.Load())
		}
		if k.inst.Reopen != nil {
			k.replace(k.inst.Reopen(k.t))
			k.holds(c, acked.Load())
		}
	})

	s.law("a call with a finished context changes nothing", func(k *kit) {
		c := cell("a")
		k.one(add(c, 1))
		cancelled, cancel := context.WithCancel(k.ctx)
		cancel()
		late, stop := context.WithDeadline(k.ctx, time.Unix(0, 0))
		defer stop()
		for _, ctx := range []context.Context{cancelled, late} {
			for name, err := range k.callAll(ctx, c) {
				if !errors.Is(err, ctx.Err()) {
					k.Fatalf("%s with a context that ended by %v: %v", name, ctx.Err(), err)
				}
			}
		}
		k.holds(c, 1)
		k.state(c, "t", store.TokenUnknown)
	})

	s.law("a call cancelled at any moment tells the truth", cancelAnytime)
}

// callAll makes one call of each method and returns the errors.
func (k *kit) callAll(ctx context.Context, c store.Cell) map[string]error {
	errs := make(map[string]error)
	errs["Apply"] = k.store.Apply(ctx, []store.Batch{k.batch(once(add(c, 1), "t"))}, make([]store.Reply, 1))
	errs["Read"] = k.store.Read(ctx, []store.Cell{c}, make([]store.Value, 1))
	_, errs["Scan"] = k.store.Scan(ctx, store.Range{Namespace: namespace}, 1)
	_, errs["Lookup"] = k.store.Lookup(ctx, c, "t")
	_, errs["Enlist"] = store.Enlist(ctx, k.store)
	errs["ReadParts"] = k.store.ReadParts(ctx, []store.PartCell{{Cell: c, Part: partHeld}}, make([]store.Content, 1))
	_, errs["ScanParts"] = k.store.ScanParts(ctx, store.Rows{Namespace: namespace}, 1)
	if a, ok := k.store.(store.Auditor); ok {
		_, errs["Audit"] = a.Audit(ctx)
	}
	if z, ok := k.store.(store.Sizer); ok {
		_, errs["Size"] = z.Size(ctx, namespace)
	}
	if n, ok := k.store.(store.Namespacer); ok {
		_, errs["Namespaces"] = n.Namespaces(ctx, "", 1)
	}
	if w, ok := k.store.(store.Witness); ok {
		_, errs["Lost"] = w.Lost(ctx, c, 1, store.Value{})
	}
	return errs
}

// cancelAnytime cancels calls while they run. Whatever a call says must be so:
// nil is applied, the context's error is not applied, ErrUnknown is either and
// a settle tells.
func cancelAnytime(k *kit) {
	c := cell("a")
	var applied atomic.Int64
	k.parallel(4, func(g int) error {
		for i := range 40 {
			token := fmt.Sprintf("%d-%d", g, i)
			ctx, cancel := context.WithCancel(k.ctx)
			go cancel()
			_, err := send(ctx, k.store, k.batch(once(add(c, 1), token)))
			cancel()
			said, changed := err, err == nil
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnknown) {
				return fmt.Errorf("a cancelled call returned %w", err)
			}
			r, err := k.try(k.batch(settle(c, token)))
			if err != nil {
				return err
			}
			found := r.Results[0].Outcome == store.Applied
			if found != changed && !errors.Is(said, store.ErrUnknown) {
				return fmt.Errorf("a cancelled call said %w, and its write was applied: %v", said, found)
			}
			if found {
				applied.Add(1)
			}
		}
		return nil
	})
	if n := k.read(c).N; n != applied.Load() {
		k.Fatalf("the cell holds %d, %d writes were applied", n, applied.Load())
	}
}
