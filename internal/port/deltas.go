package port

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// The calls of this file are for doors whose protocol says more of a counter
// than the other methods do: deadlines, bounds, conditions. They speak the words
// of the store; the Cell of a delta or a condition names a counter by its Key,
// and its Namespace is filled in here, as is the Digest of a delta with a token.

// Apply decides deltas, each by itself, and fills results[i] for deltas[i].
// Those of one counter are decided in their order. What is told together is as
// durable as the strongest of the counters' policies asks. An error means that
// nothing can be said of any delta. Facts, if there are any, are one for each delta.
func (p *Port) Apply(ctx context.Context, deltas []store.Delta, results []store.Result, facts ...Fact) error {
	if p.err != nil {
		return p.err
	}
	c := p.NewCall(0)
	defer p.Free(c)
	if err := p.send(ctx, c, deltas, facts, p.address(deltas, facts)); err != nil {
		return err
	}
	// If only some of the batches were refused, the outcome is unknown.
	var failed error
	answered := false
	c.Each(func(i int, d *store.Delta, reply *store.Reply, n int) {
		if reply.Err == nil {
			answered = answered || d.Op != store.OpGet
			results[i] = reply.Results[n]
		} else if failed == nil || store.KindOf(reply.Err) == store.KindUnknown {
			failed = reply.Err
		}
	})
	return store.Partly(failed, answered)
}

// ApplyIf decides deltas in one atomic step, if all conditions hold, which may be about
// counters of other namespaces too, and otherwise returns ErrChanged and changes nothing. It returns ErrUnsupported if
// the counters are in different partitions of the store, and ErrTooLarge if they
// are more than fit into one step.
func (p *Port) ApplyIf(ctx context.Context, conditions []store.Condition, deltas []store.Delta, results []store.Result) error {
	_, err := p.applyIf(ctx, conditions, deltas, results)
	return err
}

// applyIf is ApplyIf, and says how durable what was done is.
func (p *Port) applyIf(ctx context.Context, conditions []store.Condition, deltas []store.Delta, results []store.Result) (store.Durability, error) {
	if p.err != nil {
		return 0, p.err
	}
	b := store.Batch{If: conditions, Deltas: deltas, Durability: p.address(deltas, nil)}
	cells := make([]store.Cell, 0, len(conditions)+len(deltas))
	for i := range conditions {
		if conditions[i].Cell.Namespace == "" {
			conditions[i].Cell.Namespace = p.namespace
		}
		cells = append(cells, conditions[i].Cell)
	}
	for i := range deltas {
		cells = append(cells, deltas[i].Cell)
	}
	for i, cell := range cells {
		home := store.PartitionOf(cell, p.traits.Partitions)
		if i == 0 {
			b.Partition = home
		}
		if home != b.Partition {
			return 0, store.Errorf(store.KindUnsupported, "the counters are in different partitions of the %s store", p.traits.Name)
		}
	}
	replies := make([]store.Reply, 1)
	if err := p.Write(ctx, []store.Batch{b}, replies, nil); err != nil {
		return 0, err
	}
	copy(results, replies[0].Results)
	return replies[0].Durability, replies[0].Err
}

// Start is Apply for a caller that can't wait, and has no more deltas than fit into a
// batch. It reports false, and has changed nothing, if it would have to wait for
// anything but durability; then Apply does it. Otherwise the results are filled, and done is called once, with what
// Apply would have returned, when they may be told to anyone: here or in another
// goroutine, which it must not block, and perhaps not before Flush.
func (p *Port) Start(deltas []store.Delta, results []store.Result, done func(error)) bool {
	s, ok := p.store.(store.Starter)
	if !ok || p.err != nil || p.traits.Partitions > 1 || p.readOnly {
		return false
	}
	batches := []store.Batch{{Durability: p.address(deltas, nil), Apart: true, Deltas: deltas}}
	replies := []store.Reply{{Results: results[:0]}}
	var f frame
	if p.books.Any() || p.due.Any() {
		var ok bool
		if f, ok = p.framed(batches); !ok {
			return false
		}
	}
	began := p.totals.Begin()
	if !s.Start(batches, replies, func(err error) {
		if isStale(replies[0].Err) { // Start has reported false.
			return
		}
		p.ended(batches, replies, began, err)
		if err == nil {
			err = replies[0].Err
		}
		done(err)
	}) || isStale(replies[0].Err) {
		f.undo(batches, nil)
		return false
	}
	return true
}

// framed fills in what the definitions say of batches that are to be started, and reports
// false if they do not allow all of them.
func (p *Port) framed(batches []store.Batch) (f frame, ok bool) {
	f, err := p.newFrame(context.Background(), batches, nil)
	if err == nil && f.mayHold() && slices.ContainsFunc(batches[0].Deltas, func(d store.Delta) bool {
		return mayEndHolds(&d, nil) || d.Expiry&store.ExpirySet != 0
	}) {
		return f, false // The store has to be asked first.
	}
	if err == nil && slices.ContainsFunc(batches[0].Deltas, func(d store.Delta) bool { return p.mayHaveSeats(d.Cell) }) {
		return f, false // They may be somewhere else.
	}
	if err == nil {
		err = f.frame(context.Background(), batches, nil)
	}
	if err != nil || len(f.changed) > 0 {
		f.undo(batches, nil)
		return f, false
	}
	return f, true
}

// StartAdds is Start for plain adds that want their value: see store.Adder. It leaves
// those whose policies or definitions ask for more than that, or for less durability. The Namespace
// is filled in here. Where totals are kept for readers, adds are noted in them one by
// one, and all go the other way.
func (p *Port) StartAdds(a *store.Adds, done func(error)) bool {
	s, ok := p.store.(store.Adder)
	if !ok || !p.near || p.err != nil || p.readOnly {
		return false
	}
	a.Namespace = p.namespace
	a.Book = 0
	if known := p.books.Known(p.namespace); known != nil {
		a.Book = known.ID()
		for i := range a.Each {
			key := string(a.KeyOf(&a.Each[i]))
			a.Each[i].Left = known.Of(key) != nil || known.Bound(key) != nil
		}
	}
	if rules := p.Rules(); len(rules) > 0 {
		for i := range a.Each {
			r := rules.Of(string(a.KeyOf(&a.Each[i])))
			a.Each[i].Left = a.Each[i].Left || r != nil && r.Policy.Durability != store.Synced
		}
	}
	if !s.StartAdds(a, func(err error) {
		if watchers := p.watchers.Load(); watchers != nil {
			changedAdds(*watchers, a)
		}
		if errors.Is(err, store.ErrUnknown) {
			p.unknown.Add(1)
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
		p.refused.Add(refused)
	}
	return true
}

// Flush makes what was started durable: in this goroutine if here is set and
// nobody else is at it, which takes as long as the disk does, and else soon.
func (p *Port) Flush(here bool) {
	if s, ok := p.store.(store.Starter); ok {
		s.Flush(here)
	}
}

// address fills in the namespace of deltas, and what stands for the payload of
// those with a token, and returns how durable they must be together.
func (p *Port) address(deltas []store.Delta, facts []Fact) store.Durability {
	rules := p.Rules()
	durability := store.Memory
	for i := range deltas {
		deltas[i].Cell.Namespace = p.namespace
		if g := &deltas[i].Guard; g.Token != "" && g.Digest == 0 {
			var fact *Fact
			if len(facts) > 0 {
				fact = &facts[i]
			}
			g.Digest = Digest(&deltas[i], fact)
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

// Partition returns which partition of the store has a counter. What happens to one
// partition does not concern the counters of another.
func (p *Port) Partition(key string) int {
	return store.PartitionOf(p.Cell(key), p.traits.Partitions)
}

// Values fills values[i] with the durable value of keys[i], for up to KeysMax
// keys; or if the store can't be reached, with what it was, where the policies
// allow that.
func (p *Port) Values(ctx context.Context, keys []string, values []store.Value) error {
	if p.err != nil {
		return p.err
	}
	return p.totals.Read(ctx, &total.Read{Cells: p.cells(keys), Values: values, Rules: p.Rules(), Staleness: total.ByPolicy})
}

// Peek is Values for a caller that can't wait. It reports false if it would have
// to wait; then Values does it.
func (p *Port) Peek(keys []string, values []store.Value) bool {
	if p.err != nil {
		return false
	}
	cells, rules := p.cells(keys), p.Rules()
	// Where totals are kept they are the answer, though the store might know better:
	// who is told that would be told less by the next total.
	kept := func(key string) bool { return rules.Policy(key).Timing != policy.FanIn }
	if p.near || !rules.Keeps() || !slices.ContainsFunc(keys, kept) {
		if s, ok := p.store.(store.Starter); !ok || !s.Peek(cells, values) {
			return false
		}
		p.totals.Outdo(cells)
		return true
	}
	return p.totals.Peek(cells, values, rules)
}

func (p *Port) cells(keys []string) []store.Cell {
	cells := make([]store.Cell, len(keys))
	for i, key := range keys {
		cells[i] = p.Cell(key)
	}
	return cells
}

// Left returns how long a counter has that was read with a deadline, in
// milliseconds, by the clock that its store judges it by.
func (p *Port) Left(key string, deadlineMS int64) int64 {
	return p.left(p.Cell(key), deadlineMS)
}

func (s *shared) left(c store.Cell, deadlineMS int64) int64 { return max(deadlineMS-s.NowMS(c), 0) }

// NowMS returns the time of a counter's store, or of this machine if the store has
// never told it.
func (s *shared) NowMS(c store.Cell) int64 {
	if clock, ok := s.store.(store.Clock); ok {
		if ms := clock.NowMS(c); ms != 0 {
			return ms
		}
	}
	return time.Now().UnixMilli()
}

// Keys returns up to n keys that start with prefix and are greater than after, in byte
// order. Fewer than n are the last. It tells no values, and so may begin anywhere.
func (p *Port) Keys(ctx context.Context, prefix, after string, n int) ([]string, error) {
	if p.err != nil {
		return nil, p.err
	}
	entries, err := p.store.Scan(ctx, store.Range{Namespace: p.namespace, Prefix: prefix, After: after}, n)
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = entries[i].Key
	}
	return keys, err
}

// Clear deletes all counters of the namespace that exist when it is called. It
// is not one step: others may be made, read and changed meanwhile.
func (p *Port) Clear(ctx context.Context) error {
	if p.err != nil {
		return p.err
	}
	r := store.Range{Namespace: p.namespace}
	for {
		entries, err := p.store.Scan(ctx, r, store.ScanMax)
		if err != nil || len(entries) == 0 {
			return err
		}
		deltas := make([]store.Delta, len(entries))
		for i, e := range entries {
			deltas[i] = store.Delta{Cell: store.Cell{Key: e.Key}, Op: store.OpDelete}
		}
		if err := p.Apply(ctx, deltas, make([]store.Result, len(deltas))); err != nil {
			return err
		}
		r.After = entries[len(entries)-1].Key
	}
}

// Any returns the key of some counter, and "" if there is none. Which one is
// left to chance, but not to a fair one: a key that follows a wide gap is likelier.
func (p *Port) Any(ctx context.Context) (string, error) {
	some, err := p.sample(ctx)
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
func (p *Port) Lifetimes(ctx context.Context) (l Lifetimes, err error) {
	some, err := p.sample(ctx)
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
func (p *Port) sample(ctx context.Context) ([]store.Entry, error) {
	if p.err != nil {
		return nil, p.err
	}
	first, err := p.store.Scan(ctx, store.Range{Namespace: p.namespace}, sampleMax)
	if err != nil || len(first) < sampleMax {
		return first, err
	}
	// There are more: begin somewhere between the first key and the last
	// possible one.
	from := []byte(first[rand.IntN(len(first))].Key)
	from[rand.IntN(len(from))] = byte(rand.IntN(0x80))
	next, err := p.store.Scan(ctx, store.Range{Namespace: p.namespace, After: string(from)}, sampleMax)
	if err != nil || len(next) == 0 {
		return first, err
	}
	return next, nil
}
