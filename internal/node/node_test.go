package node_test

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// whole is all that a memstore can do, but Start.
type whole interface {
	store.Store
	store.Auditor
	store.Clock
	store.Meter
	store.Namespacer
	store.Sizer
	store.Witness
}

func open(partitions int, o node.Options) storetest.Opener {
	return openOn(partitions, o, func(s whole) store.Store { return s })
}

// openOn opens a node over what a function makes of a memstore.
func openOn(partitions int, o node.Options, wrap func(whole) store.Store) storetest.Opener {
	return func(t testing.TB, c storetest.Config) *storetest.Instance {
		return &storetest.Instance{Store: over(t, wrap(memory(partitions, c)), o)}
	}
}

func over(t testing.TB, s store.Store, o node.Options) *node.Node {
	n := node.New(context.WithValue(t.Context(), ownKey{}, true), s, o)
	return n
}

// memory returns a memstore for nodes.
func memory(partitions int, c storetest.Config) whole {
	o := memstore.Options{Limits: c.Limits, Now: c.Now, Partitions: partitions}
	o.Limits.WritersMax = 0
	s := memstore.New(o)
	if c.Limits.WritersMax == 0 {
		return s
	}
	return &counted{whole: s, max: c.Limits.WritersMax, marks: make([]map[store.Writer]bool, partitions)}
}

func TestLaws(t *testing.T) {
	t.Run("1 partition", func(t *testing.T) { storetest.Run(t, open(1, node.Options{})) })
	t.Run("8 partitions", func(t *testing.T) { storetest.Run(t, open(8, node.Options{})) })
}

// Nodes keep nothing: another takes the place of one that died, or was closed.
func TestLawsWhenNodesDie(t *testing.T) {
	storetest.Run(t, func(t testing.TB, c storetest.Config) *storetest.Instance {
		shared := memory(3, c)
		another := func(t testing.TB) store.Store {
			n := over(t, &lent{whole: shared}, node.Options{})
			t.Cleanup(func() { _ = n.Close() })
			return n
		}
		inst := &storetest.Instance{Store: another(t), Crash: another}
		inst.Reopen = func(t testing.TB) store.Store {
			if err := inst.Store.Close(); err != nil {
				t.Error(err)
			}
			return another(t)
		}
		return inst
	})
}

// A lent store is one that others go on with when it is closed.
type lent struct {
	whole
	closed atomic.Bool
}

func (s *lent) Close() error {
	s.closed.Store(true)
	return nil
}

func (s *lent) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return s.whole.Apply(ctx, batches, replies)
}

func (s *lent) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return s.whole.Read(ctx, cells, values)
}

func (s *lent) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	return s.whole.Scan(ctx, r, n)
}

func (s *lent) Lookup(ctx context.Context, c store.Cell, token string) (store.Fate, error) {
	if s.closed.Load() {
		return store.Fate{}, store.ErrClosed
	}
	return s.whole.Lookup(ctx, c, token)
}

func (s *lent) Audit(ctx context.Context) (store.Audit, error) {
	if s.closed.Load() {
		return store.Audit{}, store.ErrClosed
	}
	return s.whole.Audit(ctx)
}

func (s *lent) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	return s.whole.Namespaces(ctx, after, n)
}

func (s *lent) Size(ctx context.Context, namespace string) (int64, error) {
	if s.closed.Load() {
		return 0, store.ErrClosed
	}
	return s.whole.Size(ctx, namespace)
}

func (s *lent) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	if s.closed.Load() {
		return false, store.ErrClosed
	}
	return s.whole.Lost(ctx, c, version, v)
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, open(8, node.Options{})) }

// ownKey marks the contexts of what a node does by itself.
type ownKey struct{}

// A counted store has as many marks of callers as the laws say. Those of the
// node itself are kept too, and the laws, which count to the limit, know nothing
// of them. It is for one call at a time.
type counted struct {
	whole
	max   int
	marks []map[store.Writer]bool // of callers, by partition
}

func (s *counted) Traits() store.Traits {
	t := s.whole.Traits()
	t.Limits.WritersMax = s.max
	return t
}

func (s *counted) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if ctx.Value(ownKey{}) != nil {
		return s.whole.Apply(ctx, batches, replies)
	}
	for i := range batches {
		b, r := batches[i], &replies[i]
		if err := store.CheckBatch(&b, len(s.marks)); err != nil {
			*r = store.Reply{Err: err}
			continue
		}
		if s.marks[b.Partition] == nil {
			s.marks[b.Partition] = map[store.Writer]bool{}
		}
		marks := s.marks[b.Partition]
		full := b.Writer != 0 && !marks[b.Writer] && len(marks) >= s.max
		if full {
			b.Prev, b.Seq = 1<<63, 1<<63+1 // the store does not apply it, and says if it is retired
		}
		if err := s.whole.Apply(ctx, []store.Batch{b}, replies[i:i+1]); err != nil {
			return err
		}
		if full && store.KindOf(r.Err) == store.KindMark {
			r.Err = store.ErrFull
		}
		if r.Err != nil {
			continue
		}
		for _, d := range b.Deltas {
			for w := range marks {
				if d.Op == store.OpRetire && w <= store.Writer(d.N) {
					delete(marks, w)
				}
			}
		}
		if b.Writer != 0 {
			marks[b.Writer] = true
		}
	}
	return nil
}

// contended is a store where every batch waits and is decided again.
type contended struct{ whole }

func (s contended) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	err := s.whole.Apply(ctx, batches, replies)
	for i := range replies {
		replies[i].Waited, replies[i].Retries = 7, 3
	}
	return err
}

// Callers are told what their flight met.
func TestContended(t *testing.T) {
	n := over(t, contended{memory(1, storetest.Config{})}, node.Options{})
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	replies, err := send(t.Context(), n, store.Batch{Deltas: []store.Delta{add("a", 1)}})
	if err != nil || replies[0].Waited != 7 || replies[0].Retries != 3 {
		t.Errorf("%+v, %v: want 7ns and 3 retries", replies, err)
	}
}
