package quipu

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/store"
)

// The calls of this file are for doors whose protocol says more of a counter
// than the other methods do: deadlines, bounds, conditions. They speak the words
// of the store; the Cell of a delta or a condition names a counter by its Key,
// and its Namespace is filled in here, as is the Digest of a delta with a token.

// Apply decides deltas, each by itself, and fills results[i] for deltas[i].
// Those of one counter are decided in their order. What is told together is as
// durable as the strongest of the counters' policies asks. An error means that
// nothing can be said of any delta.
func (db *DB) Apply(ctx context.Context, deltas []store.Delta, results []store.Result) error {
	if db.err != nil {
		return db.err
	}
	c := db.deltas(deltas)
	if err := db.apply(ctx, c.batches, c.replies); err != nil {
		return err
	}
	return c.scatter(results)
}

// ApplyIf decides deltas in one atomic step, if all conditions hold, and
// otherwise returns ErrChanged and changes nothing. It returns ErrUnsupported if
// the counters are in different partitions of the store, and ErrTooLarge if they
// are more than fit into one step.
func (db *DB) ApplyIf(ctx context.Context, conditions []store.Condition, deltas []store.Delta, results []store.Result) error {
	if db.err != nil {
		return db.err
	}
	b := store.Batch{If: conditions, Deltas: deltas, Durability: db.address(deltas)}
	cells := make([]store.Cell, 0, len(conditions)+len(deltas))
	for i := range conditions {
		conditions[i].Cell.Namespace = db.namespace
		cells = append(cells, conditions[i].Cell)
	}
	for i := range deltas {
		cells = append(cells, deltas[i].Cell)
	}
	for i, cell := range cells {
		p := store.PartitionOf(cell, db.traits.Partitions)
		if i == 0 {
			b.Partition = p
		}
		if p != b.Partition {
			return store.Errorf(store.KindUnsupported, "the counters are in different partitions of the %s store", db.traits.Name)
		}
	}
	c := &deltaCall{batches: []store.Batch{b}, replies: make([]store.Reply, 1)}
	if err := db.apply(ctx, c.batches, c.replies); err != nil {
		return err
	}
	return c.scatter(results)
}

// Start is Apply for a caller that can't wait. It reports false, and has changed
// nothing, if it would have to wait for anything but durability; then Apply
// does it. Otherwise the results are filled, and done is called once, with what
// Apply would have returned, when they may be told to anyone: here or in another
// goroutine, which it must not block, and perhaps not before Flush.
func (db *DB) Start(deltas []store.Delta, results []store.Result, done func(error)) bool {
	s, ok := db.store.(store.Starter)
	if !ok || db.err != nil || db.traits.Partitions > 1 || db.readOnly {
		return false
	}
	c := db.deltas(deltas)
	if len(c.batches) > 1 {
		return false
	}
	db.bind(c.batches)
	c.replies[0].Results = results[:0]
	began := db.totals.Begin()
	return s.Start(c.batches, c.replies, func(err error) {
		db.ended(c.batches, c.replies, began, err)
		if err == nil {
			err = c.replies[0].Err
		}
		done(err)
	})
}

// StartAdds is Start for plain adds that want their value: see store.Adder. It leaves
// those whose policies ask for more than that, or for less durability. The Namespace
// is filled in here. Where totals are kept for readers, adds are noted in them one by
// one, and all go the other way.
func (db *DB) StartAdds(a *store.Adds, done func(error)) bool {
	s, ok := db.store.(store.Adder)
	if !ok || !db.near || db.err != nil || db.readOnly {
		return false
	}
	a.Namespace = db.namespace
	if rules := db.rules(); len(rules) > 0 {
		for i := range a.Each {
			r := rules.Of(string(a.KeyOf(&a.Each[i])))
			a.Each[i].Left = r != nil && (r.Bound != nil || r.Policy.Durability != store.Synced)
		}
	}
	if !s.StartAdds(a, func(err error) {
		if errors.Is(err, store.ErrUnknown) {
			db.unknown.Add(1)
		}
		done(err)
	}) {
		return false
	}
	refused := uint64(0)
	for i := range a.Each {
		if add := &a.Each[i]; !add.Left {
			refused += uint64(add.Times - add.Taken)
		}
	}
	if refused > 0 {
		db.refused.Add(refused)
	}
	return true
}

// Flush makes what was started durable: in this goroutine if here is set and
// nobody else is at it, which takes as long as the disk does, and else soon.
func (db *DB) Flush(here bool) {
	if s, ok := db.store.(store.Starter); ok {
		s.Flush(here)
	}
}

// A deltaCall is deltas made batches.
type deltaCall struct {
	batches []store.Batch
	replies []store.Reply
	order   []int // where the deltas of the batches come from, one after the other; nil if in order
}

// deltas makes batches of deltas: for each partition as many as their limits
// ask for.
func (db *DB) deltas(deltas []store.Delta) *deltaCall {
	durability := db.address(deltas)
	c := &deltaCall{}
	if db.traits.Partitions == 1 {
		c.split(0, durability, deltas)
	} else {
		byPartition := map[int][]int{}
		for i := range deltas {
			p := store.PartitionOf(deltas[i].Cell, db.traits.Partitions)
			byPartition[p] = append(byPartition[p], i)
		}
		for p, of := range byPartition {
			some := make([]store.Delta, len(of))
			for i, n := range of {
				some[i] = deltas[n]
			}
			c.split(p, durability, some)
			c.order = append(c.order, of...)
		}
	}
	c.replies = make([]store.Reply, len(c.batches))
	return c
}

// address fills in the namespace of deltas, and what stands for the payload of
// those with a token, and returns how durable they must be together.
func (db *DB) address(deltas []store.Delta) Durability {
	rules := db.rules()
	durability := store.Memory
	for i := range deltas {
		deltas[i].Cell.Namespace = db.namespace
		if g := &deltas[i].Guard; g.Token != "" && g.Digest == 0 {
			g.Digest = digest(&deltas[i], "")
		}
		if len(rules) > 0 {
			durability = max(durability, rules.Policy(deltas[i].Cell.Key).Durability)
		}
	}
	if len(rules) == 0 || len(deltas) == 0 {
		return store.Synced
	}
	return durability
}

// split makes batches of the deltas of one partition.
func (c *deltaCall) split(partition int, durability Durability, deltas []store.Delta) {
	bytes, start := 0, 0
	for i := range deltas {
		d := &deltas[i]
		n := len(d.Cell.Namespace) + len(d.Cell.Key) + len(d.Guard.Token)
		if bytes += n; i-start == store.BatchDeltasMax || bytes > store.BatchBytesMax {
			c.batches = append(c.batches, store.Batch{Partition: partition, Durability: durability, Apart: true, Deltas: deltas[start:i]})
			bytes, start = n, i
		}
	}
	c.batches = append(c.batches, store.Batch{Partition: partition, Durability: durability, Apart: true, Deltas: deltas[start:]})
}

// scatter puts what the store replied where it belongs. If only some of the batches
// were refused, the outcome is unknown.
func (c *deltaCall) scatter(results []store.Result) error {
	var failed error
	at, answered := 0, false
	for i := range c.replies {
		if err := c.replies[i].Err; err != nil {
			if failed == nil || store.KindOf(err) == store.KindUnknown {
				failed = err
			}
			at += len(c.batches[i].Deltas)
			continue
		}
		answered = answered || c.batches[i].Changes()
		for _, r := range c.replies[i].Results {
			to := at
			if c.order != nil {
				to = c.order[at]
			}
			results[to] = r
			at++
		}
	}
	return store.Partly(failed, answered)
}

// Partition returns which partition of the store has a counter. What happens to one
// partition does not concern the counters of another.
func (db *DB) Partition(key string) int {
	return store.PartitionOf(store.Cell{Namespace: db.namespace, Key: key}, db.traits.Partitions)
}

// Values fills values[i] with the durable value of keys[i], for up to KeysMax
// keys; or if the store can't be reached, with what it was, where the policies
// allow that.
func (db *DB) Values(ctx context.Context, keys []string, values []store.Value) error {
	if db.err != nil {
		return db.err
	}
	return db.totals.Read(ctx, &total.Read{Cells: db.cells(keys), Values: values, Rules: db.rules(), Staleness: total.ByPolicy})
}

// Peek is Values for a caller that can't wait. It reports false if it would have
// to wait; then Values does it.
func (db *DB) Peek(keys []string, values []store.Value) bool {
	if db.err != nil {
		return false
	}
	cells, rules := db.cells(keys), db.rules()
	// Where totals are kept they are the answer, though the store might know better:
	// who is told that would be told less by the next total.
	kept := func(key string) bool { return rules.Policy(key).Timing != FanIn }
	if db.near || !rules.Keeps() || !slices.ContainsFunc(keys, kept) {
		if s, ok := db.store.(store.Starter); !ok || !s.Peek(cells, values) {
			return false
		}
		db.totals.Outdo(cells)
		return true
	}
	return db.totals.Peek(cells, values, rules)
}

func (db *DB) cells(keys []string) []store.Cell {
	cells := make([]store.Cell, len(keys))
	for i, key := range keys {
		cells[i] = store.Cell{Namespace: db.namespace, Key: key}
	}
	return cells
}

// Left returns how long a counter has that was read with a deadline, in
// milliseconds, by the clock that its store judges it by.
func (db *DB) Left(key string, deadlineMS int64) int64 {
	return db.left(store.Cell{Namespace: db.namespace, Key: key}, deadlineMS)
}

func (s *shared) left(c store.Cell, deadlineMS int64) int64 { return max(deadlineMS-s.nowMS(c), 0) }

// nowMS returns the time of a counter's store, or of this machine if the store has
// never told it.
func (s *shared) nowMS(c store.Cell) int64 {
	if clock, ok := s.store.(store.Clock); ok {
		if ms := clock.NowMS(c); ms != 0 {
			return ms
		}
	}
	return time.Now().UnixMilli()
}

// Size returns how many counters there are. Those that have expired lately may
// be among them.
func (db *DB) Size(ctx context.Context) (int64, error) {
	if db.err != nil {
		return 0, db.err
	}
	s, ok := db.store.(store.Sizer)
	if !ok {
		return 0, store.Errorf(store.KindUnsupported, "size: the %s store can't count its keys", db.traits.Name)
	}
	return s.Size(ctx, db.namespace)
}

// Keys returns up to n keys that start with prefix and are greater than after, in byte
// order. Fewer than n are the last. It tells no values, and so may begin anywhere.
func (db *DB) Keys(ctx context.Context, prefix, after string, n int) ([]string, error) {
	if db.err != nil {
		return nil, db.err
	}
	entries, err := db.store.Scan(ctx, store.Range{Namespace: db.namespace, Prefix: prefix, After: after}, n)
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = entries[i].Key
	}
	return keys, err
}

// Clear deletes all counters of the namespace that exist when it is called. It
// is not one step: others may be made, read and changed meanwhile.
func (db *DB) Clear(ctx context.Context) error {
	if db.err != nil {
		return db.err
	}
	r := store.Range{Namespace: db.namespace}
	for {
		entries, err := db.store.Scan(ctx, r, store.ScanMax)
		if err != nil || len(entries) == 0 {
			return err
		}
		deltas := make([]store.Delta, len(entries))
		for i, e := range entries {
			deltas[i] = store.Delta{Cell: store.Cell{Key: e.Key}, Op: store.OpDelete}
		}
		if err := db.Apply(ctx, deltas, make([]store.Result, len(deltas))); err != nil {
			return err
		}
		r.After = entries[len(entries)-1].Key
	}
}

// Any returns the key of some counter, and "" if there is none. Which one is
// left to chance, but not to a fair one: a key that follows a wide gap is likelier.
func (db *DB) Any(ctx context.Context) (string, error) {
	some, err := db.sample(ctx)
	if err != nil || len(some) == 0 {
		return "", err
	}
	return some[rand.IntN(len(some))].Key, nil
}

// Lifetimes says how long counters have to live, judged by a sample.
type Lifetimes struct {
	Sampled  int           // counters looked at: all of them, or a thousand
	Expiring int           // those that have a deadline
	Mean     time.Duration // how long these have to live
}

// Lifetimes looks at a thousand counters, or at all if there are fewer. Which ones are
// left to chance, as in Any.
func (db *DB) Lifetimes(ctx context.Context) (l Lifetimes, err error) {
	some, err := db.sample(ctx)
	if err != nil {
		return l, err
	}
	l.Sampled = len(some)
	now, sum := time.Now().UnixMilli(), 0.0
	for i := range some {
		if deadline := some[i].Value.DeadlineMS; deadline != 0 {
			l.Expiring++
			sum += float64(max(deadline-now, 0))
		}
	}
	if l.Expiring > 0 {
		l.Mean = time.Duration(min(sum/float64(l.Expiring)*1e6, math.MaxInt64/2))
	}
	return l, nil
}

// sampleMax is how many counters a sample has.
const sampleMax = 1000

// sample returns some counters that follow each other: all, if they are few.
func (db *DB) sample(ctx context.Context) ([]store.Entry, error) {
	if db.err != nil {
		return nil, db.err
	}
	first, err := db.store.Scan(ctx, store.Range{Namespace: db.namespace}, sampleMax)
	if err != nil || len(first) < sampleMax {
		return first, err
	}
	// There are more: begin somewhere between the first key and the last
	// possible one.
	from := []byte(first[rand.IntN(len(first))].Key)
	from[rand.IntN(len(from))] = byte(rand.IntN(0x80))
	next, err := db.store.Scan(ctx, store.Range{Namespace: db.namespace, After: string(from)}, sampleMax)
	if err != nil || len(next) == 0 {
		return first, err
	}
	return next, nil
}
