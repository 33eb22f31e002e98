package engine

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20

// adviseHuge asks for huge pages for the part of b that can have them. It is
// advice: without them everything works, more slowly.
func adviseHuge(b []byte) {
	skip := -uintptr(unsafe.Pointer(&b[0])) & (hugePage - 1)
	if skip >= uintptr(len(b)) {
		return
	}
	if n := (uintptr(len(b)) - skip) &^ (hugePage - 1); n > 0 {
		_ = syscall.Madvise(b[skip:skip+n], syscall.MADV_HUGEPAGE)
	}
}
