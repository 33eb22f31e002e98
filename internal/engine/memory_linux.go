package engine

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20

// mapMemory returns n zero bytes, a multiple of hugePage, that are not on the Go
// heap, and what gives them back. They begin at a huge page.
func mapMemory(n int) (b []byte, giveBack func()) {
	whole, err := syscall.Mmap(-1, 0, n+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]byte, n), func() {}
	}
	skip := int(-uintptr(unsafe.Pointer(&whole[0])) & (hugePage - 1))
	b = whole[skip : skip+n : skip+n]
	return b, func() { _ = syscall.Munmap(whole) }
}

// adviseHuge asks for huge pages: that is advice, and without them everything works,
// more slowly.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) }

// populate has the system find memory for mapped bytes that nobody has used yet. Older
// ones can't, and find it when the bytes are used.
func populate(b []byte) {
	const madvPopulateWrite = 23
	_ = syscall.Madvise(b, madvPopulateWrite)
}
