package sketch_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// seeds gives a fuzz target pairs of states and requests of every kind to begin with.
func seeds(f *testing.F) {
	f.Helper()
	list := sketch.AppendUniqueRequest(nil, 4, []uint64{1, 1 << 63})
	finer := sketch.AppendUniqueRequest(nil, 6, []uint64{1, 2, 3, 5 << 60})
	registers := sketch.AppendUniqueRequest(nil, 4, hashes(60))
	empty := sketch.AppendUniqueRequest(nil, 3, nil)
	all := [][]byte{nil, list, finer, registers, empty, {1, 1, 15, 1}, {9, 1}}
	for _, a := range all {
		for _, b := range all {
			f.Add(string(a), b)
		}
	}
}

// FuzzDecide decides any request on any state. What becomes of a good state is a good one.
func FuzzDecide(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, state string, asks []byte) {
		was, asked := string([]byte(state)), string(asks)
		dst := []byte("before")
		next, changed, answer, ok := sketch.Decide(dst, state, asks)
		if state != was || string(asks) != asked || string(next[:6]) != "before" {
			t.Fatal("decide changed what it was given")
		}
		if changed && !ok || !ok && answer != [2]int64{} {
			t.Fatalf("refused, and changed %v, answer %v", changed, answer)
		}
		again, changedAgain, answerAgain, okAgain := sketch.Decide(nil, state, asks)
		if changedAgain != changed || answerAgain != answer || okAgain != ok || changed && string(again) != string(next[6:]) {
			t.Fatal("decided in two ways")
		}
		if !changed || state != "" && sketch.Check(state) != nil {
			return
		}
		if err := sketch.Check(string(next[6:])); err != nil {
			t.Fatalf("a good state became %x: %v", next[6:], err)
		}
	})
}

// FuzzCombine combines any requests. What comes of good ones has the effect of both.
func FuzzCombine(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, first string, b []byte) {
		a := []byte(first)
		both, ok := sketch.Combine([]byte("before"), a, b)
		if string(a) != first || string(both[:6]) != "before" {
			t.Fatal("combine changed what it was given")
		}
		if !ok || sketch.Kind(both[6]) != sketch.KindUnique {
			return // The numbers of other kinds may depend on the order: they have targets of their own.
		}
		state := ""
		for _, asks := range [][]byte{a, b} {
			next, changed, _, ok := sketch.Decide(nil, state, asks)
			if !ok {
				t.Fatalf("%x is combined, and refused", asks)
			}
			if changed {
				state = string(next)
			}
		}
		if next, _, _, ok := sketch.Decide(nil, "", both[6:]); !ok || string(next) != state {
			t.Fatalf("combined: %x, one after the other: %x", next, state)
		}
	})
}

// FuzzCheck checks any state. One that is good is counted.
func FuzzCheck(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, state string, _ []byte) {
		u, err := sketch.ParseUnique(state)
		if bad := sketch.Check(state); (bad == nil) != (err == nil) && state != "" && sketch.Kind(state[0]) == sketch.KindUnique {
			t.Fatalf("checked: %v, parsed: %v", bad, err)
		}
		if err != nil {
			return
		}
		if e := u.Estimate(); !(e.Value >= 0 && e.Lower >= 0 && e.Upper >= e.Lower && e.Upper < 1e21 && e.Error >= 0) {
			t.Fatalf("%+v", e)
		}
		if string(u.Append(nil)) != state {
			t.Fatal("a state is not what it was")
		}
	})
}
