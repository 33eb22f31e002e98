package sketch_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

func newFrequency(t testing.TB, s sketch.FrequencyShape) *sketch.Frequency {
	t.Helper()
	f, err := sketch.NewFrequency(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func frequencyAsks(t testing.TB, s sketch.FrequencyShape, items ...sketch.HashAmount) []byte {
	t.Helper()
	b, err := sketch.AppendFrequencyRequest(nil, s, items)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFrequencyShape cuts sketches into states.
func TestFrequencyShape(t *testing.T) {
	f := func(epsilon, delta float64, width, depth, chunks, each int) {
		t.Helper()
		s, err := sketch.FrequencyShapeFor(epsilon, delta)
		if err != nil {
			t.Fatal(err)
		}
		n, one, err := s.Chunks()
		if err != nil || s.Width != width || s.Depth != depth || n != chunks || one.Width != each || one.Depth != depth {
			t.Errorf("%v %v: %v, in %d of %v: %v", epsilon, delta, s, n, one, err)
		}
		newFrequency(t, one)
	}
	f(0.01, 0.01, 200, 7, 1, 200)
	f(0.001, 0.01, 2000, 7, 2, 1000)
	f(0.001, 0.002, 2000, 9, 3, 667)
	f(0.5, 0.9, 4, 1, 1, 4)
	bad := func(s sketch.FrequencyShape) {
		t.Helper()
		if _, _, err := s.Chunks(); err == nil {
			t.Errorf("%v was taken", s)
		}
		if _, err := sketch.NewFrequency(s); err == nil {
			t.Errorf("%v was taken", s)
		}
	}
	bad(sketch.FrequencyShape{})
	bad(sketch.FrequencyShape{Width: 10, Depth: -1})
	bad(sketch.FrequencyShape{Width: 10, Depth: 65})
	bad(sketch.FrequencyShape{Width: math.MaxInt, Depth: 64})
	bad(sketch.FrequencyShape{Width: 1 << 23, Depth: 1})
	if _, err := sketch.NewFrequency(sketch.FrequencyShape{Width: 10_000, Depth: 5}); err == nil {
		t.Error("a sketch of several states was taken for one")
	}
	for _, x := range []float64{0, 1, -1, math.NaN(), math.Inf(1)} {
		if _, err := sketch.FrequencyShapeFor(x, 0.1); err == nil {
			t.Errorf("epsilon %v was taken", x)
		}
		if _, err := sketch.FrequencyShapeFor(0.1, x); err == nil {
			t.Errorf("delta %v was taken", x)
		}
	}
	if _, err := sketch.FrequencyShapeFor(1e-300, 0.1); err == nil {
		t.Error("an epsilon of next to nothing was taken")
	}
}

// TestFrequencyZipfian counts skewed streams, in one state and in several, and compares with an exact
// map: no estimate is too low, and as few are too high as is stated.
func TestFrequencyZipfian(t *testing.T) {
	f := func(s float64, shape sketch.FrequencyShape) {
		t.Helper()
		next := zipfian(random(t), s, 50_000)
		n, each, err := shape.Chunks()
		if err != nil {
			t.Fatal(err)
		}
		chunks := make([]*sketch.Frequency, n)
		for i := range chunks {
			chunks[i] = newFrequency(t, each)
		}
		exact := map[uint64]int64{}
		for range 80_000 {
			h := sketch.Hash(fmt.Sprint(next()))
			exact[h]++
			if !chunks[sketch.ChunkOf(h, n)].Add(h, 1) {
				t.Fatal("refused")
			}
		}
		low, likely := 0, 0.0
		for h, want := range exact {
			c := chunks[sketch.ChunkOf(h, n)].Count(h)
			if c.Upper < want {
				t.Fatalf("an item was counted %d times, and not %d", want, c.Upper)
			}
			if c.Lower > want {
				low++
			}
			likely += 1 - c.Confidence
		}
		// What is likely is spread by the few counters that large items share.
		if float64(low) > 2*likely+10 {
			t.Errorf("zipf %v, %v: %d of %d lower bounds are wrong, %.0f are likely", s, shape, low, len(exact), likely)
		}
	}
	for _, s := range []float64{1, 1.2} {
		for _, depth := range []int{1, 3, 7} {
			f(s, sketch.FrequencyShape{Width: 500, Depth: depth})
			f(s, sketch.FrequencyShape{Width: 500, Depth: depth, Conservative: true})
		}
		f(s, sketch.FrequencyShape{Width: 5000, Depth: 7})
		f(s, sketch.FrequencyShape{Width: 30_000, Depth: 3, Conservative: true})
	}
}

// TestFrequencyLaws makes sketches by requests, combined ones, and merges, in random orders. Unless they are
// conservative they are the same bytes.
func TestFrequencyLaws(t *testing.T) {
	rnd := random(t)
	for range 200 {
		shape := sketch.FrequencyShape{Width: 1 + rnd.IntN(60), Depth: 1 + rnd.IntN(8), Conservative: rnd.IntN(3) == 0}
		exact := map[uint64]int64{}
		var asks [][]byte
		most := int64(1) << rnd.IntN(63)
		for range 1 + rnd.IntN(10) {
			var items []sketch.HashAmount
			for range rnd.IntN(20) {
				a := sketch.HashAmount{Hash: sketch.Hash(fmt.Sprint(rnd.IntN(100))), N: 1 + rnd.Int64N(most)}
				if exact[a.Hash] += a.N; exact[a.Hash] < 0 {
					exact[a.Hash] = math.MaxInt64
				}
				items = append(items, a)
			}
			asks = append(asks, frequencyAsks(t, shape, items...))
		}
		one := ""
		for _, a := range asks {
			one = ask(t, one, a)
		}
		rnd.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		both, left, right := combined(t, asks), ask(t, "", asks[0]), ask(t, "", asks[len(asks)-1])
		for i, a := range asks[1:] {
			left = ask(t, left, frequencyMergeOf(t, ask(t, "", a)))
			right = ask(t, frequencyStateOf(t, asks[len(asks)-2-i]), frequencyMergeOf(t, right))
		}
		for _, s := range []string{one, ask(t, "", both), left, right} {
			if !shape.Conservative && s != one {
				t.Fatalf("%v: bytes differ:\n%x\n%x", shape, s, one)
			}
			for h, want := range exact {
				c, ok := sketch.FrequencyCount(s, h)
				if !ok || c.Upper < want {
					t.Fatalf("%v: %d is counted as %v", shape, want, c)
				}
			}
		}
	}
}

func frequencyStateOf(t testing.TB, asks []byte) string { return ask(t, "", asks) }

func frequencyMergeOf(t testing.TB, s string) []byte {
	t.Helper()
	f, err := sketch.ParseFrequency(s)
	if err != nil {
		t.Fatal(err)
	}
	return f.AppendFrequencyMerge(nil)
}

// TestFrequencyTakes counts and takes away: what is left is the same bytes as what was never there.
func TestFrequencyTakes(t *testing.T) {
	rnd := random(t)
	for range 200 {
		shape := sketch.FrequencyShape{Width: 1 + rnd.IntN(40), Depth: 1 + rnd.IntN(5)}
		f, want := newFrequency(t, shape), newFrequency(t, shape)
		var there []sketch.HashAmount
		for range 30 {
			a := sketch.HashAmount{Hash: rnd.Uint64(), N: 1 + rnd.Int64N(1<<rnd.IntN(50))}
			f.Add(a.Hash, a.N)
			if rnd.IntN(2) == 0 {
				want.Add(a.Hash, a.N)
			} else {
				there = append(there, a)
			}
		}
		s := string(f.Append(nil))
		for _, a := range there {
			if !f.Add(a.Hash, -a.N) {
				t.Fatal("refused")
			}
			a.N = -a.N
			s = ask(t, s, frequencyAsks(t, shape, a))
		}
		if string(f.Append(nil)) != string(want.Append(nil)) || s != string(want.Append(nil)) {
			t.Fatalf("%v: something is left", shape)
		}
	}
	shape := sketch.FrequencyShape{Width: 50, Depth: 4}
	f := newFrequency(t, shape)
	f.Add(1, 5)
	if f.Add(1, -6) || f.Add(2, -1) || f.Add(1, 0) || f.Add(1, math.MinInt64) || f.Total() != 5 {
		t.Error("more was taken than there was")
	}
	s := string(f.Append(nil))
	refused(t, s, frequencyAsks(t, shape, sketch.HashAmount{Hash: 1, N: -3}, sketch.HashAmount{Hash: 2, N: -1}))
	take := frequencyAsks(t, shape, sketch.HashAmount{Hash: 1, N: -1}, sketch.HashAmount{Hash: 1, N: -2})
	if next, _, answer, ok := sketch.Decide(nil, s, take); !ok || answer != [2]int64{2, 2} {
		t.Errorf("took 3 of 5: %v %v %x", ok, answer, next)
	}
	if _, ok := sketch.Combine(nil, take, take); ok {
		t.Error("two that take were combined")
	}
	f.Add(1, math.MaxInt64)
	if f.Add(1, -1) || f.Total() != math.MaxInt64 {
		t.Error("a sketch that has reached the largest number gave some of it back")
	}
	if c := f.Count(1); c != (sketch.Count{Lower: 0, Upper: math.MaxInt64, Confidence: 1}) {
		t.Errorf("bounds at the largest number: %v", c)
	}
	if _, err := sketch.ParseFrequency(string(f.Append(nil))); err != nil {
		t.Error(err)
	}
	shape.Conservative = true
	c := newFrequency(t, shape)
	c.Add(1, 5)
	if c.Add(1, -1) {
		t.Error("something was taken from a conservative sketch")
	}
	if _, err := sketch.AppendFrequencyRequest(nil, shape, []sketch.HashAmount{{Hash: 1, N: -1}}); err == nil {
		t.Error("a request would take from a conservative sketch")
	}
}

// TestFrequencyMerge merges with a weight, as CMS.MERGE does.
func TestFrequencyMerge(t *testing.T) {
	shape := sketch.FrequencyShape{Width: 300, Depth: 4}
	a, b := newFrequency(t, shape), newFrequency(t, shape)
	a.Add(1, 10)
	b.Add(1, 3)
	b.Add(2, 1000)
	if err := a.Merge(b, 2); err != nil || a.Total() != 2016 || a.Count(1).Upper != 16 || a.Count(2).Upper != 2000 {
		t.Errorf("merged: %v, %d, %v, %v", err, a.Total(), a.Count(1), a.Count(2))
	}
	if err := a.Merge(b, math.MaxInt64); err != nil || a.Count(1).Upper != math.MaxInt64 {
		t.Errorf("merged: %v, %v", err, a.Count(1))
	}
	if _, err := sketch.ParseFrequency(string(a.Append(nil))); err != nil {
		t.Error(err)
	}
	other := newFrequency(t, sketch.FrequencyShape{Width: 300, Depth: 4, Conservative: true})
	if a.Merge(b, -1) == nil || a.Merge(other, 1) == nil {
		t.Error("a wrong merge was taken")
	}
	refused(t, string(a.Append(nil)), other.AppendFrequencyMerge(nil))
	if _, ok := sketch.Combine(nil, a.AppendFrequencyMerge(nil), other.AppendFrequencyMerge(nil)); ok {
		t.Error("merges of two shapes were combined")
	}
}

// TestFrequencyRefuses asks for what can't be.
func TestFrequencyRefuses(t *testing.T) {
	shape := sketch.FrequencyShape{Width: 9, Depth: 2}
	one := sketch.HashAmount{Hash: 7, N: 1}
	good := frequencyAsks(t, shape, one)
	refused(t, "", append(slices.Clone(good), good[8:]...))
	refused(t, "", good[:len(good)-1])
	refused(t, "", good[:5])
	refused(t, ask(t, "", good), frequencyAsks(t, sketch.FrequencyShape{Width: 8, Depth: 2}, one))
	for _, items := range [][]sketch.HashAmount{{{1, 0}}, {{1, 1}, {2, -1}}, {{1, -1}, {2, 1}}, {{1, math.MinInt64}}} {
		if _, err := sketch.AppendFrequencyRequest(nil, shape, items); err == nil {
			t.Errorf("%v was taken", items)
		}
	}
	if _, err := sketch.AppendFrequencyRequest(nil, shape, make([]sketch.HashAmount, 1)); err == nil {
		t.Error("nothing was taken")
	}
	if _, err := sketch.AppendFrequencyRequest(nil, sketch.FrequencyShape{}, nil); err == nil {
		t.Error("no shape was taken")
	}
	made := ask(t, "", frequencyAsks(t, shape))
	if _, changed, _, ok := sketch.Decide(nil, made, frequencyAsks(t, shape)); changed || !ok {
		t.Error("a sketch is made twice")
	}
}

func rewriteFrequency(s string) (string, bool) {
	f, err := sketch.ParseFrequency(s)
	if err != nil {
		return "", false
	}
	return string(f.Append(nil)), true
}

// TestFrequencyBadBytes changes each byte of states. In a plain sketch each row adds up, so that each change of a
// counter is seen.
func TestFrequencyBadBytes(t *testing.T) {
	for _, conservative := range []bool{false, true} {
		for _, n := range []int64{0, 1, 300, 1 << 20, 1 << 40} {
			f := newFrequency(t, sketch.FrequencyShape{Width: 7, Depth: 3, Conservative: conservative})
			if n > 0 {
				f.Add(1, n)
				f.Add(2, 5)
			}
			spoiled(t, string(f.Append(nil)), rewriteFrequency, func(at int, _ byte) bool { return !conservative && at >= 8 })
		}
	}
}

// FuzzFrequency reads any bytes as a sketch, and takes any as what is asked of it.
func FuzzFrequency(f *testing.F) {
	shape := sketch.FrequencyShape{Width: 5, Depth: 2}
	x := newFrequency(f, shape)
	x.Add(1, 300)
	f.Add(string(x.Append(nil)), frequencyAsks(f, shape, sketch.HashAmount{Hash: 1, N: -3}), frequencyAsks(f, shape))
	f.Add("", x.AppendFrequencyMerge(nil), x.AppendFrequencyMerge(nil))
	shape.Conservative = true
	f.Add("", frequencyAsks(f, shape, sketch.HashAmount{Hash: 1, N: 3}), frequencyAsks(f, shape, sketch.HashAmount{Hash: 2, N: 1 << 40}))
	f.Fuzz(func(t *testing.T, s string, a, b []byte) {
		if s == "" || s[0] == byte(sketch.KindFrequency) {
			canonical(t, s, rewriteFrequency)
		}
		decides(t, s, a, b)
	})
}

// TestFrequencyGolden holds the bytes to what they were.
func TestFrequencyGolden(t *testing.T) {
	shape := sketch.FrequencyShape{Width: 11, Depth: 3}
	small := newFrequency(t, shape)
	small.Add(sketch.Hash("likes"), 3)
	large := newFrequency(t, sketch.FrequencyShape{Width: 4, Depth: 2, Conservative: true})
	for i := range 9 {
		large.Add(sketch.Hash(fmt.Sprint(i)), 1<<(5*i))
	}
	golden(t, "testdata/frequency.txt", []string{
		"1 item, 3 rows of 11", "9 items, 2 rows of 4, conservative", "a request for 2 items", "a request to take 1 item", "a request to merge 1 item",
	}, [][]byte{
		small.Append(nil), large.Append(nil),
		frequencyAsks(t, shape, sketch.HashAmount{Hash: 2, N: 300}, sketch.HashAmount{Hash: 1, N: 1}),
		frequencyAsks(t, shape, sketch.HashAmount{Hash: 2, N: -300}), small.AppendFrequencyMerge(nil),
	})
}

// TestFrequencyWrongStates makes sketches that are wrong in one thing each.
func TestFrequencyWrongStates(t *testing.T) {
	shape := sketch.FrequencyShape{Width: 2, Depth: 2, Conservative: true}
	head := []byte{byte(sketch.KindFrequency), 1, 0x80, 2, 2, 0, 0, 0}
	f := func(why string, flags, total byte, counters ...byte) {
		t.Helper()
		b := slices.Concat(head, []byte{total, 0, 0, 0, 0, 0, 0, 0}, counters)
		b[2] |= flags
		if err := sketch.Check(string(b)); (err == nil) != (why == "") {
			t.Errorf("%q: %v", why, err)
		}
	}
	f("", 0, 5, 5, 0, 2, 3)
	f("", 0, 5, 4, 0, 2, 1)
	f("a row above the total", 0, 5, 5, 1, 2, 3)
	f("a row of nothing", 0, 5, 0, 0, 2, 3)
	f("longer counters than needed", 1, 5, 5, 0, 0, 0, 2, 0, 3, 0)
	f("a counter too many", 0, 5, 5, 0, 2, 3, 0)

	negative := slices.Concat(head, []byte{0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0})
	refused(t, string(negative), frequencyAsks(t, shape, sketch.HashAmount{Hash: 1, N: 1}))
	if _, ok := sketch.FrequencyCount(string(negative), 1); ok {
		t.Error("a state with a negative total has a count")
	}
	merge := frequencyAsks(t, shape)
	merge[2], merge[4] = 0x83, 3
	merge = newFrequency(t, shape).Append(merge)
	refused(t, "", merge)
	if _, ok := sketch.Combine(nil, merge, merge); ok {
		t.Error("merges of another shape were combined")
	}
}
