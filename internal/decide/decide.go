// Package decide decides the effect of a batch on the state of a store, by the
// rules of the store contract. It has no store of its own. Every store and the
// model of the laws call it, so that they can't differ.
//
// Cell, Recall, Verdict and Follows decide on values: one cell, one token, one
// mark. The engine calls them for its table. Deltas uses them to decide whole
// batches, for the stores that have a State: memstore, pgstore and redisstore.
package decide

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// A State is what deltas are decided on: a whole store, or as much of one as a
// batch names.
type State interface {
	Cells

	// Token returns what is remembered of a token; ok is false if nothing is, or
	// nothing that has to be.
	Token(c store.Cell, name string) (t Token, ok bool)

	// Remember keeps the decision on a token of which nothing is remembered.
	Remember(c store.Cell, name string, t Token)
}

// Cells are what deltas are decided on that have no token.
type Cells interface {
	// Cell returns a cell as it is now: one past its deadline is absent.
	Cell(c store.Cell) store.Value

	// Put makes a cell v and returns its new version; a v that does not exist
	// removes it, and its version is 0.
	Put(c store.Cell, v store.Value) uint64

	// Full reports whether a namespace has no room for n more.
	Full(namespace string, what Room, n int64) bool
}

// Room is what a namespace has room for.
type Room uint8

// A store may have no room for these.
const (
	Keys Room = iota
	Tokens
	Refusals // tokens that remember one
)

// A Clock is the store's time, and how long a repeat returns the first result.
type Clock struct {
	NowMS  int64
	NowUS  int64 // the same in microseconds, for what is finer; 0 if the store's clock is not
	Window time.Duration
}

// us returns the time in microseconds. It is never before the milliseconds that deadlines
// are judged by.
func (c Clock) us() int64 { return max(c.NowUS, c.NowMS*1000) }

// Conditions returns an error if a cell is not at the version that a condition
// of the batch names, if one that is a part of a counter would have to decide
// alone, or if there is no room for all keys and tokens of a batch with conditions.
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
		if d.Op == store.OpRetire { // it has no cell
			continue
		}
		if layout := s.Cell(d.Cell).Layout; d.Splits(layout) {
			what := "is split"
			if layout == store.LayoutObject {
				what = "holds bytes"
			}
			return store.Errorf(store.KindSplit, "delta %d: %q %s", i, d.Cell.Key, what)
		}
	}
	if len(b.If) == 0 {
		return nil
	}
	for namespace, n := range Growth(b.Deltas, func(i int) bool { return s.Cell(b.Deltas[i].Cell).Exists }) {
		if s.Full(namespace, Keys, n) {
			return store.ErrFull
		}
	}
	for namespace, n := range Tokened(b.Deltas) {
		if s.Full(namespace, Tokens, n) {
			return store.ErrFull
		}
	}
	return nil
}

// Tokened returns how many tokens deltas have, by namespace, as if none were known.
func Tokened(deltas []store.Delta) map[string]int64 {
	n := make(map[string]int64)
	for i := range deltas {
		if deltas[i].Guard.Token != "" {
			n[deltas[i].Cell.Namespace]++
		}
	}
	return n
}

// Growth returns by how many keys each namespace may have grown at some moment while deltas
// are decided, if all of them are applied; those that never grow are left out. Exists reports
// whether there is the cell of a delta before.
func Growth(deltas []store.Delta, exists func(i int) bool) map[string]int64 {
	is, now, most := make(map[store.Cell]bool), make(map[string]int64), make(map[string]int64)
	for i := range deltas {
		d := &deltas[i]
		if d.Op != store.OpDelete && !Makes(d) {
			continue
		}
		was, known := is[d.Cell]
		if !known {
			was = exists(i)
		}
		is[d.Cell] = d.Op != store.OpDelete
		switch space := d.Cell.Namespace; {
		case !was && Makes(d):
			if now[space]++; now[space] > most[space] {
				most[space] = now[space]
			}
		case was && d.Op == store.OpDelete:
			now[space]--
		}
	}
	return most
}

// Makes reports whether a delta makes a cell that is absent.
func Makes(d *store.Delta) bool {
	return d.Op == store.OpAdd || d.Op == store.OpSet || d.Op == store.OpLayout || d.Event != nil && d.Event.Part != ""
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
			var done bool
			if res, done = once(s, at, d); !done {
				res.Outcome = store.Settled
				s.Remember(d.Cell, d.Guard.Token, Remembered(d, res, at.NowMS))
			}
		default:
			if d.Event != nil {
				res = event(s.(PartState), at, d, rec) // others have refused the batch
			} else {
				res = decide(s, at, d, rec)
			}
		}
		r.Results = append(r.Results, res)
	}
}

// decide decides what becomes of a cell, and keeps it.
func decide(s State, at Clock, d *store.Delta, rec *Record) store.Result {
	if d.Guard.Token != "" {
		if res, done := once(s, at, d); done {
			return res
		}
	}
	v := s.Cell(d.Cell)
	was := v
	// A State is asked for room only if it matters, since it may have to lock it.
	res := Cell(&v, d, at.NowMS, true)
	if res.Outcome == store.Full && !s.Full(d.Cell.Namespace, Keys, 1) {
		res = Cell(&v, d, at.NowMS, false)
	}
	if d.Op == store.OpGet {
		return res
	}
	if res.Outcome == store.Applied {
		res.Version = s.Put(d.Cell, v)
		rec.enter(d.Cell, uint64(v.N)-uint64(was.N))
		if was.Layout == store.LayoutObject && !v.Exists {
			rec.Merge(Lose(s.(Parts), d.Cell))
		}
	}
	remember(s, at, d, &res)
	return res
}
