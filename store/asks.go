package store

import "encoding/binary"

// An event may ask several things at once, each of some of its merges. Then its bytes are
//
//	0 | any × (length | request)
//
// with lengths as uvarints. No request begins with a 0. A request of no bytes asks nothing, and the
// merges that would ask it are left out.

// severalAsks is what the bytes of an event begin with that asks several things.
const severalAsks = 0

// AppendAsks appends requests as the bytes of one event: Rider.N says which of them a merge asks.
func AppendAsks(dst []byte, asks ...[]byte) []byte {
	dst = append(dst, severalAsks)
	for _, ask := range asks {
		dst = append(binary.AppendUvarint(dst, uint64(len(ask))), ask...)
	}
	return dst
}

// EachAsk calls f with each request of the bytes of an event, nil for one that asks nothing. It reports
// false if they are not several, or not whole: then f may have been called for some.
func EachAsk(bytes []byte, f func(ask []byte)) (ok bool) {
	asks, ok := cutAsks(bytes)
	if !ok {
		return false
	}
	for len(asks) > 0 {
		var ask []byte
		ask, asks = cutAsk(asks)
		f(ask)
	}
	return true
}

// cutAsks returns the requests that the bytes of an event have, one after the other; ok is false if they
// are not several, or not whole.
func cutAsks(bytes []byte) (asks []byte, ok bool) {
	if len(bytes) == 0 || bytes[0] != severalAsks {
		return nil, false
	}
	asks = bytes[1:]
	for rest := asks; len(rest) > 0; {
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			return nil, false
		}
		rest = rest[w+int(n):]
	}
	return asks, true
}

// cutAsk returns the first of some requests that are whole, nil if it asks nothing, and the rest.
func cutAsk(asks []byte) (ask, rest []byte) {
	n, w := binary.Uvarint(asks)
	end := w + int(n)
	if n > 0 {
		ask = asks[w:end:end]
	}
	return ask, asks[end:]
}
