package engine

import (
	"math/bits"
	"unsafe"
)

// A filter knows keys by their hashes. It may take a key for one it knows that it
// does not, but never the other way round. It is a Bloom filter in blocks, so that
// asking is looking at one line of memory: the high bits of a hash choose the block,
// and the low ones a bit in each of its words.
type filter struct {
	blocks   []block // their number is a power of two
	keys     int     // that were added, about
	load     int     // the same, each counted in every block that has its bits: see widened
	giveBack func()
}

type block [8]uint64

const (
	blockBytes = 64
	// roomKeys is how many keys for each block a filter has room for, blockKeysMax
	// how many it takes if it can't be widened any more. TestFilterIsRarelyWrong has
	// what that means.
	roomKeys     = 32
	blockKeysMax = 64
	blocksMin    = 64
)

// newFilter returns an empty filter with room for some keys, but not with more than
// blocksMax blocks.
func newFilter(keys, blocksMax int) *filter {
	return newFilterFrom(blocksMin, keys, blocksMax)
}

func newFilterFrom(blocks, keys, blocksMax int) *filter {
	for blocks*roomKeys < keys && blocks < blocksMax {
		blocks *= 2
	}
	b, giveBack := room[block](blocks)
	return &filter{blocks: b[:blocks], giveBack: giveBack}
}

// free gives the filter's memory back. A nil one has none.
func (f *filter) free() {
	if f != nil {
		f.giveBack()
		*f = filter{giveBack: func() {}}
	}
}

func (f *filter) bytes() int64 {
	if f == nil {
		return 0
	}
	return int64(len(f.blocks)) * blockBytes
}

// has reports whether a key with this hash was added, perhaps.
func (f *filter) has(hash uint64) bool {
	b := f.block(hash)
	for i, odd := range &odds {
		if b[i]&bitOf(hash, odd) == 0 {
			return false
		}
	}
	return true
}

func (f *filter) add(hash uint64) {
	b := f.block(hash)
	isNew := uint64(0)
	for i, odd := range &odds {
		bit := bitOf(hash, odd)
		isNew |= bit &^ b[i]
		b[i] |= bit
	}
	if isNew != 0 {
		f.keys++
		f.load++
	}
}

// addAll is add for many keys. Their blocks are fetched together: BenchmarkFilterAdd.
// A nil filter takes none.
func (f *filter) addAll(hashes []uint64) {
	if f == nil {
		return
	}
	for _, h := range hashes {
		prefetch(unsafe.Pointer(f.block(h)))
	}
	for _, h := range hashes {
		f.add(h)
	}
}

func (f *filter) block(hash uint64) *block {
	return &f.blocks[hash>>(64-bits.TrailingZeros(uint(len(f.blocks))))]
}

// odds choose a key's bit in each word of its block.
var odds = [8]uint32{
	0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1, 0xd3a2646d, 0xfd7046c5, 0xb55a4f09,
}

func bitOf(hash uint64, odd uint32) uint64 { return 1 << (uint32(hash) * odd >> 26) }

// fetch has the blocks fetched of the plans that have no slot.
func (f *filter) fetch(group []plan) {
	if f == nil || len(group) < groupMin {
		return
	}
	for i := range group {
		if group[i].slot == 0 {
			prefetch(unsafe.Pointer(f.block(group[i].hash)))
		}
	}
}

// widened returns a filter with the same keys that has room for some more. In which of
// those that a block becomes a key would be is not known any more, so it is in all.
func (f *filter) widened(more, blocksMax int) *filter {
	w := newFilterFrom(len(f.blocks), f.keys+more, blocksMax)
	w.keys, w.load = f.keys, f.load*(len(w.blocks)/len(f.blocks))
	for i := range w.blocks {
		w.blocks[i] = f.blocks[i*len(f.blocks)/len(w.blocks)]
	}
	return w
}
