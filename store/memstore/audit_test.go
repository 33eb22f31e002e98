package memstore

import (
	"maps"
	"slices"
	"testing"

	"github.com/quipudb/quipu/store"
)

// used returns a store with two cells, one written by a writer, with two parts.
func used(t *testing.T) *Store {
	t.Helper()
	s := New(Options{})
	window := store.Rider{Part: store.PartFields{Kind: store.PartWindow, View: 3, Epoch: 5}.Part(), Op: store.OpAdd, N: 2}
	held := store.Rider{Part: store.PartFields{Kind: store.PartHeld}.Part(), Op: store.OpAdd, N: 2}
	event := &store.Event{Riders: []store.Rider{window, held}}
	batches := []store.Batch{
		{Deltas: []store.Delta{{Cell: store.Cell{Namespace: "n", Key: "a"}, Op: store.OpAdd, N: 5}}},
		{Writer: 1, Seq: 1, Deltas: []store.Delta{{Cell: store.Cell{Namespace: "n", Key: "b"}, Op: store.OpSet, N: 7, Event: event}}},
	}
	if err := s.Apply(t.Context(), batches, make([]store.Reply, 2)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAuditFindsDrift(t *testing.T) {
	a, b := store.Cell{Namespace: "n", Key: "a"}, store.Cell{Namespace: "n", Key: "b"}
	f := func(spoil func(s *Store), want ...string) {
		t.Helper()
		s := used(t)
		spoil(s)
		audit, err := s.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if audit.Deltas != 2 {
			t.Errorf("%d changes, want 2", audit.Deltas)
		}
		var got []string
		for _, d := range audit.Drift {
			if d.Have == d.Want {
				t.Errorf("drift %+v is none", d)
			}
			got = append(got, d.What)
		}
		if !slices.Equal(got, want) {
			t.Errorf("drift %q, want %q", got, want)
		}
	}
	const sum, check, keys = "sum of cells in partition 0", "check sum of cells in partition 0", `keys of namespace "n"`
	f(func(*Store) {})
	f(func(s *Store) { s.cells[a] = store.Value{N: 6, Version: 1, Exists: true} }, sum, check)
	f(func(s *Store) { delete(s.cells, b) }, sum, check, keys)
	f(func(s *Store) { s.cells[a], s.cells[b] = s.cells[b], s.cells[a] }, check)
	f(func(s *Store) { s.keys["n"]++ }, keys)
	spoil := func(kind store.PartKind, to int64) func(*Store) {
		return func(s *Store) {
			for id, v := range s.held {
				if id.Part.Kind() == kind {
					v.N = to
					s.held[id] = v
				}
			}
		}
	}
	const epoch = `check sum of parts of kind 0x81, view 3, epoch 0x5 of namespace "n" in partition 0`
	f(spoil(store.PartHeld, 3), sum, check)
	f(spoil(store.PartWindow, 3), epoch)
	f(spoil(store.PartWindow, 0), epoch)
	f(func(s *Store) { clear(s.parts[0].tallies) }, epoch)
}

func TestMeters(t *testing.T) {
	got := make(map[string]float64)
	used(t).Meters(func(name, help string, value float64) {
		if help == "" {
			t.Errorf("%s has no help", name)
		}
		got[name] = value
	})
	got["quipu_clock_behind_seconds"] = 0 // it takes a moment to ask
	want := map[string]float64{
		"quipu_clock_ahead_seconds": 0, "quipu_clock_behind_seconds": 0, "quipu_clock_jumps_total": 0,
		"quipu_store_cells": 2, "quipu_store_tokens": 0, "quipu_store_marks": 1, "quipu_store_deltas_total": 2,
		"quipu_store_reads_total": 0, "quipu_writes_total": 2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("meters %v, want %v", got, want)
	}
}
