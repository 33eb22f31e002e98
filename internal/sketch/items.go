package sketch

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// An Amount is how much is counted of an item.
type Amount struct {
	Item string
	N    int64
}

// A HashAmount is how much is counted of an item, by its hash.
type HashAmount struct {
	Hash uint64
	N    int64
}

// A listed item is one that requests list, in order and each once.
type listed[T any] interface {
	compare(T) int
	plus(T) T // of an item that is equal
	append([]byte) []byte
	cut(*cutter) T
}

func (a Amount) compare(b Amount) int { return strings.Compare(a.Item, b.Item) }

func (a Amount) plus(b Amount) Amount { return Amount{a.Item, saturated(a.N, b.N)} }

func (a Amount) append(dst []byte) []byte {
	dst = append(append(dst, byte(len(a.Item))), a.Item...)
	return binary.AppendUvarint(dst, uint64(a.N))
}

func (Amount) cut(c *cutter) (a Amount) {
	a.Item = c.text(int(c.byte()))
	a.N = c.amount()
	return a
}

func (a HashAmount) compare(b HashAmount) int { return cmp.Compare(a.Hash, b.Hash) }

func (a HashAmount) plus(b HashAmount) HashAmount { return HashAmount{a.Hash, saturated(a.N, b.N)} }

func (a HashAmount) append(dst []byte) []byte {
	return binary.AppendUvarint(binary.BigEndian.AppendUint64(dst, a.Hash), uint64(a.N))
}

func (HashAmount) cut(c *cutter) (a HashAmount) {
	a.Hash = c.hash()
	a.N = c.amount()
	return a
}

// appendItems appends items in their order, each once. It sorts them.
func appendItems[T listed[T]](dst []byte, items []T) []byte {
	slices.SortFunc(items, T.compare)
	for i := 0; i < len(items); {
		a := items[i]
		for i++; i < len(items) && items[i].compare(a) == 0; i++ {
			a = a.plus(items[i])
		}
		dst = a.append(dst)
	}
	return dst
}

// countItems returns how many items bytes are. It reports false if they are no items, or not in
// their order, each once.
func countItems[T listed[T]](c cutter) (n int, ok bool) {
	var last T
	for ; c.left() > 0; n++ {
		a := last.cut(&c)
		if c.bad || n > 0 && a.compare(last) <= 0 {
			return 0, false
		}
		last = a
	}
	return n, true
}

// joinItems appends the items of both, in their order and each once. Both have been
// counted by countItems.
func joinItems[T listed[T]](dst []byte, x, y cutter) []byte {
	var a, b T
	hasA, hasB := false, false
	for {
		if !hasA && x.left() > 0 {
			a, hasA = a.cut(&x), true
		}
		if !hasB && y.left() > 0 {
			b, hasB = b.cut(&y), true
		}
		switch {
		case !hasA && !hasB:
			return dst
		case !hasB || hasA && a.compare(b) < 0:
			dst, hasA = a.append(dst), false
		case !hasA || a.compare(b) > 0:
			dst, hasB = b.append(dst), false
		default:
			dst, hasA, hasB = a.plus(b).append(dst), false, false
		}
	}
}

// limited returns what was appended to dst, unless it is longer than a request may be.
func limited(longer, dst []byte) ([]byte, error) {
	if n := len(longer) - len(dst); n > StateBytesMax {
		return dst, bad("a request of %d bytes, the limit is %d", n, StateBytesMax)
	}
	return longer, nil
}

// fits is limited for those who only want to know whether it is.
func fits(longer, dst []byte) ([]byte, bool) {
	b, err := limited(longer, dst)
	return b, err == nil
}
