package sketch_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

// zipfian returns what draws numbers below n, of which number i comes (i+1)^s times more rarely than
// the first.
func zipfian(rnd *rand.Rand, s float64, n int) func() int {
	sums := make([]float64, n)
	sum := 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	return func() int {
		i, _ := slices.BinarySearch(sums, rnd.Float64()*sum)
		return min(i, n-1)
	}
}

func newTop(t testing.TB, k int) *sketch.Top {
	t.Helper()
	top, err := sketch.NewTop(k)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// state returns the state of a list, which must be read as the same list.
func state(t testing.TB, top *sketch.Top) string {
	t.Helper()
	b := top.Append(nil)
	if err := sketch.Check(string(b)); err != nil {
		t.Fatal(err)
	}
	again, err := sketch.ParseTop(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if string(again.Append(nil)) != string(b) {
		t.Fatal("a list is another one after it was read")
	}
	return string(b)
}

// holds fails if a bound does not hold, of an item that was counted or of one that was not.
func holds(t testing.TB, top *sketch.Top, exact map[string]int64) {
	t.Helper()
	total := int64(0)
	for item, n := range exact {
		if lower, upper := top.Bounds(item); n < lower || n > upper {
			t.Fatalf("%q was counted %d times, not %d to %d", item, n, lower, upper)
		}
		total += n
	}
	if lower, upper := top.Bounds("not counted"); lower != 0 || upper > top.Rest() {
		t.Fatalf("nothing was counted as %d to %d, with a rest of %d", lower, upper, top.Rest())
	}
	if top.Total() != total {
		t.Fatalf("total %d, want %d", top.Total(), total)
	}
}

// recall returns which part of the n first items of a list is right.
func recall(top *sketch.Top, exact map[string]int64, n int) float64 {
	counts := make([]int64, 0, len(exact))
	for _, c := range exact {
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b int64) int { return cmp.Compare(b, a) })
	right := 0
	for _, r := range top.List(n) {
		if exact[r.Item] >= counts[n-1] {
			right++
		}
	}
	return float64(right) / float64(n)
}

// TestTopZipfian counts skewed streams in one list, and in partials that are merged.
func TestTopZipfian(t *testing.T) {
	f := func(s float64) {
		t.Helper()
		rnd := random(t)
		next := zipfian(rnd, s, 1_000_000)
		whole := newTop(t, 100)
		parts := []*sketch.Top{newTop(t, 100), newTop(t, 100), newTop(t, 100), newTop(t, 100)}
		exact := map[string]int64{}
		for range 500_000 {
			item := fmt.Sprintf("item-%d", next())
			exact[item]++
			whole.Add(item, 1)
			parts[rnd.IntN(len(parts))].Add(item, 1)
		}
		merged := newTop(t, 100)
		for _, p := range parts {
			if err := merged.Merge(p); err != nil {
				t.Fatal(err)
			}
		}
		for name, top := range map[string]*sketch.Top{"whole": whole, "merged": merged} {
			state(t, top)
			holds(t, top, exact)
			if top.Rest() > top.Total()/int64(top.Len()) && name == "whole" {
				t.Errorf("s=%v: the rest is %d of %d, in %d entries", s, top.Rest(), top.Total(), top.Len())
			}
			if r := recall(top, exact, 100); r < 0.98 {
				t.Errorf("s=%v %s: recall %v", s, name, r)
			}
		}
	}
	f(1.0)
	f(1.2)
}

// topModel is a list as it is described: without heap, index or packing.
type topModel struct {
	cells map[uint64]int64
	all   map[string]sketch.Ranked
}

func (m *topModel) add(k int, item string, n int64) {
	cell := sketch.Hash(item) % 256
	r, ok := m.all[item]
	if !ok {
		r = sketch.Ranked{Item: item, Upper: m.cells[cell]}
		r.Lower += n
		r.Upper += n
		if len(m.all) == sketch.TopEntries(k) {
			least := m.list()[len(m.all)-1]
			if least.Upper >= r.Upper {
				m.cells[cell] = r.Upper
				return
			}
			delete(m.all, least.Item)
			of := sketch.Hash(least.Item) % 256
			m.cells[of] = max(m.cells[of], least.Upper)
		}
		m.all[item] = r
		return
	}
	r.Lower += n
	r.Upper += n
	m.all[item] = r
}

func (m *topModel) list() []sketch.Ranked {
	var list []sketch.Ranked
	for _, r := range m.all {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b sketch.Ranked) int {
		return cmp.Or(cmp.Compare(b.Upper, a.Upper), cmp.Compare(sketch.Hash(a.Item), sketch.Hash(b.Item)), strings.Compare(a.Item, b.Item))
	})
	return list
}

// TestTopModel compares a list with its model after each step, in memory and by requests.
func TestTopModel(t *testing.T) {
	rnd := random(t)
	for range 20 {
		k := 1 + rnd.IntN(16)
		m := topModel{cells: map[uint64]int64{}, all: map[string]sketch.Ranked{}}
		top, bytes := newTop(t, k), ""
		next := zipfian(rnd, 0.5+rnd.Float64(), 50+rnd.IntN(300))
		for range 600 {
			a := sketch.Amount{Item: fmt.Sprint(next()), N: 1 + rnd.Int64N(3)}
			m.add(k, a.Item, a.N)
			if !top.Add(a.Item, a.N) {
				t.Fatalf("%v was refused", a)
			}
			bytes = ask(t, bytes, topAdds(t, k, a))
		}
		if got, want := top.List(1000), m.list(); !slices.Equal(got, want) {
			t.Fatalf("k=%d: %v, want %v", k, got, want)
		}
		if state(t, top) != bytes {
			t.Fatal("requests come to another list than additions")
		}
	}
}

func topAdds(t testing.TB, k int, items ...sketch.Amount) []byte {
	t.Helper()
	b, err := sketch.AppendTopRequest(nil, k, items)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTopLaws makes lists by requests, combined ones, and merges, in random orders. While they are
// exact they are the same bytes; after that the bounds hold.
func TestTopLaws(t *testing.T) {
	rnd := random(t)
	for round := range 60 {
		k, items := 1+rnd.IntN(20), 60
		if round%2 == 1 {
			items = 300
		}
		exact := map[string]int64{}
		var asks [][]byte
		for range 1 + rnd.IntN(12) {
			var adds []sketch.Amount
			for range rnd.IntN(40) {
				a := sketch.Amount{Item: fmt.Sprint("item ", rnd.IntN(items)), N: 1 + rnd.Int64N(5)}
				exact[a.Item] += a.N
				adds = append(adds, a)
			}
			asks = append(asks, topAdds(t, k, adds...))
		}
		one := ""
		for _, a := range asks {
			one = ask(t, one, a)
		}
		rnd.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		both, partials := combined(t, asks), []string{ask(t, "", asks[0])}
		for _, a := range asks[1:] {
			partials = append(partials, ask(t, "", a))
		}
		left, right := partials[0], partials[len(partials)-1]
		for i := range partials[1:] {
			left = ask(t, left, mergeOf(t, partials[i+1]))
			right = ask(t, right, mergeOf(t, partials[len(partials)-2-i]))
		}
		ab, _ := sketch.Combine(nil, mergeOf(t, partials[0]), mergeOf(t, partials[len(partials)-1]))
		_ = ask(t, "", ab)
		for _, s := range []string{one, ask(t, "", both), left, right} {
			top, err := sketch.ParseTop(s)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, top, exact)
			if len(exact) <= sketch.TopEntries(k) && (s != one || top.Rest() != 0) {
				t.Fatalf("k=%d: exact lists differ:\n%q\n%q", k, s, one)
			}
		}
	}
}

func mergeOf(t testing.TB, state string) []byte {
	t.Helper()
	top, err := sketch.ParseTop(state)
	if err != nil {
		t.Fatal(err)
	}
	return top.AppendTopMerge(nil)
}

// TestTopLongItems fills a state with the longest items: bytes are the limit, and the bounds hold.
func TestTopLongItems(t *testing.T) {
	rnd := random(t)
	for _, k := range []int{1, 100, sketch.TopMax} {
		top, exact := newTop(t, k), map[string]int64{}
		next := zipfian(rnd, 1, 4000)
		for range 20_000 {
			i := next()
			item := fmt.Sprint(i, strings.Repeat("x", i%251))
			n := int64(1)
			if rnd.IntN(50) == 0 {
				n = 1 << rnd.IntN(40)
			}
			top.Add(item, n)
			exact[item] += n
		}
		holds(t, top, exact)
		if s := state(t, top); len(s) > sketch.StateBytesMax {
			t.Errorf("a state of %d bytes", len(s))
		}
		if m := top.AppendTopMerge(nil); ask(t, "", m) == "" {
			t.Error("a full list can't be merged")
		}
	}
}

// TestTopExpelling tells which item leaves the first k.
func TestTopExpelling(t *testing.T) {
	top := newTop(t, 2)
	f := func(item string, n int64, want string) {
		t.Helper()
		got, ok := top.AddExpelling(item, n)
		if got != want || ok != (want != "") {
			t.Errorf("add %d of %q: expelled %q %v, want %q", n, item, got, ok, want)
		}
	}
	f("foo", 3, "")
	f("bar", 5, "")
	f("baz", 10, "foo")
	f("baz", 1, "")
	f("qux", 1, "")
	f("foo", 9, "bar")
	f("", 20, "baz")
	f(strings.Repeat("x", 256), 100, "")
	for item, want := range map[string]bool{"": true, "foo": true, "baz": false, "qux": false, "none": false} {
		if top.Has(item) != want {
			t.Errorf("has %q: %v", item, !want)
		}
	}
}

// TestTopExpellingRandomly compares who leaves the first k with the list before and after.
func TestTopExpellingRandomly(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		k := 1 + rnd.IntN(300)
		top, names := newTop(t, k), []string{"", strings.Repeat("n", 240)}
		for range 3000 {
			item := names[rnd.IntN(2)] + strconv.Itoa(rnd.IntN(2*sketch.TopEntries(k)))
			before := top.List(k)
			got, ok := top.AddExpelling(item, 1+rnd.Int64N(5))
			want := ""
			if len(before) == k {
				if last := before[k-1].Item; !top.Has(last) {
					want = last
				}
			}
			if got != want || ok != (want != "") {
				t.Fatalf("a list of %d, %q: expelled %q %v, want %q (seed %d)", k, item, got, ok, want, seed)
			}
		}
	}
}

// TestTopChanges compares two windows.
func TestTopChanges(t *testing.T) {
	before, now := newTop(t, 3), newTop(t, 3)
	for item, n := range map[string]int64{"old": 50, "same": 40, "risen": 5} {
		before.Add(item, n)
	}
	for item, n := range map[string]int64{"new": 9, "same": 40, "risen": 25} {
		now.Add(item, n)
	}
	want := []sketch.Change{{"risen", 20, 20}, {"new", 9, 9}, {"same", 0, 0}, {"old", -50, -50}}
	if got := sketch.Changes(now, before, 10); !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
	if got := sketch.Changes(now, before, 1); !slices.Equal(got, want[:1]) {
		t.Errorf("changes %v", got)
	}

	rnd := random(t)
	next := zipfian(rnd, 1, 3000)
	wasN, isN := map[string]int64{}, map[string]int64{}
	for range 20_000 {
		a, b := fmt.Sprint(next()), fmt.Sprint(next())
		before.Add(a, 1)
		wasN[a]++
		now.Add(b, 2)
		isN[b] += 2
	}
	for _, c := range sketch.Changes(now, before, 1000) {
		if d := isN[c.Item] - wasN[c.Item]; c.Item[0] <= '9' && (d < c.Lower || d > c.Upper) {
			t.Errorf("%v changed by %d", c, d)
		}
	}
}

// TestTopSaturates counts beyond an int64.
func TestTopSaturates(t *testing.T) {
	top := newTop(t, 1)
	for i := range 100 {
		top.Add(fmt.Sprint(i%70), math.MaxInt64/3)
	}
	state(t, top)
	if top.Total() != math.MaxInt64 {
		t.Errorf("total %d", top.Total())
	}
	for i := range 70 {
		if lower, upper := top.Bounds(fmt.Sprint(i)); lower < 0 || upper < lower || upper < math.MaxInt64/3 {
			t.Errorf("bounds %d %d", lower, upper)
		}
	}
	if err := top.Merge(top); err != nil {
		t.Error(err)
	}
	state(t, top)
}

// TestTopRefuses asks for what can't be.
func TestTopRefuses(t *testing.T) {
	top := newTop(t, 5)
	if top.Add("a", 0) || top.Add("a", -1) || top.Add(strings.Repeat("a", 256), 1) || top.Total() != 0 {
		t.Error("a wrong addition was taken")
	}
	for _, k := range []int{-1, 0, sketch.TopMax + 1} {
		if _, err := sketch.NewTop(k); err == nil {
			t.Errorf("k=%d was taken", k)
		}
		if _, err := sketch.AppendTopRequest(nil, k, nil); err == nil {
			t.Errorf("k=%d was taken", k)
		}
	}
	for _, a := range []sketch.Amount{{"a", 0}, {"a", -1}, {strings.Repeat("a", 256), 1}} {
		if _, err := sketch.AppendTopRequest(nil, 5, []sketch.Amount{a}); err == nil {
			t.Errorf("%v was taken", a)
		}
	}
	if err := top.Merge(newTop(t, 6)); err == nil {
		t.Error("lists of 5 and 6 were merged")
	}
	five, six := topAdds(t, 5, sketch.Amount{Item: "a", N: 1}), topAdds(t, 6, sketch.Amount{Item: "a", N: 1})
	refused(t, ask(t, "", five), six)
	refused(t, ask(t, "", five), newTop(t, 6).AppendTopMerge(nil))
	if _, ok := sketch.Combine(nil, five, six); ok {
		t.Error("requests of two lists were combined")
	}
	if _, ok := sketch.Combine(nil, five, top.AppendTopMerge(nil)); ok {
		t.Error("an addition and a merge were combined")
	}
	refused(t, "", append(slices.Clone(five), five[4:]...)) // twice
	refused(t, "", five[:len(five)-1])
	// Without items it makes the list, once.
	made := ask(t, "", topAdds(t, 5))
	if _, changed, _, ok := sketch.Decide(nil, made, topAdds(t, 5)); changed || !ok {
		t.Error("a list is made twice")
	}
}

// TestTopAnswers are the bounds of one item, or the total before and after several.
func TestTopAnswers(t *testing.T) {
	f := func(state string, want [2]int64, items ...sketch.Amount) string {
		t.Helper()
		next, _, answer, _ := sketch.Decide(nil, state, topAdds(t, 1, items...))
		if answer != want {
			t.Errorf("answer %v, want %v", answer, want)
		}
		return string(next)
	}
	s := f("", [2]int64{0, 0})
	s = f(s, [2]int64{3, 3}, sketch.Amount{Item: "a", N: 3})
	s = f(s, [2]int64{3, 8}, sketch.Amount{Item: "a", N: 3}, sketch.Amount{Item: "b", N: 2})
	f(s, [2]int64{7, 7}, sketch.Amount{Item: "a", N: 1})
}

func rewriteTop(s string) (string, bool) {
	top, err := sketch.ParseTop(s)
	if err != nil {
		return "", false
	}
	return string(top.Append(nil)), true
}

// TestTopBadBytes changes each byte of states, and cuts them: what is still taken has one form.
func TestTopBadBytes(t *testing.T) {
	exact, full := newTop(t, 3), newTop(t, 3)
	for i := range 20 {
		exact.Add(fmt.Sprint("item ", i), int64(1+i/3))
	}
	for i := range 90 {
		full.Add(fmt.Sprint("item ", i), int64(1+i/3))
	}
	for _, top := range []*sketch.Top{newTop(t, 1), exact, full} {
		spoiled(t, state(t, top), rewriteTop, func(int, byte) bool { return false })
	}
}

// FuzzTop reads any bytes as a list, and takes any as what is asked of it.
func FuzzTop(f *testing.F) {
	top := newTop(f, 2)
	for i := range 70 {
		top.Add(fmt.Sprint(i), int64(i+1))
	}
	adds := topAdds(f, 2, sketch.Amount{Item: "a", N: 3}, sketch.Amount{Item: "b", N: 1})
	f.Add(state(f, top), adds, topAdds(f, 2))
	f.Add("", top.AppendTopMerge(nil), top.AppendTopMerge(nil))
	f.Fuzz(func(t *testing.T, s string, a, b []byte) {
		if s == "" || s[0] == byte(sketch.KindTop) {
			canonical(t, s, rewriteTop)
		}
		if top, err := sketch.ParseTop(s); err == nil {
			if n, err := sketch.TopTotal(s); err != nil || n != top.Total() {
				t.Fatalf("%x: total %d, %v, and of the list %d", s, n, err, top.Total())
			}
		}
		decides(t, s, a, b)
	})
}

// TestTopGolden holds the bytes to what they were.
func TestTopGolden(t *testing.T) {
	exact, full := newTop(t, 2), newTop(t, 1)
	exact.Add("likes", 300)
	exact.Add("views", 7)
	for i := range 80 {
		full.Add(fmt.Sprint("item ", i), int64(1+i))
	}
	golden(t, "testdata/top.txt", []string{"2 items, k 2", "80 items, k 1", "a request for 2 items", "a request to merge 2 items"}, [][]byte{
		exact.Append(nil), full.Append(nil),
		topAdds(t, 100, sketch.Amount{Item: "b", N: 200}, sketch.Amount{Item: "a", N: 1}), exact.AppendTopMerge(nil),
	})
}

// topEntry is an entry as its bytes say it.
type topEntry struct {
	upper, over int64
	item        string
}

// topBytes returns the bytes of a list, right or wrong.
func topBytes(k int, total int64, cells []int64, entries ...topEntry) string {
	b := []byte{byte(sketch.KindTop), 1}
	for _, n := range []int64{int64(k), total, int64(len(entries)), int64(len(cells))} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, n := range cells {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, e := range entries {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(e.upper)), uint64(e.over))
		b = append(append(b, byte(len(e.item))), e.item...)
	}
	return string(b)
}

// TestTopWrongStates makes lists that are wrong in one thing each.
func TestTopWrongStates(t *testing.T) {
	f := func(why, s string) {
		t.Helper()
		if (sketch.Check(s) == nil) != (why == "") {
			t.Errorf("%q: taken is %v", why, sketch.Check(s) == nil)
		}
		if why != "" {
			// One item is taken in by a walk that looks at no more than it needs.
			refused(t, s, topAdds(t, 1, sketch.Amount{Item: "x", N: 1}, sketch.Amount{Item: "y", N: 1}))
		}
	}
	none, one := make([]int64, 256), make([]int64, 256)
	one[7] = 1
	f("", topBytes(1, 0, nil))
	f("", topBytes(1, 5, nil, topEntry{3, 0, "a"}, topEntry{2, 0, "b"}))
	f("", topBytes(1, 5, one, topEntry{3, 1, "a"}, topEntry{2, 0, "b"}))
	f("cells that are all 0", topBytes(1, 5, none, topEntry{3, 0, "a"}, topEntry{2, 0, "b"}))
	f("some of the cells", topBytes(1, 5, one[:9], topEntry{3, 0, "a"}))
	f("a cell above the total", topBytes(1, 5, append(one[1:], 6), topEntry{3, 0, "a"}))
	f("less than the total, and no cells", topBytes(1, 6, nil, topEntry{3, 0, "a"}, topEntry{2, 0, "b"}))
	f("more than the total", topBytes(1, 4, one, topEntry{3, 0, "a"}, topEntry{2, 0, "b"}))
	f("an entry above the total", topBytes(1, 5, one, topEntry{6, 4, "a"}))
	f("an error without cells", topBytes(1, 4, nil, topEntry{3, 1, "a"}, topEntry{2, 0, "b"}))
	f("nothing but error", topBytes(1, 5, one, topEntry{3, 3, "a"}))
	f("nothing counted", topBytes(1, 0, nil, topEntry{0, 0, "a"}))
	f("the same item twice", topBytes(1, 5, nil, topEntry{3, 0, "a"}, topEntry{2, 0, "a"}))
	f("the wrong order", topBytes(1, 5, nil, topEntry{2, 0, "b"}, topEntry{3, 0, "a"}))
	f("a number in two bytes that fits one", string([]byte{byte(sketch.KindTop), 1, 0x81, 0, 0, 0, 0}))
	f("k of 0", topBytes(0, 0, nil))
	f("k above the limit", topBytes(sketch.TopMax+1, 0, nil))

	var many []topEntry
	total := int64(0)
	for n := int64(400); n > 0; n-- {
		many = append(many, topEntry{n, 0, fmt.Sprintf("%0140d", n)})
		total += n
	}
	f("items for which a full state has no room", topBytes(100, total, nil, many...))
	many = many[len(many)-300:]
	f("", topBytes(100, 300*301/2, nil, many...))

	// A request to merge what is no list of its k.
	six := append(topAdds(t, 5)[:3], 2)
	six = append(six, topBytes(6, 0, nil)...)
	refused(t, "", six)
	if _, ok := sketch.Combine(nil, six, six); ok {
		t.Error("merges of another k were combined")
	}
}
