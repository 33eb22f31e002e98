package spread

import (
	"slices"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A split gives a counter as many shards as its word says. It does nothing if
// someone else is changing the layout, or the counter can't have one.
//
// A generation is of one split. If more shards were opened under one that home has
// already, a server that rests over it could open one after home has left that
// generation, and others, who have not heard of that, would add to it. So a counter
// that needs more shards is folded first. Nobody else knows a new generation before
// all of its shards were opened.
type split struct {
	*core
	cell store.Cell
	word hot.Word // that home is to have

	at     splitState
	under  defined
	was    *counter      // that was known when it began
	round  int           // of opening
	cells  []store.Cell  // the shards
	values []store.Value // as they were read
	home   store.Value   // as it was read after them
	name   store.Delta   // what home is told

	done bool // The counter has its shards.
	err  error
}

type splitState uint8

const (
	splitBegins splitState = iota
	splitHome              // home is read
	splitFolded            // the shards that it had are folded
	splitShards            // the shards are read
	splitVouch             // home is read after them
	splitLost              // shards that home may have forgotten are read again
	splitOpened            // shards are removed and opened
	splitNamed             // home is told
)

func (m *core) newSplit(c store.Cell, word hot.Word) *split {
	return &split{core: m, cell: c, word: word, cells: shardsOf(c, word), under: m.defined(c)}
}

// to goes to a state, and makes the calls that lead there.
func (m *split) to(s splitState, calls []call) []call {
	m.at = s
	return calls
}

func (m *split) next(got []answer) []call {
	if m.err = failure(got); m.err != nil {
		return nil
	}
	switch m.at {
	case splitBegins:
		m.was = m.known.get(m.cell)
		return m.to(splitHome, reads(m.cell))
	case splitHome:
		return m.begin(got[0].values[0])
	case splitFolded, splitOpened:
		return m.look()
	case splitShards:
		m.values = got[0].values
		if slices.ContainsFunc(m.values, m.foreign) {
			return m.to(splitVouch, reads(m.cell))
		}
		return m.open(nil)
	case splitVouch:
		if m.home = got[0].values[0]; m.home.Layout != 0 {
			return nil
		}
		if suspects := m.suspects(); len(suspects) > 0 {
			return m.to(splitLost, reads(suspects...))
		}
		return m.open(nil)
	case splitLost:
		return m.open(got[0].values)
	default: // splitNamed
		if !applied(got) {
			return nil
		}
		results := got[0].replies[0].Results
		k := m.known.named(m.cell, hot.Word(m.name.N), results[len(results)-1].Version)
		k.wide.Store(m.under.touch != nil)
		if m.done = true; m.name.Guard.Match {
			m.meters.reasserted.Add(1)
		} else {
			m.meters.splits.Add(1)
		}
		return nil
	}
}

// begin goes on from what home is.
func (m *split) begin(v store.Value) []call {
	was := hot.Of(v)
	if m.seats.learn(m.cell, was) {
		return nil
	}
	if !v.Exists || v.IsObject() || v.DeadlineMS != 0 || !hot.IsNear(v.N) || was.Folding() || was.Shards() >= m.word.Shards() {
		m.known.learn(m.cell, m.was, newest(m.was, was), v.Version)
		return nil
	}
	if was != 0 {
		return m.to(splitFolded, folds([]store.Cell{m.cell}, false))
	}
	return m.look()
}

// look reads the shards.
func (m *split) look() []call {
	if m.round++; m.round > roundsMax {
		m.err = store.Errorf(store.KindUnavailable, "others change the shards of %q all the time", m.cell.Key)
		return nil
	}
	return m.to(splitShards, reads(m.cells...))
}

// foreign reports whether a shard is there that is not of this split.
func (m *split) foreign(v store.Value) bool {
	return v.Exists && hot.Of(v) != hot.Open(m.word.Gen())
}

// suspect reports whether a shard is open, and has counts, though home does not
// name it. Either it was closed before home was read, or home has forgotten it.
func (m *split) suspect(v store.Value) bool {
	return m.foreign(v) && !hot.Of(v).Folding() && v.N != 0
}

func (m *split) suspects() (cells []store.Cell) {
	for i, v := range m.values {
		if m.suspect(v) {
			cells = append(cells, m.cells[i])
		}
	}
	return cells
}

// open opens the shards that home is to name, which nobody adds to before that; and
// when all are open, it names them. It gives way if others are splitting the counter.
//
// The leftovers of an earlier split are removed. They are in home's sum, or were never added
// to: closed shards of a split that home does not name any more have been taken in.
// So home was read after the shards. What was read of it before may be long ago: since
// then others may have split the counter, added to a shard and closed it, to take
// it in next. What is open and has counts, though home does not name it, is of a
// split that home has forgotten: it comes back as it was. Seen is what these shards
// were after home was read.
func (m *split) open(seen []store.Value) []call {
	open := hot.Open(m.word.Gen())
	var deltas []store.Delta
	var others uint64 // what else is open
	for i, v := range m.values {
		is := hot.Of(v)
		switch {
		case is == open:
			continue
		case m.suspect(v):
			now := seen[0]
			if seen = seen[1:]; hot.Of(now) == is {
				// If home is not any more what it was, it may have come back, and been folded.
				return m.tell(at(layout(m.cell, 0, hot.Home(is.Gen(), hot.ShardsMax)), m.home.Version))
			}
			// It was closed: the next round will see what became of it.
		case v.Exists:
			if !is.Folding() {
				others = mix(others, uint64(is))
			}
			gone := laid(store.Delta{Cell: m.cells[i], Op: store.OpDelete}, is)
			deltas = append(deltas, at(gone, v.Version)) // nobody has added to it since
		}
		deltas = append(deltas, layout(m.cells[i], 0, open))
	}
	if others != 0 && (!m.known.abandoned(m.cell, others) || m.round > 1) {
		return nil // someone else is at it
	}
	if len(deltas) > 0 {
		return m.to(splitOpened, m.changes(m.under, deltas...))
	}
	name := layout(m.cell, 0, m.word)
	name.Guard.Exists = store.ExistsMust                            // It may have been deleted meanwhile, and stays so,
	name.Guard.Bound = &store.Bound{Low: -hot.Near, High: hot.Near} // or set to whatever.
	return m.tell(name)
}

// tell has home name its shards. What is started meanwhile would not know of them.
func (m *split) tell(name store.Delta) []call {
	m.name = name
	calls := m.changes(m.under, append([]store.Delta{name}, m.under.widens(m.cell, hot.Word(name.N))...)...)
	calls[0].alone = true
	return m.to(splitNamed, calls)
}
