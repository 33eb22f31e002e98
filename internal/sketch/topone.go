package sketch

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// One item is what nearly every event adds. To take it into the bytes of a list as they are costs a
// walk over them, and no heap and no index have to be made (BenchmarkTopDecide).

// A topWalk is a walk over the state of a list that takes in one item.
type topWalk struct {
	k            int
	total        int64
	n            int // entries
	cells        string
	entries      string
	cell         topSpan // of the item; its value is upper
	found        bool
	is           topSpan // the entry of the item
	lower, upper int64   // of the item, as they will be
	before       int     // where its entry will be
	names        int     // bytes of all names
	last         topSpan // the entry that would leave
	lastName     string
}

// A topSpan is where something is, and what it is worth.
type topSpan struct {
	from, to int
	upper    int64
}

// decideTopOne is decideTop for one item. It reports false if the list has to be made for that: then
// nothing is decided. Otherwise it appends the bytes that decideTop would.
func decideTopOne(dst []byte, state string, k int, a Amount) (next []byte, answer [2]int64, ok bool) {
	w, ok := walkTop(state, k, a)
	if !ok {
		return dst, answer, false
	}
	head := func(n int) {
		next = append(dst, byte(KindTop), topVersion)
		next = binary.AppendUvarint(next, uint64(w.k))
		next = binary.AppendUvarint(next, uint64(w.total+a.N))
		next = binary.AppendUvarint(next, uint64(n))
		if w.cells == "" {
			next = append(next, 0)
		} else {
			next = binary.AppendUvarint(next, uint64(topCells(w.k)))
		}
	}
	entry := func() {
		next = binary.AppendUvarint(next, uint64(w.upper))
		next = binary.AppendUvarint(next, uint64(w.upper-w.lower))
		next = append(append(next, byte(len(a.Item))), a.Item...)
	}
	room := StateBytesMax - topHead - topCells(k)*topCellBytes - w.n*topEntryHead - w.names
	size := len(a.Item) + topEntryHead
	full := w.n == TopEntries(k)
	switch {
	case w.found:
		head(w.n)
		next = append(next, w.cells...)
		next = append(next, w.entries[:w.before]...)
		entry()
		next = append(next, w.entries[w.before:w.is.from]...)
		next = append(next, w.entries[w.is.to:]...)
	case !full && room >= size:
		head(w.n + 1)
		next = append(next, w.cells...)
		next = append(next, w.entries[:w.before]...)
		entry()
		next = append(next, w.entries[w.before:]...)
	case w.n == 0 || w.cells == "":
		return dst, answer, false // Cells come into being.
	case w.last.upper >= w.upper: // It raises its cell.
		head(w.n)
		next = append(next, w.cells[:w.cell.from]...)
		next = binary.AppendUvarint(next, uint64(w.upper))
		next = append(append(next, w.cells[w.cell.to:]...), w.entries...)
		w.lower = 0
	default: // It takes the place of the last, which raises its own cell.
		if !full || room+len(w.lastName)+topEntryHead < size {
			return dst, answer, false // More than one has to leave.
		}
		left := topCellAt(w.cells, int(Hash(w.lastName)&uint64(topCells(k)-1)))
		head(w.n)
		next = append(next, w.cells[:left.from]...)
		next = binary.AppendUvarint(next, uint64(max(left.upper, w.last.upper)))
		next = append(next, w.cells[left.to:]...)
		next = append(next, w.entries[:w.before]...)
		entry()
		next = append(next, w.entries[w.before:w.last.from]...)
	}
	return next, [2]int64{w.lower, w.upper}, true
}

// walkTop walks over a state, and reports false if it is not what a list of k is, or if numbers
// would stop at the largest.
func walkTop(state string, k int, a Amount) (w topWalk, ok bool) {
	c := cutter{s: state}
	c.topHead()
	w.k = int(c.number(TopMax))
	w.total = c.number(math.MaxInt64)
	w.n = int(c.number(topEntriesMax))
	cells := int(c.number(topCellsMax))
	if c.bad || w.k != k || w.total > math.MaxInt64-a.N || w.n > TopEntries(k) || cells != 0 && cells != topCells(k) {
		return w, false
	}
	hash := Hash(a.Item)
	rest := c.rest()
	if cells > 0 {
		i := int(hash & uint64(cells-1))
		w.cell = topCellAt(rest, i)
		end := w.cell.to + topSkip(rest[w.cell.to:], cells-1-i)
		w.cells, w.entries = rest[:end], rest[end:]
	} else {
		w.entries = rest
	}
	w.lower, w.upper = a.N, w.cell.upper+a.N
	return w, w.walk(a, hash)
}

// walk walks over the entries.
func (w *topWalk) walk(a Amount, hash uint64) bool {
	// The item's own numbers have to be known before its place is, so it is looked for first.
	entries := 0
	for at := 0; at < len(w.entries); entries++ {
		upper, over, name, to := topEntryAt(w.entries, at)
		if to == 0 {
			return false
		}
		if name == a.Item {
			w.found, w.is = true, topSpan{at, to, upper}
			if upper > math.MaxInt64-a.N {
				return false
			}
			w.lower, w.upper = upper-over+a.N, upper+a.N
		}
		w.names += len(name)
		w.last, w.lastName = topSpan{at, to, upper}, name
		at = to
	}
	for w.before < len(w.entries) {
		upper, _, name, to := topEntryAt(w.entries, w.before)
		if upper < w.upper || upper == w.upper && topAfter(name, a.Item, hash) {
			break
		}
		w.before = to
	}
	return entries == w.n
}

// topAfter reports whether a name comes after an item of the same number.
func topAfter(name, item string, hash uint64) bool {
	if h := Hash(name); h != hash {
		return h > hash
	}
	return name > item
}

// topEntryAt returns the entry at a place, and where it ends; 0 if there is none.
func topEntryAt(entries string, at int) (upper, over int64, name string, to int) {
	upper, at = topNumberAt(entries, at)
	over, at = topNumberAt(entries, at)
	if at >= len(entries) {
		return 0, 0, "", 0
	}
	to = at + 1 + int(entries[at])
	if to > len(entries) {
		return 0, 0, "", 0
	}
	return upper, over, entries[at+1 : to], to
}

// topNumberAt returns the number at a place, and where it ends: behind s if it is not whole.
func topNumberAt(s string, at int) (n int64, to int) {
	for shift := 0; at < len(s) && shift < 64; shift += 7 {
		b := s[at]
		at++
		if n |= int64(b&0x7f) << shift; b < 0x80 {
			return n, at
		}
	}
	return 0, len(s)
}

// topCellAt returns cell i of some, as it is and where.
func topCellAt(cells string, i int) (at topSpan) {
	at.from = topSkip(cells, i)
	at.upper, at.to = topNumberAt(cells, at.from)
	return at
}

// topSkip returns where n numbers end.
func topSkip(s string, n int) (to int) {
	const ends = 0x8080808080808080 // the bits that are not set in the last byte of a number
	for ; to+8 <= len(s); to += 8 {
		in := 8 - bits.OnesCount64(le64(s, to)&ends)
		if in >= n { // The last of them ends here, somewhere.
			break
		}
		n -= in
	}
	for ; n > 0 && to < len(s); to++ {
		if s[to] < 0x80 {
			n--
		}
	}
	return to
}
