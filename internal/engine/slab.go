package engine

import (
	"slices"
	"unsafe"
)

// slab hands out runs of zero values that live as long as it does. When there
// are many they are cut from large pieces that are not on the Go heap: so the
// collector does not take a large table for a reason to let the rest of the
// heap grow as large, and the operating system can be asked for huge pages,
// since finding a cell in so much memory is also finding its page.
//
// T must have no pointers.
type slab[T any] struct {
	rest   []T
	runs   int      // handed out
	pieces []func() // give the pieces back
}

const (
	slabRuns  = 4       // runs that are allocated one by one, for small tables
	slabBytes = 4 << 20 // a piece from which later runs are cut
)

// run returns n zero values.
func (s *slab[T]) run(n int) []T {
	s.runs++
	if s.runs <= slabRuns {
		return make([]T, n)
	}
	if len(s.rest) < n {
		b, giveBack := mapMemory(slabBytes)
		adviseHuge(b)
		s.pieces = append(s.pieces, giveBack)
		var zero T
		s.rest = unsafe.Slice((*T)(unsafe.Pointer(&b[0])), slabBytes/int(unsafe.Sizeof(zero)))
	}
	r := s.rest[:n:n]
	s.rest = s.rest[n:]
	return r
}

// free gives everything back. What was handed out must not be used any more.
func (s *slab[T]) free() {
	for _, giveBack := range s.pieces {
		giveBack()
	}
	*s = slab[T]{}
}

// A piece of room that is made ready at a time.
const readyBytes = 256 << 10

// ready has the system find the memory of a room's free part now: when a value is
// added to it that would take long, and someone may wait meanwhile.
func ready[T any](room []T, p *pace) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if cap(room)*size < slabBytes/4 {
		return
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(room))), cap(room)*size)
	for part := range slices.Chunk(b, readyBytes) {
		populate(part)
		p.breathe()
	}
}

// room returns an empty slice with room for n values, which is not on the Go
// heap if that is much, and what gives it back.
func room[T any](n int) (s []T, giveBack func()) {
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	if size < slabBytes/4 {
		return make([]T, 0, n), func() {}
	}
	b, giveBack := mapMemory((size + slabBytes - 1) &^ (slabBytes - 1))
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)[:0], giveBack
}
