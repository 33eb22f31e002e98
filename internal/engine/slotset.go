package engine

import "math/bits"

// A slotSet is a set of slots: a bit for each, in pages that are made when they are
// needed. Its slots come in the order of their numbers, which is that of memory.
type slotSet struct {
	pages []*setPage
	count int
}

type setPage [setWords]uint64

const (
	setBits  = 15 // slots of a page: 2^15, in 4 KiB
	setWords = 1 << (setBits - 6)
)

func (s *slotSet) add(id uint32) {
	for int(id>>setBits) >= len(s.pages) {
		s.pages = append(s.pages, nil)
	}
	p := s.pages[id>>setBits]
	if p == nil {
		p = new(setPage)
		s.pages[id>>setBits] = p
	}
	w, bit := &p[id>>6%setWords], uint64(1)<<(id%64)
	if *w&bit == 0 {
		*w |= bit
		s.count++
	}
}

func (s *slotSet) remove(id uint32) {
	if int(id>>setBits) >= len(s.pages) || s.pages[id>>setBits] == nil {
		return
	}
	w, bit := &s.pages[id>>setBits][id>>6%setWords], uint64(1)<<(id%64)
	if *w&bit != 0 {
		*w &^= bit
		s.count--
	}
}

// some returns the first slots of the set from one on, as many as room has room for.
// There are no more if it returns none.
func (s *slotSet) some(from uint32, room []uint32) []uint32 {
	found := room[:0]
	for n := int(from >> setBits); n < len(s.pages); n++ {
		p := s.pages[n]
		if p == nil {
			from = uint32(n+1) << setBits
			continue
		}
		for i := from >> 6 % setWords; i < setWords; i++ {
			base := uint32(n)<<setBits | i<<6
			for w := p[i] >> (from - base) << (from - base); w != 0; w &= w - 1 {
				if len(found) == cap(room) {
					return found
				}
				found = append(found, base|uint32(bits.TrailingZeros64(w)))
			}
			from = base + 64
		}
	}
	return found
}
