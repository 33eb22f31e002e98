// Package decide is what a batch does to the state it meets: the contract's
// decisions, without a store. memstore, pgstore and redisstore share it, so that
// they can't come to differ; each brings its own State. The engine decides over its
// table, without one, and the laws in storetest hold it to the same.
package decide

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// A State is what deltas are decided on: a whole store, or as much of one as a
// batch names.
type State interface {
	// Cell returns a cell as it is now: one past its deadline is absent.
	Cell(c store.Cell) store.Value

	// Put makes a cell v and returns its new version; a v that does not exist
	// removes it, and its version is 0.
	Put(c store.Cell, v store.Value) uint64

	// Token returns what is remembered of a token; ok is false if nothing is, or
	// nothing that has to be.
	Token(c store.Cell, name string) (t Token, ok bool)

	// Remember keeps the decision on a token of which nothing is remembered.
	Remember(c store.Cell, name string, t Token)

	// Full reports whether a namespace has no room for one more.
	Full(namespace string, what Room) bool
}

// Room is what a namespace has room for.
type Room uint8

// What there may be no room for.
const (
	Keys Room = iota
	Tokens
)

// A Clock is the store's time, and how long a repeat returns the first result.
type Clock struct {
	NowMS  int64
	Window time.Duration
}

// Conditions returns an error if a cell is not at the version that a condition
// of the batch names, or if one that is a part of a counter would have to decide
// alone.
func Conditions(s State, b *store.Batch) error {
	for i := range b.If {
		c := &b.If[i]
		if at := s.Cell(c.Cell).Version; at != c.Version {
			return store.Errorf(store.KindChanged, "condition %d: %q is at version %d, not %d", i, c.Cell.Key, at, c.Version)
		}
	}
	if !b.Together() {
		return nil
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.NeedsWhole() && s.Cell(d.Cell).Layout != 0 {
			return store.Errorf(store.KindSplit, "delta %d: %q is split", i, d.Cell.Key)
		}
	}
	return nil
}

// Homes returns an error if a cell of the batch is not of its partition.
func Homes(b *store.Batch, partitions int) error {
	for i := range b.If {
		if home := store.PartitionOf(b.If[i].Cell, partitions); home != b.Partition {
			return store.Errorf(store.KindInvalid, "condition %d: its cell is in partition %d, the batch in %d", i, home, b.Partition)
		}
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Op == store.OpRetire {
			continue
		}
		if home := store.PartitionOf(d.Cell, partitions); home != b.Partition {
			return store.Errorf(store.KindInvalid, "delta %d: its cell is in partition %d, the batch in %d", i, home, b.Partition)
		}
	}
	return nil
}

// Deltas decides the deltas of a batch in their order, appends the results to
// r, and enters what was changed in the record. Retire is called for each
// OpRetire.
func Deltas(s State, at Clock, b *store.Batch, r *store.Reply, rec *Record, retire func(last store.Writer)) {
	for i := range b.Deltas {
		d := &b.Deltas[i]
		var res store.Result
		switch d.Op {
		case store.OpRetire:
			retire(store.Writer(d.N))
			res.Outcome = store.Applied
		case store.OpSettle:
			res = settle(s, at, d)
		default:
			res = decide(s, at, d, rec)
		}
		r.Results = append(r.Results, res)
	}
}

// decide decides what becomes of a cell: the token first, then the version
// asked for, then the rest.
func decide(s State, at Clock, d *store.Delta, rec *Record) store.Result {
	if d.Guard.Token != "" {
		if res, ok := repeat(s, at, d); ok {
			return res
		}
	}
	old := s.Cell(d.Cell)
	if d.Guard.Match && d.Guard.Version != old.Version {
		return store.Result{Outcome: store.Changed}
	}
	v, outcome := next(s, at.NowMS, d, old)
	res := store.Result{Outcome: outcome}
	made := v.N
	switch outcome {
	case store.Applied:
		if v.DeadlineMS != 0 && v.DeadlineMS <= at.NowMS {
			v = store.Value{} // it is over already
		}
		if d.Op != store.OpGet {
			v.Version = s.Put(d.Cell, v)
			rec.enter(d.Cell, uint64(v.N)-uint64(old.N))
		}
		res.Version = v.Version
	case store.Unmet, store.Bounded: // v is the cell as it is
	default:
		return res
	}
	if d.Want {
		res.Before, res.After, res.Existed, res.DeadlineMS = old.N, made, old.Exists, v.DeadlineMS
	}
	if d.Guard.Token != "" && outcome == store.Applied {
		// What the first result tells of existence and deadline is for that one only.
		kept := res
		kept.Existed, kept.DeadlineMS = false, 0
		s.Remember(d.Cell, d.Guard.Token, Token{
			Op: d.Op, N: d.N, Want: d.Want, Digest: d.Guard.Digest, AtMS: at.NowMS, Result: kept,
		})
	}
	return res
}

// next returns what d makes of a cell, or the cell as it is and why d is
// refused: the layout is judged first, then the conditions on existence and on
// the deadline, then the room for a new key, then the sum.
func next(s State, nowMS int64, d *store.Delta, old store.Value) (store.Value, store.Outcome) {
	switch {
	case d.Guard.Laid && d.Guard.Layout != old.Layout, d.Op == store.OpLayout && old.DeadlineMS != 0:
		return old, store.Unmet
	case old.Layout != 0 && d.NeedsWhole():
		return old, store.Split
	}
	if (d.Guard.Exists == store.ExistsMust || d.Op == store.OpExpire) && !old.Exists ||
		d.Guard.Exists == store.ExistsNot && old.Exists {
		return old, store.Unmet
	}
	if d.Op == store.OpGet {
		return old, store.Applied
	}
	if d.Op == store.OpDelete {
		return store.Value{}, store.Applied
	}
	ms, met := d.Deadline(old.DeadlineMS, nowMS)
	if d.Op == store.OpExpire && !met {
		return old, store.Unmet
	}
	if !old.Exists && s.Full(d.Cell.Namespace, Keys) {
		return old, store.Full
	}
	v := store.Value{N: old.N, Exists: true, DeadlineMS: ms, Layout: old.Layout}
	if d.Op == store.OpSet {
		if b := d.Guard.Bound; b != nil && !b.Has(d.N) {
			return old, store.Bounded
		}
		v.N = d.N
	}
	if d.Op == store.OpLayout {
		if b := d.Guard.Bound; b != nil && !b.Has(old.N) {
			return old, store.Bounded
		}
		v.Layout = d.N
	}
	if d.Op == store.OpAdd {
		var outcome store.Outcome
		if v.N, outcome = sum(old.N, d.N, d.Guard.Bound); outcome != store.Applied {
			return old, outcome
		}
	}
	return v, store.Applied
}

// sum adds n to old within a bound, or says why it can't.
func sum(old, n int64, b *store.Bound) (int64, store.Outcome) {
	after, wraps := plus(old, n)
	if b == nil {
		if wraps {
			return 0, store.Overflow
		}
		return after, store.Applied
	}
	// A sum that leaves int64 leaves it on the side of n.
	low, high := b.Limits(old, n)
	below := wraps && n < 0 || !wraps && after < low
	above := wraps && n > 0 || !wraps && after > high
	switch {
	case !below && !above:
		return after, store.Applied
	case !b.Saturate:
		return 0, store.Bounded
	case below:
		after = low
	default:
		after = high
	}
	if old < 0 && after-old < after || old > 0 && after-old > after {
		return 0, store.Overflow // the difference is no int64
	}
	return after, store.Applied
}

// plus returns a+b and whether it wraps around.
func plus(a, b int64) (n int64, wraps bool) {
	n = a + b
	return n, (n > a) != (b > 0)
}
