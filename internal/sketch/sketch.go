// Package sketch counts without storing items: how many different items there
// were, which are the most frequent, how often each came, and whether one was
// added. A sketch takes kilobytes instead of a whole set.
//
// The state of a sketch is bytes. Stores keep it like other bytes, and change
// it by Decide, a pure function: it has no clock, no randomness and no files,
// and returns the same everywhere. A request says what to add to a state.
// Combine merges two requests.
//
// Every state and every request begins with its kind and the version of its
// format. Both are stored, so their meaning never changes.
package sketch

import (
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// Kind says what a sketch counts. Kinds are stored: append only.
type Kind byte

// The kinds of sketches.
const (
	KindUnique    Kind = 1 // how many different items there were
	KindTop       Kind = 2 // which items were the most frequent
	KindFrequency Kind = 3 // how often each item came
	KindFilter    Kind = 4 // whether an item was there
)

// NoRoom is the answer of Decide to a request that is refused since a filter is full.
const NoRoom = -1

// StateBytesMax is the length of the longest state, and of the longest request.
// It is what one part of a store holds.
const StateBytesMax = 64 << 10

// ErrBad is returned for bytes that are no state, or no request, of a sketch.
var ErrBad = errors.New("sketch: bad bytes")

// bad returns an ErrBad that says what is wrong.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBad}, args...)...)
}

// hashSeed keys the hash of items. Any number but 0 will do: it keeps this hash
// apart from the unkeyed XXH3 that clients and stores may pick shards and
// buckets by, since items picked by a hash fill a sketch of the same hash
// unevenly.
const hashSeed = 0x71756970755f7331

// Hash returns the hash by which sketches know an item. It is part of the format:
// states made with another hash can't be merged. XXH3 is chosen because it passes
// the tests of SMHasher with all 64 bits, which the estimates rely on, and takes
// few nanoseconds. The seed is public, so somebody who chooses the items can
// choose their hashes: a sketch of hostile items proves nothing.
func Hash(item string) uint64 { return xxh3.HashStringSeed(item, hashSeed) }

// Decide appends to dst what a state becomes when a request is taken into it. An
// empty state takes the request's parameters. If changed is false, the state
// stays as it is and next means nothing. The two numbers of answer are for those
// who want a reply; each kind says what they are. If ok is false, asks is no
// request, or one that does not fit the state, and nothing changes; then the first number
// is NoRoom if there is no room for what has to be new, and else 0.
//
// Decide never keeps or changes state and asks, and dst must not overlap them.
// Any bytes may be given. Asks is checked whole, because it comes from outside.
// A state is what Decide has made: Decide looks at its head and its length, and Check at
// every byte.
func Decide(dst []byte, state string, asks []byte) (next []byte, changed bool, answer [2]int64, ok bool) {
	if len(asks) == 0 || len(asks) > StateBytesMax || len(state) > StateBytesMax ||
		len(state) > 0 && state[0] != asks[0] {
		return dst, false, answer, false
	}
	switch Kind(asks[0]) {
	case KindUnique:
		return decideUnique(dst, state, asks)
	case KindTop:
		return decideTop(dst, state, asks)
	case KindFrequency:
		return decideFrequency(dst, state, asks)
	case KindFilter:
		return decideFilter(dst, state, asks)
	default:
		return dst, false, answer, false
	}
}

// Combine appends to dst one request that has the effect of a and then b. Where the order of
// items matters to a kind, beyond what its bounds promise, it may be another one. If ok is
// false there is none: one of them is no request, they differ in kind or in
// parameters, or the combination would be too long.
func Combine(dst, a, b []byte) (both []byte, ok bool) {
	if len(a) == 0 || len(b) == 0 || a[0] != b[0] ||
		len(a) > StateBytesMax || len(b) > StateBytesMax {
		return dst, false
	}
	switch Kind(a[0]) {
	case KindUnique:
		return combineUnique(dst, a, b)
	case KindTop:
		return combineTop(dst, a, b)
	case KindFrequency:
		return combineFrequency(dst, a, b)
	case KindFilter:
		return combineFilter(dst, a, b)
	default:
		return dst, false
	}
}

// Check returns nil if state is the state of a sketch to the last byte, and else
// an error that wraps ErrBad. The empty state, of a sketch that does not exist
// yet, is none.
func Check(state string) error {
	if state == "" {
		return bad("no bytes")
	}
	if len(state) > StateBytesMax {
		return bad("%d bytes, the limit is %d", len(state), StateBytesMax)
	}
	switch Kind(state[0]) {
	case KindUnique:
		return checkUnique([]byte(state))
	case KindTop:
		return checkTop(state)
	case KindFrequency:
		return checkFrequency(state)
	case KindFilter:
		return checkFilter(state)
	default:
		return bad("kind %d", state[0])
	}
}
