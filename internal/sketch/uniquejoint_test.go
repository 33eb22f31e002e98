package sketch_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// TestCompare compares sets of known overlap, many times: the errors must be those that are
// said, the bounds must hold as often as they say, and subtracting estimates of the
// whole sets must not be better.
func TestCompare(t *testing.T) {
	const runs = 400
	rnd := random(t)
	f := func(pa, pb int, n ...int) {
		t.Helper()
		var square, said [3]float64
		var held [3]int
		var subtracted float64
		for range runs {
			a, b := sketch.NewUnique(pa), sketch.NewUnique(pb)
			for range n[0] {
				a.Add(rnd.Uint64())
			}
			for range n[1] {
				b.Add(rnd.Uint64())
			}
			for range n[2] {
				hash := rnd.Uint64()
				a.Add(hash)
				b.Add(hash)
			}
			before := fmt.Sprint(a, b)
			onlyA, onlyB, both := sketch.Compare(a, b)
			if fmt.Sprint(a, b) != before {
				t.Fatal("comparing changed a sketch")
			}
			for i, e := range []sketch.Estimate{onlyA, onlyB, both} {
				d := e.Value - float64(n[i])
				square[i] += d * d / runs
				said[i] += e.Error * e.Error / runs
				if e.Lower-1 <= float64(n[i]) && float64(n[i]) <= e.Upper+1 {
					held[i]++
				}
			}
			x, y := a.Estimate().Value, b.Estimate().Value
			a.Merge(b)
			d := x + y - a.Estimate().Value - float64(n[2])
			subtracted += d * d / runs
		}
		for i := range n {
			rmse, sigma := math.Sqrt(square[i]), math.Sqrt(said[i])
			if rmse > 1.2*sigma+1 || n[i] > 0 && rmse < 0.8*sigma-1 {
				t.Errorf("%d and %d, %v: error of %d is %.1f, said %.1f", pa, pb, n, i, rmse, sigma)
			}
			if share := float64(held[i]) / runs; share < 0.85 {
				t.Errorf("%d and %d, %v: bounds of %d hold in %.3f", pa, pb, n, i, share)
			}
		}
		if rmse := math.Sqrt(square[2]); rmse > 1.1*math.Sqrt(subtracted)+1 {
			t.Errorf("%d and %d, %v: error %.1f, by subtracting %.1f", pa, pb, n, rmse, math.Sqrt(subtracted))
		}
	}
	f(9, 9, 3000, 3000, 3000)
	f(9, 9, 3000, 3000, 300)
	f(9, 9, 3000, 3000, 0)
	f(9, 9, 10000, 0, 1000)
	f(9, 9, 0, 0, 3000)
	f(9, 11, 3000, 5000, 1000)
	f(9, 9, 3000, 20, 20) // one lists its items
}

// TestCompareLists compares sketches that list their items.
func TestCompareLists(t *testing.T) {
	f := func(n ...int) {
		t.Helper()
		a, b := sketch.NewUnique(12), sketch.NewUnique(13)
		items := hashes(n[0] + n[1] + n[2])
		for i, hash := range items {
			if i < n[0] || i >= n[0]+n[1] {
				a.Add(hash)
			}
			if i >= n[0] {
				b.Add(hash)
			}
		}
		var got [3]sketch.Estimate
		got[0], got[1], got[2] = sketch.Compare(a, b)
		for i, e := range got {
			want := float64(n[i])
			if !e.Exact || e.Value != want || e.Lower != want || e.Upper != want || e.Error != 0 {
				t.Errorf("%v: number %d is %+v", n, i, e)
			}
		}
	}
	f(0, 0, 0)
	f(1, 0, 0)
	f(0, 3, 0)
	f(0, 0, 5)
	f(100, 200, 300)
}

// TestCompareAnything compares states that no items have made.
func TestCompareAnything(t *testing.T) {
	rnd := random(t)
	for range 60 {
		var us [2]*sketch.Unique
		for i := range us {
			p := 3 + rnd.IntN(4)
			b := append([]byte{1, 1, byte(p), 1}, make([]byte, 1<<p)...)
			for j := range 1 << p {
				switch rnd.IntN(3) {
				case 0:
					b[4+j] = 255
				case 1:
					b[4+j] = byte(rnd.IntN(256-4*p-4) + 4*p + 4)
				}
			}
			b[4] = 255
			u, err := sketch.ParseUnique(string(b))
			if err != nil {
				t.Fatal(err)
			}
			us[i] = u
		}
		onlyA, onlyB, both := sketch.Compare(us[0], us[1])
		for _, e := range []sketch.Estimate{onlyA, onlyB, both, us[0].Estimate()} {
			for _, x := range []float64{e.Value, e.Error, e.Lower, e.Upper} {
				if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 || x > 1e21 {
					t.Fatalf("%+v", e)
				}
			}
		}
	}
}
