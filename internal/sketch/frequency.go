package sketch

import (
	"math"
	"math/bits"
	"slices"
)

// FrequencyDepthMax is the largest number of rows of a sketch of frequencies.
const FrequencyDepthMax = 64

// ChunksMax is the largest number of states that a sketch of frequencies, or a filter, is cut into.
const ChunksMax = 1024

// frequencyHead is the length of a state before its counters, and frequencyCountersMax
// how many counters a state holds when each has 8 bytes, with room for the head of a request to merge it.
const (
	frequencyHead        = 16
	frequencyCountersMax = (StateBytesMax - 2*frequencyHead) / 8
)

// FrequencyShape says how large a sketch of frequencies is, and how it counts. It is fixed
// when the sketch is made.
type FrequencyShape struct {
	Width, Depth int

	// Conservative makes an addition raise only the counters that have to rise. The numbers of rare items
	// are closer to the truth, but nothing can be taken away, and the bytes depend on
	// the order of what was counted. A merge adds the counters: it keeps the bounds, but is not as close
	// as one sketch would have been.
	Conservative bool
}

// FrequencyShapeFor returns the shape of which an estimate exceeds the truth by more than epsilon times
// the total with a probability of delta at most: as many counters as RedisBloom makes for the same
// numbers. A row of width 2/epsilon is further off once in two items, by Markov's inequality.
func FrequencyShapeFor(epsilon, delta float64) (FrequencyShape, error) {
	if !(epsilon > 0 && epsilon < 1 && delta > 0 && delta < 1) {
		return FrequencyShape{}, bad("an error of %v with a probability of %v: both must be above 0 and below 1", epsilon, delta)
	}
	// A shape this far beyond the limits is refused below, and must fit an int.
	width, depth := min(math.Ceil(2/epsilon), math.MaxInt32), math.Ceil(math.Log2(1/delta))
	s := FrequencyShape{Width: int(width), Depth: max(int(depth), 1)}
	_, _, err := s.Chunks()
	return s, err
}

// Chunks returns into how many states a sketch is cut, and the shape of each. An item
// is counted in the state that ChunkOf picks by its hash; the bounds there follow from what that state has counted in all.
func (s FrequencyShape) Chunks() (n int, each FrequencyShape, err error) {
	if s.Width < 1 || s.Depth < 1 || s.Depth > FrequencyDepthMax || s.Width > ChunksMax*frequencyCountersMax/s.Depth {
		return 0, each, bad("%d rows of %d counters: the limits are %d rows and %d counters in all",
			s.Depth, s.Width, FrequencyDepthMax, ChunksMax*frequencyCountersMax)
	}
	most := frequencyCountersMax / s.Depth
	n = (s.Width + most - 1) / most
	if n > ChunksMax {
		return 0, each, bad("%d rows of %d counters are %d states, the limit is %d", s.Depth, s.Width, n, ChunksMax)
	}
	each = s
	each.Width = (s.Width + n - 1) / n
	return n, each, nil
}

// ChunkOf returns which of n states has an item, by its Hash.
func ChunkOf(hash uint64, n int) int {
	hi, _ := bits.Mul64(hash, uint64(n))
	return int(hi)
}

// whole returns an error if a sketch of this shape is not a single state.
func (s FrequencyShape) whole() error {
	n, _, err := s.Chunks()
	if err == nil && n > 1 {
		err = bad("%d rows of %d counters are %d states", s.Depth, s.Width, n)
	}
	return err
}

// mix returns a hash of a hash: another one for each seed.
func mix(hash, seed uint64) uint64 {
	h := hash + seed*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// A Frequency counts how often each item came: Count-Min (Cormode and Muthukrishnan, 2005). Every
// row has a counter for each item, which it shares with others, so no counter is below the truth. Counters are 1,
// 2, 4 or 8 bytes long, all of them alike, as the largest needs it. They stop at the
// largest int64.
//
// A Frequency is for one goroutine at a time.
type Frequency struct{ b []byte } // a state

// NewFrequency returns an empty sketch, which must be a single state.
func NewFrequency(s FrequencyShape) (*Frequency, error) {
	if err := s.whole(); err != nil {
		return nil, err
	}
	return &Frequency{appendFrequency(nil, s, 1)}, nil
}

// ParseFrequency returns the sketch whose state this is.
func ParseFrequency(state string) (*Frequency, error) {
	if err := checkFrequency(state); err != nil {
		return nil, err
	}
	return &Frequency{[]byte(state)}, nil
}

// FrequencyShapeOf returns the shape of a state, by its head and length.
func FrequencyShapeOf(state string) (s FrequencyShape, ok bool) {
	if !shapedFrequency(state) {
		return s, false
	}
	return frequencyShape(state), true
}

// Shape returns the shape of the sketch.
func (f *Frequency) Shape() FrequencyShape { return frequencyShape(f.b) }

// Total returns the sum of all that is counted.
func (f *Frequency) Total() int64 { return frequencyTotal(f.b) }

// Append appends the state of the sketch.
func (f *Frequency) Append(dst []byte) []byte { return append(dst, f.b...) }

// A Count is between which numbers the count of an item is. Upper is the estimate, and never below the truth. Lower is
// right with a probability of Confidence: 0 always is.
type Count struct {
	Lower, Upper int64
	Confidence   float64
}

// Count returns how often an item came.
func (f *Frequency) Count(hash uint64) Count { return frequencyCount(f.b, hash) }

// FrequencyCount returns how often an item came, from a state that is not
// copied. It reports false if that is no state by its head and length.
func FrequencyCount(state string, hash uint64) (Count, bool) {
	if !shapedFrequency(state) {
		return Count{}, false
	}
	return frequencyCount(state, hash), true
}

// frequencyCount returns the bounds of an item. A row is further off than 2/width of the total once in two
// items, and all of them at once in 2^depth.
func frequencyCount[B bytesOrString](b B, hash uint64) Count {
	s, total := frequencyShape(b), frequencyTotal(b)
	c := Count{Upper: math.MaxInt64, Confidence: 1 - math.Pow(0.5, float64(s.Depth))}
	for r := range s.Depth {
		c.Upper = min(c.Upper, frequencyAt(b, s.at(hash, r)))
	}
	if total < math.MaxInt64 { // else it may have been more
		w := int64(s.Width)
		over := saturated(total/w, total/w) + 2*(total%w)/w
		c.Lower = max(c.Upper-over, 0)
	}
	if c.Lower == 0 {
		c.Confidence = 1
	}
	return c
}

// at returns the counter of an item in a row.
func (s FrequencyShape) at(hash uint64, row int) int {
	hi, _ := bits.Mul64(mix(hash, uint64(row+1)), uint64(s.Width))
	return row*s.Width + int(hi)
}

// rows are the counters of an item, and the least and the most that they have.
type rows struct {
	at        [FrequencyDepthMax]uint16
	depth     int
	low, high int64
}

func (f *Frequency) rows(s FrequencyShape, hash uint64) (r rows) {
	r.depth, r.low = s.Depth, math.MaxInt64
	for i := range s.Depth {
		at := s.at(hash, i)
		v := frequencyAt(f.b, at)
		r.at[i], r.low, r.high = uint16(at), min(r.low, v), max(r.high, v)
	}
	return r
}

// Add counts n more of an item. A negative n takes away: that is refused of a conservative sketch, of one that has
// reached the largest number, and if more is taken than the item can have. What is taken away must have been counted, else
// the numbers of other items may be too low. Add returns false, and changes nothing, if it refuses.
func (f *Frequency) Add(hash uint64, n int64) bool {
	if n == 0 || n == math.MinInt64 {
		return false
	}
	s, total := f.Shape(), f.Total()
	r := f.rows(s, hash)
	switch {
	case n < 0 && (s.Conservative || total == math.MaxInt64 || r.low < -n):
		return false
	case n < 0:
		f.take(&r, -n)
		f.setTotal(total + n)
		return true
	case s.Conservative:
		f.raise(&r, saturated(r.low, n))
	default:
		f.widen(saturated(r.high, n))
		for _, i := range r.at[:r.depth] {
			f.set(int(i), saturated(frequencyAt(f.b, int(i)), n))
		}
	}
	f.setTotal(saturated(total, n))
	return true
}

// raise raises the counters of an item as far as its estimate needs it.
func (f *Frequency) raise(r *rows, to int64) {
	f.widen(to)
	for _, i := range r.at[:r.depth] {
		if frequencyAt(f.b, int(i)) < to {
			f.set(int(i), to)
		}
	}
}

// take lowers the counters of an item.
func (f *Frequency) take(r *rows, n int64) {
	for _, i := range r.at[:r.depth] {
		f.set(int(i), frequencyAt(f.b, int(i))-n)
	}
	if size := f.size(); sizeOf(r.high) == size && sizeOf(r.high-n) < size {
		f.resize(sizeOf(f.highest()))
	}
}

// Merge adds what another sketch of the same shape has counted, weight times.
func (f *Frequency) Merge(o *Frequency, weight int64) error {
	s := f.Shape()
	if s != o.Shape() || weight < 0 {
		return bad("sketches of frequencies differ: %v and %v, %d times", s, o.Shape(), weight)
	}
	n := s.Width * s.Depth
	sums := make([]int64, n)
	for i := range sums {
		sums[i] = saturated(frequencyAt(f.b, i), times(frequencyAt(o.b, i), weight))
	}
	total := saturated(f.Total(), times(o.Total(), weight))
	f.b = appendFrequency(f.b[:0], s, sizeOf(slices.Max(sums)))
	for i, v := range sums {
		f.set(i, v)
	}
	f.setTotal(total)
	return nil
}

// times returns a product that stops at the largest int64; neither is negative.
func times(a, b int64) int64 {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi == 0 && lo <= math.MaxInt64 {
		return int64(lo)
	}
	return math.MaxInt64
}
