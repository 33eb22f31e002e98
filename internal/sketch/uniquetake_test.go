package sketch

import (
	"math/rand/v2"
	"testing"
)

// TestTake takes random requests into states where they are, and has Decide do the same.
func TestTake(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 7))
	taken, had, left := 0, 0, 0
	for range 300 {
		p := PrecisionMin + rng.IntN(12)
		u := NewUnique(p)
		for range rng.IntN(3 << p) {
			u.Add(rng.Uint64())
		}
		state := u.Append(nil)
		for range 30 {
			hashes := make([]uint64, rng.IntN(100))
			for i := range hashes {
				hashes[i] = rng.Uint64()
			}
			asks := AppendUniqueRequest(nil, max(PrecisionMin, p+rng.IntN(3)-1), hashes)
			next, changed, want, _ := Decide(nil, string(state), asks)
			has, ok := Takes(string(state), asks)
			switch {
			case !ok:
				left++
				continue
			case has != !changed:
				t.Fatalf("precision %d, request %x: has is %t, and it changes the state is %t", p, asks, has, changed)
			case has:
				had++
				continue
			}
			taken++
			sum := uint64(0)
			for i := range state {
				sum += uint64(next[i] - state[i])
			}
			if answer, rise := Take(state, asks); answer != want || string(state) != string(next) || rise != sum {
				t.Fatalf("precision %d, request %x: answer %x, rise %d; want %x, %d; same state: %t", p, asks, answer, rise, want, sum, string(state) == string(next))
			}
		}
	}
	if taken < 1000 || had < 100 || left < 1000 {
		t.Errorf("%d taken, %d that changed nothing, %d left to Decide: too few of one", taken, had, left)
	}
}

// TestTakesNoOther checks that what has no registers, or is no request, is left to Decide.
func TestTakesNoOther(t *testing.T) {
	u := NewUnique(5)
	for i := range uint64(100) {
		u.Add(Hash(string(rune(i))))
	}
	registers, asks := string(u.Append(nil)), AppendUniqueRequest(nil, 5, []uint64{1 << 60})
	f := func(state string, asks []byte, want bool) {
		t.Helper()
		if _, ok := Takes(state, asks); ok != want {
			t.Errorf("state %x, request %x: %t", state, asks, ok)
		}
	}
	f(registers, asks, true)
	f(registers, AppendUniqueRequest(nil, 6, []uint64{1 << 60}), true)
	f(registers, AppendUniqueRequest(nil, 4, []uint64{1 << 60}), false) // It lowers the precision.
	f(registers, []byte(registers), false)
	f(registers, nil, false)
	f(registers, asks[:len(asks)-1], false)
	f(string(NewUnique(5).Append(nil)), asks, false)
	f("", asks, false)
	f(registers[:len(registers)-1], asks, false)
	f("\x00text", asks, false)
}
