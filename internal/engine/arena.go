package engine

import "encoding/binary"

// A ref points at bytes in an arena: an offset in units of four bytes. 0 is
// none.
type ref uint32

const (
	chunkBits  = 20
	chunkBytes = 1 << chunkBits
	unit       = 4
	chunkUnits = chunkBytes / unit
	// entryBytesMax is the largest entry: a token's record, its cell and
	// itself, and the two bytes of their length.
	entryBytesMax = 1024
)

// arena keeps short byte strings without a pointer for each, so that the
// collector has nothing to chase however many there are. An entry is its
// length in two bytes and the bytes, rounded up to a unit. Freed entries are
// kept in a list for each size and taken again.
type arena struct {
	chunks [][]byte
	next   ref // the first unit never used
	free   [entryBytesMax/unit + 1]ref
	used   int64 // bytes in live entries
	memory slab[byte]
}

// add copies the parts, joined, into the arena.
func (a *arena) add(parts ...[]byte) ref {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	r := a.take(2 + n)
	b := a.raw(r)
	binary.LittleEndian.PutUint16(b, uint16(n))
	b = b[2:]
	for _, p := range parts {
		b = b[copy(b, p):]
	}
	return r
}

func (a *arena) take(size int) ref {
	units := (size + unit - 1) / unit
	a.used += int64(units * unit)
	if r := a.free[units]; r != 0 {
		a.free[units] = ref(binary.LittleEndian.Uint32(a.raw(r)))
		return r
	}
	if a.next == 0 {
		a.next = 1 // ref 0 is none
	}
	if int(a.next%chunkUnits)+units > chunkUnits {
		a.next = (a.next/chunkUnits + 1) * chunkUnits
	}
	for int(a.next/chunkUnits) >= len(a.chunks) {
		a.chunks = append(a.chunks, a.memory.run(chunkBytes))
	}
	r := a.next
	a.next += ref(units)
	return r
}

// drop gives an entry back.
func (a *arena) drop(r ref) {
	b := a.raw(r)
	units := (2 + int(binary.LittleEndian.Uint16(b)) + unit - 1) / unit
	a.used -= int64(units * unit)
	binary.LittleEndian.PutUint32(b, uint32(a.free[units]))
	a.free[units] = r
}

// at returns the bytes of an entry. They are valid until it is dropped.
func (a *arena) at(r ref) []byte {
	b := a.raw(r)
	n := int(binary.LittleEndian.Uint16(b))
	return b[2 : 2+n : 2+n]
}

func (a *arena) raw(r ref) []byte {
	return a.chunks[r/chunkUnits][(r%chunkUnits)*unit:]
}

// bytes returns the memory the arena holds.
func (a *arena) bytes() int64 { return int64(len(a.chunks)) * chunkBytes }
