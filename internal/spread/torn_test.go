package spread_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/store"
)

// The conditions of a batch hold when it is applied, also if that is later,
// because another server has split a counter: in between, anyone may change
// what they are about.
func TestConditionsHoldLater(t *testing.T) {
	f := func(apart bool, deltas ...store.Delta) {
		t.Helper()
		under := newShared(1)
		one, two := server(t, under, lazy), server(t, under, lazy)
		mustDo(t, one, add(cell("a"), 1))
		mustDo(t, one, add(cell("b"), 1))
		version := read(t, two, cell("a")).Version
		split(t, one, cell("b"), 4)
		first := true
		under.fails(nil, func([]store.Batch) error {
			if !first {
				return nil
			}
			first = false // which was refused, because b is split
			return under.Store.Apply(t.Context(), []store.Batch{{Deltas: []store.Delta{add(cell("a"), 1)}}}, make([]store.Reply, 1))
		})
		batch := store.Batch{If: []store.Condition{{Cell: cell("a"), Version: version}}, Apart: apart, Deltas: deltas}
		replies := make([]store.Reply, 1)
		if err := two.Apply(t.Context(), []store.Batch{batch}, replies); err != nil || !errors.Is(replies[0].Err, store.ErrChanged) {
			t.Errorf("apart %v: %v, %+v, although a was changed", apart, err, replies[0])
		}
		if a, b := read(t, two, cell("a")).N, read(t, two, cell("b")).N; a != 2 || b != 1 {
			t.Errorf("apart %v: a is %d and b is %d", apart, a, b)
		}
	}
	for _, apart := range []bool{false, true} {
		f(apart, want(add(cell("b"), 10)))
		f(apart, want(add(cell("b"), 10)), add(cell("a"), 10))
	}
}

// maimed refuses the batches of one partition, and takes the others.
type maimed struct {
	*shared
	dead int
}

func (m *maimed) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		if batches[i].Partition == m.dead {
			replies[i] = store.Reply{Err: store.ErrUnavailable}
		} else if err := m.shared.Apply(ctx, batches[i:i+1], replies[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// If a part of a batch was refused and another was not, nobody is told that
// nothing changed.
func TestPartRefused(t *testing.T) {
	const partitions = 8
	under := newShared(partitions)
	m := &maimed{under, -1}
	s := server(t, m, lazy)
	h := cell("h")
	home := store.PartitionOf(h, partitions)
	beside := cell("")
	for i := 0; beside.Key == "" || store.PartitionOf(beside, partitions) != home; i++ {
		beside = cell(fmt.Sprint("beside", i))
	}
	mustDo(t, s, add(h, 1))
	split(t, s, h, 4)
	refused := 0
	for i := range 20 * partitions {
		dead := i % partitions
		if dead == home {
			continue
		}
		m.dead = dead
		before := read(t, s, beside).N
		replies := make([]store.Reply, 1)
		err := s.Apply(t.Context(), []store.Batch{{Partition: home, Apart: true, Deltas: []store.Delta{add(beside, 1), add(h, 1)}}}, replies)
		counted := read(t, s, beside).N - before
		switch {
		case err != nil:
			refused++
			if store.KindOf(err) != store.KindUnknown || counted != 1 {
				t.Errorf("partition %d is dead: %v, and %d were counted", dead, err, counted)
			}
		case replies[0].Err != nil || counted != 1:
			t.Errorf("partition %d is dead: %v, and %d were counted", dead, replies[0].Err, counted)
		}
	}
	if refused == 0 {
		t.Error("no shard was in a dead partition")
	}
}

// What moves to shards has longer names, and may need more batches than its caller
// has made of it.
func TestMovedInPieces(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		s := server(t, under, lazy)
		long := cell(strings.Repeat("k", store.KeyBytesMax))
		mustDo(t, s, add(long, 1))
		split(t, s, long, 8)
		batch := store.Batch{Partition: store.PartitionOf(long, under.Traits().Partitions), Apart: true}
		for range store.BatchBytesMax / (store.KeyBytesMax + 1) {
			batch.Deltas = append(batch.Deltas, add(long, 1))
		}
		replies := make([]store.Reply, 1)
		if err := s.Apply(t.Context(), []store.Batch{batch}, replies); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies[0].Err)
		}
		if n := read(t, s, long).N; n != int64(len(batch.Deltas))+1 {
			t.Errorf("%d of %d were counted", n-1, len(batch.Deltas))
		}
	})
}
