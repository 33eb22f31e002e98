package sketch

import "testing"

// TestJoinRegisters joins every register with every other, at each place of a word,
// by the set of levels that both know.
func TestJoinRegisters(t *testing.T) {
	for _, p := range []int{PrecisionMin, 4, PrecisionDefault, PrecisionPlain} {
		for a := range 256 {
			for b := range 256 {
				x, y := byte(a), byte(b)
				if !goodRegister(x, p) || !goodRegister(y, p) {
					continue
				}
				got, src := []byte{x, 0, 255, y, x, y, 255, 0}, []byte{y, x, x, x, 255, 0, y, y}
				var want []byte
				for i, r := range got {
					var one byte
					if set := levels(r) | levels(src[i]); set != 0 {
						one = register(set)
					}
					want = append(want, one)
				}
				joinRegisters(got, src)
				if string(got) != string(want) {
					t.Fatalf("precision %d: %d and %d: %v, want %v", p, a, b, got, want)
				}
			}
		}
	}
}
