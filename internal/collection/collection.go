// Package collection encodes small hashes and small sorted sets. The bytes of a
// collection are read as a whole, changed, and written as a whole, so a
// collection is small. It is pure.
//
// Each collection has exactly one valid form:
//
//	hash   | 6 | version 1 | field, value | field, value | … in the order in which the fields came
//	sorted | 7 | version 1 | score, member | …              in the order of scores, and of members
//
// Fields, values and members are their length, as an unsigned varint, and their
// bytes. A score is the eight bytes of its float64, little-endian, and never
// -0. No collection is empty: its key is absent then.
package collection

import (
	"encoding/binary"
	"errors"
	"math"
)

// A Kind is the first byte of what a key holds. Text begins with 0, and sketches with 1 to 5.
type Kind uint8

// The kinds of collections.
const (
	KindHash   Kind = 6
	KindSorted Kind = 7
)

const version = 1

// BytesMax is how many bytes a collection may have: what a part may.
const BytesMax = 64 << 10

// ErrBytes is returned for bytes that are no collection.
var ErrBytes = errors.New("collection: bytes that are none")

// KindOf returns which collection some bytes are; ok is false if they are none.
func KindOf(state string) (kind Kind, ok bool) {
	if state == "" {
		return 0, false
	}
	switch kind = Kind(state[0]); kind {
	case KindHash:
		_, err := ParseHash(state)
		return kind, err == nil
	case KindSorted:
		_, err := ParseSorted(state)
		return kind, err == nil
	default:
		return 0, false
	}
}

// A reader takes the bytes of a collection apart. After the first that is wrong, it has nothing more.
type reader struct {
	rest  string
	wrong bool
}

// open returns a reader of what follows the head of a collection.
func open(state string, kind Kind) reader {
	if len(state) <= 2 || len(state) > BytesMax || state[0] != byte(kind) || state[1] != version {
		return reader{wrong: true}
	}
	return reader{rest: state[2:]}
}

func (r *reader) more() bool { return !r.wrong && r.rest != "" }

// text takes text.
func (r *reader) text() string {
	n, used := r.length()
	if used == 0 || n > uint64(len(r.rest)-used) {
		r.rest, r.wrong = "", true
		return ""
	}
	text := r.rest[used : used+int(n)]
	r.rest = r.rest[used+int(n):]
	return text
}

// length reads a length, and returns how many bytes it has; 0 if it is none, or a shorter one says the same.
func (r *reader) length() (n uint64, used int) {
	for i := 0; i < len(r.rest) && i < 3; i++ { // three have room for more than there may be
		b := r.rest[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if b == 0 && i > 0 {
				return 0, 0
			}
			return n, i + 1
		}
	}
	return 0, 0
}

// score takes a score.
func (r *reader) score() float64 {
	if len(r.rest) < 8 {
		r.rest, r.wrong = "", true
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(r.rest[:8])))
	r.rest = r.rest[8:]
	r.wrong = r.wrong || math.IsNaN(f) || f == 0 && math.Signbit(f)
	return f
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
