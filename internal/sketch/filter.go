package sketch

import (
	"bytes"
	"math"
	"math/bits"
)

// The limits of filters.
const (
	FilterStrengthMax  = 32
	FilterExpansionMax = 255
)

// filterGrowth is how many times the items that a filter is made for it can grow to hold.
const filterGrowth = 16

// FilterShape says how many items a filter is made for, and how rarely it is wrong. It is fixed when the filter is made.
type FilterShape struct {
	// Capacity is how many items the first part holds.
	Capacity int
	// Strength says how rare errors are: of items that were not added, a filter finds one in 2^Strength.
	Strength int
	// Expansion is how many times larger each further part is, which is added when the one
	// before is full. If it is 0, there is one part, and a full filter refuses items.
	Expansion int
}

// FilterShapeFor returns the shape of a filter that finds at most this part of the items that were not
// added. Since each hash halves the part, it is rounded down to a power of two.
func FilterShapeFor(capacity int64, rate float64, expansion int) (FilterShape, error) {
	if !(rate > 0 && rate < 1) {
		return FilterShape{}, bad("an error rate of %v: it must be above 0 and below 1", rate)
	}
	if capacity < 1 || capacity > ChunksMax*StateBytesMax*8 {
		return FilterShape{}, bad("a filter of %d items, the limit is %d bits", capacity, ChunksMax*StateBytesMax*8)
	}
	s := FilterShape{int(capacity), max(int(math.Ceil(math.Log2(1/rate))), 1), expansion}
	_, _, err := s.Chunks()
	return s, err
}

// Rate returns the part of items that were not added, and are found.
func (s FilterShape) Rate() float64 { return math.Pow(0.5, float64(s.Strength)) }

// Chunks returns into how many states a filter is cut, and the shape of each. An item is in the state
// that ChunkOf picks by its hash. A filter that expands has so many states that 16 times its capacity has room in them, if that
// are not more than ChunksMax: their number can't change later. Items are not spread quite evenly, so each state is
// made for some more.
func (s FilterShape) Chunks() (n int, each FilterShape, err error) {
	if s.Capacity < 1 || s.Strength < 1 || s.Strength > FilterStrengthMax || s.Expansion < 0 || s.Expansion > FilterExpansionMax {
		return 0, each, bad("a filter of %d items, an error of 2^-%d and an expansion of %d", s.Capacity, s.Strength, s.Expansion)
	}
	goal := s.Capacity
	if s.Expansion > 0 {
		goal *= filterGrowth
	}
	for n = 1; n <= ChunksMax; n++ {
		each = s.cut(n)
		if each.first().bits > 0 && each.most()*n >= goal {
			return n, each, nil
		}
	}
	if each = s.cut(ChunksMax); each.first().bits > 0 {
		return ChunksMax, each, nil
	}
	return 0, each, bad("a filter of %d items with an error of 2^-%d is more than %d states", s.Capacity, s.Strength, ChunksMax)
}

// cut returns the shape of one of n states.
func (s FilterShape) cut(n int) FilterShape {
	if n > 1 {
		s.Capacity = (s.Capacity + n - 1) / n
		s.Capacity += 5 * int(math.Sqrt(float64(s.Capacity)))
	}
	return s
}

// whole returns an error if a filter of this shape is not a single state.
func (s FilterShape) whole() error {
	if s.Capacity < 1 || s.Capacity > StateBytesMax*8 || s.Strength < 1 || s.Strength > FilterStrengthMax ||
		s.Expansion < 0 || s.Expansion > FilterExpansionMax || s.first().bits == 0 {
		return bad("no state holds a filter of %d items, an error of 2^-%d and an expansion of %d", s.Capacity, s.Strength, s.Expansion)
	}
	return nil
}

// A filterPart is one Bloom filter of those that a filter is made of. Which they are follows
// from the shape, by integers alone: every machine makes the same.
type filterPart struct {
	index    int
	at       int // where its bytes begin: the number of ones, and the bits
	bits     int // a multiple of 64
	hashes   int
	capacity int
	last     bool
}

// first returns the first part of a filter. It has room for nothing if its bits are more than a state has.
func (s FilterShape) first() filterPart {
	p := filterPart{at: filterHead, hashes: s.Strength, capacity: s.Capacity, last: s.Expansion == 0}
	if s.Expansion > 0 {
		p.hashes++ // all parts together find no more than asked: a half, a quarter, ...
	}
	if p.bits = filterBits(p.capacity, p.hashes); p.bits > p.room() {
		p.bits, p.capacity = 0, 0
	}
	return p
}

// after returns the part that is added when a part is full. One that is larger than what is
// left of the state takes what is left. It reports false if there is none.
func (s FilterShape) after(p filterPart) (filterPart, bool) {
	if p.last || p.index == filterPartsMax-1 {
		return p, false
	}
	p.index++
	p.at = p.end()
	p.hashes++
	p.capacity = min(p.capacity*s.Expansion, StateBytesMax*8)
	p.bits = filterBits(p.capacity, p.hashes)
	if room := p.room(); p.bits > room {
		// As filterBits, turned around.
		plain := room - 4*int(math.Sqrt(float64(max(room, 0))))
		p.bits, p.capacity, p.last = room, plain*45426>>16/p.hashes, true
	}
	return p, p.capacity > 0
}

// end returns where the bytes of a part end.
func (p *filterPart) end() int { return p.at + filterOnes + p.bits/8 }

// room returns how many bits a part can have.
func (p *filterPart) room() int { return (StateBytesMax - 2*filterHead - p.at - filterOnes) / 8 * 64 }

// full reports whether the next item might make more than half of the bits ones.
func (p *filterPart) full(ones int) bool { return ones+p.hashes > p.bits/2 }

// most returns how many items a state of this shape has room for.
func (s FilterShape) most() (n int) {
	p := s.first()
	for ok := true; ok; p, ok = s.after(p) {
		n += p.capacity
	}
	return n
}

// filterBits returns how many bits items need so that half of them are ones at most: by
// items × hashes / ln 2 they are half of the bits on average, and 4 roots more are 5 standard deviations.
func filterBits(items, hashes int) int {
	plain := items*hashes*94548>>16 + 1
	return (plain + 4*int(math.Sqrt(float64(plain))) + 63) &^ 63
}

// A Filter tells whether an item was added: Bloom filters (1970), one after the other as they fill. It
// finds every item that was added, and few others. A part takes items until half of its bits are ones, so that
// its error is what was asked for however many items that are.
//
// A Filter is for one goroutine at a time.
type Filter struct{ b []byte } // a state

// NewFilter returns an empty filter, which must be a single state.
func NewFilter(s FilterShape) (*Filter, error) {
	if err := s.whole(); err != nil {
		return nil, err
	}
	return &Filter{appendFilter(nil, s)}, nil
}

// ParseFilter returns the filter whose state this is.
func ParseFilter(state string) (*Filter, error) {
	if err := checkFilter(state); err != nil {
		return nil, err
	}
	return &Filter{[]byte(state)}, nil
}

// FilterShapeOf returns the shape of a state, by its head and length.
func FilterShapeOf(state string) (s FilterShape, ok bool) {
	if !shapedFilter(state) {
		return s, false
	}
	return filterShape(state), true
}

// Shape returns the shape of the filter.
func (f *Filter) Shape() FilterShape { return filterShape(f.b) }

// Append appends the state of the filter.
func (f *Filter) Append(dst []byte) []byte { return append(dst, f.b...) }

// Has reports whether an item was added; seldom, it is wrong about one that was not.
func (f *Filter) Has(hash uint64) bool { return filterHas(f.b, hash) }

// FilterHas is Has of a state, which is not copied. It reports false if that is no state by
// its head and length.
func FilterHas(state string, hash uint64) bool {
	return shapedFilter(state) && filterHas(state, hash)
}

// Add adds an item. It reports whether the item is new, and false for ok if there is no room for it.
func (f *Filter) Add(hash uint64) (added, ok bool) {
	if f.Has(hash) {
		return false, true
	}
	part := lastPart(f.b)
	if part.full(filterOnesOf(f.b, &part)) {
		next, ok := f.Shape().after(part)
		if !ok {
			return false, false
		}
		part = next
		f.b = append(f.b, make([]byte, part.end()-part.at)...)
		f.b[filterPartsAt]++
	}
	ones := filterOnesOf(f.b, &part)
	places := placesOf(hash, &part)
	for range part.hashes {
		i := places.next()
		if b := &f.b[part.at+filterOnes+i/8]; *b&(1<<(i%8)) == 0 {
			*b |= 1 << (i % 8)
			ones++
		}
	}
	f.setOnes(&part, ones)
	if !f.merged() {
		f.setItems(filterItems(f.b) + 1)
	}
	return true, true
}

// Merge adds the items of another filter of the same shape. The filter may then have more ones
// than half of its bits, so that its error is larger: Info tells.
func (f *Filter) Merge(o *Filter) error {
	if f.Shape() != o.Shape() {
		return bad("filters differ: %v and %v", f.Shape(), o.Shape())
	}
	switch {
	case filterEmpty(o.b):
		return nil
	case filterEmpty(f.b):
		f.b = append(f.b[:0], o.b...)
		return nil
	case bytes.Equal(f.b[filterHead:], o.b[filterHead:]):
		// How many they are depends on their order, if one was taken for another.
		items, merged := max(filterItems(f.b), filterItems(o.b)), f.merged() || o.merged()
		if f.setItems(items); merged {
			f.setMerged()
		}
		return nil
	}
	if short := len(o.b) - len(f.b); short > 0 {
		f.b = append(f.b, make([]byte, short)...)
		f.b[filterPartsAt] = o.b[filterPartsAt]
	}
	for part := range partsOf(o.b) {
		both, more := f.b[part.at+filterOnes:part.end()], o.b[part.at+filterOnes:part.end()]
		for i, b := range more {
			both[i] |= b
		}
		f.setOnes(part, countOnes(both))
	}
	f.setMerged()
	return nil
}

// FilterInfo tells of a filter.
type FilterInfo struct {
	Shape    FilterShape
	Capacity int     // of the parts that there are
	Parts    int     // how many there are
	Bytes    int     // of the state
	Full     bool    // the next item that is new is refused
	Items    int64   // how many were added that were not found before
	Exact    bool    // Items is: else, after a merge, it follows from the bits
	Error    float64 // the part of other items that is found now
}

// Info tells of the filter.
func (f *Filter) Info() FilterInfo {
	s := f.Shape()
	info := FilterInfo{Shape: s, Parts: filterParts(f.b), Bytes: len(f.b), Items: filterItems(f.b), Exact: !f.merged()}
	right, items := 1.0, 0.0
	for part := range partsOf(f.b) {
		ones := filterOnesOf(f.b, part)
		info.Capacity += part.capacity
		info.Full = part.full(ones)
		share := float64(ones) / float64(part.bits)
		right *= 1 - math.Pow(share, float64(part.hashes))
		items -= math.Log1p(-min(share, 1-1/float64(part.bits))) * float64(part.bits) / float64(part.hashes)
	}
	if _, more := s.after(lastPart(f.b)); more {
		info.Full = false
	}
	if info.Error = 1 - right; !info.Exact {
		info.Items = int64(math.Round(items))
	}
	return info
}

// places are the bits of an item in a part: 32 bits of a hash choose each of them. Double hashing would be some nanoseconds faster;
// in a small part it has so few patterns that it finds many times more than is asked for.
type places struct {
	hash, seed, word uint64
	bits             uint32
	half             bool
}

func placesOf(hash uint64, part *filterPart) places {
	// A part's number of hashes is no other part's: so it seeds them.
	return places{hash: hash, seed: uint64(part.hashes) << 8, bits: uint32(part.bits)}
}

func (p *places) next() int {
	if p.half = !p.half; p.half {
		p.word = mix(p.hash, p.seed)
		p.seed++
	}
	hi, _ := bits.Mul32(uint32(p.word), p.bits)
	p.word >>= 32
	return int(hi)
}
