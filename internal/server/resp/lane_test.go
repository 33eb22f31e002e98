package resp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Additions join others in any order of keys, and each is told what it would be
// told if it came alone.
func TestLaneJoins(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var l lane // one, as a cycle is used again
	for round := range 200 {
		l.reset()
		values := map[string]int64{}
		type told struct {
			at, nth int
			want    int64
		}
		var all []told
		keys, additions := 1+random.IntN(40), random.IntN(300)
		if round%10 == 0 { // so many that it stops looking for them
			keys, additions = 50_000, 3000
		}
		for i := range additions {
			if i == 2000 {
				keys = min(keys, 1000) // some of which were looked for, and some were not
			}
			key, by, blind, times := fmt.Sprint(random.IntN(keys)), int64(1+random.IntN(2)), random.IntN(8) == 0, 1+random.IntN(3)
			at, nth, err := l.add([]byte(key), by, blind, times)
			if err != nil {
				t.Fatal(err)
			}
			if l.blind[at] != blind {
				t.Fatalf("round %d: one that asks for its value has joined one that does not; seed %d", round, seed)
			}
			for i := range times {
				values[key] += by
				all = append(all, told{at, nth + i, values[key]})
			}
		}
		// As the store decides them.
		sums := map[string]int64{}
		for i := range l.Each {
			a := &l.Each[i]
			a.Before = sums[string(l.KeyOf(a))]
			sums[string(l.KeyOf(a))] += a.N * int64(a.Times)
		}
		if stopped := l.strange >= strangeMax; stopped != (round%10 == 0) {
			t.Fatalf("round %d: it has stopped looking: %v; seed %d", round, stopped, seed)
		}
		for i, one := range all {
			if a := &l.Each[one.at]; a.Before+a.N*int64(one.nth+1) != one.want {
				t.Fatalf("round %d, addition %d is told %d, want %d; seed %d", round, i, a.Before+a.N*int64(one.nth+1), one.want, seed)
			}
		}
	}
}

// Additions to a few counters become one for each, in whatever order they come, and
// those after another command are taken the short way again when they are many.
func TestLaneHasNoCliff(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	d := New(db, Options{})
	var cycles []*cycle
	w := d.newWorker(func(c *cycle) { cycles = append(cycles, c) })
	s := d.open("", "", func() {}, func() {})
	incr := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "*2\r\n$4\r\nINCR\r\n$1\r\n%d\r\n", i%3)
		}
		return b.String()
	}
	raw := incr(1000) + "*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\n1\r\n" + incr(1000)
	for used := 0; used < len(raw); {
		n := w.gather(s, []byte(raw[used:]))
		if n == 0 {
			t.Fatal("nothing was executed")
		}
		used += n
	}
	w.flushAll()
	if len(cycles) != 2 {
		t.Fatalf("%d cycles, want 2", len(cycles))
	}
	for i, want := range []struct{ least, most, deltas int }{{3, 3 + seenFrom, 1 + singlesMax}, {3, 3 + seenFrom, 0}} {
		if c := cycles[i]; len(c.lane.Each) < want.least || len(c.lane.Each) > want.most || len(c.deltas) != want.deltas {
			t.Errorf("cycle %d has %d additions and %d deltas, want %+v", i, len(c.lane.Each), len(c.deltas), want)
		}
	}
}

// A command that panics takes back what it has added, and nothing else.
func TestLaneRecount(t *testing.T) {
	c := &cycle{}
	for range 3 {
		if err := c.add([]byte("a"), 1, false); err != nil {
			t.Fatal(err)
		}
	}
	c.of(&session{}, nil, false)
	_, _, _ = c.add([]byte("a"), 1, false), c.add([]byte("a"), 1, false), c.add([]byte("b"), 1, false)
	c.trim()
	if len(c.lane.Each) != 1 || c.lane.Each[0].Times != 3 || len(c.entries) != 3 {
		t.Errorf("%+v in %d entries, want three times", c.lane.Each, len(c.entries))
	}
}

// What is left is spelled before everything else: as a sum, unless it is none, or its
// key comes again.
func TestSpell(t *testing.T) {
	c := &cycle{}
	c.lane.Each = nil
	for _, a := range []struct {
		key   string
		n     int64
		times int
		left  bool
	}{{"a", 1, 3, true}, {"b", 2, 2, true}, {"c", 1, 4, false}, {"d", math.MaxInt64, 2, true}, {"b", 3, 2, true}} {
		at, _, err := c.lane.add([]byte(a.key), a.n, false, a.times)
		if err != nil {
			t.Fatal(err)
		}
		c.lane.Each[at].Left = a.left
	}
	if _, err := c.delta(store.OpSet, []byte("e")); err != nil {
		t.Fatal(err)
	}
	c.entries = append(c.entries, entry{kind: decided, n: 1})
	c.spell()
	var got strings.Builder
	for _, d := range c.deltas {
		fmt.Fprintf(&got, "%s%+d/%d ", d.Cell.Key, d.N, d.Writes)
	}
	if want := fmt.Sprintf("a+3/3 b+2/0 b+2/0 d%+d/0 d%+[1]d/0 b+6/2 e+0/0 ", int64(math.MaxInt64)); got.String() != want {
		t.Errorf("deltas %s, want %s", got.String(), want)
	}
	if at := c.entries[0].at; at != 6 {
		t.Errorf("the reply of the other is made of result %d, want 6", at)
	}
}

// Numbers that follow each other are written as each by itself.
func TestSums(t *testing.T) {
	f := func(v, step int64, n int) {
		t.Helper()
		got, want := encoder{out: []byte("+OK\r\n")}, encoder{out: []byte("+OK\r\n")}
		got.sums(v, step, n, false)
		for i := range n {
			want.integer(v + step*int64(i))
		}
		if string(got.out) != string(want.out) {
			t.Errorf("%d numbers from %d by %d: %q, want %q", n, v, step, got.out, want.out)
		}
	}
	for _, step := range []int64{1, -1, 0, 7} {
		for _, v := range []int64{0, 1, 8, 9, 10, 98, 99, 12_999, -3, -10, math.MaxInt64 - 2000, math.MinInt64 + 20_000} {
			f(v, step, 1)
			f(v, step, 2)
			f(v, step, 250)
		}
	}
	blind := encoder{}
	if blind.sums(5, 1, 2, true); string(blind.out) != "+OK\r\n+OK\r\n" {
		t.Errorf("blind: %q", blind.out)
	}
}

// BenchmarkSums measures what a reply costs in a pipeline to one counter.
func BenchmarkSums(b *testing.B) {
	e := encoder{out: make([]byte, 0, 1<<12)}
	for b.Loop() {
		e.out = e.out[:0]
		e.sums(1_234_567, 1, 64, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/reply")
}
