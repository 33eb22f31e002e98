package wide_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/wide"
)

func TestSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum, merged wide.Sum
		want := new(big.Int)
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			n := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, -1, 0, 1})).Draw(t, "add")
			var one wide.Sum
			one.Add(n)
			merged.Merge(one)
			before := sum
			sum.Add(n)
			if sum.Less(before) != (n < 0) || before.Less(sum) != (n > 0) {
				t.Fatalf("%v and %v, after adding %d", before, sum, n)
			}
			back := sum
			if back.Sub(n); back != before {
				t.Fatalf("%v, taking %d away again: %v", sum, n, back)
			}
			want.Add(want, big.NewInt(n))
			got, ok := sum.Int64()
			if ok != want.IsInt64() || ok && got != want.Int64() || sum != merged {
				t.Fatalf("%d, %v; want %s", got, ok, want)
			}
		}
	})
}
