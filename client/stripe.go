package client

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	stripeBits = 4   // 16 stripes: enough that a few goroutines seldom share one
	cellsMax   = 256 // cells of a stripe; a power of 2
	probesMax  = 4   // places where the cell of a key may be

	// The most that may be added to a cell, and that it may hold: far from overflow,
	// however many goroutines add to it before one of them sees the limit.
	smallMax = 1 << 30
	cellMax  = 1 << 61
)

// A stripe combines the adds of some goroutines. Each key that was added to
// since the last take has its entry in sums. The keys that are added to again
// and again also have a cell, where an add is one atomic instruction: no lock,
// and memory that hardly any other processor touches.
type stripe struct {
	cells [cellsMax]atomic.Pointer[cell]

	mu      sync.Mutex // guards the fields below, and which cells there are
	sums    sums
	counted int64 // entries of sums that the Writer counts as pending
	closed  bool
	_       [64]byte // the next stripe is another's
}

// A cell is the sum of adds to one key, on top of its entry in sums. The lowest
// bit of n says that the cell is dead, the others are the sum. Adding twice the
// delta does not touch that bit, and returns it: so whoever adds to a cell that
// died meanwhile knows that the add went nowhere.
type cell struct {
	n atomic.Int64
	ends
	key string
	_   [16]byte // a cache line of its own
}

const dead = 1

// here returns the stripe of the calling goroutine: its stack is where no other's
// is.
func here(stripes *[1 << stripeBits]stripe) *stripe {
	var local byte
	const stackMin, golden = 11, 0x9e3779b97f4a7c15
	return &stripes[uint64(uintptr(unsafe.Pointer(&local))>>stackMin)*golden>>(64-stripeBits)]
}

// ends are the length of a key and its first and last eight bytes. They tell
// keys of up to 16 bytes apart.
type ends struct {
	n           int
	first, last uint64
}

func endsOf(key string) (e ends) {
	e.n = len(key)
	if len(key) >= 8 {
		e.first, e.last = load(key), load(key[len(key)-8:])
		return e
	}
	for i := range len(key) {
		e.first = e.first<<8 | uint64(key[i])
	}
	return e
}

// load returns the first eight bytes of s, which must have them.
func load(s string) uint64 {
	return binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s), 8))
}

// place returns the first place of a cell. Every bit of the key counts for it,
// also the highest: keys that are numbered differ there alone.
func (e ends) place() uint {
	const one, two = 0x9e3779b97f4a7c15, 0xa0761d6478bd642f
	return uint((e.first*one + e.last*two + uint64(e.n)) >> 56)
}

// find returns the cell of a key, or nil.
func (s *stripe) find(key string) *cell {
	e := endsOf(key)
	p := e.place()
	for range probesMax {
		c := s.cells[p%cellsMax].Load()
		if c == nil || c.ends == e && (e.n <= 16 || c.key == key) {
			return c
		}
		p++
	}
	return nil
}

// install gives a key a cell, in the place of one that is idle if need be. If
// there is none, the key does without: its adds go to sums. The caller holds mu.
func (s *stripe) install(key string) {
	if s.find(key) != nil {
		return
	}
	fresh := &cell{ends: endsOf(key), key: key}
	for p := fresh.place(); p < fresh.place()+probesMax; p++ {
		at := &s.cells[p%cellsMax]
		if c := at.Load(); c == nil || c.n.CompareAndSwap(0, dead) {
			at.Store(fresh)
			return
		}
	}
}

// collect moves what is in the cells to sums; in a closed stripe the cells die of
// it. The caller holds mu.
func (s *stripe) collect() {
	left := int64(0)
	if s.closed {
		left = dead
	}
	for i := range s.cells {
		if c := s.cells[i].Load(); c != nil {
			if n := c.n.Swap(left) >> 1; n != 0 {
				s.sums.add(c.key, n)
			}
		}
	}
}

// take returns what was added since the last take, and how many entries of it
// were counted. After the last one every add fails.
func (s *stripe) take(last bool) (taken sums, counted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || last
	s.collect()
	taken, counted = s.sums, s.counted
	s.sums, s.counted = sums{}, 0
	return taken, counted
}

// sums are entries of a key and a delta, in columns as a batch has them. A key
// has one entry, unless its sum would leave int64.
type sums struct {
	keys   []string
	deltas []int64
	index  map[string]int // of a key's last entry
}

// has reports whether a key has an entry.
func (s *sums) has(key string) bool {
	_, ok := s.index[key]
	return ok
}

// add adds to a key and returns its entry.
func (s *sums) add(key string, delta int64) (entry int) {
	if i, ok := s.index[key]; ok {
		if sum := s.deltas[i] + delta; (sum > s.deltas[i]) == (delta > 0) {
			s.deltas[i] = sum
			return i
		}
	} else {
		key = strings.Clone(key) // it may be a piece of something large
	}
	if s.index == nil {
		s.index = map[string]int{}
	}
	entry = len(s.keys)
	s.index[key] = entry
	s.keys, s.deltas = append(s.keys, key), append(s.deltas, delta)
	return entry
}
