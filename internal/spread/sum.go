package spread

import (
	"math"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A sum reads counters: of one that is split, the sum of its cells. Versions, if
// somebody asks, are those of the cells that each value is the sum of.
type sum struct {
	*core
	cells    []store.Cell
	values   []store.Value
	versions [][]uint64

	at    sumState
	round int
	todo  []*part // what is left to read

	err error
}

// A part is one of the counters that are read.
type part struct {
	i      int      // which
	of     *counter // what is known of it, or nil
	before uint64   // home's version, from before it was read
	values []store.Value

	lost    bool   // home does not have the layout that is known, and may have lost it
	missing uint64 // which of its shards are not there, a bit for each
	vouched bool   // home was read after its shards
	again   bool   // it has to be read again
}

type sumState uint8

const (
	sumBegins  sumState = iota
	sumParts            // the cells are read
	sumLost             // shards that home may have forgotten are read
	sumRenamed          // home is told of them again
	sumVouched          // homes are read after their shards
	sumFolded           // what never stays the same is folded
)

func (m *core) newSum(cells []store.Cell, values []store.Value, versions [][]uint64) *sum {
	s := &sum{core: m, cells: cells, values: values, versions: versions, todo: make([]*part, len(cells))}
	for i := range s.todo {
		s.todo[i] = &part{i: i}
	}
	return s
}

// to goes to a state by some calls. If there are none to make, it is there already.
func (m *sum) to(s sumState, calls []call) []call {
	if m.at = s; len(calls) == 0 {
		return m.next(nil)
	}
	return calls
}

func (m *sum) next(got []answer) []call {
	if m.err = failure(got); m.err != nil && (m.at != sumRenamed || store.KindOf(m.err) != store.KindOutdated) {
		return nil
	}
	switch m.at {
	case sumBegins, sumFolded:
		return m.to(sumParts, m.plan())
	case sumParts:
		return m.to(sumLost, m.deal(got))
	case sumLost:
		return m.to(sumRenamed, m.find(got))
	case sumRenamed:
		for range got {
			if applied(got) {
				m.meters.reasserted.Add(1)
			}
			got = got[1:]
		}
		return m.to(sumVouched, m.take())
	default: // sumVouched
		return m.end(got)
	}
}

// plan reads all cells of the counters that are left. Those of one counter are read
// by one call, and so at one moment where that can be.
func (m *sum) plan() []call {
	calls := reads()
	for _, p := range m.todo {
		*p = part{i: p.i, of: m.known.get(m.cells[p.i])}
		of := m.cells[p.i : p.i+1]
		if p.of != nil {
			of, p.before = p.of.cells, p.of.version.Load()
		}
		last := &calls[len(calls)-1]
		if len(last.read)+len(of) > store.ReadCellsMax {
			calls = append(calls, call{})
			last = &calls[len(calls)-1]
		}
		last.read = append(last.read, of...)
	}
	return calls
}

// deal gives each counter what was read of it, and reads the shards of those that
// home may have lost.
func (m *sum) deal(got []answer) (calls []call) {
	for _, p := range m.todo {
		size := 1
		if p.of != nil {
			size = len(p.of.cells)
		}
		if len(got[0].values) == 0 {
			got = got[1:]
		}
		p.values, got[0].values = got[0].values[:size], got[0].values[size:]
		if p.lost = p.values[0].Layout == 0 && m.mayBeLost(p.of); p.lost {
			calls = append(calls, call{read: p.of.cells[1:]})
		}
	}
	return calls
}

// find tells homes of the layouts that they have lost.
func (m *sum) find(got []answer) (calls []call) {
	for _, p := range m.todo {
		if !p.lost {
			continue
		}
		if p.again = isLost(p.of, got[0].values); p.again {
			calls = append(calls, m.renames(m.cells[p.i], p.of, p.values[0].Version)...)
		}
		got = got[1:]
	}
	return calls
}

// take makes values of what was read, and reads homes again.
//
// Shards only grow, and home changes before what it takes in is gone. If home
// was the same before the first of them was read and after the last, the sum
// lies between what the counter was then.
func (m *sum) take() []call {
	var homes []store.Cell
	for _, p := range m.todo {
		if p.again {
			continue
		}
		home, word := &p.values[0], hot.Of(p.values[0])
		if m.seats.learn(m.cells[p.i], word) { // The caller sums its shards: see seat.go.
			m.values[p.i] = *home
			continue
		}
		m.known.learn(m.cells[p.i], p.of, newest(p.of, word), home.Version)
		switch {
		case word == 0:
			m.values[p.i] = *home
		case p.of == nil || !word.Same(p.of.word):
			p.again = true
		default:
			m.values[p.i], p.missing = total(p.values, word)
			if p.vouched = m.partitions > 1; p.vouched { // Otherwise all was read at one moment.
				homes = append(homes, m.cells[p.i])
			}
		}
	}
	if len(homes) == 0 {
		return nil
	}
	return reads(homes...)
}

// end ends a round. What never stays the same is folded: one cell can tell.
func (m *sum) end(got []answer) []call {
	left := m.todo[:0]
	for _, p := range m.todo {
		if p.vouched {
			version := got[0].values[0].Version
			p.of.version.Store(version)
			p.again, got[0].values = version != p.before, got[0].values[1:]
		}
		if p.again {
			left = append(left, p)
		} else if m.versions != nil {
			m.versions[p.i] = versionsOf(m.versions[p.i][:0], p.values, p.missing)
		}
	}
	m.todo = left
	m.round++
	rounds, calm := roundsMax, roundsCalm
	if m.readOnly { // which can't fold
		rounds *= 4
		calm = rounds
	}
	switch {
	case len(left) == 0:
		return nil
	case m.round == rounds:
		m.err = store.Errorf(store.KindUnavailable, "%q changes all the time, and can't be read at one moment", m.cells[left[0].i].Key)
		return nil
	case m.round <= calm:
		return m.to(sumParts, m.plan())
	}
	cells := make([]store.Cell, len(left))
	for i, p := range left {
		cells[i] = m.cells[p.i]
	}
	return m.to(sumFolded, folds(cells, true))
}

// roundsCalm is how often a counter whose shards are read at different moments is
// read in vain before it is folded.
const roundsCalm = 4

// versionsOf appends the versions of the parts that a counter's value is the sum
// of. Some shards are missing, a bit for each. If home is one cell, what else was
// read may be of a split that came after it was.
func versionsOf(to []uint64, parts []store.Value, missing uint64) []uint64 {
	to = append(to, parts[0].Version)
	if hot.Of(parts[0]) == 0 {
		return to
	}
	for i := range parts[1:] {
		v := parts[1+i].Version
		if missing&(1<<i) != 0 {
			v = 0
		}
		to = append(to, v)
	}
	return to
}

// total adds up the parts of a counter, and returns which of its shards are not
// there, a bit for each.
func total(parts []store.Value, home hot.Word) (v store.Value, missing uint64) {
	open := hot.Open(home.Gen())
	n, version := parts[0].N, mix(0, parts[0].Version)
	for i := range parts[1:] {
		p := &parts[1+i]
		if w := hot.Of(*p); w != open && w != open.Fold() {
			missing |= 1 << i
			continue
		}
		n = plus(n, p.N)
		version = mix(version, p.Version)
	}
	return store.Value{N: n, Version: noCells(version), Exists: true, Layout: int64(home), AsOfMS: asOf(parts)}, missing
}

// asOf returns as of when the sum of parts is: as the oldest of them. 0 is now.
func asOf(parts []store.Value) (ms int64) {
	for i := range parts {
		if at := parts[i].AsOfMS; at != 0 && (ms == 0 || at < ms) {
			ms = at
		}
	}
	return ms
}

// OfShards marks a version of a counter that is split: no cell comes so far, so a
// write that is to be made at such a version is refused. It leaves versions
// within int64.
const OfShards = 1 << 62

func noCells(version uint64) uint64 { return version&(OfShards-1) | OfShards }

// Mixed returns a version for a value that is made of others, of which two stand
// for all: it is another whenever one of them is, and no cell's.
func Mixed(a, b uint64) uint64 { return noCells(mix(mix(0, a), b)) }

// mix adds a version to those before it, so that the result is another whenever
// one of them is.
func mix(h, version uint64) uint64 {
	h = (h ^ version) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// plus is a+b, held at the ends of int64.
func plus(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}
