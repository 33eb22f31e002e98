package spread

import (
	"fmt"
	"math"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

func writes(name string, d store.Delta) act {
	d.Cell = subject
	return act{name: name, begin: func(w *world, s *actor) machine {
		return &framed{w: w, by: s, delta: d}
	}}
}

// add adds to the first shard, where there is one, and addTo to another.
func add(n int64) act { return addTo(1, n) }

func addTo(lot uint32, n int64) act {
	return writes(fmt.Sprint("add ", n), store.Delta{Op: store.OpAdd, N: n, Lot: lot})
}

// perhaps is an act that may be refused.
func perhaps(a act) act {
	a.refuse = true
	return a
}

func sets(n int64) act { return writes(fmt.Sprint("set ", n), store.Delta{Op: store.OpSet, N: n}) }

var (
	asks    = writes("add 1 and ask", store.Delta{Op: store.OpAdd, N: 1, Want: true})
	deletes = writes("delete", store.Delta{Op: store.OpDelete})
	tokened = writes("add 7 once", store.Delta{Op: store.OpAdd, N: 7, Guard: store.Guard{Token: "t"}})
	far     = math.MaxInt64 - int64(5)
	gathers = act{name: "fold", begin: func(*world, *actor) machine { return &folder{} }}
	reading = act{name: "read", reads: true, begin: func(_ *world, s *actor) machine {
		return s.newSum([]store.Cell{subject}, make([]store.Value, 1), nil)
	}}
	// losing has home lose its layout, as a store does that loses its last writes.
	losing = act{name: "lose", begin: func(*world, *actor) machine { return &loser{} }}
)

func splits(shards int) act {
	return act{name: fmt.Sprint("split ", shards), begin: func(_ *world, s *actor) machine {
		s.gen++
		return s.newSplit(subject, hot.Home(s.gen, shards))
	}}
}

// A folder is who asks for a fold.
type folder struct{ asked bool }

func (m *folder) next([]answer) []call {
	if m.asked {
		return nil
	}
	m.asked = true
	return folds([]store.Cell{subject}, false)
}

// A loser is no server, but the store itself.
type loser struct{ done bool }

func (m *loser) next([]answer) []call {
	if m.done {
		return nil
	}
	m.done = true
	return []call{{apply: make([]store.Batch, 1)}}
}

// batches is what it does to home as that is now.
func (m *loser) batches(w *world) []store.Batch {
	lost := layout(subject, hot.Word(w.state()[0].Layout), 0)
	lost.Guard.Exists = store.ExistsMust
	return []store.Batch{{Partition: store.PartitionOf(subject, w.scene.partitions), Deltas: []store.Delta{lost}}}
}
