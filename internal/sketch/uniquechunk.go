package sketch

import "math/bits"

// Chunks returns of how many states a sketch of uniques of a precision from
// PrecisionMin to PrecisionMax consists: one up to PrecisionPlain, and above twice as
// many for each step.
//
// A chunk has the items whose hash begins with its number, and is a plain sketch of
// them: of precision PrecisionPlain, by what is left of the hash. So stores need not
// know of chunks. Those without items need not exist. As no item is in two chunks,
// the estimate of the whole is the sum of theirs.
func Chunks(precision int) int { return 1 << max(precision-PrecisionPlain, 0) }

// Chunk returns which of a sketch's chunks an item belongs to, by its Hash, and the
// hash that it has there.
func Chunk(precision int, hash uint64) (chunk int, within uint64) {
	c := precision - PrecisionPlain
	if c <= 0 {
		return 0, hash
	}
	// The bit that is set ends the zeros where the hash ends.
	return int(hash >> (64 - c)), hash<<c | 1<<(c-1)
}

// MergeChunk takes in all items of a chunk, one of so many chunks of another
// sketch; the number of chunks is a power of two, at most that of PrecisionMax. It
// serves to lower a precision above PrecisionPlain: all chunks merge into one plain sketch,
// or 2, 4, 8 neighbours into each chunk of a sketch of fewer. If it returns an
// error, which wraps ErrBad, nothing has changed.
func (u *Unique) MergeChunk(state string, chunk, chunks int) error {
	if err := checkUnique([]byte(state)); err != nil {
		return err
	}
	c := bits.Len(uint(chunks)) - 1
	if chunks < 1 || chunks > Chunks(PrecisionMax) || chunks != 1<<c || chunk < 0 || chunk >= chunks {
		return bad("chunk %d of %d", chunk, chunks)
	}
	b := []byte(state)
	first := uint64(chunk) << (64 - c)
	if b[3] == formList {
		u.lower(int(b[2]) + c)
		for list := b[uniqueHead:]; len(list) > 0; list = list[tokenBytes:] {
			u.Add(first | hashOf(getToken(list))>>c)
		}
		return nil
	}
	for i, r := range b[uniqueHead:] {
		if int(r>>2)+c > 63 {
			return bad("register %d of a chunk of uniques is %d", i, r)
		}
	}
	u.lower(int(b[2]) + c)
	u.unlist()
	joinFiner(u.b[uniqueHead:], b[uniqueHead:], u.Precision(), int(b[2])+c, finer{chunk << b[2], c})
	return nil
}

// lower lowers the precision to p, if it is higher.
func (u *Unique) lower(p int) {
	if p < u.Precision() {
		var none [uniqueHead]byte
		u.merge(appendUniqueHead(none[:0], p, formList))
	}
}
