package sketch_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// TestUniqueAllocs holds what is done for each item, and for each state that is merged, to
// the memory that a sketch has.
func TestUniqueAllocs(t *testing.T) {
	items := hashes(4000)
	listed, registers := string(full(items[:1000]).Append(nil)), string(full(items).Append(nil))
	asks := sketch.AppendUniqueRequest(nil, sketch.PrecisionDefault, []uint64{items[3]})
	fresh := sketch.AppendUniqueRequest(nil, sketch.PrecisionDefault, []uint64{1})
	dst := make([]byte, 0, sketch.StateBytesMax)
	u := sketch.NewUnique(sketch.PrecisionDefault)
	f := func(name string, do func()) {
		t.Helper()
		if n := testing.AllocsPerRun(20, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	f("add", func() {
		u.Reset()
		for _, hash := range items { // from the first to registers
			u.Add(hash)
		}
	})
	merge := func(states ...string) func() {
		return func() {
			u.Reset()
			for _, state := range states {
				if err := u.MergeState(state); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	f("merge lists", merge(listed, listed))
	f("merge registers", merge(registers, registers))
	f("merge a list and registers", merge(listed, registers, listed))
	f("estimate", func() { u.Estimate() })
	f("decide what is known", func() { sketch.Decide(dst, registers, asks) })
	f("decide what is new", func() { sketch.Decide(dst, registers, fresh) })
	f("decide on a list", func() { sketch.Decide(dst, listed, fresh) })
	f("combine", func() { sketch.Combine(dst, asks, fresh) })
}
