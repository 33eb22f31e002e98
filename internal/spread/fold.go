package spread

import (
	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A fold makes a counter one cell again. It does what is left to do of a fold that
// someone has begun.
type fold struct {
	*core
	cell store.Cell

	at     foldState
	under  defined
	round  int      // of folding
	taking int      // round of taking in
	k      *counter // that is known of it
	word   hot.Word // that home has
	home   store.Value
	sum    int64 // of the shards, which are closed

	err error
}

type foldState uint8

const (
	foldBegins  foldState = iota
	foldHome              // home is read
	foldLost              // shards that home may have forgotten are read
	foldRenamed           // home is told of them again
	foldMarked            // home says that it is folding
	foldClosed            // the shards are closed
	foldSummed            // and read
	foldJudged            // home is read again
	foldTaken             // home has the sum
	foldRemoved           // the shards are gone
)

func (m *core) newFold(c store.Cell) *fold { return &fold{core: m, cell: c} }

// to goes to a state, and makes the calls that lead there.
func (m *fold) to(s foldState, calls []call) []call {
	m.at = s
	return calls
}

func (m *fold) next(got []answer) []call {
	calls := m.step(got)
	if calls == nil && (m.err == nil || !m.sole) { // Start has to know what is split.
		m.known.forget(m.cell, m.k)
	}
	return calls
}

func (m *fold) step(got []answer) []call {
	if err := failure(got); err != nil && !m.tolerates(got[0].err, err) {
		if m.outdated(err, m.cell, m.under) {
			return m.look()
		}
		// The waiting are told that their own write was not made, whatever became of
		// the fold. What is outdated, they can find out.
		if m.err = err; store.KindOf(err) == store.KindOutdated {
			return nil
		}
		m.err = store.Errorf(store.KindUnavailable, "the counter could not be put together: %w", err)
		return nil
	}
	switch m.at {
	case foldBegins, foldRenamed:
		if m.at == foldRenamed && applied(got) {
			m.meters.reasserted.Add(1)
		}
		return m.look()
	case foldHome:
		return m.begin(got[0].values[0])
	case foldLost:
		if isLost(m.k, got[0].values) {
			return m.to(foldRenamed, m.renames(m.cell, m.k, m.home.Version))
		}
		return nil
	case foldMarked:
		if !applied(got) {
			return m.look()
		}
		return m.close()
	case foldClosed:
		return m.to(foldSummed, reads(shardsOf(m.cell, m.word)...))
	case foldSummed:
		m.sum = closedSum(got[0].values, m.word)
		return m.to(foldJudged, reads(m.cell))
	case foldJudged:
		return m.takeIn(got[0].values[0])
	case foldTaken:
		return m.taken(&got[0].replies[0])
	default: // foldRemoved
		return nil
	}
}

// tolerates reports whether a fold goes on after an error: home has changed since it
// was read; or what is left of the shards is for the next split to remove.
func (m *fold) tolerates(ofCall, err error) bool {
	return m.at == foldRemoved || m.at == foldTaken && ofCall == nil && store.KindOf(err) == store.KindChanged
}

// look reads home.
func (m *fold) look() []call {
	if m.round++; m.round > roundsMax {
		m.err = store.Errorf(store.KindUnavailable, "others change the layout of %q all the time", m.cell.Key)
		return nil
	}
	m.k, m.under = m.known.get(m.cell), m.defined(m.cell)
	return m.to(foldHome, reads(m.cell))
}

// begin goes on from what home is.
func (m *fold) begin(v store.Value) []call {
	m.home, m.word = v, hot.Of(v)
	if m.seats.learn(m.cell, m.word) { // It is never folded: see seat.go.
		return nil
	}
	if m.word == 0 {
		if m.mayBeLost(m.k) {
			return m.to(foldLost, reads(m.k.cells[1:]...))
		}
		return nil
	}
	was := m.word
	m.word = was.Fold()
	m.k = m.known.named(m.cell, m.word, v.Version) // no more adds to its shards from here
	deltas := m.under.widens(m.cell, m.word)       // The touch of a shard may be its first part.
	if !was.Folding() {
		deltas = append([]store.Delta{layout(m.cell, was, m.word)}, deltas...)
	}
	if len(deltas) == 0 {
		return m.close()
	}
	return m.to(foldMarked, m.changes(m.under, deltas...))
}

// close closes the shards, whose values can't change any more then, and touches them,
// also if others have closed them.
func (m *fold) close() []call {
	open := hot.Open(m.word.Gen())
	var deltas []store.Delta
	for _, c := range shardsOf(m.cell, m.word) {
		deltas = append(append(deltas, layout(c, open, open.Fold())), m.under.touches(c, open.Fold())...)
	}
	m.taking = 0
	return m.to(foldClosed, m.changes(m.under, deltas...))
}

// closedSum adds up shards that are closed. What is not was never opened, or is gone
// with home's word.
func closedSum(shards []store.Value, home hot.Word) (sum int64) {
	for i := range shards {
		if hot.Of(shards[i]) == hot.Open(home.Gen()).Fold() {
			sum += shards[i].N
		}
	}
	return sum
}

// takeIn adds the sum of the shards to home, and makes that one cell.
//
// The add and the end of the layout stand or fall together. If the sum left int64
// they would not: the add alone would be refused. So home must be as it was when
// that was judged. If others keep changing it, and it is near zero, it need not:
// they can't bring it so far meanwhile.
func (m *fold) takeIn(v store.Value) []call {
	if hot.Of(v) != m.word {
		return m.look() // Someone else has done it.
	}
	after := v.N + m.sum
	if (after > v.N) != (m.sum > 0) && m.sum != 0 {
		m.err = store.ErrOverflow
		return nil
	}
	claim, total := store.RollupCells(m.cell) // What is one cell is its own total.
	calls := m.changes(m.under,
		laid(store.Delta{Cell: m.cell, Op: store.OpAdd, N: m.sum}, m.word), layout(m.cell, m.word, 0),
		store.Delta{Cell: claim, Op: store.OpDelete}, store.Delta{Cell: total, Op: store.OpDelete},
	)
	if m.taking < roundsCalm || !hot.IsNear(v.N) || !hot.IsNear(after) {
		calls[0].apply[0].If = []store.Condition{{Cell: m.cell, Version: v.Version}}
	}
	return m.to(foldTaken, calls)
}

// taken goes on from what home says.
func (m *fold) taken(r *store.Reply) []call {
	switch {
	case r.Err != nil: // Home has changed since it was read.
		if m.taking++; m.taking == roundsMax {
			m.err = store.Errorf(store.KindUnavailable, "%q is changed all the time", m.cell.Key)
			return nil
		}
		return m.to(foldJudged, reads(m.cell))
	case r.Results[1].Outcome != store.Applied:
		return m.look() // Someone else has done it.
	}
	m.meters.folds.Add(1)
	closed, cells := hot.Open(m.word.Gen()).Fold(), shardsOf(m.cell, m.word)
	deltas := make([]store.Delta, len(cells))
	for i := range cells {
		deltas[i] = laid(store.Delta{Cell: cells[i], Op: store.OpDelete}, closed)
	}
	return m.to(foldRemoved, m.changes(m.under, deltas...))
}
