package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// sortSaved sorts by keys, which stand in a table. Keys that
// are far apart in memory are slow to compare, so each is looked at eight bytes
// at a time, which are kept beside it: a quicksort parts the copies by these
// into less, equal and greater, and goes on with the next eight bytes of those
// that are equal.
func sortSaved(s []saved, keys *table) {
	load(s, keys, 0)
	sortHeads(s, keys, 0, 2*bits.Len(uint(len(s))))
}

// load takes the eight bytes of each key behind skip.
func load(s []saved, keys *table, skip int) {
	for i := range s {
		s[i].head = head(keys.keyOf(s[i].slot), skip)
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
func sortHeads(s []saved, keys *table, skip, budget int) {
	for len(s) > fewKeys {
		if budget == 0 { // the choice of pivots was unlucky
			break
		}
		budget--
		pivot := medianHead(s)
		less, i, greater := 0, 0, len(s)
		for i < greater {
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
		sortHeads(s[:less], keys, skip, budget)
		sortHeads(s[greater:], keys, skip, budget)
		s = s[less:greater]
		if pivot&0xff == 0 {
			break // some may have ended
		}
		skip += 8
		load(s, keys, skip)
		budget = 2 * bits.Len(uint(len(s)))
	}
	compare := func(a, b saved) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		x, y := keys.keyOf(a.slot), keys.keyOf(b.slot)
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

func medianHead(s []saved) uint64 {
	a, b, c := s[0].head, s[len(s)/2].head, s[len(s)-1].head
	return max(min(a, b), min(max(a, b), c))
}
