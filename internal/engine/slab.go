package engine

import "unsafe"

// slab hands out runs of zero values. A large table is spread over so much
// memory that finding a cell is also finding its page, so when there are many
// runs they are cut from large pieces, for which the operating system is asked
// to use huge pages.
type slab[T any] struct {
	rest []T
	runs int // handed out
}

const (
	slabRuns  = 8       // runs that are allocated one by one, for small tables
	slabBytes = 8 << 20 // a piece from which later runs are cut
)

// run returns n zero values.
func (s *slab[T]) run(n int) []T {
	s.runs++
	if s.runs <= slabRuns {
		return make([]T, n)
	}
	if len(s.rest) < n {
		var zero T
		s.rest = make([]T, slabBytes/int(unsafe.Sizeof(zero)))
		adviseHuge(unsafe.Slice((*byte)(unsafe.Pointer(&s.rest[0])), slabBytes))
	}
	r := s.rest[:n:n]
	s.rest = s.rest[n:]
	return r
}
