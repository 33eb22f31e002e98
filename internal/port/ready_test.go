package port_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A maimed store has a partition that can't be reached, or all are so.
type maimed struct {
	store.Store
	lost int
}

const all = -2

func (m *maimed) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		if m.lost == all || batches[i].Partition == m.lost {
			return store.ErrUnavailable
		}
	}
	return m.Store.Apply(ctx, batches, replies)
}

func (m *maimed) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	for _, c := range cells {
		if m.lost == all || store.PartitionOf(c, m.Traits().Partitions) == m.lost {
			return store.ErrUnavailable
		}
	}
	return m.Store.Read(ctx, cells, values)
}

// A DB is ready if a partition of its store is, and says how many are not; finding
// out changes nothing.
func TestReady(t *testing.T) {
	const partitions = 64
	for _, o := range []quipu.Options{{}, {ReadOnly: true}} {
		synctest.Test(t, func(t *testing.T) { ready(t, o, partitions) })
	}
}

func ready(t *testing.T, o quipu.Options, partitions int) {
	m := &maimed{memstore.New(memstore.Options{Partitions: partitions}), -1}
	db := quipu.New(m, o)
	look := func() error { return db.Ready(t.Context()) }
	if err := look(); err != nil {
		t.Errorf("%+v: %v", o, err)
	}
	for m.lost = range partitions {
		if err := look(); err != nil || meter(db, "quipu_partitions_unreachable") != 1 {
			t.Errorf("%+v: without partition %d: %v, %v unreachable", o, m.lost, err, meter(db, "quipu_partitions_unreachable"))
		}
	}
	m.lost = all
	if err := look(); !errors.Is(err, quipu.ErrUnavailable) || meter(db, "quipu_partitions_unreachable") != float64(partitions) {
		t.Errorf("%+v: without any partition: %v", o, err)
	}
	m.lost = -1
	if err := look(); err != nil || meter(db, "quipu_partitions_unreachable") != 0 {
		t.Errorf("%+v: %v", o, err)
	}
	if page, err := db.List(t.Context(), "", quipu.ListOptions{}); err != nil || len(page.Counts) != 0 {
		t.Errorf("%+v: there are %v, %v", o, page.Counts, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Those who ask at the same time share one look at the store. One who gives up takes nothing away from the others.
func TestHealthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{Store: memstore.New(memstore.Options{Partitions: 4}), hold: make(chan struct{})}
		db := quipu.New(s, quipu.Options{})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if h := db.Port().Health(gone); !errors.Is(h.Err, context.Canceled) {
			t.Errorf("%+v", h)
		}
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if h := db.Port().Health(t.Context()); h.Err != nil {
					t.Errorf("%+v", h)
				}
			})
		}
		synctest.Wait()
		close(s.hold)
		wg.Wait()
		if n := s.calls.Load(); n != 4 {
			t.Errorf("the store was asked %d times", n)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Ready(t.Context()); !errors.Is(err, quipu.ErrClosed) {
			t.Errorf("a closed DB is ready: %v", err)
		}
	})
}

// A partition that never answers, not even when its call is cut short, is reported
// in less than a second.
func TestHealth(t *testing.T) {
	hold := make(chan struct{})
	s := &stuck{Store: memstore.New(memstore.Options{Partitions: 4}), hold: hold}
	db := quipu.New(s, quipu.Options{})
	began := time.Now()
	h := db.Port().Health(t.Context())
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("Health took %v", took)
	}
	if h.Partitions != 4 || !slices.Equal(h.Down, []int{2}) || !errors.Is(h.Err, quipu.ErrUnavailable) || h.Ready() != nil {
		t.Errorf("%+v", h)
	}
	close(hold)
	if h := db.Port().Health(t.Context()); len(h.Down) > 0 || h.Err != nil {
		t.Errorf("%+v", h)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A stuck store has a partition whose calls hang, whatever becomes of their contexts.
type stuck struct {
	store.Store
	hold  chan struct{}
	calls atomic.Int64
}

func (s *stuck) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.calls.Add(1)
	if batches[0].Partition == 2 {
		<-s.hold
	}
	return s.Store.Apply(ctx, batches, replies)
}

func meter(db *quipu.DB, name string) (value float64) {
	db.Port().Meters(func(n, _ string, v float64) {
		if n == name {
			value = v
		}
	})
	return value
}
