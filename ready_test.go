package quipu_test

import (
	"context"
	"errors"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A maimed store has a partition that can't be reached.
type maimed struct {
	store.Store
	lost int
}

func (m *maimed) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		if batches[i].Partition == m.lost {
			return store.ErrUnavailable
		}
	}
	return m.Store.Apply(ctx, batches, replies)
}

func (m *maimed) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	for _, c := range cells {
		if store.PartitionOf(c, m.Traits().Partitions) == m.lost {
			return store.ErrUnavailable
		}
	}
	return m.Store.Read(ctx, cells, values)
}

// A DB is ready if all partitions of its store are; finding out changes nothing.
func TestReady(t *testing.T) {
	const partitions = 64
	for _, o := range []quipu.Options{{}, {ReadOnly: true}} {
		m := &maimed{memstore.New(memstore.Options{Partitions: partitions}), -1}
		db := quipu.New(m, o)
		if err := db.Ready(t.Context()); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		for m.lost = range partitions {
			if err := db.Ready(t.Context()); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("%+v: ready without partition %d: %v", o, m.lost, err)
			}
		}
		m.lost = -1
		if page, err := db.List(t.Context(), "", quipu.ListOptions{}); err != nil || len(page.Counts) != 0 {
			t.Errorf("%+v: there are %v, %v", o, page.Counts, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
