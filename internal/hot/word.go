package hot

import "github.com/quipudb/quipu/store"

// A Word is the layout of a cell that is a part of a counter. That of the
// counter's own cell, its home, names the generation of the split and how many
// shards there are, home among them, and says whether they are being folded. That of
// a shard names the generation, counts one, and says whether it is closed. The
// zero Word is that of a counter that is one cell.
type Word int64

const (
	shardBits  = 15
	countBits  = 12
	unsureBit  = 1 << (countBits + 1)
	seatedBit  = 1 << (countBits + 2)
	foldingBit = 1 << shardBits
	genShift   = shardBits + 1
	genBits    = 63 - genShift

	// ShardsMax is how many shards a counter may have.
	ShardsMax = 64
)

// Generation makes a number for a split of chance, and so one that no other split
// of the counter has that anybody still knows of.
func Generation(chance uint64) int64 { return int64(chance & (1<<genBits - 1)) }

// Home returns the word of a counter's home.
func Home(gen int64, shards int) Word { return Word(gen<<genShift | int64(shards)) }

// Open returns the word of a shard that takes adds.
func Open(gen int64) Word { return Home(gen, 1) }

// Of returns the word of a cell: zero if it is whole, or holds no count at all.
func Of(v store.Value) Word {
	if v.IsObject() {
		return 0
	}
	return Word(v.Layout)
}

// Gen returns the generation of the split.
func (w Word) Gen() int64 { return int64(w >> genShift) }

// Shards returns how many shards there are, 1 if the counter is not split.
func (w Word) Shards() int { return max(1, int(w&(1<<countBits-1))) }

// Seats returns the word of the home of a counter whose users are laid over so many shards.
// It never changes: see Seated.
func Seats(shards int) Word { return Word(seatedBit | shards) }

// Seated returns over how many shards the users of a counter are laid, by the word of its
// home; 0 if they are not. Such a counter is never split or folded.
func (w Word) Seated() int {
	if w&seatedBit == 0 {
		return 0
	}
	return w.Shards()
}

// Unsure returns the word that a reader is told if the shards were read at different moments,
// and changed meanwhile. No store has it.
func (w Word) Unsure() Word { return w | unsureBit }

// IsUnsure reports whether a sum may be what the counter was at no moment.
func (w Word) IsUnsure() bool { return w&unsureBit != 0 }

// Seat returns in which of so many shards, from 0 on, a user is. It is the same for ever: the
// store has users where it says.
func Seat(user string, shards int) int {
	h := uint64(0xcbf29ce484222325) // FNV-1a, and then every bit of it decides (SplitMix64)
	for i := range len(user) {
		h = (h ^ uint64(user[i])) * 0x100000001b3
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return int(h % uint64(shards))
}

// Folding reports whether the shards are being folded, or the shard is closed.
func (w Word) Folding() bool { return w&foldingBit != 0 }

// Fold returns the word of the same counter or shard while it is folded.
func (w Word) Fold() Word { return w | foldingBit }

// Same reports whether two words of homes are of one split, of as many shards,
// folding or not.
func (w Word) Same(o Word) bool { return w|foldingBit == o|foldingBit }
