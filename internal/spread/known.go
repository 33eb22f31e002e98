package spread

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// known is what a server knows of the layouts of counters. It may be outdated: the
// store refuses what is done by it then. It is safe for concurrent use; the zero
// value knows nothing.
type known struct {
	count atomic.Int32 // of counters

	mu       sync.RWMutex // guards the fields below
	counters map[store.Cell]*counter
	refused  map[store.Cell]hot.Word // layouts of which a shard did not take an add
	others   map[store.Cell]uint64   // open shards that home did not name, when this server would have split it
}

// othersMax is how many counters' shards of others are remembered.
const othersMax = 512

// A counter is one that was split when it was looked at last.
type counter struct {
	word  hot.Word
	cells []store.Cell // its shards, home first
	paces []pace       // of each

	version atomic.Uint64 // of home, when it was read last
	wide    atomic.Bool   // home keeps how many shards it has, for those who read views
	narrow  atomic.Bool   // it should: adds with views have stayed there
}

// A pace is how long the writes to a cell take of late.
type pace struct {
	mu    sync.Mutex
	times hot.Times
}

func (p *pace) note(took time.Duration, now time.Time) {
	p.mu.Lock()
	p.times.Note(took, now)
	p.mu.Unlock()
}

func (p *pace) p99(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.times.P99(now)
}

// slowest returns how long the slowest write in a hundred took to the shard where
// that is the longest: a mean over shards, or over writes, would hide it.
func (c *counter) slowest(now time.Time) (most time.Duration) {
	for i := range c.paces {
		most = max(most, c.paces[i].p99(now))
	}
	return most
}

// get returns what is known of a counter that is split, or nil.
func (k *known) get(c store.Cell) *counter {
	if k.count.Load() == 0 {
		return nil
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.counters[c]
}

// word returns the word that a counter is known to have.
func (k *known) word(c store.Cell) hot.Word {
	if of := k.get(c); of != nil {
		return of.word
	}
	return 0
}

// any reports whether one of some counters is known to be split.
func (k *known) any(cells []store.Cell) bool {
	if k.count.Load() == 0 {
		return false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, c := range cells {
		if k.counters[c] != nil {
			return true
		}
	}
	return false
}

// all returns the counters that are known to be split, as many as can be read at
// once.
func (k *known) all() []store.Cell {
	k.mu.RLock()
	defer k.mu.RUnlock()
	cells := make([]store.Cell, 0, len(k.counters))
	for c := range k.counters {
		cells = append(cells, c)
	}
	return cells[:min(len(cells), store.ReadCellsMax)]
}

// learn remembers the word of a counter's home, which was read at a version after
// was was known of it. If something else has been learned since, that may be newer.
func (k *known) learn(c store.Cell, was *counter, word hot.Word, version uint64) {
	// Fast path: nearly always it is known, and readers need not wait for each other.
	switch {
	case was == nil && word == 0:
		return
	case was != nil && was.word == word:
		was.version.Store(version)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counters[c] == was {
		k.set(c, word, version)
	}
}

// named remembers the word that this server makes a counter's home have.
func (k *known) named(c store.Cell, word hot.Word, version uint64) *counter {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(c, word, version)
	return k.counters[c]
}

// set is learn and named for who holds mu.
func (k *known) set(c store.Cell, word hot.Word, version uint64) {
	if word == 0 || word.Seated() != 0 { // What has seats is not split.
		delete(k.counters, c)
	} else {
		if k.counters == nil {
			k.counters = make(map[store.Cell]*counter)
		}
		n := &counter{word: word, cells: make([]store.Cell, word.Shards()), paces: make([]pace, word.Shards())}
		for i := range n.cells {
			n.cells[i] = store.ShardCell(c, i)
		}
		n.version.Store(version)
		k.counters[c] = n
	}
	k.count.Store(int32(len(k.counters)))
}

// forget drops what was known of a counter, and is not so any more.
func (k *known) forget(c store.Cell, was *counter) { k.learn(c, was, 0, 0) }

// newest returns the word to remember of a counter that was read with one: this
// server may be about to fold it, which a reader must not undo.
func newest(k *counter, word hot.Word) hot.Word {
	if k != nil && k.word.Folding() && k.word.Same(word) {
		return k.word
	}
	return word
}

// refuse notes that a shard of a counter did not take an add, since it is of
// another layout, and forgets the one that was known.
func (k *known) refuse(c store.Cell, was *counter) {
	k.forget(c, was)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused == nil {
		k.refused = make(map[store.Cell]hot.Word)
	}
	k.refused[c] = was.word
}

// refusals returns, once, the layouts of which a shard did not take an add.
func (k *known) refusals() map[store.Cell]hot.Word {
	k.mu.Lock()
	defer k.mu.Unlock()
	refused := k.refused
	k.refused = nil
	return refused
}

// abandoned reports whether the shards that others have opened, and home does not
// name, were the same when this server would have split the counter the last time.
// Then nobody is going to name them.
func (k *known) abandoned(c store.Cell, others uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.others[c]
	if k.others == nil || len(k.others) >= othersMax {
		k.others = make(map[store.Cell]uint64)
	}
	k.others[c] = others
	return was == others
}
