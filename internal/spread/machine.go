package spread

import (
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A machine is one act of a server, such as a split, a fold, a read or a write, as
// a row of steps. It decides what to ask of the store, and is told what the store
// has answered. It does no I/O and knows no clock, so a test can play the steps of
// several servers in every order. DESIGN.md has the tables of their states.
type machine interface {
	// next takes the answers to the calls that it returned last, none at first, and
	// returns the calls to make next, side by side. None means that the act is over.
	next(got []answer) []call
}

// A call is what a machine asks for: to read cells, to apply batches, or to fold a
// counter. It is one of the three.
type call struct {
	read  []store.Cell
	apply []store.Batch
	fold  *store.Cell

	own   bool // What it applies changes a layout.
	asked bool // It folds because one cell has to decide.
	alone bool // No call that was started may be under way while this one is.
	again bool // What it applies was refused before, because of a layout.
}

// An answer is what became of a call. An error is the fate of the whole call; what
// became of single batches is in the replies.
type answer struct {
	values  []store.Value
	replies []store.Reply
	err     error

	took time.Duration // what was applied
	at   time.Time     // when that was
}

// A core is what the machines of one server share: what its store is like, and
// what the server knows of its counters.
type core struct {
	partitions int
	readOnly   bool
	sole       bool // Nobody else uses the store.
	book       func(store.Cell) (id int64, touch *store.Event)

	known  known
	seats  seats
	meters meters
}

// roundsMax is how often something is tried again because others have changed a
// layout meanwhile.
const roundsMax = 16

// layout is the delta that makes one word of another.
func layout(c store.Cell, now, then hot.Word) store.Delta {
	return laid(store.Delta{Cell: c, Op: store.OpLayout, N: int64(then)}, now)
}

// laid makes a delta depend on a word.
func laid(d store.Delta, w hot.Word) store.Delta {
	d.Guard.Laid, d.Guard.Layout = true, int64(w)
	return d
}

// at makes a delta depend on a version.
func at(d store.Delta, version uint64) store.Delta {
	d.Guard.Match, d.Guard.Version = true, version
	return d
}

// shardsOf returns the shards of a counter, home excepted.
func shardsOf(c store.Cell, word hot.Word) []store.Cell {
	cells := make([]store.Cell, word.Shards()-1)
	for i := range cells {
		cells[i] = store.ShardCell(c, i+1)
	}
	return cells
}

// reads is the call that reads cells.
func reads(cells ...store.Cell) []call { return []call{{read: cells}} }

// folds are the calls that fold counters, perhaps because they are asked.
func folds(cells []store.Cell, asked bool) []call {
	calls := make([]call, len(cells))
	for i := range cells {
		calls[i] = call{fold: &cells[i], asked: asked}
	}
	return calls
}

// changes is the call that applies deltas to cells of one counter, synced, those of one
// partition together.
func (m *core) changes(of defined, deltas ...store.Delta) []call {
	var books []store.Book
	if of.book.ID > 0 {
		books = []store.Book{of.book}
	}
	byPartition := map[int]int{}
	var batches []store.Batch
	for _, d := range deltas {
		p := store.PartitionOf(d.Cell, m.partitions)
		at, ok := byPartition[p]
		if !ok {
			at = len(batches)
			byPartition[p] = at
			batches = append(batches, store.Batch{Partition: p, Durability: store.Synced, Books: books})
		}
		batches[at].Deltas = append(batches[at].Deltas, d)
	}
	return []call{{apply: batches, own: true}}
}

// failure returns the first error of some answers.
func failure(got []answer) error {
	for i := range got {
		if got[i].err != nil {
			return got[i].err
		}
		for j := range got[i].replies {
			if err := got[i].replies[j].Err; err != nil {
				return err
			}
		}
	}
	return nil
}

// applied reports whether the last delta of the first batch of a call was applied.
func applied(got []answer) bool {
	results := got[0].replies[0].Results
	return len(results) > 0 && results[len(results)-1].Outcome == store.Applied
}

// A lost layout is one that home has lost, and this server knows. Home said that it
// has no shards, at a version, and after that there is one that is open, with
// counts. A fold would have closed it first. So home is made to name it again, on
// condition that it is at that version still: else others may have done so, and
// have folded it since.

// mayBeLost reports whether a layout that home does not have may be lost. One
// partition loses all or nothing.
func (m *core) mayBeLost(k *counter) bool {
	return k != nil && !m.readOnly && !k.word.Folding() && m.partitions > 1
}

// isLost reports whether one of the shards that were read is open, with counts.
func isLost(k *counter, shards []store.Value) bool {
	open := int64(hot.Open(k.word.Gen()))
	for i := range shards {
		if shards[i].Layout == open && shards[i].N != 0 {
			return true
		}
	}
	return false
}

// renames is the call that makes home, at a version, name a layout again.
func (m *core) renames(c store.Cell, k *counter, version uint64) []call {
	d := m.defined(c)
	return m.changes(d, append([]store.Delta{at(layout(c, 0, k.word), version)}, d.widens(c, k.word)...)...)
}
