package spread_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

var seed = flag.Uint64("seed", 0, "the seed; 0 takes a new one")

// chance returns what a test draws from, and says how to draw it again.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	from := cmp.Or(*seed, rand.Uint64())
	t.Logf("replay: go test ./internal/spread -run '^%s$' -count=1 -v -args -seed=%d", t.Name(), from)
	return rand.New(rand.NewPCG(from, 0))
}

// lazy is a policy under which nothing happens by itself for as long as a test
// takes, and never is how often it looks.
var lazy = spread.Policy{Limits: hot.Limits{Max: hot.ShardsMax, CoolDown: time.Hour}}

const never = time.Hour

// eager are rules by which a counter is hot that takes some calls a second.
var eager = hot.Rules{Calls: 100, Least: 100}

// shared is a store that several servers use, and that can fail at a step.
type shared struct {
	store.Store

	mu    sync.Mutex
	fail  func(batches []store.Batch) error // before it is applied
	after func(batches []store.Batch) error // and after
	calls int
	reads int
	gap   func(store.Cell) bool // what can't be read
	hang  func(store.Cell) bool // what is not answered
}

func newShared(partitions int) *shared {
	return &shared{Store: memstore.New(memstore.Options{Partitions: partitions})}
}

// fails sets what fails before a call is applied, and after.
func (s *shared) fails(before, after func(batches []store.Batch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.after = before, after
}

// hangs sets what is not answered when it is read.
func (s *shared) hangs(hang func(store.Cell) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = hang
}

// cannotRead sets what can't be read.
func (s *shared) cannotRead(gap func(store.Cell) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gap = gap
}

func (s *shared) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.mu.Lock()
	fail, after := s.fail, s.after
	s.calls++
	s.mu.Unlock()
	if fail != nil {
		if err := fail(batches); err != nil {
			return err
		}
	}
	if err := s.Store.Apply(ctx, batches, replies); err != nil {
		return err
	}
	if after != nil {
		return after(batches)
	}
	return nil
}

func (s *shared) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	s.mu.Lock()
	s.reads++
	gap, hang := s.gap, s.hang
	s.mu.Unlock()
	if hang != nil && slices.ContainsFunc(cells, hang) {
		<-ctx.Done()
		return store.ErrUnavailable
	}
	if gap != nil && slices.ContainsFunc(cells, gap) {
		return store.ErrUnavailable
	}
	return s.Store.Read(ctx, cells, values)
}

// Close leaves the store to the others.
func (s *shared) Close() error { return nil }

// server is one of those that share a store.
func server(t testing.TB, under store.Store, p spread.Policy) *spread.Store {
	t.Helper()
	return paced(t, under, p, 7*time.Millisecond)
}

// paced is server with a clock of its own, which goes on by a step each time that
// it is looked at.
func paced(t testing.TB, under store.Store, p spread.Policy, step time.Duration) *spread.Store {
	t.Helper()
	var now atomic.Int64
	s := spread.New(under, spread.Options{
		Policy: func(store.Cell) spread.Policy { return p }, Rules: eager, Every: never,
		// Whenever one looks, some time has passed, so that it moves on to other shards.
		Now: func() time.Time { return time.Unix(1_790_000_000, now.Add(int64(step))) },
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
	for !s.Loaded() {
		runtime.Gosched()
	}
	return s
}

func cell(key string) store.Cell { return store.Cell{Namespace: "n", Key: key} }

func add(c store.Cell, n int64) store.Delta { return store.Delta{Cell: c, Op: store.OpAdd, N: n} }

func want(d store.Delta) store.Delta {
	d.Want = true
	return d
}

// do applies one delta.
func do(ctx context.Context, s store.Store, d store.Delta) (store.Result, error) {
	b := store.Batch{Partition: store.PartitionOf(d.Cell, s.Traits().Partitions), Deltas: []store.Delta{d}}
	replies := make([]store.Reply, 1)
	if err := s.Apply(ctx, []store.Batch{b}, replies); err != nil {
		return store.Result{}, err
	}
	if err := replies[0].Err; err != nil {
		return store.Result{}, err
	}
	return replies[0].Results[0], replies[0].Results[0].Outcome.Err()
}

func mustDo(t testing.TB, s store.Store, d store.Delta) store.Result {
	t.Helper()
	r, err := do(t.Context(), s, d)
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	return r
}

func read(t testing.TB, s store.Store, c store.Cell) store.Value {
	t.Helper()
	var v [1]store.Value
	if err := s.Read(t.Context(), []store.Cell{c}, v[:]); err != nil {
		t.Fatalf("Read: %v", err)
	}
	return v[0]
}

// holds checks the sum of a counter, and how many shards it is read from.
func holds(t testing.TB, s store.Store, c store.Cell, n int64, shards int) {
	t.Helper()
	if v := read(t, s, c); v.N != n || !v.Exists || spread.WordOf(v).Shards() != shards {
		t.Fatalf("%q reads %+v of %d shards, want %d of %d", c.Key, v, spread.WordOf(v).Shards(), n, shards)
	}
}

func split(t testing.TB, s *spread.Store, c store.Cell, shards int) {
	t.Helper()
	if ok, err := s.Split(t.Context(), c, shards); err != nil || !ok {
		t.Fatalf("split %q into %d: %v, %v", c.Key, shards, ok, err)
	}
}

// each runs a test over a store of one partition and one of several.
func each(t *testing.T, f func(t *testing.T, under *shared)) {
	t.Run("1 partition", func(t *testing.T) { f(t, newShared(1)) })
	t.Run("8 partitions", func(t *testing.T) { f(t, newShared(8)) })
}

// rerouted returns how many adds found their shard closed, or gone.
func rerouted(s *spread.Store) (n float64) {
	s.Meters(func(name, _ string, v float64) {
		if name == "quipu_adds_rerouted_total" {
			n = v
		}
	})
	return n
}
