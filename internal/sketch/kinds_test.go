package sketch_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// ask returns what a request makes of a state. It must be taken.
func ask(t testing.TB, state string, asks []byte) string {
	t.Helper()
	next, changed, _, ok := sketch.Decide([]byte("x"), state, asks)
	if !ok || next[0] != 'x' {
		t.Fatalf("refused: %.40x on %.40x", asks, state)
	}
	if !changed {
		return state
	}
	if err := sketch.Check(string(next[1:])); err != nil {
		t.Fatalf("%.40x on %.40x: %v", asks, state, err)
	}
	return string(next[1:])
}

// combined returns requests made one.
func combined(t testing.TB, asks [][]byte) []byte {
	t.Helper()
	both := asks[0]
	for _, a := range asks[1:] {
		var ok bool
		if both, ok = sketch.Combine(nil, both, a); !ok {
			t.Fatalf("%.40x is not combined", a)
		}
	}
	return both
}

// refused fails if a request is taken, or changes what it must not.
func refused(t testing.TB, state string, asks []byte) {
	t.Helper()
	next, changed, answer, ok := sketch.Decide([]byte("x"), state, asks)
	if ok || changed || answer != [2]int64{} || string(next) != "x" {
		t.Errorf("%.40x on %.40x was taken", asks, state)
	}
}

// canonical fails if there are bytes that Check takes and that are not what their sketch is written
// as.
func canonical(t testing.TB, s string, rewrite func(string) (string, bool)) {
	t.Helper()
	again, ok := rewrite(s)
	if (sketch.Check(s) == nil) != ok || ok && again != s {
		t.Fatalf("%x is taken %v, and written as %x", s, ok, again)
	}
}

// spoiled changes each byte of a state, and cuts it: what is still taken has one form. No change of a byte for which
// known holds is taken.
func spoiled(t testing.TB, s string, rewrite func(string) (string, bool), known func(at int, change byte) bool) {
	t.Helper()
	for i := range len(s) {
		if sketch.Check(s[:i]) == nil {
			t.Fatalf("the first %d bytes of %x were taken", i, s)
		}
		for _, x := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
			b := []byte(s)
			b[i] ^= x
			canonical(t, string(b), rewrite)
			if known(i, x) && sketch.Check(string(b)) == nil {
				t.Fatalf("byte %d of %x changed, and was taken", i, s)
			}
		}
	}
	if sketch.Check(s+"\x00") == nil {
		t.Fatal("a byte too much was taken")
	}
}

// decides fails if Decide or Combine make bytes that they would not take.
func decides(t *testing.T, s string, a, b []byte) {
	t.Helper()
	if s != "" && sketch.Check(s) != nil {
		_, _, _, _ = sketch.Decide(nil, s, a) // does not panic
		return
	}
	next, changed, _, okA := sketch.Decide(nil, s, a)
	if okA && changed && sketch.Check(string(next)) != nil {
		t.Fatalf("%x on %x makes %x", a, s, next)
	}
	if both, ok := sketch.Combine(nil, a, b); ok {
		if next, changed, _, ok := sketch.Decide(nil, "", both); !ok || changed && sketch.Check(string(next)) != nil {
			t.Fatalf("%x and %x combine to %x, which makes %x", a, b, both, next)
		}
	}
}
