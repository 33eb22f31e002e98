package total

import (
	"context"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

const (
	// jointShards is how many shards a counter has at least if servers make its
	// total for each other. Of fewer, a sum costs no more than asking for one.
	jointShards = 8

	// claimsMax is how many totals are made for others in one go.
	claimsMax = 64
)

// isJoint reports whether a total is one that servers make for each other: why
// and how is in package rollup. What counts the writes of this DB needs to know
// the versions of all parts, and so can't be taken from another.
func (ts *Totals) isJoint(how schedule, layout int64) bool {
	return ts.traits.Shared && !ts.readOnly && !how.own && hot.Word(layout).Shards() >= jointShards
}

// A look is what was seen of a counter whose total is made jointly.
type look struct {
	cell               store.Cell
	home, claim, total store.Value
	raise              int64 // by how much the claim is raised
}

// refreshJoint refreshes totals that are made jointly: it takes those that others
// have made, and makes those that it is this server's turn to make.
func (ts *Totals) refreshJoint(ctx context.Context, cells []store.Cell) {
	began := ts.memory.now()
	looks, err := ts.look(ctx, cells)
	if err != nil { // What is out of reach is home's partition, without which there is no sum either.
		ts.failed(cells)
		return
	}
	got := ts.memory.tick()
	var alone []store.Cell
	var mine []look
	for i := range looks {
		l := &looks[i]
		switch shards := hot.Of(l.home).Shards(); {
		case l.home.Layout == 0:
			ts.memory.keep(l.cell, snapshot{value: l.home, asked: began, got: got})
		case shards < jointShards:
			alone = append(alone, l.cell)
		default:
			turn, old := ts.take(l, began, got)
			if turn && len(mine) < claimsMax {
				mine = append(mine, *l)
			} else if old {
				alone = append(alone, l.cell)
			}
		}
	}
	ts.refresh(ctx, alone)
	mine = ts.claim(ctx, mine)
	cells = make([]store.Cell, len(mine))
	for i := range mine {
		cells[i] = mine[i].cell
	}
	if sums := ts.refresh(ctx, cells); sums != nil {
		ts.publish(ctx, mine, sums)
	}
}

// look reads what there is of counters without their shards.
func (ts *Totals) look(ctx context.Context, cells []store.Cell) ([]look, error) {
	all := make([]store.Cell, 0, 3*len(cells))
	for _, c := range cells {
		claim, total := store.RollupCells(c)
		all = append(all, c, claim, total)
	}
	values := make([]store.Value, len(all))
	if err := ts.under.Read(ctx, all, values); err != nil {
		return nil, err
	}
	looks := make([]look, len(cells))
	for i, c := range cells {
		looks[i] = look{cell: c, home: values[3*i], claim: values[3*i+1], total: values[3*i+2]}
	}
	return looks, nil
}

// take keeps a total that another server has made, if it is a newer one. It
// reports whether it is this one's turn to make the next, and whether there was
// none for so long that it must be read at once. The look began at one moment, and
// its answer came at a tick.
func (ts *Totals) take(l *look, began rollup.Moment, got uint64) (turn, old bool) {
	t := ts.memory
	t.rollups.mu.Lock()
	how, rolling := t.rollups.rolled[l.cell]
	t.rollups.mu.Unlock()
	stripe := t.stripe(l.cell)
	stripe.mu.Lock()
	e := stripe.cells[l.cell]
	if !rolling || e == nil || e.duty == nil {
		stripe.mu.Unlock()
		return false, false
	}
	asOf, ok := e.duty.Look(began, l.claim.N)
	turn = e.duty.Due(began.Time, rollup.Patience(ts.server, l.cell.Namespace, l.cell.Key, how.every))
	l.raise = e.duty.Claim()
	since := e.asked.Time
	stripe.mu.Unlock()
	v := store.Value{N: l.total.N, Exists: true, Layout: l.home.Layout, Version: spread.Mixed(l.claim.Version, l.total.Version)}
	if ok && t.keep(l.cell, snapshot{value: v, asked: asOf, got: got, looked: began.Tick}) {
		t.rollups.taken.Add(1)
		since = asOf.Time
	}
	return turn, began.Time.Sub(since) > how.every*7/4
}

// claim claims counters, and returns those that nobody else has claimed since
// they were looked at.
func (ts *Totals) claim(ctx context.Context, looks []look) (mine []look) {
	batches := make([]store.Batch, len(looks))
	for i := range looks {
		claim, _ := store.RollupCells(looks[i].cell)
		batches[i] = store.Batch{
			Partition: store.PartitionOf(claim, ts.traits.Partitions),
			Deltas: []store.Delta{{
				Cell: claim, Op: store.OpAdd, N: looks[i].raise,
				Guard: store.Guard{Match: true, Version: looks[i].claim.Version},
			}},
		}
	}
	now := ts.memory.now() // before anyone else can see it
	replies := ts.applyOptional(ctx, batches)
	for i, r := range replies {
		if l := &looks[i]; r.Err == nil && r.Results[0].Outcome == store.Applied {
			l.claim.N, l.claim.Version = l.claim.N+l.raise, r.Results[0].Version
			ts.memory.claimed(l.cell, l.claim.N, now)
			mine = append(mine, *l)
		}
	}
	ts.memory.rollups.claimed.Add(uint64(len(mine)))
	return mine
}

// publish gives the totals of counters that were claimed to all servers, unless
// another has claimed them since.
func (ts *Totals) publish(ctx context.Context, looks []look, sums []snapshot) {
	batches := make([]store.Batch, len(looks))
	for i := range looks {
		claim, total := store.RollupCells(looks[i].cell)
		batches[i] = store.Batch{
			Partition: store.PartitionOf(claim, ts.traits.Partitions),
			If:        []store.Condition{{Cell: claim, Version: looks[i].claim.Version}},
			Deltas: []store.Delta{
				{Cell: claim, Op: store.OpAdd, N: 1},
				{Cell: total, Op: store.OpSet, N: sums[i].value.N},
			},
		}
	}
	ts.applyOptional(ctx, batches)
}

// applyOptional applies batches of which none matters: if they are lost, totals are made
// later, or by each server for itself.
func (ts *Totals) applyOptional(ctx context.Context, batches []store.Batch) []store.Reply {
	replies := make([]store.Reply, len(batches))
	if len(batches) == 0 {
		return nil
	}
	if err := ts.under.Apply(ctx, batches, replies); err != nil {
		ts.memory.refreshFailures.Add(uint64(len(batches)))
		return nil
	}
	return replies
}

// claimed notes that this server has made a claim.
func (t *memory) claimed(c store.Cell, number int64, now rollup.Moment) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.cells[c]; e != nil && e.duty != nil {
		e.duty.Look(now, number)
	}
}
