package spread

import (
	"slices"

	"github.com/quipudb/quipu/store"
)

// A write applies batches, as if every counter were one cell. It folds what a batch
// needs whole, sends adds to shards, and does again what a layout has refused.
type write struct {
	*core
	pick    picker
	batches []store.Batch
	replies []store.Reply
	given   []store.Batch // as they were before some were to stay together

	at     writeState
	routed *routed // the call as it went to the store; nil if that was as it is
	away   [][]int // what goes home after all: deltas of each batch
	todo   []redo  // what is made again, one after the other: a batch has an order
	round  int     // of the first of these

	err error // of the call
}

// A redo is a delta that is made again, or with -1 its whole batch.
type redo struct{ batch, delta int }

type writeState uint8

const (
	writeBegins  writeState = iota
	writeSettled            // counters that are needed whole are folded
	writeRouted             // the call is made
	writeDone               // the call was made, by whoever made this machine
	writeHomed              // adds went home whose shards did not take them
	writeAgain              // one is made again
	writeLooked             // the cells that it met are read
	writeFolded             // counters that it needs whole are folded
)

func (m *core) newWrite(batches []store.Batch, replies []store.Reply, pick picker) *write {
	return &write{core: m, batches: inOrder(batches), replies: replies, given: batches, pick: pick}
}

// newRepair is newWrite of a call that was made, as it is, and met split counters.
func (m *core) newRepair(batches []store.Batch, replies []store.Reply, given []store.Batch) *write {
	return &write{core: m, batches: batches, replies: replies, given: given, at: writeDone}
}

// to goes to a state by some calls. If there are none to make, it is there already.
func (m *write) to(s writeState, calls []call) []call {
	if m.at = s; len(calls) == 0 {
		return m.next(nil)
	}
	return calls
}

func (m *write) next(got []answer) []call {
	switch m.at {
	case writeBegins:
		return m.to(writeSettled, folds(m.needed(m.batches, m.isKnown), true))
	case writeSettled:
		for i := range got {
			// If a shard is out of reach, or knows a higher book, that concerns its delta
			// alone: it is refused when its turn comes.
			if err := got[i].err; err != nil && store.KindOf(err) != store.KindUnavailable && store.KindOf(err) != store.KindOutdated {
				m.err = err
				return nil
			}
		}
		return m.send()
	case writeRouted:
		if !m.receive(&got[0]) {
			return nil
		}
		return m.to(writeHomed, m.bringHome())
	case writeDone:
		return m.to(writeHomed, nil)
	case writeHomed:
		if got != nil {
			m.settle(&got[0])
		}
		m.plan()
		return m.again()
	case writeAgain:
		return m.judge(&got[0])
	case writeLooked:
		return m.met(got)
	default: // writeFolded
		if err := failure(got); err != nil {
			m.end(store.Reply{Err: err})
		}
		return m.again()
	}
}

// isKnown reports whether a counter is known to be split.
func (m *write) isKnown(c store.Cell) bool { return m.known.get(c) != nil }

// needed returns the counters that batches need whole.
func (m *write) needed(batches []store.Batch, which func(store.Cell) bool) (cells []store.Cell) {
	for i := range batches {
		for j := range batches[i].Deltas {
			if d := &batches[i].Deltas[j]; d.NeedsWhole() && which(d.Cell) && !slices.Contains(cells, d.Cell) {
				cells = append(cells, d.Cell)
			}
		}
	}
	return cells
}

// send makes the call.
func (m *write) send() []call {
	if m.routed = m.route(m.batches, m.pick); m.routed == nil {
		return m.to(writeRouted, []call{{apply: m.batches}})
	}
	return m.to(writeRouted, []call{{apply: m.routed.batches}})
}

// receive takes the answer to the call, and reports whether there is more to do.
func (m *write) receive(got *answer) bool {
	if m.routed == nil {
		m.err = got.err
		copy(m.replies, got.replies)
		return m.err == nil && anySplit(m.replies)
	}
	if got.err != nil {
		if fate(got.err) == 0 {
			m.err = got.err
			return false
		}
		for i := range got.replies { // what moved may fare better at home
			got.replies[i] = store.Reply{Err: got.err}
		}
	}
	m.routed.timed(got.took, got.at)
	m.routed.gather(got.replies, m.batches, m.replies)
	m.away = make([][]int, len(m.batches))
	for i, from := range m.routed.from {
		for j, p := range from {
			if p.of == nil || p.shard == 0 || m.replies[p.batch].Err != nil { // nothing more can be said of it
				continue
			}
			if m.replies[p.batch].Results[p.delta].Outcome == store.Unavailable {
				m.away[p.batch] = append(m.away[p.batch], p.delta)
			} else if r := got.replies[i].Results; len(r) > 0 && r[j].Outcome != store.Applied {
				m.known.refuse(m.batches[p.batch].Deltas[p.delta].Cell, p.of)
				m.away[p.batch] = append(m.away[p.batch], p.delta)
			}
		}
	}
	return true
}

// bringHome gives adds to their homes whose shards are closed or out of reach. Home
// takes them, whatever became of the shards.
func (m *write) bringHome() []call {
	var batches []store.Batch
	for i, deltas := range m.away {
		if len(deltas) == 0 {
			continue
		}
		b := store.Batch{Partition: m.batches[i].Partition, Durability: m.batches[i].Durability, Books: m.batches[i].Books, Apart: true}
		for _, j := range deltas {
			b.Deltas = append(b.Deltas, m.batches[i].Deltas[j])
		}
		batches = append(batches, b)
		m.meters.rerouted.Add(uint64(len(deltas)))
	}
	if len(batches) == 0 {
		return nil
	}
	return []call{{apply: batches, again: true}}
}

// settle takes what homes have answered.
func (m *write) settle(got *answer) {
	for i, deltas := range m.away {
		if len(deltas) == 0 {
			continue
		}
		var from store.Reply
		from, got.replies = got.replies[0], got.replies[1:]
		if got.err != nil {
			from.Err = got.err
		}
		m.put(i, from, deltas...)
	}
}

// put takes the reply for some deltas of a batch.
func (m *write) put(batch int, from store.Reply, deltas ...int) {
	to := &m.replies[batch]
	if from.Err != nil {
		fail(to, from.Err, deltas...)
		return
	}
	for n, j := range deltas {
		to.Results[j] = from.Results[n]
	}
	to.Durability = min(to.Durability, from.Durability)
}

// plan finds what is to be made again because a counter is split. Nothing of that
// was applied.
func (m *write) plan() {
	for i := range m.replies {
		to := &m.replies[i]
		if to.Err != nil && store.KindOf(to.Err) == store.KindSplit {
			m.todo = append(m.todo, redo{i, -1})
			continue
		}
		for j := range to.Results {
			if to.Results[j].Outcome != store.Split || m.seats.several(m.batches[i].Deltas[j].Cell) > 0 {
				continue // What has seats is for the caller: see seated.go.
			}
			if len(m.batches[i].If) > 0 { // Its only delta: the conditions must hold when it is applied.
				m.todo = append(m.todo, redo{i, -1})
				break
			}
			if metObject(m.batches[i].Deltas, to.Results, j) {
				to.Results[j] = store.Result{Outcome: store.NotCount}
				continue
			}
			m.todo = append(m.todo, redo{i, j})
		}
	}
}

// metObject reports whether a delta was surely refused by an object: the same cell has then taken,
// in the same step, what a part of a counter does not. It must not be made again, since that may have
// ended the object. What was not applied, or long ago, says nothing: a token or a time is
// judged before what the cell is.
func metObject(deltas []store.Delta, results []store.Result, refused int) bool {
	for j := refused + 1; j < len(deltas); j++ {
		if r := &results[j]; deltas[j].Cell == deltas[refused].Cell && r.Outcome == store.Applied && !r.Replayed && deltas[j].NeedsWhole() {
			return true
		}
	}
	return false
}

// one returns the batch that is made again first.
func (m *write) one() store.Batch {
	b := m.batches[m.todo[0].batch]
	if j := m.todo[0].delta; j >= 0 {
		d := b.Deltas[j]
		b = store.Batch{Partition: store.PartitionOf(d.Cell, m.partitions), Durability: b.Durability, Books: b.Books, Apart: true, Deltas: []store.Delta{d}}
	}
	return b
}

// seated reports whether a counter of a batch is known to have seats: no fold makes it one
// cell.
func (m *write) seated(b store.Batch) bool {
	return slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return m.seats.several(d.Cell) > 0 })
}

// again makes the next one again.
func (m *write) again() []call {
	for len(m.todo) > 0 && m.todo[0].delta >= 0 && m.replies[m.todo[0].batch].Err != nil { // nothing more can be said of it
		m.todo = m.todo[1:]
	}
	if len(m.todo) == 0 {
		return nil
	}
	if m.round++; m.round > roundsMax {
		m.end(store.Reply{Err: store.Errorf(store.KindUnavailable, "the counter is split again and again while it is asked for its value")})
		return m.again()
	}
	return m.to(writeAgain, []call{{apply: []store.Batch{m.one()}, again: true}})
}

// judge goes on from what became of the one that was made again.
func (m *write) judge(got *answer) []call {
	switch {
	case got.err != nil:
		m.end(store.Reply{Err: got.err})
	case anySplit(got.replies) && m.seated(m.one()):
		m.end(got.replies[0]) // The caller knows what to do: see seated.go.
	case anySplit(got.replies):
		if cells := refusable(m.one().Deltas); len(cells) > 0 {
			return m.to(writeLooked, reads(cells...))
		}
		return m.fold()
	default:
		m.end(got.replies[0])
	}
	return m.again()
}

// refusable returns the cells that would refuse one of some deltas if they were objects.
func refusable(deltas []store.Delta) (cells []store.Cell) {
	for i := range deltas {
		if d := &deltas[i]; d.Splits(store.LayoutObject) && !slices.Contains(cells, d.Cell) {
			cells = append(cells, d.Cell)
		}
	}
	return cells
}

// met goes on from what refused the one that was made again. An object stays one: nothing is
// put together.
func (m *write) met(got []answer) []call {
	if err := failure(got); err != nil {
		m.end(store.Reply{Err: err})
		return m.again()
	}
	for i := range got {
		if slices.ContainsFunc(got[i].values, func(v store.Value) bool { return v.IsObject() }) {
			if m.todo[0].delta < 0 && m.divides(m.todo[0].batch) {
				return m.again()
			}
			if m.todo[0].delta < 0 {
				m.end(store.Reply{Err: store.ErrNotCount})
			} else {
				m.end(store.Reply{Durability: store.Synced, Results: []store.Result{{Outcome: store.NotCount}}})
			}
			return m.again()
		}
	}
	return m.fold()
}

// divides makes a batch, which was refused as a whole, delta by delta, if its caller does not
// want it to be one step. It reports whether that is so.
func (m *write) divides(batch int) bool {
	b := &m.given[batch]
	if !b.Apart || len(b.If) > 0 || len(b.Floors) > 0 || b.Writer != 0 {
		return false
	}
	m.replies[batch] = store.Reply{Durability: store.Synced, Results: make([]store.Result, len(b.Deltas))}
	each := make([]redo, len(b.Deltas), len(b.Deltas)+len(m.todo))
	for j := range each {
		each[j] = redo{batch, j}
	}
	m.todo, m.round = append(each, m.todo[1:]...), 0
	return true
}

// fold folds the counters that the one that was made again needs whole.
func (m *write) fold() []call {
	whole := m.needed([]store.Batch{m.one()}, func(store.Cell) bool { return true })
	return m.to(writeFolded, folds(whole, true))
}

// end ends the one that was made again.
func (m *write) end(r store.Reply) {
	is := m.todo[0]
	m.todo, m.round = m.todo[1:], 0
	if is.delta >= 0 {
		m.put(is.batch, r, is.delta)
		return
	}
	if to := &m.replies[is.batch]; r.Err != nil {
		*to = store.Reply{Err: r.Err, Results: to.Results[:0]}
	} else {
		*to = r
	}
}
