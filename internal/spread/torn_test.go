package spread_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/spread"
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

// maimed fails the batches of one partition, and takes the others.
type maimed struct {
	*shared
	dead int
	err  error
}

func (m *maimed) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	errs := make([]error, len(batches))
	for i := range batches {
		if batches[i].Partition == m.dead {
			errs[i] = m.err
		} else {
			errs[i] = m.shared.Apply(ctx, batches[i:i+1], replies[i:i+1])
		}
	}
	return store.Answer(errs, replies)
}

// A partition that is out of reach concerns only those deltas of a call that go there.
// An add whose shard is there goes home, unless it may have been counted already.
func TestPartOutOfReach(t *testing.T) {
	const partitions = 8
	f := func(err error, h store.Delta, allowed ...store.Outcome) {
		t.Helper()
		m := &maimed{newShared(partitions), -1, err}
		s := server(t, m, lazy)
		home := store.PartitionOf(h.Cell, partitions)
		beside, elsewhere := cell(""), cell("")
		for i := 0; beside.Key == "" || elsewhere.Key == ""; i++ {
			switch c := cell(fmt.Sprint("beside", i)); store.PartitionOf(c, partitions) {
			case home:
				beside = c
			case (home + 1) % partitions:
				elsewhere = c
			}
		}
		mustDo(t, s, add(h.Cell, 1))
		total, met := int64(1), map[store.Outcome]int{}
		for i := range 20 * partitions {
			dead := i % partitions
			if dead == home || dead == (home+1)%partitions {
				continue
			}
			if k := spread.WordOf(read(t, s, h.Cell)); k.Shards() != 4 {
				split(t, s, h.Cell, 4)
			}
			m.dead = dead
			replies := make([]store.Reply, 2)
			err := s.Apply(t.Context(), []store.Batch{
				{Partition: home, Apart: true, Deltas: []store.Delta{add(beside, 1), h}},
				{Partition: (home + 1) % partitions, Apart: true, Deltas: []store.Delta{add(elsewhere, 1)}},
			}, replies)
			m.dead = -1
			if err != nil || replies[0].Err != nil || replies[1].Err != nil {
				t.Fatalf("partition %d is out of reach: %v, %v, %v", dead, err, replies[0].Err, replies[1].Err)
			}
			if a, b := replies[0].Results[0].Outcome, replies[1].Results[0].Outcome; a != store.Applied || b != store.Applied {
				t.Errorf("partition %d is out of reach: outcome %d beside it, %d elsewhere", dead, a, b)
			}
			outcome := replies[0].Results[1].Outcome
			if met[outcome]++; outcome == store.Applied {
				total++
			}
			mustDo(t, s, add(h.Cell, 0)) // it is not stuck
		}
		for outcome, n := range met {
			if !slices.Contains(allowed, outcome) {
				t.Errorf("%v: %d times outcome %d", err, n, outcome)
			}
		}
		if len(met) != len(allowed) {
			t.Errorf("%v: outcomes %v, want each of %v", err, met, allowed)
		}
		if n := mustDo(t, s, want(add(h.Cell, 0))).After; n != total {
			t.Errorf("%v: %d were counted, want %d", err, n, total)
		}
	}
	h := cell("h")
	f(store.ErrUnavailable, add(h, 1), store.Applied)
	f(store.ErrUnknown, add(h, 1), store.Applied, store.Unknown)
	f(store.ErrUnavailable, want(add(h, 1)), store.Applied, store.Unavailable)
}

// A batch all of which is in doubt says why.
func TestPartInDoubt(t *testing.T) {
	const partitions = 8
	m := &maimed{newShared(partitions), -1, store.Errorf(store.KindUnknown, "cut off")}
	s, h := server(t, m, lazy), cell("h")
	mustDo(t, s, add(h, 1))
	split(t, s, h, 4)
	home, failed := store.PartitionOf(h, partitions), 0
	for i := range 20 * partitions {
		if m.dead = i % partitions; m.dead == home {
			continue
		}
		if _, err := do(t.Context(), s, add(h, 1)); err != nil {
			failed++
			if !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "cut off") {
				t.Errorf("partition %d is out of reach: %v", m.dead, err)
			}
		}
	}
	if failed == 0 {
		t.Error("no shard was out of reach")
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
