package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// sortSaved sorts by keys, which stand somewhere by the number of a slot. Keys that
// are far apart in memory are slow to compare, so each is looked at eight bytes
// at a time, which are kept beside it: a quicksort parts the copies by these
// into less, equal and greater, and goes on with the next eight bytes of those
// that are equal.
func sortSaved(s []saved, keys keyed, p *pace) {
	o := sorting{keys, p}
	o.load(s, 0)
	o.sortHeads(s, 0, 2*bits.Len(uint(len(s))))
}

// keyed are keys that are found by numbers: those of the slots of a table, or of the owners of bundles.
type keyed interface {
	keyOf(id uint32) []byte
	fetch(some []saved) // has the keys of some copies fetched, which are looked at next
}

type sorting struct {
	keys keyed
	pace *pace
}

// sortedCells is how many are handled in a row: some 10 µs. fetchedCells is how many are
// fetched at once: they stay in the processor's first cache.
const (
	sortedCells  = 512
	fetchedCells = 64
)

// load takes the eight bytes of each key behind skip.
func (o *sorting) load(s []saved, skip int) {
	for some := range slices.Chunk(s, sortedCells) {
		for some := range slices.Chunk(some, fetchedCells) {
			o.keys.fetch(some)
			for i := range some {
				some[i].head = head(o.keys.keyOf(some[i].slot), skip)
			}
		}
		o.pace.breathe()
	}
}

// head returns up to eight bytes of a key behind skip, so that they compare as
// the bytes do. A key that has ended there is padded with zeros, so it compares
// equal to one that goes on with them: sortHeads looks at that.
func head(key []byte, skip int) uint64 {
	if len(key) >= skip+8 {
		return binary.BigEndian.Uint64(key[skip:])
	}
	var b [8]byte
	if len(key) > skip {
		copy(b[:], key[skip:])
	}
	return binary.BigEndian.Uint64(b[:])
}

const fewKeys = 16

// sortHeads sorts copies whose keys are equal up to skip, and whose heads are
// loaded.
func (o *sorting) sortHeads(s []saved, skip, budget int) {
	for len(s) > fewKeys {
		if budget == 0 { // the choice of pivots was unlucky
			break
		}
		budget--
		pivot := medianHead(s)
		less, i, greater := 0, 0, len(s)
		for n := 1; i < greater; n++ {
			if n%sortedCells == 0 {
				o.pace.breathe()
			}
			switch h := s[i].head; {
			case h < pivot:
				s[less], s[i] = s[i], s[less]
				less++
				i++
			case h > pivot:
				greater--
				s[greater], s[i] = s[i], s[greater]
			default:
				i++
			}
		}
		o.sortHeads(s[:less], skip, budget)
		o.sortHeads(s[greater:], skip, budget)
		s = s[less:greater]
		skip += 8
		if pivot&0xff == 0 && o.ended(s, skip) {
			skip -= 8
			break
		}
		o.load(s, skip)
		budget = 2 * bits.Len(uint(len(s)))
	}
	compare := func(a, b saved) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		x, y := o.keys.keyOf(a.slot), o.keys.keyOf(b.slot)
		return bytes.Compare(x[min(skip, len(x)):], y[min(skip, len(y)):])
	}
	if len(s) > fewKeys {
		slices.SortFunc(s, compare)
		return
	}
	for i := 1; i < len(s); i++ {
		x := s[i]
		j := i
		for ; j > 0 && (x.head < s[j-1].head || x.head == s[j-1].head && compare(x, s[j-1]) < 0); j-- {
			s[j] = s[j-1]
		}
		s[j] = x
	}
}

// ended reports whether some keys have ended before skip. Those of parts have zeros in
// them, and go on.
func (o *sorting) ended(s []saved, skip int) bool {
	for some := range slices.Chunk(s, sortedCells) {
		for i := range some {
			if len(o.keys.keyOf(some[i].slot)) < skip {
				return true
			}
		}
		o.pace.breathe()
	}
	return false
}

func medianHead(s []saved) uint64 {
	a, b, c := s[0].head, s[len(s)/2].head, s[len(s)-1].head
	return max(min(a, b), min(max(a, b), c))
}
