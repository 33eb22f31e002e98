package quipu_test

import (
	"context"
	"slices"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// A stub is a store that decides nothing and allocates nothing: it gives the
// answers it was made with. It is not safe for concurrent use.
type stub struct {
	traits store.Traits
	result store.Result   // what each delta is told
	refuse map[int]error  // what batches of a partition are told
	value  store.Value    // what each cell holds
	fate   store.Fate     // what each token's is
	err    error          // what every call returns
	sent   *[]store.Batch // if not nil, takes a copy of what Apply is given
}

func newStub() *stub {
	return &stub{
		traits: store.Traits{Name: "stub", Partitions: 1, Durability: store.Synced},
		result: store.Result{Outcome: store.Applied, Version: 1},
	}
}

// record makes the stub keep what Apply is given from now on.
func (s *stub) record() *[]store.Batch {
	s.sent = new([]store.Batch)
	return s.sent
}

func (s *stub) Apply(_ context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		b, r := &batches[i], &replies[i]
		r.Durability = b.Durability
		r.Err = s.refuse[b.Partition]
		r.Results = r.Results[:0]
		for range b.Deltas {
			r.Results = append(r.Results, s.result)
		}
		if s.sent != nil {
			sent := *b
			sent.Deltas = slices.Clone(b.Deltas)
			*s.sent = append(*s.sent, sent)
		}
	}
	return s.err
}

func (s *stub) Read(_ context.Context, _ []store.Cell, values []store.Value) error {
	for i := range values {
		values[i] = s.value
	}
	return s.err
}

func (s *stub) Scan(context.Context, store.Range, int) ([]store.Entry, error) { return nil, s.err }

func (s *stub) Lookup(context.Context, store.Cell, string) (store.Fate, error) { return s.fate, s.err }

func (s *stub) Traits() store.Traits { return s.traits }

func (s *stub) Close() error { return nil }

// far is a store that is not in this process, for all that a DB can tell: then
// totals are kept for readers.
type far struct{ store.Store }

func meter(db *quipu.DB, name string) (value float64) {
	db.Meters(func(n, _ string, v float64) {
		if n == name {
			value = v
		}
	})
	return value
}
