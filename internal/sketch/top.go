package sketch

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// TopMax is the largest k of a top list.
const TopMax = 1000

// TopItemBytesMax is the length of the longest item of a top list.
const TopItemBytesMax = 255

// The shape of a list follows from k, for all time: a state has it. With 4 entries and about 10
// cells for each item that is asked for, a list finds the first 100 of a million Zipfian
// items; see docs/design/0031-sketches.md.
const (
	topMultiple   = 4
	topEntriesMin = 64
	topEntriesMax = 3000
	topCellsEach  = 8
	topCellsMin   = 256
	topCellsMax   = 2048
)

// topHead is the most bytes that a state has before its cells, with what a request to merge it
// has before the state; topEntryHead is what an entry has besides its item.
const (
	topHead      = 32
	topEntryHead = 9 + 9 + 1
	topCellBytes = 9
)

// A Top is a list of the most frequent items of a stream. It is Space-Saving with a filter
// before it (Homem and Carvalho, 2010): it counts TopEntries(k) items by name, and
// has a row of cells for all others. A cell is at least what was counted of each
// item that falls into it and is not listed. An item whose cell outgrows the least listed
// item takes its place, with what the cell has as its error; the item that leaves raises its own cell.
//
// So the number of an item is never below what was counted of it, and exceeds it by no more
// than its error: Lower and Upper. As long as no item had to leave, all numbers are exact.
//
// A Top is for one goroutine at a time.
type Top struct {
	k     int
	total int64
	cells []int64
	room  int // bytes of a state that are left for entries

	all  []topEntry // by slot
	free []uint16   // slots without an entry
	heap []topNode  // the listed items, the least at its root
	at   []uint16   // 1 + slot, by hash: open addressing

	// The items, one after the other. Those that have left stay until there is no room.
	names []byte
	live  int    // bytes of names that are in use
	spare []byte // what names are packed into
}

// A topEntry is an item that is listed.
type topEntry struct {
	hash         uint64
	upper, lower int64
	name         uint32 // where it begins in names
	size         uint8
	node         uint16 // its place in the heap
}

// A topNode has what most comparisons need.
type topNode struct {
	upper int64
	slot  uint16
}

// A Ranked is an item of a list, with the bounds of its number.
type Ranked struct {
	Item         string
	Lower, Upper int64
}

// TopEntries returns how many items a list of k counts by name, if their names leave room for so many
// in a state.
func TopEntries(k int) int { return min(max(topMultiple*k, topEntriesMin), topEntriesMax) }

// topCells returns how many cells a list of k has: a power of two.
func topCells(k int) int {
	n := topCellsMin
	for n < topCellsEach*k && n < topCellsMax {
		n *= 2
	}
	return n
}

// NewTop returns an empty list of the k most frequent items; k is 1 to TopMax.
func NewTop(k int) (*Top, error) {
	if k < 1 || k > TopMax {
		return nil, bad("a top list of %d items, the limit is %d", k, TopMax)
	}
	n, cells := TopEntries(k), topCells(k)
	t := &Top{
		k: k, cells: make([]int64, cells), room: StateBytesMax - topHead - cells*topCellBytes,
		all: make([]topEntry, 0, n), heap: make([]topNode, 0, n),
	}
	index := 16
	for index < 2*n {
		index *= 2
	}
	t.at = make([]uint16, index)
	return t, nil
}

// K returns how many items the list is asked for.
func (t *Top) K() int { return t.k }

// Len returns how many items are counted by name.
func (t *Top) Len() int { return len(t.heap) }

// Total returns the sum of all that was added.
func (t *Top) Total() int64 { return t.total }

// Rest returns the most that can have been counted of an item that is not listed. It is 0
// as long as all numbers are exact.
func (t *Top) Rest() int64 { return slices.Max(t.cells) }

// Bounds returns between which numbers the count of an item is, listed or not.
func (t *Top) Bounds(item string) (lower, upper int64) {
	h := Hash(item)
	if s, ok := t.find(item, h); ok {
		return t.all[s].lower, t.all[s].upper
	}
	return 0, *t.cell(h)
}

// List returns the n most frequent items, the most frequent first; at most K is told
// to be right by the bounds of its items and Rest. Equal numbers are ordered by hash, so
// the same list has the same order everywhere.
func (t *Top) List(n int) []Ranked {
	order := t.order()
	list := make([]Ranked, min(max(n, 0), len(order)))
	for i := range list {
		e := &t.all[order[i]]
		list[i] = Ranked{Item: string(t.name(e)), Lower: e.lower, Upper: e.upper}
	}
	return list
}

// Add counts n of an item. It returns false, and changes nothing, if n is below 1 or the
// item is too long. Numbers stop at the largest int64. Add allocates nothing once the list has been full.
func (t *Top) Add(item string, n int64) bool {
	if len(item) > TopItemBytesMax || n < 1 {
		return false
	}
	t.total = saturated(t.total, n)
	h := Hash(item)
	if s, ok := t.find(item, h); ok {
		e := &t.all[s]
		e.lower, e.upper = saturated(e.lower, n), saturated(e.upper, n)
		t.heap[e.node].upper = e.upper
		t.down(int(e.node))
		return true
	}
	t.put(item, h, n, saturated(*t.cell(h), n))
	return true
}

// AddExpelling is Add, and returns which item was among the first K before and is not
// any more.
func (t *Top) AddExpelling(item string, n int64) (expelled string, ok bool) {
	if len(t.heap) < t.k {
		t.Add(item, n)
		return "", false
	}
	if _, listed := t.find(item, Hash(item)); !listed && t.room < len(item)+topEntryHead {
		return t.addExpelling(item, n) // The last of them may have to leave its place to a long name.
	}
	// Fast path: BenchmarkTopExpelling. No item of the first K leaves the list, so if the item has come to be one of
	// them, the one behind them is the one that was the last.
	had := t.Has(item)
	if !t.Add(item, n) || had || !t.Has(item) {
		return "", false
	}
	return string(t.name(&t.all[t.ranked(t.k)])), true
}

// ranked returns the slot of the item that so many come before.
func (t *Top) ranked(n int) uint16 {
	nodes := slices.Clone(t.heap)
	for len(nodes) > selectMin {
		last := len(nodes) - 1
		if t.worse(nodes[0], nodes[last/2]) { // the middle of three divides the list
			nodes[0], nodes[last/2] = nodes[last/2], nodes[0]
		}
		if t.worse(nodes[last/2], nodes[last]) {
			nodes[last/2], nodes[last] = nodes[last], nodes[last/2]
			if t.worse(nodes[0], nodes[last/2]) {
				nodes[0], nodes[last/2] = nodes[last/2], nodes[0]
			}
		}
		mid := nodes[last/2]
		before := 0 // those that are found to come before it are moved there
		nodes[last/2], nodes[last] = nodes[last], nodes[last/2]
		for i := range last {
			if t.worse(mid, nodes[i]) {
				nodes[i], nodes[before] = nodes[before], nodes[i]
				before++
			}
		}
		switch {
		case n < before:
			nodes = nodes[:before]
		case n == before:
			return mid.slot
		default:
			nodes, n = nodes[before:last], n-before-1
		}
	}
	t.sortNodes(nodes)
	return nodes[n].slot
}

// selectMin is how many items are sorted at once to find one.
const selectMin = 32

// addExpelling is AddExpelling for any list.
func (t *Top) addExpelling(item string, n int64) (expelled string, ok bool) {
	last := string(t.name(&t.all[t.order()[t.k-1]]))
	if !t.Add(item, n) || t.Has(last) {
		return "", false
	}
	return last, true
}

// Has reports whether an item is among the first K.
func (t *Top) Has(item string) bool {
	s, ok := t.find(item, Hash(item))
	if !ok {
		return false
	}
	before := 0
	for _, n := range t.heap {
		if n.slot != s && t.worse(topNode{t.all[s].upper, s}, n) {
			before++
		}
	}
	return before < t.k
}

// Merge adds what another list counted, of the same k, of other items or other times. Where an item is listed
// in one of them only, its cell in the other adds to its error.
func (t *Top) Merge(o *Top) error {
	if t.k != o.k {
		return bad("a top list of %d items and one of %d", t.k, o.k)
	}
	type item struct {
		Ranked
		hash uint64
	}
	both := make([]item, 0, len(t.heap)+len(o.heap))
	for _, n := range t.heap {
		e := &t.all[n.slot]
		name := string(t.name(e))
		lower, upper := o.Bounds(name)
		both = append(both, item{Ranked{name, saturated(e.lower, lower), saturated(e.upper, upper)}, e.hash})
	}
	for _, n := range o.heap {
		e := &o.all[n.slot]
		name := string(o.name(e))
		if _, ok := t.find(name, e.hash); !ok {
			both = append(both, item{Ranked{name, e.lower, saturated(e.upper, *t.cell(e.hash))}, e.hash})
		}
	}
	slices.SortFunc(both, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.Upper, a.Upper), cmp.Compare(a.hash, b.hash), strings.Compare(a.Item, b.Item))
	})
	total := saturated(t.total, o.total)
	for i := range t.cells {
		t.cells[i] = saturated(t.cells[i], o.cells[i])
	}
	t.clear()
	t.total = total
	for i := range both {
		t.put(both[i].Item, both[i].hash, both[i].Lower, both[i].Upper)
	}
	return nil
}

// A Change is by how much more an item was counted in one window than in the one before:
// below 0 if it was less.
type Change struct {
	Item         string
	Lower, Upper int64
}

// Changes returns the n items that rose the most from one window to the next: those whose bounds
// have the highest middle come first. Items that neither window lists are not known.
func Changes(now, before *Top, n int) []Change {
	all := make([]Change, 0, len(now.heap)+len(before.heap))
	add := func(from *Top, s uint16) {
		name := string(from.name(&from.all[s]))
		nl, nu := now.Bounds(name)
		bl, bu := before.Bounds(name)
		all = append(all, Change{name, nl - bu, nu - bl})
	}
	for _, x := range now.heap {
		add(now, x.slot)
	}
	for _, x := range before.heap {
		e := &before.all[x.slot]
		if _, ok := now.find(string(before.name(e)), e.hash); !ok {
			add(before, x.slot)
		}
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Lower/2+b.Upper/2, a.Lower/2+a.Upper/2), cmp.Compare(b.Lower, a.Lower), strings.Compare(a.Item, b.Item))
	})
	return all[:min(max(n, 0), len(all))]
}

// saturated returns a sum that stops at the largest int64; neither is negative.
func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
