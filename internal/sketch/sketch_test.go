package sketch_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

var seedFlag = flag.Uint64("seed", 0, "replay the random tests with this seed")

// random returns the randomness of a test, and says how to replay it if it fails.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay: go test ./internal/sketch -run '^%s$' -args -seed=%d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// TestHash holds the hash of items to what it was.
func TestHash(t *testing.T) {
	f := func(item string, want uint64) {
		t.Helper()
		if got := sketch.Hash(item); got != want {
			t.Errorf("hash of %q: %#x, want %#x", item, got, want)
		}
	}
	f("", 0xf23e4326644f0f71)
	f("a", 0xa1961e06d2568a66)
	f("visitor-17", 0x803e466196df7679)
	f("a longer item, of more than a hundred and twenty-eight bytes, takes another way through the hash than those which are short: xxxxxxxxxxxx", 0xbcfa6912dfd0542f)
}

// TestRefuses gives Decide, Combine and Check what no kind can be.
func TestRefuses(t *testing.T) {
	f := func(state string, asks []byte) {
		t.Helper()
		dst := []byte("before")
		next, changed, answer, ok := sketch.Decide(dst, state, asks)
		if ok || changed || answer != [2]int64{} || string(next) != "before" {
			t.Errorf("decide %x on %x: %x %v %v %v", asks, state, next, changed, answer, ok)
		}
	}
	good := sketch.AppendUniqueRequest(nil, 5, []uint64{1})
	f("", nil)
	f("", []byte{0})
	f("", []byte{255, 1, 5, 0})
	f("", make([]byte, sketch.StateBytesMax+1))
	f("\x00", good)
	f("\x02"+string(good[1:]), good)
	f(string(good[:3]), good)
	f(string(good)+"x", good)
	if both, ok := sketch.Combine([]byte("b"), good, []byte{9}); ok || string(both) != "b" {
		t.Errorf("combined requests of two kinds: %x", both)
	}
	if both, ok := sketch.Combine([]byte("b"), []byte{9}, []byte{9}); ok || string(both) != "b" {
		t.Errorf("combined requests of no kind: %x", both)
	}
	for _, state := range []string{"", "\x00", "\xff123", string(make([]byte, sketch.StateBytesMax+1))} {
		if err := sketch.Check(state); !errors.Is(err, sketch.ErrBad) {
			t.Errorf("check %.10x: %v", state, err)
		}
	}
}

// decide returns what a state becomes, which must be a state.
func decide(t *testing.T, state string, asks []byte) (next string, changed bool) {
	t.Helper()
	b, changed, answer, ok := sketch.Decide(nil, state, asks)
	if !ok {
		t.Fatalf("decide %.20x on %.20x: refused", asks, state)
	}
	if want := map[bool]int64{true: 1}[changed]; answer[0] != want || !changed && answer[1] != 0 {
		t.Fatalf("changed %v, and answers %v", changed, answer)
	}
	if !changed {
		return state, false
	}
	if err := sketch.Check(string(b)); err != nil {
		t.Fatalf("decide %.20x on %.20x: %v", asks, state, err)
	}
	return string(b), true
}

// TestUniqueLaws makes the same set by random additions, requests, combinations and
// merges in random orders: the bytes must be the same.
func TestUniqueLaws(t *testing.T) {
	rnd := random(t)
	for range 300 {
		lowest, highest := 3+rnd.IntN(8), 0
		set := make([]uint64, rnd.IntN(3<<lowest))
		for i := range set {
			set[i] = rnd.Uint64() >> (rnd.IntN(2) * rnd.IntN(64))
		}
		pieces := make([][]byte, 1+rnd.IntN(5))
		for i := range pieces {
			p := lowest + rnd.IntN(4)
			if i == 0 {
				p = lowest
			}
			highest = max(highest, p)
			var some []uint64
			for _, hash := range set {
				if i == 0 || rnd.IntN(2) == 0 {
					some = append(some, hash)
				}
			}
			if i == 0 && len(pieces) > 1 {
				some = some[:rnd.IntN(len(some)+1)]
			}
			if i == len(pieces)-1 {
				some = append([]uint64(nil), set...)
			}
			pieces[i] = sketch.AppendUniqueRequest(nil, p, some)
		}
		direct := sketch.NewUnique(lowest)
		for _, i := range rnd.Perm(len(set)) {
			direct.Add(set[i])
			if direct.Add(set[i]) {
				t.Fatal("an item that is there changed a sketch")
			}
		}
		want := string(direct.Append(nil))
		f := func(how, got string) {
			t.Helper()
			if got != want {
				t.Fatalf("%s: %d items, precisions %d to %d:\n%.200x, want\n%.200x", how, len(set), lowest, highest, got, want)
			}
		}
		state := ""
		for _, i := range rnd.Perm(len(pieces)) {
			state, _ = decide(t, state, pieces[i])
			if _, again := decide(t, state, pieces[i]); again {
				t.Fatal("a request changed what it had made")
			}
		}
		f("decided one by one", state)
		trees := append([][]byte(nil), pieces...)
		for len(trees) > 1 {
			i := rnd.IntN(len(trees) - 1)
			both, ok := sketch.Combine(nil, trees[i], trees[i+1])
			if !ok {
				t.Fatal("requests do not combine")
			}
			trees = append(append(trees[:i:i], both), trees[i+2:]...)
		}
		state, _ = decide(t, "", trees[0])
		f("combined", state)
		for _, first := range []int{lowest, sketch.PrecisionPlain} {
			merged := sketch.NewUnique(first)
			for _, i := range rnd.Perm(len(pieces)) {
				if err := merged.MergeState(string(pieces[i])); err != nil {
					t.Fatal(err)
				}
			}
			f("merged", string(merged.Append(nil)))
		}
	}
}

// TestUniqueBadBytes changes each byte of states: what Check lets through must be a
// state of its own, which Decide keeps to the byte.
func TestUniqueBadBytes(t *testing.T) {
	f := func(want bool, b ...byte) {
		t.Helper()
		if err := sketch.Check(string(b)); (err == nil) != want {
			t.Errorf("check %x: %v", b, err)
		}
		if _, _, _, ok := sketch.Decide(nil, "", b); ok != want {
			t.Errorf("decide %x: %v", b, ok)
		}
	}
	list := func(tokens ...byte) []byte { return append([]byte{1, 1, 5, 0}, tokens...) }
	f(true, list()...)
	f(true, list(0, 0, 0, 0, 0, 21)...)
	f(false, list(0, 0, 0, 0, 0, 22)...)
	f(false, list(0, 0, 0, 0, 0)...)
	f(true, list(0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2)...)
	f(false, list(0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1)...)
	f(false, list(0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 2)...)
	f(true, list(bytes.Repeat([]byte{0}, 0)...)...)
	long := list()
	for i := range byte(6) {
		long = append(long, 0, 0, 0, 0, i, 0)
	}
	f(false, long...)
	f(true, long[:len(long)-6]...)
	registers := func(p byte, head ...byte) []byte {
		b := append([]byte{1, 1, p, 1}, make([]byte, 1<<p)...)
		copy(b[4:], head)
		return b
	}
	for _, p := range []byte{3, 5, 13, 15} {
		f(false, registers(p)...)
		for r := range 256 {
			k := r/4 - int(p) + 1
			f(k > 1 || k == 1 && r&1 == 0 || k == 0 && r&3 == 0, registers(p, byte(r))...)
			f(r == 0 || k > 1 || k == 1 && r&1 == 0 || k == 0 && r&3 == 0, registers(p, 255, byte(r))...)
		}
		f(false, registers(p, 255)[:4+1<<p-1]...)
		f(false, append(registers(p, 255), 0)...)
	}
	f(false, registers(2, 255)...)
	f(false, 1, 2, 5, 0)
	f(false, 1, 1, 16, 0)
	f(false, 1, 1, 5, 2)
	f(false, 1, 1, 5)
}

func ExampleUnique() {
	today := sketch.NewUnique(sketch.PrecisionDefault)
	for i := range 10 {
		today.Add(sketch.Hash(fmt.Sprint("visitor-", i%4)))
	}
	fmt.Println(today.Exact(), today.Estimate().Value)
	// Output: true 4
}

// TestUniquePrecision asks for precisions that no state has.
func TestUniquePrecision(t *testing.T) {
	f := func(precision int, want bool, do func()) {
		t.Helper()
		defer func() {
			if got := recover() != nil; got != want {
				t.Errorf("precision %d: panics %v, want %v", precision, got, want)
			}
		}()
		do()
	}
	for _, p := range []int{-1, 0, sketch.PrecisionMin - 1, sketch.PrecisionMin, sketch.PrecisionPlain, sketch.PrecisionPlain + 1, 64} {
		bad := p < sketch.PrecisionMin || p > sketch.PrecisionPlain
		f(p, bad, func() { sketch.NewUnique(p) })
		f(p, bad, func() { sketch.AppendUniqueRequest(nil, p, hashes(1)) })
	}
}
