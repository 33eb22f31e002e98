package hold

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// A Hint says that holds of a counter end by a time, so that whoever looks for them need not
// look at all counters. It is put before the hold is made, and may be wrong: the hold was
// never made, or has ended. Hints are parts of a few cells of the store's own namespace.
type Hint struct {
	Namespace, Key string
	Prefix         bool  // the key is only how the keys of some counters begin: the whole one was too long
	At             int64 // Unix microseconds, a multiple of Grain
}

// Grain is how exact a hint is: holds that end within so long share one.
const Grain = 250 * time.Millisecond

const (
	hintWhole  = 1
	hintPrefix = 2
)

// HintOf returns the hint for a hold that ends at a deadline: not before it.
func HintOf(c store.Cell, deadline int64) Hint {
	const grain = int64(Grain / time.Microsecond)
	h := Hint{Namespace: c.Namespace, Key: c.Key, At: (deadline + grain - 1) / grain * grain}
	if room := store.PartNameBytesMax - len(c.Namespace) - 1; len(h.Key) > room {
		for !utf8.RuneStart(h.Key[room]) {
			room--
		}
		h.Key, h.Prefix = h.Key[:room], true
	}
	return h
}

// Part returns the part that is the hint, and what it holds.
func (h Hint) Part() (p store.Part, n int64) {
	if n = hintWhole; h.Prefix {
		n = hintPrefix
	}
	return store.PartFields{Kind: store.PartDue, Position: h.At, Name: h.Namespace + "/" + h.Key}.Part(), n
}

// HintIn returns the hint that a part of a lane is, which holds n.
func HintIn(p store.Part, n int64) (h Hint, ok bool) {
	f, ok := p.Fields()
	if !ok || f.Kind != store.PartDue || n != hintWhole && n != hintPrefix {
		return Hint{}, false
	}
	h = Hint{At: f.Position, Prefix: n == hintPrefix}
	h.Namespace, h.Key, ok = strings.Cut(f.Name, "/")
	return h, ok
}

// Lanes returns the cells that hints are parts of, if the store has so many partitions.
func Lanes(partitions int) []store.Cell {
	lanes := make([]store.Cell, min(partitions, 4))
	for i := range lanes {
		lanes[i] = store.Cell{Key: "due/" + strconv.Itoa(i)}
	}
	return lanes
}

// Lane returns which of so many lanes a hint is in.
func (h Hint) Lane(lanes int) int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(h.Namespace + "/" + h.Key)) // It never fails.
	return int(sum.Sum32() % uint32(lanes))
}

// Used is the cell of the store's own namespace that says in which namespaces there have
// ever been holds: UsedPart names one of them, and UsedNumber is how many.
func Used() store.Cell { return store.Cell{Key: "holds"} }

// UsedNumber returns the part of Used that holds how many namespaces it names.
func UsedNumber() store.Part {
	return store.PartFields{Kind: store.PartDue, Position: 1}.Part()
}

// UsedPart returns the part of Used that names a namespace.
func UsedPart(namespace string) store.Part {
	return store.PartFields{Kind: store.PartDue, Name: namespace}.Part()
}
