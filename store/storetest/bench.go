package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu/store"
)

// Bench measures stores made by open. Each call waits for its acknowledgement
// at the strongest durability the store offers; -cpu sets how many callers
// there are.
func Bench(b *testing.B, open Opener) {
	for _, m := range []struct {
		name    string
		measure func(b *testing.B, s store.Store)
	}{
		{"add blind, one key", func(b *testing.B, s store.Store) { benchAdd(b, s, add(cell("hot"), 1)) }},
		{"add and want, one key", func(b *testing.B, s store.Store) { benchAdd(b, s, want(add(cell("hot"), 1))) }},
		{"add once, one key", benchOnce},
		{"add 1000 of 1M keys", benchMany},
		{"read, one key", benchRead},
		{"scan 100 of 10k keys", benchScan},
	} {
		b.Run(m.name, func(b *testing.B) {
			s := open(b, Config{Limits: store.Limits{TokensMax: 1 << 40}}).Store
			b.ReportAllocs()
			m.measure(b, s)
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Errorf("Close: %v", err)
			}
		})
	}
}

// A caller applies batches over and over and fails at the first that is not
// wholly applied.
type caller struct {
	ctx     context.Context
	store   store.Store
	replies []store.Reply
}

func (c *caller) apply(bs []store.Batch) error {
	for len(c.replies) < len(bs) {
		c.replies = append(c.replies, store.Reply{})
	}
	if err := c.store.Apply(c.ctx, bs, c.replies[:len(bs)]); err != nil {
		return err
	}
	for i := range bs {
		r := &c.replies[i]
		if r.Err != nil {
			return r.Err
		}
		for j := range r.Results {
			if err := r.Results[j].Outcome.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// single returns a call of one batch of one delta.
func single(s store.Store, d store.Delta) []store.Batch {
	home := store.PartitionOf(d.Cell, s.Traits().Partitions)
	return []store.Batch{{Partition: home, Deltas: []store.Delta{d}}}
}

func benchAdd(b *testing.B, s store.Store, d store.Delta) {
	b.RunParallel(func(pb *testing.PB) {
		c, bs := caller{ctx: b.Context(), store: s}, single(s, d)
		for pb.Next() {
			if err := c.apply(bs); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchOnce(b *testing.B, s store.Store) {
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		c, bs := caller{ctx: b.Context(), store: s}, single(s, once(add(cell("hot"), 1), "t"))
		prefix := fmt.Sprintf("%d-", callers.Add(1))
		for i := 0; pb.Next(); i++ {
			bs[0].Deltas[0].Guard.Token = prefix + strconv.Itoa(i)
			if err := c.apply(bs); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchMany(b *testing.B, s store.Store) {
	const keys, deltas = 1_000_000, 1000
	cells := make([]store.Cell, keys)
	for i := range cells {
		cells[i] = cell(fmt.Sprintf("key:%07d", i))
	}
	parts := s.Traits().Partitions
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c := caller{ctx: b.Context(), store: s}
		bs := make([]store.Batch, parts)
		for i := range bs {
			bs[i].Partition = i
		}
		for pb.Next() {
			for i := range bs {
				bs[i].Deltas = bs[i].Deltas[:0]
			}
			for range deltas {
				at := cells[rand.IntN(keys)]
				home := &bs[store.PartitionOf(at, parts)]
				home.Deltas = append(home.Deltas, add(at, 1))
			}
			if err := c.apply(bs); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)*deltas/b.Elapsed().Seconds(), "deltas/s")
}

func benchRead(b *testing.B, s store.Store) {
	c := caller{ctx: b.Context(), store: s}
	if err := c.apply(single(s, add(cell("hot"), 1))); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		cells, values := []store.Cell{cell("hot")}, make([]store.Value, 1)
		for pb.Next() {
			if err := s.Read(b.Context(), cells, values); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchScan(b *testing.B, s store.Store) {
	const keys, page = 10_000, 100
	parts := s.Traits().Partitions
	bs := make([]store.Batch, parts)
	for i := range keys {
		at := cell(fmt.Sprintf("key:%07d", i))
		home := store.PartitionOf(at, parts)
		bs[home].Partition = home
		bs[home].Deltas = append(bs[home].Deltas, add(at, 1))
	}
	c := caller{ctx: b.Context(), store: s}
	if err := c.apply(bs); err != nil {
		b.Fatal(err)
	}
	r := store.Range{Namespace: namespace, Prefix: "key:"}
	for b.Loop() {
		es, err := s.Scan(b.Context(), r, page)
		if err != nil {
			b.Fatal(err)
		}
		if len(es) == page {
			r.After = es[page-1].Key
		} else {
			r.After = ""
		}
	}
}
