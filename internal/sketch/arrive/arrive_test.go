package arrive_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch/arrive"
)

// TestLater compares how many registers and levels have an item with what is to be expected.
func TestLater(t *testing.T) {
	const precision, runs = 6, 500
	rnd := rand.New(rand.NewPCG(1, 2))
	to := []float64{100, 1000, 1e6}
	seen := make([][64]float64, len(to))
	var into [][]uint64
	for range runs {
		into = arrive.Later(rnd.ExpFloat64, precision, 50, to, into)
		if len(into) != len(to) {
			t.Fatalf("%d steps, want %d", len(into), len(to))
		}
		for i, hashes := range into {
			for _, hash := range hashes {
				for later := i; later < len(to); later++ {
					seen[later][bits.LeadingZeros64(hash<<precision|1<<(precision-1))] += 1.0 / runs
				}
			}
		}
	}
	for i, n := range to {
		for zeros := range 30 {
			share := math.Exp2(-float64(zeros + 1 + precision))
			want := 64 * -math.Expm1(-(n-50)*share)
			if got := seen[i][zeros]; math.Abs(got-want) > 5*math.Sqrt(want/runs)+0.01 {
				t.Errorf("after %v, %d zeros: %.2f registers, want %.2f", n, zeros, got, want)
			}
		}
	}
}
