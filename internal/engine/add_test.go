package engine_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/engine"
)

// TestHotEvicted checks that the cell of the last add is not taken for the one
// that has its place after it was evicted.
func TestHotEvicted(t *testing.T) {
	e := open(t, newMemDisk(), engine.Options{})
	e.EvictAlways()
	for range 2 { // The second add finds it in memory.
		do(t, e, add(cell("a"), 1))
	}
	checkpoint(t, e)
	do(t, e, add(cell("b"), 1), add(cell("c"), 1)) // They need its room,
	do(t, e, add(cell("d"), 1), add(cell("e"), 1)) // and one of these takes its place.
	do(t, e, add(cell("d"), 1))
	do(t, e, add(cell("a"), 1))
	for key, n := range map[string]int64{"a": 3, "b": 1, "c": 1, "d": 2, "e": 1} {
		holds(t, e, cell(key), n)
	}
	audited(t, e)
	mustClose(t, e)
}
