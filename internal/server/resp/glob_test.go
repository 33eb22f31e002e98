package resp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Whichever way a pattern is matched, the result is the same; also for a subject that was others before.
func TestMatchBothWays(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("QUIPU_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	defer func() {
		if t.Failed() {
			t.Logf("replay with: QUIPU_SEED=%d go test -run TestMatchBothWays ./internal/server/resp", seed)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 0))
	const bytes = "aaaabbc*?[]^-\\\x00\x3f\x40\x7f\x80\xbf\xc0\xff"
	pieces := []string{"*", "*", "?", "a", "b", "ab", "[ab]", "[^a]", "[a-c]", "[", "]", "^", "-", "\\", "[\x00-\xff]", "[\xff-\x40]", "[^\\]]", "[^]", "[b\\-a]"}
	var used subject
	found := 0
	for range 100_000 {
		var pattern, s strings.Builder
		for range r.IntN(12) {
			if r.IntN(8) == 0 {
				pattern.WriteByte(bytes[r.IntN(len(bytes))])
			} else {
				pattern.WriteString(pieces[r.IntN(len(pieces))])
			}
		}
		size := r.IntN(12)
		if r.IntN(4) == 0 {
			size = r.IntN(200)
		}
		for range size {
			s.WriteByte(bytes[r.IntN(1+r.IntN(len(bytes)))])
		}
		want, _, _ := walk(pattern.String(), s.String(), math.MaxInt)
		used.set(s.String())
		if got := used.simulate(pattern.String()); got != want {
			t.Fatalf("simulate(%q, %q) = %v, want %v", pattern.String(), s.String(), got, want)
		}
		if got := used.matches(pattern.String()); got != want {
			t.Fatalf("matches(%q, %q) = %v, want %v", pattern.String(), s.String(), got, want)
		}
		if want {
			found++
		}
	}
	if found < 2_000 {
		t.Errorf("only %d of the patterns matched", found)
	}
}

// hostilePatterns are those that make one name cost most, of so many bytes each and together.
func hostilePatterns(each, total int) map[string][]string {
	all := make(map[string][]string)
	for name, piece := range map[string]string{"any": "?", "literal": "c", "everything": "[^]", "range": "[\x00-\xff]", "not": "[^x]", "stars": "*c"} {
		for i := 0; i < total/each; i++ {
			end := fmt.Sprintf("[bd]%04d*", i)
			p := "a:*" + strings.Repeat(piece, (each-3-len(end))/len(piece)) + end
			all[name] = append(all[name], p)
		}
	}
	return all
}

func BenchmarkHostilePatterns(b *testing.B) {
	name := "a:" + strings.Repeat("c", 1022)
	for _, each := range []int{32, patternListenedBytesMax} {
		for kind, patterns := range hostilePatterns(each, patternBytesOfUserMax) {
			b.Run(fmt.Sprint(kind, "/", each), func(b *testing.B) {
				for b.Loop() {
					var n subject
					n.set(name)
					for _, p := range patterns {
						n.matches(p)
					}
					b.ReportMetric(float64(n.steps), "steps")
				}
			})
		}
	}
}
