package node_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(partitions int, hooks ...storetest.Hook) storetest.Opener {
	return func(t testing.TB, c storetest.Config) *storetest.Instance {
		h := new(storetest.Hooks)
		h.On(storetest.OnApply, hooks...)
		return &storetest.Instance{Store: over(t, storetest.Wrap(memory(partitions, c), h)), Probes: true}
	}
}

func over(t testing.TB, s store.Store) *node.Node {
	return node.New(context.WithValue(t.Context(), ownKey{}, true), s, node.Options{})
}

// memory returns a memstore for nodes.
func memory(partitions int, c storetest.Config) store.Store {
	o := memstore.Options{Limits: c.Limits, Now: c.Now, Partitions: partitions}
	o.Limits.WritersMax = 0
	s := memstore.New(o)
	if c.Limits.WritersMax == 0 {
		return s
	}
	h := &storetest.Hooks{Traits: func(t *store.Traits) { t.Limits.WritersMax = c.Limits.WritersMax }}
	h.On(storetest.OnApply, countedMarks(c.Limits.WritersMax, partitions))
	return storetest.Wrap(s, h)
}

func TestLaws(t *testing.T) {
	t.Run("1 partition", func(t *testing.T) { storetest.Run(t, open(1)) })
	t.Run("8 partitions", func(t *testing.T) { storetest.Run(t, open(8)) })
}

// Nodes keep nothing: another takes the place of one that died, or was closed.
func TestLawsWhenNodesDie(t *testing.T) {
	storetest.Run(t, func(t testing.TB, c storetest.Config) *storetest.Instance {
		shared := memory(3, c)
		another := func(t testing.TB) store.Store {
			lent := new(storetest.Hooks) // Others go on with it when it is closed.
			lent.On(storetest.OnClose, func(*storetest.Call) error {
				lent.On(storetest.OnAll, storetest.Fail(store.ErrClosed))
				return nil
			})
			n := over(t, storetest.Wrap(shared, lent))
			t.Cleanup(func() { _ = n.Close() })
			return n
		}
		inst := &storetest.Instance{Store: another(t), Crash: another, Probes: true}
		inst.Reopen = func(t testing.TB) store.Store {
			if err := inst.Store.Close(); err != nil {
				t.Error(err)
			}
			return another(t)
		}
		return inst
	})
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, open(8)) }

// ownKey marks the contexts of what a node does by itself.
type ownKey struct{}

// countedMarks gives a store as many marks of callers as the laws say. Those of the
// node itself are kept too, and the laws, which count to the limit, know nothing
// of them. It is for one call at a time.
func countedMarks(most, partitions int) storetest.Hook {
	of := make([]map[store.Writer]bool, partitions) // of callers, by partition
	return storetest.If(func(c *storetest.Call) bool { return c.Ctx.Value(ownKey{}) == nil }, func(c *storetest.Call) error {
		for i := range c.Batches {
			b, r := c.Batches[i], &c.Replies[i]
			if err := store.CheckBatch(&b, partitions); err != nil {
				*r = store.Reply{Err: err}
				continue
			}
			if of[b.Partition] == nil {
				of[b.Partition] = map[store.Writer]bool{}
			}
			marks := of[b.Partition]
			full := b.Writer != 0 && !marks[b.Writer] && len(marks) >= most
			if full {
				b.Prev, b.Seq = 1<<63, 1<<63+1 // the store does not apply it, and says if it is retired
			}
			one := *c
			one.Batches, one.Replies = []store.Batch{b}, c.Replies[i:i+1]
			if err := one.Pass(); err != nil {
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
	})
}

// Callers are told what their flight met.
func TestContended(t *testing.T) {
	h := new(storetest.Hooks)
	h.On(storetest.OnApply, func(c *storetest.Call) error { // Every batch waits and is decided again.
		err := c.Pass()
		for i := range c.Replies {
			c.Replies[i].Waited, c.Replies[i].Retries = 7, 3
		}
		return err
	})
	n := over(t, storetest.Wrap(memory(1, storetest.Config{}), h))
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
