package engine

import "unsafe"

// prefetch has the processor fetch a line of memory, and does not wait for it.
//
//go:noescape
func prefetch(p unsafe.Pointer)
