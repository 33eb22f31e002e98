package sketch

import (
	"encoding/binary"
	"math"
	"slices"
)

// The bytes of a top list, and of what is asked of it. Numbers are uvarints.
//
//	state:   kind | version | k | total | n | c | c × cell | n × (upper | error | length | item)
//	request: kind | version | k | 1 | any × (length | item | amount)    by item, each once
//	                            | 2 | state                             to be merged
//
// Items are in the order of the list. There are no cells if all of them are 0.
const (
	topVersion = 1

	topAdds  = 1
	topMerge = 2
)

// ParseTop returns the list whose state this is.
func ParseTop(state string) (*Top, error) {
	c := cutter{s: state}
	c.topHead()
	k := int(c.number(TopMax))
	if c.bad || k < 1 {
		return nil, bad("no top list begins like this")
	}
	t, err := NewTop(k)
	if err != nil {
		return nil, err
	}
	t.total = c.number(math.MaxInt64)
	n, cells := int(c.number(int64(TopEntries(k)))), int(c.number(int64(len(t.cells))))
	if c.bad || cells != 0 && cells != len(t.cells) {
		return nil, bad("a top list of %d items has %d cells", k, cells)
	}
	rest := int64(0)
	for i := range cells {
		t.cells[i] = c.number(t.total)
		rest = max(rest, t.cells[i])
	}
	listed := t.parseEntries(&c, n)
	switch {
	case c.bad || c.left() > 0:
		return nil, bad("a top list has wrong entries, or bytes behind them")
	case cells > 0 && rest == 0, cells == 0 && listed != t.total, listed > t.total:
		return nil, bad("a top list of %d has entries for %d, and %d cells", t.total, listed, cells)
	}
	return t, nil
}

// TopTotal returns the Total of the list whose state this is. It looks no further than the number.
func TopTotal(state string) (int64, error) {
	c := cutter{s: state}
	c.topHead()
	k, total := c.number(TopMax), c.number(math.MaxInt64)
	if c.bad || k < 1 {
		return 0, bad("no top list begins like this")
	}
	return total, nil
}

// parseEntries takes n entries, and returns what was counted of them at least.
func (t *Top) parseEntries(c *cutter, n int) (listed int64) {
	t.names = make([]byte, 0, c.left())
	exact := slices.Max(t.cells) == 0
	for range n {
		upper, over := c.amount(), c.number(math.MaxInt64)
		name := c.text(int(c.byte()))
		if c.bad || over >= upper || upper > t.total || exact && over > 0 || t.room < len(name)+topEntryHead {
			c.bad = true
			return 0
		}
		h := Hash(name)
		if _, twice := t.find(name, h); twice {
			c.bad = true
			return 0
		}
		t.insert(name, h, upper-over, upper)
		if last := len(t.heap) - 1; last > 0 && !t.worse(t.heap[last], t.heap[last-1]) {
			c.bad = true
			return 0
		}
		listed = saturated(listed, upper-over)
	}
	// The least comes first in a heap, and whatever is sorted is a heap.
	slices.Reverse(t.heap)
	for i, x := range t.heap {
		t.all[x.slot].node = uint16(i)
	}
	return listed
}

// Append appends the state of the list.
func (t *Top) Append(dst []byte) []byte {
	dst = append(dst, byte(KindTop), topVersion)
	dst = binary.AppendUvarint(dst, uint64(t.k))
	dst = binary.AppendUvarint(dst, uint64(t.total))
	dst = binary.AppendUvarint(dst, uint64(len(t.heap)))
	if t.Rest() == 0 {
		dst = append(dst, 0)
	} else {
		dst = binary.AppendUvarint(dst, uint64(len(t.cells)))
		for _, v := range t.cells {
			dst = binary.AppendUvarint(dst, uint64(v))
		}
	}
	for _, s := range t.order() {
		e := &t.all[s]
		dst = binary.AppendUvarint(dst, uint64(e.upper))
		dst = binary.AppendUvarint(dst, uint64(e.upper-e.lower))
		dst = append(dst, e.size)
		dst = append(dst, t.name(e)...)
	}
	return dst
}

// AppendTopRequest appends the request to add amounts to a list of the k most frequent items. Without
// amounts it makes the list, if there is none. It sorts items.
func AppendTopRequest(dst []byte, k int, items []Amount) ([]byte, error) {
	if k < 1 || k > TopMax {
		return dst, bad("a top list of %d items, the limit is %d", k, TopMax)
	}
	for _, a := range items {
		if a.N < 1 || len(a.Item) > TopItemBytesMax {
			return dst, bad("an item of %d bytes, %d times: the limits are %d, and at least once", len(a.Item), a.N, TopItemBytesMax)
		}
	}
	return limited(appendItems(appendTopHead(dst, k, topAdds), items), dst)
}

// AppendTopMerge appends the request to merge this list into another, of the same k.
func (t *Top) AppendTopMerge(dst []byte) []byte {
	return t.Append(appendTopHead(dst, t.k, topMerge))
}

func appendTopHead(dst []byte, k int, what byte) []byte {
	return append(binary.AppendUvarint(append(dst, byte(KindTop), topVersion), uint64(k)), what)
}

// A topRequest is a request that is whole.
type topRequest struct {
	k    int
	adds cutter // items, if merge is nil
	n    int    // of items
	with *Top   // the list to merge
}

func parseTopRequest(asks string) (r topRequest, ok bool) {
	c := cutter{s: asks}
	c.topHead()
	r.k = int(c.number(TopMax))
	switch what := c.byte(); {
	case c.bad || r.k < 1:
		return r, false
	case what == topAdds:
		r.adds = c
		r.n, ok = countItems[Amount](c)
		return r, ok
	case what == topMerge:
		with, err := ParseTop(c.rest())
		r.with = with
		return r, err == nil && with.k == r.k
	default:
		return r, false
	}
}

// decideTop is Decide for top lists. The answer to a request for one item are the bounds of
// its number now; other requests are answered by the total before and now.
func decideTop(dst []byte, state string, asks []byte) (next []byte, changed bool, answer [2]int64, ok bool) {
	r, ok := parseTopRequest(string(asks))
	if !ok {
		return dst, false, answer, false
	}
	if r.n == 1 && state != "" { // Fast path.
		items := r.adds
		if next, answer, ok := decideTopOne(dst, state, r.k, Amount{}.cut(&items)); ok {
			return next, true, answer, true
		}
	}
	return decideTopWhole(dst, state, &r)
}

// decideTopWhole is decideTop for a request that is whole.
func decideTopWhole(dst []byte, state string, r *topRequest) (next []byte, changed bool, answer [2]int64, ok bool) {
	t, err := NewTop(r.k)
	if state != "" {
		t, err = ParseTop(state)
	}
	if err != nil || t.k != r.k {
		return dst, false, answer, false
	}
	answer[0] = t.total
	if r.with != nil {
		if err := t.Merge(r.with); err != nil {
			return dst, false, [2]int64{}, false
		}
	}
	var a Amount
	for range r.n {
		a = a.cut(&r.adds)
		t.Add(a.Item, a.N)
	}
	answer[1] = t.total
	if r.n == 1 {
		answer[0], answer[1] = t.Bounds(a.Item)
	}
	next = t.Append(slices.Grow(dst, len(state)))
	return next, string(next[len(dst):]) != state, answer, true
}

// combineTop is Combine for top lists. What it makes may be in another order than a and then b: the
// numbers are the same as long as they are exact, and else within their bounds.
func combineTop(dst, a, b []byte) (both []byte, ok bool) {
	x, okX := parseTopRequest(string(a))
	y, okY := parseTopRequest(string(b))
	if !okX || !okY || x.k != y.k || (x.with == nil) != (y.with == nil) {
		return dst, false
	}
	if x.with != nil {
		if err := x.with.Merge(y.with); err != nil {
			return dst, false
		}
		return fits(x.with.AppendTopMerge(dst), dst)
	}
	return fits(joinItems[Amount](appendTopHead(dst, x.k, topAdds), x.adds, y.adds), dst)
}

func checkTop(state string) error {
	_, err := ParseTop(state)
	return err
}
