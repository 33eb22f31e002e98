package sketch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

func newFilter(t testing.TB, s sketch.FilterShape) *sketch.Filter {
	t.Helper()
	f, err := sketch.NewFilter(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func filterAsks(t testing.TB, s sketch.FilterShape, hashes ...uint64) []byte {
	t.Helper()
	b, err := sketch.AppendFilterRequest(nil, s, hashes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFilterShape cuts filters into states.
func TestFilterShape(t *testing.T) {
	f := func(capacity int64, rate float64, expansion, strength, chunks int) {
		t.Helper()
		s, err := sketch.FilterShapeFor(capacity, rate, expansion)
		if err != nil {
			t.Fatal(err)
		}
		n, each, err := s.Chunks()
		if err != nil || s.Strength != strength || n != chunks || s.Rate() > rate {
			t.Errorf("%d %v: strength %d, %d chunks of %v: %v", capacity, rate, s.Strength, n, each, err)
		}
		newFilter(t, each)
	}
	f(100, 0.01, 2, 7, 1)
	f(100, 0.01, 0, 7, 1)
	f(1, 0.5, 1, 1, 1)
	f(1, 3e-10, 255, 32, 1)
	f(50_000, 0.01, 0, 7, 1)
	f(52_000, 0.01, 0, 7, 2)
	f(1_000_000, 0.01, 0, 7, 20)
	f(1_000_000, 0.01, 2, 7, 457)
	f(30_000_000, 0.01, 2, 7, 1024)
	bad := func(capacity int64, rate float64, expansion int) {
		t.Helper()
		if s, err := sketch.FilterShapeFor(capacity, rate, expansion); err == nil {
			t.Errorf("%d %v %d: %v", capacity, rate, expansion, s)
		}
	}
	bad(0, 0.01, 2)
	bad(-1, 0.01, 2)
	bad(math.MaxInt64, 0.01, 2)
	bad(100_000_000, 0.01, 2)
	bad(100, 0.01, -1)
	bad(100, 0.01, 256)
	for _, rate := range []float64{0, 1, -1, math.NaN(), math.Inf(1), 1e-11} {
		bad(100, rate, 2)
	}
	if _, err := sketch.NewFilter(sketch.FilterShape{Capacity: 1 << 30, Strength: 7}); err == nil {
		t.Error("a filter of several states was taken for one")
	}
}

// TestFilterErrors fills filters to the end, and looks for items that were not added. It finds every item that was, and
// others as rarely as was asked.
func TestFilterErrors(t *testing.T) {
	rnd := random(t)
	f := func(s sketch.FilterShape, items, least int) {
		t.Helper()
		n, each, err := s.Chunks()
		if err != nil {
			t.Fatal(err)
		}
		chunks := make([]*sketch.Filter, n)
		for i := range chunks {
			chunks[i] = newFilter(t, each)
		}
		var in []uint64
		found, full := 0, false
		for len(in) < items && !full {
			h := rnd.Uint64()
			switch added, ok := chunks[sketch.ChunkOf(h, n)].Add(h); {
			case !ok:
				full = true
			default:
				if !added {
					found++
				}
				in = append(in, h)
			}
		}
		if len(in) < least {
			t.Errorf("%v: full with %d items", s, len(in))
		}
		counted := int64(0)
		for _, c := range chunks {
			if _, err := sketch.ParseFilter(string(c.Append(nil))); err != nil {
				t.Fatal(err)
			}
			i := c.Info()
			counted += i.Items
			if i.Error > s.Rate() || !i.Exact {
				t.Errorf("%v: %+v", s, i)
			}
		}
		if counted != int64(len(in)-found) {
			t.Errorf("%v: %d items of %d", s, counted, len(in))
		}
		for _, h := range in {
			if !chunks[sketch.ChunkOf(h, n)].Has(h) {
				t.Fatalf("%v: an item is lost", s)
			}
		}
		const others = 50_000
		wrong := 0
		for range others {
			h := rnd.Uint64()
			if chunks[sketch.ChunkOf(h, n)].Has(h) {
				wrong++
			}
		}
		// Five standard deviations.
		if likely := s.Rate() * others; float64(wrong) > likely+5*math.Sqrt(likely)+5 {
			t.Errorf("%v with %d items: %d of %d others are found, %.0f were asked for", s, len(in), wrong, others, likely)
		}
	}
	shape := func(capacity, strength, expansion int) sketch.FilterShape {
		return sketch.FilterShape{Capacity: capacity, Strength: strength, Expansion: expansion}
	}
	f(shape(1, 7, 0), 1000, 1)
	f(shape(10, 20, 0), 1000, 10)
	f(shape(1000, 7, 0), 100_000, 1000)
	f(shape(1000, 7, 0), 1000, 1000)
	f(shape(40_000, 3, 0), 100_000, 40_000)
	f(shape(60_000, 7, 0), 100_000, 60_000)
	f(shape(100, 7, 2), 100_000, 20_000)
	f(shape(100, 1, 4), 100_000, 20_000)
	f(shape(5, 10, 1), 10_000, 5*30)
	f(shape(30_000, 10, 2), 60_000, 60_000)
}

// TestFilterLaws makes filters by requests, combined ones, and merges, in random orders. A merge
// is associative, commutative and idempotent to the byte. In one part the bits are the same whatever the order.
func TestFilterLaws(t *testing.T) {
	rnd := random(t)
	for range 200 {
		shape := sketch.FilterShape{Capacity: 20 + rnd.IntN(300), Strength: 1 + rnd.IntN(12), Expansion: 1 + rnd.IntN(3)}
		var all []uint64
		var asks [][]byte
		var states []string
		for range 3 {
			var hashes []uint64
			for range rnd.IntN(200) {
				hashes = append(hashes, sketch.Hash(string(rune('a'+rnd.IntN(500)))))
			}
			all = append(all, hashes...)
			a := filterAsks(t, shape, hashes...)
			asks, states = append(asks, a), append(states, ask(t, "", a))
		}
		a, b, c := states[0], states[1], states[2]
		if rnd.IntN(4) == 0 {
			c = a
		}
		m := func(x, y string) string { return ask(t, x, filterMergeOf(t, y)) }
		if m(a, m(b, c)) != m(m(a, b), c) || m(a, b) != m(b, a) || m(a, a) != a || m(m(a, b), m(a, b)) != m(a, b) {
			t.Fatalf("%v: merges differ", shape)
		}
		if x, ok := sketch.Combine(nil, filterMergeOf(t, b), filterMergeOf(t, c)); !ok || ask(t, a, x) != m(m(a, b), c) {
			t.Fatal("combined merges differ")
		}
		one, both := "", combined(t, asks)
		for _, x := range asks {
			one = ask(t, one, x)
		}
		once := ask(t, "", both)
		again := ask(t, once, both)
		for _, s := range []string{one, once, again, m(m(states[0], states[1]), states[2])} {
			for _, h := range all {
				if !sketch.FilterHas(s, h) {
					t.Fatalf("%v: an item is lost", shape)
				}
			}
		}
		if again != once || one[5] == 1 && once[5] == 1 && one[18:] != once[18:] {
			t.Fatalf("%v: bits differ", shape)
		}
	}
}

func filterMergeOf(t testing.TB, s string) []byte {
	t.Helper()
	f, err := sketch.ParseFilter(s)
	if err != nil {
		t.Fatal(err)
	}
	return f.AppendFilterMerge(nil)
}

// TestFilterInfo tells of a filter that grows, is merged and is full.
func TestFilterInfo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	shape := sketch.FilterShape{Capacity: 100, Strength: 7, Expansion: 2}
	f := newFilter(t, shape)
	if i := f.Info(); i.Items != 0 || i.Capacity != 100 || i.Parts != 1 || i.Full || i.Error != 0 {
		t.Errorf("empty: %+v", i)
	}
	for range 250 {
		f.Add(rnd.Uint64())
	}
	i := f.Info()
	if i.Items < 245 || i.Capacity != 300 || i.Parts != 2 || i.Full || !i.Exact || i.Bytes != len(f.Append(nil)) || i.Shape != shape {
		t.Errorf("with 250 items: %+v", i)
	}
	o := newFilter(t, shape)
	for range 250 {
		o.Add(rnd.Uint64())
	}
	if err := f.Merge(o); err != nil {
		t.Fatal(err)
	}
	if i = f.Info(); i.Exact || i.Items < 450 || i.Items > 550 || i.Error <= shape.Rate() {
		t.Errorf("merged: %+v", i)
	}
	if next, _, answer, ok := sketch.Decide(nil, string(f.Append(nil)), filterAsks(t, shape, 1)); !ok || answer != [2]int64{1, -1} || sketch.Check(string(next)) != nil {
		t.Errorf("a merged filter answers %v %v", answer, ok)
	}

	shape.Expansion = 0
	full := newFilter(t, shape)
	n := int64(0)
	for {
		added, ok := full.Add(rnd.Uint64())
		if !ok {
			break
		}
		if added {
			n++
		}
	}
	if i := full.Info(); !i.Full || i.Items != n || n < 100 || i.Capacity != 100 {
		t.Errorf("full with %d: %+v", n, i)
	}
	// One that is new is refused, one that is there is not.
	s, h := string(full.Append(nil)), rnd.Uint64()
	for sketch.FilterHas(s, h) {
		h = rnd.Uint64()
	}
	refused(t, s, filterAsks(t, shape, h))
	for !sketch.FilterHas(s, h) {
		h = rnd.Uint64()
	}
	if _, changed, answer, ok := sketch.Decide(nil, s, filterAsks(t, shape, h)); changed || !ok || answer != [2]int64{0, n} {
		t.Errorf("an item that is there: %v %v %v", changed, answer, ok)
	}
}

// TestFilterRefuses asks for what can't be.
func TestFilterRefuses(t *testing.T) {
	shape := sketch.FilterShape{Capacity: 10, Strength: 7, Expansion: 2}
	good := filterAsks(t, shape, 5)
	refused(t, "", append(slices.Clone(good), good[10:]...))
	refused(t, "", good[:len(good)-1])
	refused(t, "", good[:5])
	other := shape
	other.Strength++
	refused(t, ask(t, "", good), filterAsks(t, other, 5))
	refused(t, ask(t, "", good), newFilter(t, other).AppendFilterMerge(nil))
	if newFilter(t, shape).Merge(newFilter(t, other)) == nil {
		t.Error("filters that differ were merged")
	}
	if _, ok := sketch.Combine(nil, good, filterAsks(t, other, 5)); ok {
		t.Error("requests of two filters were combined")
	}
	if _, ok := sketch.Combine(nil, good, newFilter(t, shape).AppendFilterMerge(nil)); ok {
		t.Error("an addition and a merge were combined")
	}
	other.Expansion = 0
	if _, ok := sketch.Combine(nil, filterAsks(t, other, 5), filterAsks(t, other, 6)); ok {
		t.Error("additions were combined of which one may be refused")
	}
	if _, err := sketch.AppendFilterRequest(nil, sketch.FilterShape{}, nil); err == nil {
		t.Error("no shape was taken")
	}
	if _, err := sketch.AppendFilterRequest(nil, shape, make([]uint64, 10_000)); err != nil {
		t.Error("the same item many times was refused")
	}
	many := make([]uint64, 10_000)
	for i := range many {
		many[i] = uint64(i)
	}
	if _, err := sketch.AppendFilterRequest(nil, shape, many); err == nil {
		t.Error("a request that is too long was taken")
	}
	made := ask(t, "", filterAsks(t, shape))
	if _, changed, _, ok := sketch.Decide(nil, made, filterAsks(t, shape)); changed || !ok {
		t.Error("a filter is made twice")
	}
}

func rewriteFilter(s string) (string, bool) {
	f, err := sketch.ParseFilter(s)
	if err != nil {
		return "", false
	}
	return string(f.Append(nil)), true
}

// TestFilterBadBytes changes each byte of states. A bit that changes is not the number of ones.
func TestFilterBadBytes(t *testing.T) {
	shape := sketch.FilterShape{Capacity: 4, Strength: 3, Expansion: 2}
	one, many, merged := newFilter(t, shape), newFilter(t, shape), newFilter(t, shape)
	one.Add(1)
	for i := range uint64(30) {
		many.Add(sketch.Hash(string(rune('a' + i))))
	}
	merged.Add(7)
	if err := merged.Merge(many); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*sketch.Filter{newFilter(t, shape), one, many, merged} {
		spoiled(t, string(f.Append(nil)), rewriteFilter, func(at int, change byte) bool { return at >= 18 && change != 255 })
	}
}

// FuzzFilter reads any bytes as a filter, and takes any as what is asked of it.
func FuzzFilter(f *testing.F) {
	shape := sketch.FilterShape{Capacity: 4, Strength: 3, Expansion: 2}
	x := newFilter(f, shape)
	for i := range uint64(30) {
		x.Add(i)
	}
	f.Add(string(x.Append(nil)), filterAsks(f, shape, 1, 99), filterAsks(f, shape))
	f.Add("", x.AppendFilterMerge(nil), x.AppendFilterMerge(nil))
	f.Fuzz(func(t *testing.T, s string, a, b []byte) {
		if s == "" || s[0] == byte(sketch.KindFilter) {
			canonical(t, s, rewriteFilter)
		}
		decides(t, s, a, b)
	})
}

// TestFilterGolden holds the bytes to what they were.
func TestFilterGolden(t *testing.T) {
	shape := sketch.FilterShape{Capacity: 3, Strength: 7, Expansion: 2}
	small, large := newFilter(t, shape), newFilter(t, shape)
	small.Add(sketch.Hash("likes"))
	for i := range uint64(20) {
		large.Add(sketch.Hash(string(rune('a' + i))))
	}
	golden(t, "testdata/filter.txt", []string{"1 item", "20 items", "a request for 2 items", "a request to merge 1 item"}, [][]byte{
		small.Append(nil), large.Append(nil), filterAsks(t, shape, 2, 1, 2), small.AppendFilterMerge(nil),
	})
}

// TestFilterWrongStates makes filters that are wrong in one thing each.
func TestFilterWrongStates(t *testing.T) {
	shape := sketch.FilterShape{Capacity: 4, Strength: 3, Expansion: 2}
	filter := newFilter(t, shape)
	if added, ok := filter.Add(1); !added || !ok {
		t.Error("a new item is not new")
	}
	if added, ok := filter.Add(1); added || !ok || filter.Info().Items != 1 {
		t.Error("an item is new twice")
	}
	one, empty := filter.Append(nil), newFilter(t, shape).Append(nil)
	many := newFilter(t, shape)
	for many.Info().Parts < 2 {
		many.Add(sketch.Hash(string(rune('a' + many.Info().Items))))
	}
	tail := len(many.Append(nil)) - len(one) // a second part
	f := func(why string, b []byte, change func([]byte) []byte) {
		t.Helper()
		if err := sketch.Check(string(change(slices.Clone(b)))); (err == nil) != (why == "") {
			t.Errorf("%q: %v", why, err)
		}
	}
	items := func(n byte) func([]byte) []byte {
		return func(b []byte) []byte { b[10] = n; return b }
	}
	f("", one, items(1))
	f("", one, items(2)) // when one is taken for the other in one order only
	f("too few items", one, items(0))
	f("too many items", one, items(one[18]+1))
	f("items of nothing", empty, items(1))
	f("merged from nothing", empty, func(b []byte) []byte { b[2] = 1; return b })
	f("merged, and the items are known", one, func(b []byte) []byte { b[2] = 1; return b })
	f("more ones than half", one, func(b []byte) []byte {
		for i := 22; i < len(b); i++ {
			b[i] = 0xff
		}
		b[18], b[10] = byte(8*(len(b)-22)), byte(len(b)-22)*4
		return b
	})
	second := func(ones byte) func([]byte) []byte {
		return func(b []byte) []byte {
			b[5] = 2
			b = append(b, make([]byte, tail)...)
			b[len(one)], b[len(one)+4] = ones, ones
			b[10] += ones
			return b
		}
	}
	f("a second part when the first is not full", one, second(1))
	f("a second part that is empty", many.Append(nil)[:len(one)], second(0))
	f("no part", one, func(b []byte) []byte { b[5] = 0; return b })

	two := string(items(2)(slices.Clone(one)))
	if a, b := ask(t, two, filterMergeOf(t, string(one))), ask(t, string(one), filterMergeOf(t, two)); a != two || b != two {
		t.Errorf("merged %x and %x", a, b)
	}
	merge := filterAsks(t, shape)
	merge[2], merge[3] = 2, 4
	merge = append(merge, one...)
	refused(t, "", merge)
	if _, ok := sketch.Combine(nil, merge, merge); ok {
		t.Error("merges of another shape were combined")
	}
}

// TestFilterFresh adds items that have to be new, until there is no room.
func TestFilterFresh(t *testing.T) {
	shape := sketch.FilterShape{Capacity: 64, Strength: 10, Expansion: 4}
	rnd := random(t)
	s, items, found := "", 0, 0
	for {
		h := rnd.Uint64()
		next, changed, answer, ok := sketch.Decide(nil, s, sketch.AppendFilterFresh(nil, shape, h))
		if !ok && answer[0] == sketch.NoRoom {
			break
		}
		if !ok {
			if found++; answer != [2]int64{} || !sketch.FilterHas(s, h) {
				t.Fatalf("item %d is refused, %v", items, answer)
			}
			continue
		}
		if items++; !changed || answer != [2]int64{1, int64(items)} || sketch.Check(string(next)) != nil {
			t.Fatalf("item %d: %v", items, answer)
		}
		s = string(next)
		if _, changed, answer, ok := sketch.Decide(nil, s, sketch.AppendFilterFresh(nil, shape, h)); ok || changed || answer != [2]int64{} {
			t.Fatalf("item %d is new twice", items)
		}
	}
	if items < 10_000 || found > items/200 {
		t.Errorf("full with %d items, and %d that were taken for one", items, found)
	}
	one := sketch.AppendFilterFresh(nil, shape, 1)
	if _, ok := sketch.Combine(nil, one, sketch.AppendFilterFresh(nil, shape, 2)); ok {
		t.Error("requests were combined of which one may be refused")
	}
	if _, ok := sketch.Combine(nil, one, filterAsks(t, shape, 2)); ok {
		t.Error("a request that may be refused was combined with one that is not")
	}
	refused(t, "", one[:len(one)-1])
	refused(t, s, sketch.AppendFilterFresh(nil, sketch.FilterShape{Capacity: 65, Strength: 10, Expansion: 4}, 1))
}
