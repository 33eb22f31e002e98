//go:build !amd64

package engine

import "unsafe"

// prefetch loads a line of memory. The processor goes on as far as it can without.
//
//go:noinline
func prefetch(p unsafe.Pointer) { _ = load((*byte)(p)) }

//go:noinline
func load(p *byte) byte { return *p }
