//go:build !linux

package engine

// adviseHuge does nothing where huge pages can't be asked for.
func adviseHuge([]byte) {}
