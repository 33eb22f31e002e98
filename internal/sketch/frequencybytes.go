package sketch

import (
	"encoding/binary"
	"math"
	"slices"
)

// The bytes of a sketch of frequencies, and of what is asked of it. Numbers of a fixed length are
// little-endian, hashes big-endian, and other numbers uvarints.
//
//	state:   kind | version | flags | depth | width 4 | total 8 | depth × width counters
//	         flags: 0-1 the logarithm of the bytes of a counter, 7 conservative
//	request: kind | version | flags | depth | width 4 | any × (hash 8 | amount)     by hash, each once
//	                                                  | state                       to be merged
//	         flags: 0-1 what is asked for, 7 conservative
const (
	frequencyVersion = 1

	frequencyAdds  = 1
	frequencyTakes = 2
	frequencyMerge = 3

	frequencyLow          = 3
	frequencyConservative = 0x80

	frequencyAsks = 8 // the length of a request before its payload
)

func frequencyShape[B bytesOrString](b B) FrequencyShape {
	return FrequencyShape{Depth: int(b[3]), Width: int(le32(b, 4)), Conservative: b[2]&frequencyConservative != 0}
}

func frequencyTotal[B bytesOrString](b B) int64 { return int64(le64(b, 8)) }

// frequencySize returns the bytes of a counter.
func frequencySize[B bytesOrString](b B) int { return 1 << (b[2] & frequencyLow) }

// frequencyAt returns a counter. One of 8 bytes that is no int64 is in no state that Check takes.
func frequencyAt[B bytesOrString](b B, i int) int64 {
	switch b[2] & frequencyLow {
	case 0:
		return int64(b[frequencyHead+i])
	case 1:
		return int64(le16(b, frequencyHead+2*i))
	case 2:
		return int64(le32(b, frequencyHead+4*i))
	default:
		return int64(le64(b, frequencyHead+8*i) & math.MaxInt64)
	}
}

// sizeOf returns how many bytes a counter needs to be so large.
func sizeOf(v int64) int {
	switch {
	case v <= math.MaxUint8:
		return 1
	case v <= math.MaxUint16:
		return 2
	case v <= math.MaxUint32:
		return 4
	default:
		return 8
	}
}

// appendFrequency appends an empty state with counters of so many bytes.
func appendFrequency(dst []byte, s FrequencyShape, size int) []byte {
	flags := byte(0)
	for 1<<flags < size {
		flags++
	}
	dst = appendFrequencyHead(dst, s, flags)
	n := 8 + s.Depth*s.Width*size
	dst = slices.Grow(dst, n)
	clear(dst[len(dst) : len(dst)+n])
	return dst[:len(dst)+n]
}

// appendFrequencyHead appends what states and requests begin with.
func appendFrequencyHead(dst []byte, s FrequencyShape, flags byte) []byte {
	if s.Conservative {
		flags |= frequencyConservative
	}
	return binary.LittleEndian.AppendUint32(append(dst, byte(KindFrequency), frequencyVersion, flags, byte(s.Depth)), uint32(s.Width))
}

func (f *Frequency) size() int { return frequencySize(f.b) }

func (f *Frequency) setTotal(n int64) { binary.LittleEndian.PutUint64(f.b[8:], uint64(n)) }

// set sets a counter, for which there are enough bytes.
func (f *Frequency) set(i int, v int64) {
	b := f.b[frequencyHead:]
	switch f.size() {
	case 1:
		b[i] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b[2*i:], uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(b[8*i:], uint64(v))
	}
}

// highest returns the largest counter.
func (f *Frequency) highest() (v int64) {
	s := f.Shape()
	for i := range s.Depth * s.Width {
		v = max(v, frequencyAt(f.b, i))
	}
	return v
}

// widen gives all counters as many bytes as one so large needs.
func (f *Frequency) widen(v int64) { f.resize(max(f.size(), sizeOf(v))) }

// resize gives all counters so many bytes.
func (f *Frequency) resize(size int) {
	if size == f.size() {
		return
	}
	s, old := f.Shape(), f.b
	f.b = appendFrequency(make([]byte, 0, frequencyHead+s.Depth*s.Width*size), s, size)
	f.setTotal(frequencyTotal(old))
	for i := range s.Depth * s.Width {
		f.set(i, frequencyAt(old, i))
	}
}

// shapedFrequency reports whether bytes have the head and the length of a state.
func shapedFrequency[B bytesOrString](b B) bool {
	if len(b) < frequencyHead || Kind(b[0]) != KindFrequency || b[1] != frequencyVersion ||
		b[2]&^(frequencyLow|frequencyConservative) != 0 || frequencyTotal(b) < 0 {
		return false
	}
	s := frequencyShape(b)
	return s.whole() == nil && len(b) == frequencyHead+s.Depth*s.Width*frequencySize(b)
}

func checkFrequency(state string) error {
	if !shapedFrequency(state) {
		return bad("no sketch of frequencies has this head and length")
	}
	s, total, size, high := frequencyShape(state), frequencyTotal(state), frequencySize(state), int64(0)
	for r := range s.Depth {
		sum := int64(0)
		for i := range s.Width {
			at := r*s.Width + i
			if size == 8 && int64(le64(state, frequencyHead+8*at)) < 0 {
				return bad("counter %d is negative", at)
			}
			v := frequencyAt(state, at)
			sum, high = saturated(sum, v), max(high, v)
		}
		if sum > total || sum != total && (!s.Conservative || sum == 0) {
			return bad("row %d counts %d of %d", r, sum, total)
		}
	}
	if sizeOf(high) != size {
		return bad("counters of %d bytes, of which the largest is %d", size, high)
	}
	return nil
}

// AppendFrequencyRequest appends the request to count amounts, all of which are above 0, or to take
// them away: then they are below 0, and are taken all or none. Without amounts it makes the sketch, if there is none. It sorts items.
func AppendFrequencyRequest(dst []byte, s FrequencyShape, items []HashAmount) ([]byte, error) {
	if err := s.whole(); err != nil {
		return dst, err
	}
	what := byte(frequencyAdds)
	if len(items) > 0 && items[0].N < 0 {
		what = frequencyTakes
	}
	for _, a := range items {
		if a.N == 0 || a.N == math.MinInt64 || (a.N < 0) != (what == frequencyTakes) || a.N < 0 && s.Conservative {
			return dst, bad("%d is counted in one request with %d", a.N, items[0].N)
		}
	}
	if what == frequencyTakes {
		items = slices.Clone(items)
		for i := range items {
			items[i].N = -items[i].N
		}
	}
	return limited(appendItems(appendFrequencyHead(dst, s, what), items), dst)
}

// AppendFrequencyMerge appends the request to merge this sketch into another of the same shape.
func (f *Frequency) AppendFrequencyMerge(dst []byte) []byte {
	return f.Append(appendFrequencyHead(dst, f.Shape(), frequencyMerge))
}

// A frequencyRequest is a request that is whole.
type frequencyRequest struct {
	shape FrequencyShape
	what  byte
	items cutter
	n     int
	with  *Frequency
}

func parseFrequencyRequest(asks string) (r frequencyRequest, ok bool) {
	if len(asks) < frequencyAsks || Kind(asks[0]) != KindFrequency || asks[1] != frequencyVersion ||
		asks[2]&^(frequencyLow|frequencyConservative) != 0 {
		return r, false
	}
	r.shape, r.what = frequencyShape(asks), asks[2]&frequencyLow
	if r.shape.whole() != nil {
		return r, false
	}
	c := cutter{s: asks[frequencyAsks:]}
	switch r.what {
	case frequencyAdds, frequencyTakes:
		r.items = c
		r.n, ok = countItems[HashAmount](c)
		return r, ok && (r.what == frequencyAdds || r.n > 0 && !r.shape.Conservative)
	case frequencyMerge:
		with, err := ParseFrequency(c.rest())
		r.with = with
		return r, err == nil && with.Shape() == r.shape
	default:
		return r, false
	}
}

// decideFrequency is Decide for sketches of frequencies. The answer to a request for one item are its bounds
// now; other requests are answered by the total before and now.
func decideFrequency(dst []byte, state string, asks []byte) (next []byte, changed bool, answer [2]int64, ok bool) {
	r, ok := parseFrequencyRequest(string(asks))
	if !ok || state != "" && (!shapedFrequency(state) || frequencyShape(state) != r.shape) {
		return dst, false, answer, false
	}
	// The sketch is made behind dst, and counts there until it needs more bytes.
	dst = slices.Grow(dst, len(state))
	f := &Frequency{dst[len(dst):]}
	if state == "" {
		f.b = appendFrequency(f.b, r.shape, 1)
	} else {
		f.b = append(f.b, state...)
	}
	answer[0] = f.Total()
	if r.with != nil && f.Merge(r.with, 1) != nil {
		return dst, false, [2]int64{}, false
	}
	var a HashAmount
	for range r.n {
		if a = a.cut(&r.items); r.what == frequencyTakes {
			a.N = -a.N
		}
		if !f.Add(a.Hash, a.N) {
			return dst, false, [2]int64{}, false
		}
	}
	answer[1] = f.Total()
	if r.n == 1 {
		c := f.Count(a.Hash)
		answer = [2]int64{c.Lower, c.Upper}
	}
	return append(dst, f.b...), string(f.b) != state, answer, true
}

// combineFrequency is Combine for sketches of frequencies. Only what is added can be combined: of what is taken,
// one request may be refused and the other not. If a sketch is conservative, the combination counts in an order of its own.
func combineFrequency(dst, a, b []byte) (both []byte, ok bool) {
	x, okX := parseFrequencyRequest(string(a))
	y, okY := parseFrequencyRequest(string(b))
	if !okX || !okY || x.shape != y.shape || x.what != y.what || x.what == frequencyTakes {
		return dst, false
	}
	if x.what == frequencyMerge {
		if err := x.with.Merge(y.with, 1); err != nil {
			return dst, false
		}
		return fits(x.with.AppendFrequencyMerge(dst), dst)
	}
	return fits(joinItems[HashAmount](appendFrequencyHead(dst, x.shape, frequencyAdds), x.items, y.items), dst)
}
