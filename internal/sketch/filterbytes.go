package sketch

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
)

// The bytes of a filter, and of what is asked of it. Numbers are little-endian, but for hashes.
//
//	state:   kind | version | flags | strength | expansion | parts | capacity 4 | items 8 |
//	         parts × (ones 4 | bits)
//	         flags: 0 merged; then items is 0
//	request: kind | version | 1 | strength | expansion | 0 | capacity 4 | any × hash 8   in order, each once
//	                        | 2 |          …                           | state          to be merged
//	                        | 3 |          …                           | any × hash 8   as 1, if all of them are new
const (
	filterVersion = 1

	filterAdds  = 1
	filterMerge = 2
	filterFresh = 3

	filterMerged   = 1
	filterPartsAt  = 5
	filterHead     = 18
	filterOnes     = 4
	filterAsks     = 10 // the length of a request before its payload
	filterPartsMax = 32
)

func filterShape[B bytesOrString](b B) FilterShape {
	return FilterShape{Strength: int(b[3]), Expansion: int(b[4]), Capacity: int(le32(b, 6))}
}

func filterParts[B bytesOrString](b B) int { return int(b[filterPartsAt]) }

func filterItems[B bytesOrString](b B) int64 { return int64(le64(b, 10)) }

func filterOnesOf[B bytesOrString](b B, p *filterPart) int { return int(le32(b, p.at)) }

// filterEmpty reports whether a state has no item.
func filterEmpty[B bytesOrString](b B) bool {
	return filterParts(b) == 1 && le32(b, filterHead) == 0
}

func (f *Filter) merged() bool { return f.b[2]&filterMerged != 0 }

func (f *Filter) setMerged() {
	f.b[2] |= filterMerged
	f.setItems(0)
}

func (f *Filter) setItems(n int64) { binary.LittleEndian.PutUint64(f.b[10:], uint64(n)) }

func (f *Filter) setOnes(p *filterPart, n int) {
	binary.LittleEndian.PutUint32(f.b[p.at:], uint32(n))
}

// partsOf walks through the parts of a state.
func partsOf[B bytesOrString](b B) iter.Seq[*filterPart] {
	return func(yield func(*filterPart) bool) {
		s, n := filterShape(b), filterParts(b)
		for p := s.first(); yield(&p) && p.index < n-1; {
			p, _ = s.after(p)
		}
	}
}

// lastPart returns the last part of a state.
func lastPart[B bytesOrString](b B) (last filterPart) {
	s, n := filterShape(b), filterParts(b)
	for last = s.first(); last.index < n-1; {
		last, _ = s.after(last)
	}
	return last
}

func filterHas[B bytesOrString](b B, hash uint64) bool {
	s, n := filterShape(b), filterParts(b)
	p := s.first()
	for !partHas(b, &p, hash) {
		if p.index == n-1 {
			return false
		}
		p, _ = s.after(p)
	}
	return true
}

// partHas reports whether all bits of an item are ones.
func partHas[B bytesOrString](b B, part *filterPart, hash uint64) bool {
	at := placesOf(hash, part)
	for range part.hashes {
		if i := at.next(); b[part.at+filterOnes+i/8]&(1<<(i%8)) == 0 {
			return false
		}
	}
	return true
}

func countOnes[B bytesOrString](b B) (n int) {
	for i := 0; i < len(b); i += 8 {
		n += bits.OnesCount64(le64(b, i))
	}
	return n
}

// appendFilter appends an empty state.
func appendFilter(dst []byte, s FilterShape) []byte {
	p := s.first()
	dst = appendFilterHead(dst, s, 0, 1)
	n := p.end() - filterAsks
	dst = slices.Grow(dst, n)
	clear(dst[len(dst) : len(dst)+n])
	return dst[:len(dst)+n]
}

// appendFilterHead appends what states and requests begin with.
func appendFilterHead(dst []byte, s FilterShape, what, parts byte) []byte {
	dst = append(dst, byte(KindFilter), filterVersion, what, byte(s.Strength), byte(s.Expansion), parts)
	return binary.LittleEndian.AppendUint32(dst, uint32(s.Capacity))
}

// shapedFilter reports whether bytes have the head and the length of a state.
func shapedFilter[B bytesOrString](b B) bool {
	if len(b) < filterHead || Kind(b[0]) != KindFilter || b[1] != filterVersion || b[2]&^filterMerged != 0 {
		return false
	}
	if filterParts(b) < 1 || filterShape(b).whole() != nil {
		return false
	}
	p, ok := filterShape(b).first(), true
	for p.index < filterParts(b)-1 && ok {
		p, ok = filterShape(b).after(p)
	}
	return ok && len(b) == p.end()
}

func checkFilter(state string) error {
	if !shapedFilter(state) {
		return bad("no filter has this head and length")
	}
	n, items, merged := filterParts(state), filterItems(state), state[2]&filterMerged != 0
	all, hashes := 0, 0
	for p := range partsOf(state) {
		ones := countOnes(state[p.at+filterOnes : p.end()])
		all, hashes = all+ones, p.hashes
		switch {
		case ones != filterOnesOf(state, p):
			return bad("part %d has %d ones, and says %d", p.index, ones, filterOnesOf(state, p))
		case ones == 0 && (n > 1 || merged):
			return bad("part %d is empty", p.index)
		case !merged && ones > p.bits/2:
			return bad("part %d has %d ones, the limit is %d", p.index, ones, p.bits/2)
		case !merged && p.index < n-1 && !p.full(ones):
			return bad("part %d has %d ones, and another one follows", p.index, ones)
		}
	}
	// An item that is new sets a bit, and no more bits than there are hashes.
	if merged && items != 0 || items < 0 || items > int64(all) || !merged && items*int64(hashes) < int64(all) {
		return bad("%d ones of %d items", all, items)
	}
	return nil
}

// A hashed item is known by its hash alone.
type hashed uint64

func (h hashed) compare(o hashed) int { return cmp.Compare(h, o) }

func (h hashed) plus(hashed) hashed { return h }

func (h hashed) append(dst []byte) []byte { return binary.BigEndian.AppendUint64(dst, uint64(h)) }

func (hashed) cut(c *cutter) hashed { return hashed(c.hash()) }

// AppendFilterRequest appends the request to add items to a filter, which are all added or none. Without
// items it makes the filter, if there is none. It sorts the hashes.
func AppendFilterRequest(dst []byte, s FilterShape, hashes []uint64) ([]byte, error) {
	if err := s.whole(); err != nil {
		return dst, err
	}
	items := make([]hashed, len(hashes))
	for i, h := range hashes {
		items[i] = hashed(h)
	}
	return limited(appendItems(appendFilterHead(dst, s, filterAdds, 0), items), dst)
}

// AppendFilterFresh appends the request to add an item to a filter if it is new. It is refused if the item
// is found, and, with NoRoom, if there is no room for it.
func AppendFilterFresh(dst []byte, s FilterShape, hash uint64) []byte {
	return hashed(hash).append(appendFilterHead(dst, s, filterFresh, 0))
}

// AppendFilterMerge appends the request to merge this filter into another of the same shape.
func (f *Filter) AppendFilterMerge(dst []byte) []byte {
	return f.Append(appendFilterHead(dst, f.Shape(), filterMerge, 0))
}

// A filterRequest is a request that is whole.
type filterRequest struct {
	shape FilterShape
	items cutter
	n     int
	with  *Filter
	fresh bool // the items have to be new
}

func parseFilterRequest(asks string) (r filterRequest, ok bool) {
	if len(asks) < filterAsks || Kind(asks[0]) != KindFilter || asks[1] != filterVersion || asks[filterPartsAt] != 0 {
		return r, false
	}
	if r.shape = filterShape(asks); r.shape.whole() != nil {
		return r, false
	}
	c := cutter{s: asks[filterAsks:]}
	switch asks[2] {
	case filterAdds, filterFresh:
		r.items, r.fresh = c, asks[2] == filterFresh
		r.n, ok = countItems[hashed](c)
		return r, ok
	case filterMerge:
		with, err := ParseFilter(c.rest())
		r.with = with
		return r, err == nil && with.Shape() == r.shape
	default:
		return r, false
	}
}

// decideFilter is Decide for filters. The answer is how many of the items are new, and how many
// there are now: -1 if a merge has made that unknown.
func decideFilter(dst []byte, state string, asks []byte) (next []byte, changed bool, answer [2]int64, ok bool) {
	r, ok := parseFilterRequest(string(asks))
	if !ok || state != "" && (!shapedFilter(state) || filterShape(state) != r.shape) {
		return dst, false, answer, false
	}
	if r.fresh && state != "" && anyItem(state, r.items, r.n) {
		return dst, false, answer, false
	}
	if state != "" && r.with == nil && hasItems(state, r.items, r.n) {
		if answer[1] = filterItems(state); state[2]&filterMerged != 0 {
			answer[1] = -1
		}
		return dst, false, answer, true
	}
	// The filter is made behind dst.
	dst = slices.Grow(dst, len(state))
	f := &Filter{dst[len(dst):]}
	if state == "" {
		f.b = appendFilter(f.b, r.shape)
	} else {
		f.b = append(f.b, state...)
	}
	if r.with != nil && f.Merge(r.with) != nil {
		return dst, false, answer, false
	}
	for range r.n {
		added, ok := f.Add(uint64(hashed(0).cut(&r.items)))
		if !ok {
			if answer = [2]int64{}; r.fresh {
				answer[0] = NoRoom
			}
			return dst, false, answer, false
		}
		if added {
			answer[0]++
		}
	}
	if answer[1] = filterItems(f.b); f.merged() {
		answer[1] = -1
	}
	return append(dst, f.b...), string(f.b) != state, answer, true
}

// hasItems reports whether a filter has all items of a request.
func hasItems(state string, items cutter, n int) bool {
	for range n {
		if !filterHas(state, uint64(hashed(0).cut(&items))) {
			return false
		}
	}
	return true
}

// anyItem reports whether a filter has one of the items of a request.
func anyItem(state string, items cutter, n int) bool {
	for range n {
		if filterHas(state, uint64(hashed(0).cut(&items))) {
			return true
		}
	}
	return false
}

// combineFilter is Combine for filters. Additions to a filter that does not grow are not combined, as
// one of them may be refused. One that grows refuses the combination as a whole when its room ends.
func combineFilter(dst, a, b []byte) (both []byte, ok bool) {
	x, okX := parseFilterRequest(string(a))
	y, okY := parseFilterRequest(string(b))
	if !okX || !okY || x.shape != y.shape || (x.with == nil) != (y.with == nil) {
		return dst, false
	}
	if x.with != nil {
		if err := x.with.Merge(y.with); err != nil {
			return dst, false
		}
		return fits(x.with.AppendFilterMerge(dst), dst)
	}
	if x.shape.Expansion == 0 || x.fresh || y.fresh {
		return dst, false
	}
	return fits(joinItems[hashed](appendFilterHead(dst, x.shape, filterAdds, 0), x.items, y.items), dst)
}
