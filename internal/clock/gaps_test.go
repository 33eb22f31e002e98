package clock_test

import (
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/clock"
)

// Every history of four lives and the gaps between them: a moment is as old as
// the time lived through since.
func TestGapsInEveryHistory(t *testing.T) {
	const kept = 20
	type moment struct{ at, lived int64 }
	lengths := []int64{0, 1, 2, 7, 30}
	var visit func(g clock.Gaps, now, lived int64, seen []moment, depth int)
	visit = func(g clock.Gaps, now, lived int64, seen []moment, depth int) {
		for _, m := range seen {
			age, want := g.Age(m.at, now), lived-m.lived
			if age != want && (age < want || want < kept) {
				t.Fatalf("with %v, %d is %d old at %d, want %d", g, m.at, age, now, want)
			}
		}
		if depth == 0 {
			return
		}
		for _, life := range lengths {
			for _, gap := range lengths[1:] {
				seen := append(slices.Clip(seen), moment{now, lived}, moment{now + life, lived + life})
				last := now + life
				visit(g.With(clock.Gap{AtMS: last, ByMS: gap}, kept), last+gap, lived+life, seen, depth-1)
			}
		}
	}
	visit(nil, 1000, 0, nil, 4)
}

// A process that wrote nothing down leaves no gap of its own.
func TestGapsAreReplaced(t *testing.T) {
	g := clock.Gaps{}.With(clock.Gap{AtMS: 10, ByMS: 100}, 1000).With(clock.Gap{AtMS: 10, ByMS: 70}, 1000)
	if len(g) != 1 || g.Age(5, 80) != 5 {
		t.Errorf("gaps %v make 5 %d old at 80, want 5", g, g.Age(5, 80))
	}
}

// Of too many gaps none makes anything look older than it is.
func TestGapsAreLimited(t *testing.T) {
	var g clock.Gaps
	now, lived := int64(1000), int64(0)
	for range 1000 {
		now, lived = now+1, lived+1
		g = g.With(clock.Gap{AtMS: now, ByMS: 5}, 1<<40)
		now += 5
		if len(g) > 64 {
			t.Fatalf("%d gaps", len(g))
		}
		if age := g.Age(1000, now); age != lived {
			t.Fatalf("the beginning is %d old, want %d", age, lived)
		}
		if age := g.Age(now-5, now); age != 0 {
			t.Fatalf("what was just before the gap is %d old", age)
		}
	}
}
