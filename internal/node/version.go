package node

import (
	"math"
	"slices"

	"github.com/quipudb/quipu/store"
)

// A run of adds that the store takes as one change is many changes to those who
// made them, and each must have a version of its own: whoever writes only if the
// version is still the one it was told must be refused if anyone came after. So
// the versions that a node tells are finer than the store's: a change that the
// store calls v is fine(v) to callers, and the adds of a run that came before its
// last have the numbers right below. Nothing else is ever given those, and no
// cell is ever at one of them.
//
// All nodes over a store tell the same, so one that only reads must be a node too.
// The store's own versions must stay below 1<<54.
const (
	versionBits = 10
	runMax      = 1 << versionBits // adds in a run
)

// fine returns what callers are told of a version of the store.
func fine(v uint64) uint64 { return v << versionBits }

// coarse returns what the store calls a version that a caller names. One that no
// cell is ever at becomes another such.
func coarse(v uint64) uint64 {
	if v%runMax != 0 {
		return math.MaxUint64
	}
	return v >> versionBits
}

func fineResults(rs []store.Result) {
	for i := range rs {
		rs[i].Version = fine(rs[i].Version)
	}
}

// coarseBatches returns batches with the versions of the store. Those of the
// caller stay as they are.
func coarseBatches(batches []store.Batch) []store.Batch {
	copied := false
	for i := range batches {
		conditions, deltas := batches[i].If, batches[i].Deltas
		matches := slices.ContainsFunc(deltas, func(d store.Delta) bool { return d.Guard.Match || d.Event != nil })
		if len(conditions) == 0 && !matches {
			continue
		}
		if !copied {
			batches, copied = slices.Clone(batches), true
		}
		b := &batches[i]
		b.If = slices.Clone(conditions)
		for j := range b.If {
			b.If[j].Version = coarse(b.If[j].Version)
		}
		if matches {
			b.Deltas = slices.Clone(deltas)
			for j := range b.Deltas {
				d := &b.Deltas[j]
				d.Guard.Version, d.Event = coarse(d.Guard.Version), frozenEvent(d.Event)
			}
		}
	}
	return batches
}
