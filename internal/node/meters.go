package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// meters count what a node does.
type meters struct {
	flights, deltas, callers atomic.Uint64
	writes, reads            atomic.Uint64
	nanos                    atomic.Int64
	resends, retired, lost   atomic.Uint64
}

// count counts a flight that has landed.
func (m *meters) count(f *flight, took time.Duration) {
	m.flights.Add(1)
	m.deltas.Add(uint64(len(f.batches[0].Deltas)))
	m.callers.Add(uint64(len(f.entries)))
	m.nanos.Add(int64(took))
}

// looked counts cells that are read for a caller. What the node's server reads for itself
// is not counted: else one that nobody uses would seem to be read from all the time.
func (m *meters) looked(ctx context.Context, cells int) {
	if !store.IsUnheard(ctx) {
		m.reads.Add(uint64(cells))
	}
}

// Meters calls f for each meter of the node, then for those of the store under
// it.
func (n *Node) Meters(f func(name, help string, value float64)) {
	queued := 0
	for i := range n.pulses {
		queued += n.pulses[i].room.taken()
	}
	reachable := 1.0
	if int(n.outage.down.Load()) == len(n.pulses) {
		reachable = 0
	}
	f("quipu_writes_total", "Writes of callers that were taken in, each by itself though some come combined.", float64(n.writes.Load()))
	f("quipu_store_reads_total", "Cells that callers read.", float64(n.reads.Load()))
	f("quipu_node_flights_total", "Combined batches that were sent, each until it had an answer.", float64(n.flights.Load()))
	f("quipu_node_flight_deltas_total", "Changes in them.", float64(n.deltas.Load()))
	f("quipu_node_flight_seconds_total", "Time that took, pauses included.", time.Duration(n.nanos.Load()).Seconds())
	f("quipu_node_callers_total", "Batches of callers in them.", float64(n.callers.Load()))
	f("quipu_node_resends_total", "Combined batches sent again.", float64(n.resends.Load()))
	f("quipu_node_queue_deltas", "Changes that wait or are on their way.", float64(queued))
	f("quipu_node_queue_deltas_max", "How many may be.", float64(n.options.QueueDeltas))
	f("quipu_node_retired_total", "Writers of the node that were retired under way.", float64(n.retired.Load()))
	f("quipu_node_lost_total", "Times the store had forgotten what it had acknowledged.", float64(n.lost.Load()))
	f("quipu_node_store_reachable", "1 if a partition of the store answers, 0 if none does.", reachable)
	if m, ok := n.under.(store.Meter); ok {
		m.Meters(f)
	}
}
