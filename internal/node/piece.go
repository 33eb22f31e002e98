package node

import (
	"slices"
	"time"

	"github.com/quipudb/quipu/store"
)

// A piece is what one lane has of a batch of a call: all of it, or, of a batch whose
// deltas need not be together, those to the cells of the lane. So lanes lock different
// rows of a store of one partition.
type piece struct {
	batch  int // of the call
	lane   *lane
	part   []int32 // its deltas, nil if all are
	deltas int     // how many those are
	bytes  int
	writes int
	lone   bool // the call has no other batch
	run    bool // it may join a run

	entry *entry
	err   error // why it has no results
}

// count enters one more delta.
func (p *piece) count(d *store.Delta) {
	p.deltas++
	p.bytes += len(d.Cell.Namespace) + len(d.Cell.Key) + len(d.Guard.Token)
	p.writes += max(int(d.Writes), 1)
	p.run = p.lone && p.deltas == 1 && d.Needs()&^runServes == 0
}

// roomy is from which limits on a namespace has much room, unless the store says that
// something is full.
const roomy = 1 << 20

// separable reports whether the deltas of a call may go each to the lane of its cell.
// Those of one cell stay in their order. It can't be told in which order those of
// different cells are decided, as long as they do not compete for the last room that
// there is: then they do stay in their order, in one lane.
func (n *Node) separable(batches []store.Batch) bool {
	if len(batches) == 1 && len(batches[0].Deltas) == 1 { // Fast path: there is nothing to separate.
		return true
	}
	if n.traits.Partitions > 1 || n.limits.KeysMax < roomy || n.limits.TokensMax < roomy ||
		time.Since(time.Unix(0, n.full.Load())) < time.Minute {
		return false
	}
	for i := range batches {
		b := &batches[i]
		if len(b.Deltas) > 1 && !b.Apart {
			return false
		}
		for j := range b.Deltas {
			if b.Deltas[j].Cell.Namespace != batches[0].Deltas[0].Cell.Namespace {
				return false
			}
		}
	}
	return true
}

// cut appends the pieces of a batch of a call. Apart says that its deltas go each to
// the lane of its cell; otherwise those of all batches go to that of the first.
func (n *Node) cut(pieces []piece, batches []store.Batch, i int, apart bool) []piece {
	b := &batches[i]
	p := piece{batch: i, lone: len(batches) == 1}
	switch {
	case n.traits.Partitions > 1:
		p.lane = &n.lanes[b.Partition]
	case apart && len(b.Deltas) > 1 && len(n.lanes) > 1:
		return n.cutUp(pieces, b, p)
	case apart || len(pieces) == 0:
		p.lane = n.laneOf(b.Deltas[0].Cell)
	default:
		p.lane = pieces[0].lane
	}
	for i := range b.Deltas {
		p.count(&b.Deltas[i])
	}
	return append(pieces, p)
}

// cutUp appends the pieces of a batch whose deltas go each to the lane of its cell.
func (n *Node) cutUp(pieces []piece, b *store.Batch, p piece) []piece {
	lanes, from := make([]int32, len(b.Deltas)), make([]int32, len(n.lanes)+1)
	for i := range b.Deltas {
		lanes[i] = int32(store.PartitionOf(b.Deltas[i].Cell, len(n.lanes)))
		from[lanes[i]+1]++
	}
	for i := range n.lanes {
		from[i+1] += from[i]
	}
	order, next := make([]int32, len(b.Deltas)), slices.Clone(from)
	for i, l := range lanes {
		order[next[l]] = int32(i)
		next[l]++
	}
	for l := range n.lanes {
		p := p
		p.lane, p.part = &n.lanes[l], order[from[l]:from[l+1]]
		for _, i := range p.part {
			p.count(&b.Deltas[i])
		}
		if p.deltas == len(b.Deltas) {
			p.part = nil
		}
		if p.deltas > 0 {
			pieces = append(pieces, p)
		}
	}
	return pieces
}

func (n *Node) laneOf(c store.Cell) *lane { return &n.lanes[store.PartitionOf(c, len(n.lanes))] }

// join makes one answer of those to the pieces of a batch, and returns an error if there
// is none to any. A delta whose piece has no answer is told so in its own result.
func join(r *store.Reply, pieces []piece) (err error) {
	answered := false
	for i := range pieces {
		switch p := &pieces[i]; {
		case p.err == nil:
			answered = true
		case err == nil || store.KindOf(p.err) == store.KindUnknown:
			err = p.err
		}
	}
	switch {
	case !answered && refusal(err):
		*r = store.Reply{Err: err, Results: r.Results[:0]}
		return nil
	case !answered:
		return err
	}
	for i := range pieces {
		p := &pieces[i]
		if p.err == nil {
			continue
		}
		outcome := store.Unavailable
		if store.KindOf(p.err) == store.KindUnknown {
			outcome = store.Unknown
		}
		for _, at := range p.part {
			r.Results[at] = store.Result{Outcome: outcome}
		}
	}
	return nil
}
