package sketch

import "testing"

// goodRegister reports whether items can leave a register of a sketch of precision
// p like this.
func goodRegister(r byte, p int) bool {
	below := int(r>>2) - (p - 1) // levels that there are below the highest
	switch {
	case r == 0:
		return true
	case below < 0:
		return false
	case below == 0:
		return r&3 == 0
	case below == 1:
		return r&1 == 0
	default:
		return true
	}
}

// TestBadRegister looks for every register at each place, in every precision.
func TestBadRegister(t *testing.T) {
	for p := PrecisionMin; p <= PrecisionPlain; p++ {
		for r := range 256 {
			for at := range 16 {
				registers := make([]byte, 16)
				registers[at] = byte(r)
				want := at
				if goodRegister(byte(r), p) {
					want = -1
				}
				if got := badRegister(registers, p); got != want {
					t.Fatalf("precision %d, register %d is %d: %d, want %d", p, at, r, got, want)
				}
			}
		}
	}
}

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
