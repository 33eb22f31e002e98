package port

import (
	"cmp"
	"context"
	"slices"

	"github.com/quipudb/quipu/store"
)

// A Call is deltas on their way to the store, and what became of them. Calls are
// pooled, so that a plain write allocates nothing (BenchmarkAddOverhead).
type Call struct {
	// Deltas are decided each by itself, those of one counter in their order. Their
	// Namespace is filled in. Those without an Op are left out.
	Deltas []store.Delta

	// Facts are what is known of the deltas besides, one for each, or none.
	Facts []Fact

	// Replies are those of the batches that Send has made: of one delta, the first
	// result of the first reply is its own. For more there is Each.
	Replies []store.Reply

	sorted  []store.Delta // room for those that are not in the order of their slots
	facts   []Fact        // in the order of the deltas that are sent, or nil
	slots   []slot        // of the deltas that are sent, sorted
	batches []store.Batch
}

// A slot is the place of a delta in a call: its partition, its durability and its
// index, packed so that sorting brings together what may share a batch, and keeps
// the order of the deltas.
type slot uint64

const (
	indexBits      = 20
	durabilityBits = 4
	groupShift     = indexBits
	partitionShift = indexBits + durabilityBits
)

func newSlot(partition int, d store.Durability, index int) slot {
	return slot(partition)<<partitionShift | slot(d)<<groupShift | slot(index)
}

func (s slot) index() int     { return int(s & (1<<indexBits - 1)) }
func (s slot) group() uint64  { return uint64(s >> groupShift) }
func (s slot) partition() int { return int(s >> partitionShift) }
func (s slot) durability() store.Durability {
	return store.Durability(s >> groupShift & (1<<durabilityBits - 1))
}

// NewCall returns a call with n deltas for the caller to fill. They ask for nothing,
// but may have a Cell, an Op and an N. Free takes the call back.
func (p *Port) NewCall(n int) *Call {
	c := p.calls.Get().(*Call)
	if len(c.Deltas) != n {
		c.Deltas = resized(c.Deltas, n)
	}
	return c
}

// Send decides the deltas of a call. Each is as durable as its policy asks, or all
// are as durable as is said here. An error means that nothing can be said of any.
func (p *Port) Send(ctx context.Context, c *Call, durability store.Durability) error {
	return p.send(ctx, c, c.Deltas, c.Facts, durability)
}

// send is Send for deltas that are the caller's own.
func (p *Port) send(ctx context.Context, c *Call, deltas []store.Delta, facts []Fact, durability store.Durability) error {
	if p.pack(c, deltas, durability); len(c.batches) == 0 {
		return nil
	}
	if len(facts) > 0 {
		facts = c.sortFacts(facts)
	}
	return p.Write(ctx, c.batches, c.Replies, facts)
}

// Each calls f for each delta that was sent, with its index among them, as it was sent, and with the reply that has its result at n.
func (c *Call) Each(f func(i int, d *store.Delta, reply *store.Reply, n int)) {
	at := 0
	for i := range c.batches {
		for n := range c.batches[i].Deltas {
			f(c.slots[at].index(), &c.batches[i].Deltas[n], &c.Replies[i], n)
			at++
		}
	}
}

// Fact returns what is known of delta i besides; nil if that is nothing.
func (c *Call) Fact(i int) *Fact {
	if len(c.Facts) == 0 {
		return nil
	}
	return &c.Facts[i]
}

// Free takes a call back. Nothing of it may be used any more.
func (p *Port) Free(c *Call) {
	if d := c.Deltas; len(d) != 1 || d[0].Needs()&^store.NeedOp != 0 || d[0].Lot != 0 { // Clearing takes longer than looking.
		clear(d)
	}
	clear(c.sorted)
	if len(c.Facts)+len(c.facts) > 0 {
		clear(c.Facts)
		clear(c.facts)
		c.Facts, c.facts = c.Facts[:0], c.facts[:0]
	}
	if cap(c.Deltas) <= store.BatchDeltasMax && cap(c.slots) <= store.BatchDeltasMax {
		p.calls.Put(c)
	}
}

// pack makes batches of deltas: for each partition and durability as many as the
// limits of a batch ask for.
func (p *Port) pack(c *Call, deltas []store.Delta, durability store.Durability) {
	rules := p.Rules()
	if len(deltas) == 1 && c.wasOf(&deltas[0]) { // Fast path: BenchmarkAddOverhead.
		d, b := &deltas[0], &c.batches[0]
		d.Cell.Namespace = p.namespace
		if b.Durability = durability; durability == store.DurabilityDefault {
			b.Durability = rules.Policy(d.Cell.Key).Durability
		}
		b.Partition = store.PartitionOf(d.Cell, p.traits.Partitions)
		return
	}
	c.slots, c.batches, c.Replies = c.slots[:0], c.batches[:0], c.Replies[:0]
	for i := range deltas {
		d := &deltas[i]
		if d.Op == 0 {
			continue
		}
		d.Cell.Namespace = p.namespace
		word := durability
		if word == store.DurabilityDefault {
			word = rules.Policy(d.Cell.Key).Durability
		}
		c.slots = append(c.slots, newSlot(store.PartitionOf(d.Cell, p.traits.Partitions), word, i))
	}
	if len(c.slots) < len(deltas) || !slices.IsSorted(c.slots) {
		deltas = c.sort(deltas)
	}
	for start := 0; start < len(deltas); {
		end := c.cut(deltas, start)
		c.batch(c.slots[start], deltas[start:end])
		start = end
	}
}

// wasOf reports whether the call was of this delta alone the last time too. Then all
// of it is as it has to be, but for what the delta decides.
func (c *Call) wasOf(d *store.Delta) bool {
	return len(c.batches) == 1 && len(c.batches[0].Deltas) == 1 && &c.batches[0].Deltas[0] == d && d.Op != 0
}

// batch appends a batch and room for its reply. Of a batch, only these fields are
// ever set.
func (c *Call) batch(s slot, deltas []store.Delta) {
	n := len(c.batches)
	c.batches, c.Replies = slices.Grow(c.batches, 1)[:n+1], slices.Grow(c.Replies, 1)[:n+1]
	b, r := &c.batches[n], &c.Replies[n]
	b.Partition, b.Durability, b.Apart, b.Deltas = s.partition(), s.durability(), true, deltas
	*r = store.Reply{Results: r.Results[:0]}
}

// sort sorts the slots, and returns the deltas in their order.
func (c *Call) sort(deltas []store.Delta) []store.Delta {
	slices.Sort(c.slots)
	c.sorted = resized(c.sorted, len(c.slots))
	for i, s := range c.slots {
		c.sorted[i] = deltas[s.index()]
	}
	return c.sorted
}

// sortFacts returns the facts in the order of the deltas that are sent.
func (c *Call) sortFacts(facts []Fact) []Fact {
	if len(c.slots) == len(facts) && slices.IsSortedFunc(c.slots, func(a, b slot) int { return cmp.Compare(a.index(), b.index()) }) {
		return facts
	}
	c.facts = resized(c.facts, len(c.slots))
	for i, s := range c.slots {
		c.facts[i] = facts[s.index()]
	}
	return c.facts
}

// cut returns the end of the batch that begins at start: where the partition or the
// durability changes, or where it would grow over its limits.
func (c *Call) cut(deltas []store.Delta, start int) int {
	bytes := 0
	for end := start; end < len(deltas); end++ {
		d := &deltas[end]
		bytes += len(d.Cell.Namespace) + len(d.Cell.Key) + len(d.Guard.Token)
		if c.slots[end].group() != c.slots[start].group() || end-start == store.BatchDeltasMax || bytes > store.BatchBytesMax {
			return end
		}
	}
	return len(deltas)
}

// resized returns s with n elements, with new room if it has too little.
func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
