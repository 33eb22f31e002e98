package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/quipudb/quipu/store"
)

// A kit has short names for what tests do to a store.
type kit struct {
	testing.TB
	store.Store
}

func cell(key string) store.Cell { return store.Cell{Namespace: "n", Key: key} }

func add(key string, n int64) store.Delta {
	return store.Delta{Cell: cell(key), Op: store.OpAdd, N: n, Want: true}
}

func once(d store.Delta, token string) store.Delta {
	d.Guard.Token, d.Guard.Digest = token, uint64(d.N)
	return d
}

// settle is of a token of cell a.
func settle(token string) store.Delta {
	return store.Delta{Cell: cell("a"), Op: store.OpSettle, Guard: store.Guard{Token: token}}
}

func (k kit) batch(ds ...store.Delta) store.Batch {
	return store.Batch{Partition: store.PartitionOf(ds[0].Cell, k.Traits().Partitions), Deltas: ds}
}

func (k kit) numbered(w store.Writer, prev, seq uint64, ds ...store.Delta) store.Batch {
	b := k.batch(ds...)
	b.Writer, b.Prev, b.Seq = w, prev, seq
	return b
}

// try applies a batch; an error is the call's or the batch's.
func (k kit) try(ctx context.Context, b store.Batch) (store.Reply, error) {
	rs := make([]store.Reply, 1)
	if err := k.Apply(ctx, []store.Batch{b}, rs); err != nil {
		return rs[0], err
	}
	return rs[0], rs[0].Err
}

func (k kit) reply(b store.Batch) store.Reply {
	k.Helper()
	r, err := k.try(k.Context(), b)
	if err != nil {
		k.Fatal(err)
	}
	return r
}

// one applies a delta that must come to something.
func (k kit) one(d store.Delta, want store.Outcome, before, after int64) store.Result {
	k.Helper()
	r := k.reply(k.batch(d)).Results[0]
	if r.Outcome != want || r.Before != before || r.After != after {
		k.Fatalf("%+v: %+v, want outcome %d from %d to %d", d, r, want, before, after)
	}
	return r
}

func (k kit) refused(b store.Batch, kind store.Kind) {
	k.Helper()
	if _, err := k.try(k.Context(), b); store.KindOf(err) != kind {
		k.Fatalf("%v, want an error of kind %d", err, kind)
	}
}

func (k kit) read(key string) int64 {
	k.Helper()
	v := make([]store.Value, 1)
	if err := k.Read(k.Context(), []store.Cell{cell(key)}, v); err != nil {
		k.Fatal(err)
	}
	return v[0].N
}

func (k kit) holds(key string, n int64) {
	k.Helper()
	if is := k.read(key); is != n {
		k.Fatalf("%q holds %d, want %d", key, is, n)
	}
}

func (k kit) enlist() store.Writer {
	k.Helper()
	w, err := store.Enlist(k.Context(), k.Store)
	if err != nil {
		k.Fatal(err)
	}
	return w
}

func (k kit) clean() {
	k.Helper()
	a, err := k.Store.(store.Auditor).Audit(k.Context())
	if err != nil || len(a.Drift) != 0 {
		k.Fatalf("audit: %v, drift %+v", err, a.Drift)
	}
}

func (k kit) meter(name string) (value float64) {
	k.Store.(store.Meter).Meters(func(n, _ string, v float64) {
		if n == name {
			value = v
		}
	})
	return value
}

// parallel runs f four times at once.
func (k kit) parallel(f func(i int) error) {
	k.Helper()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := f(i); err != nil {
				k.Error(fmt.Errorf("caller %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	if k.Failed() {
		k.FailNow()
	}
}
