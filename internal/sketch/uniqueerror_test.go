package sketch_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/sketch/arrive"
)

// TestUniqueError measures the error over 2,000 independent sketches: up to 2,000 items are
// added, and more are drawn. Figure unique-error of the benchmarks is the long form. Without
// -seed it is always the same run: one in some hundred others is
// beyond what is allowed, by chance.
func TestUniqueError(t *testing.T) {
	const precision, runs, added = 8, 2000, 2000
	seed := max(*seedFlag, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	few := []int{1, 10, 42, 43, 50, 70, 100, 150, 250, 500, 1000, added}
	many := []float64{1e4, 1e5, 1e6, 1e7, 1e8, 1e12}
	type errors struct {
		n                        float64
		sum, square, said, holds float64
	}
	of := make([]errors, len(few)+len(many))
	var later [][]uint64
	for range runs {
		u := sketch.NewUnique(precision)
		note := func(i int, n float64) {
			e := u.Estimate()
			d := e.Value/n - 1
			o := &of[i]
			o.n = n
			o.sum += d / runs
			o.square += d * d / runs
			o.said += e.Error / n / runs
			if e.Lower <= n && n <= e.Upper {
				o.holds += 1.0 / runs
			}
			if e.Exact != (n <= 42) {
				t.Fatalf("%v items: exact is %v", n, e.Exact)
			}
		}
		n := 0
		for i, to := range few {
			for ; n < to; n++ {
				u.Add(rnd.Uint64())
			}
			note(i, float64(to))
		}
		later = arrive.Later(rnd.ExpFloat64, precision, added, many, later)
		for i, hashes := range later {
			for _, hash := range hashes {
				u.Add(hash)
			}
			note(len(few)+i, many[i])
		}
	}
	for _, o := range of {
		theory, rmse := sketch.UniqueError(precision, o.n), math.Sqrt(o.square)
		t.Logf("%15.0f items: error %.5f, theory %.5f, said %.5f, bias %+.5f, bounds hold in %.4f", o.n, rmse, theory, o.said, o.sum, o.holds)
		if o.n <= 42 {
			if rmse != 0 || o.holds < 1-1e-9 {
				t.Errorf("%v items are listed, and the error is %v", o.n, rmse)
			}
			continue
		}
		if rmse > 1.05*theory || rmse < 0.9*theory {
			t.Errorf("%v items: the error is %.5f, in theory %.5f", o.n, rmse, theory)
		}
		if math.Abs(o.sum) > rmse/10 {
			t.Errorf("%v items: the bias is %.5f, beside an error of %.5f", o.n, o.sum, rmse)
		}
		if math.Abs(o.said/theory-1) > 0.05 || o.holds < 0.93 {
			t.Errorf("%v items: said error %.5f, in theory %.5f; bounds hold in %.4f", o.n, o.said, theory, o.holds)
		}
	}
	if t.Failed() {
		t.Logf("replay: go test ./internal/sketch -run TestUniqueError -v -args -seed=%d", seed)
	}
}

// TestUniqueBias measures the bias where it would be largest: with 16 registers, what is
// most likely is 3 percent too much on average.
func TestUniqueBias(t *testing.T) {
	const precision, runs = 4, 10_000
	rnd := rand.New(rand.NewPCG(max(*seedFlag, 1), 0))
	to := []float64{1e3, 1e6, 1e9}
	sum, square := make([]float64, len(to)), make([]float64, len(to))
	var later [][]uint64
	for range runs {
		u := sketch.NewUnique(precision)
		later = arrive.Later(rnd.ExpFloat64, precision, 0, to, later)
		for i, hashes := range later {
			for _, hash := range hashes {
				u.Add(hash)
			}
			d := u.Estimate().Value/to[i] - 1
			sum[i] += d / runs
			square[i] += d * d / runs
		}
	}
	for i, n := range to {
		if rmse := math.Sqrt(square[i]); math.Abs(sum[i]) > rmse/10 {
			t.Errorf("%v items: the bias is %.4f, beside an error of %.4f", n, sum[i], rmse)
		}
	}
}
