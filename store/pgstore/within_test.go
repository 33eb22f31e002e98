package pgstore_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// above returns an add that wants its value, and keeps a floor.
func above(key string, n, floor int64) store.Delta {
	d := add(key, n)
	b := store.Unbounded()
	b.Low = floor
	d.Want, d.Guard.Bound = true, &b
	return d
}

// TestWithin has bounded adds be applied by the server itself, if all of them can be, and be
// decided one by one if not.
func TestWithin(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	w, err := store.Enlist(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	seq := uint64(0)
	f := func(short bool, key string, want int64, outcomes []store.Outcome, ds ...store.Delta) {
		t.Helper()
		before, _ := ways(t, s)
		b := store.Batch{Writer: w, Prev: seq, Seq: seq + 1, Deltas: ds}
		seq++
		for range 2 { // The second is a repeat.
			r, err := try(t.Context(), s, b)
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range outcomes {
				if r.Results[i].Outcome != o {
					t.Errorf("delta %d: %+v, want outcome %d", i, r.Results[i], o)
				}
			}
		}
		if after, _ := ways(t, s); (after > before) != short {
			t.Errorf("the short way: %v", after > before)
		}
		holds(t, s, key, want)
		audited(t, s)
	}
	const yes, no = store.Applied, store.Bounded
	do(t, s, add("a", 20), add("b", 20), add("c", 20))
	f(false, "free", 0, []store.Outcome{yes}, add("free", 0)) // The writer has no mark yet.
	f(true, "d", 5, []store.Outcome{yes}, add("d", 5))
	f(false, "d", 5, []store.Outcome{no}, above("d", -6, 0))
	f(true, "a", 17, []store.Outcome{yes}, above("a", -3, 0))
	f(true, "a", 11, []store.Outcome{yes, yes}, above("a", -2, 0), above("a", -4, 11)) // one cell
	f(true, "a", 10, []store.Outcome{yes, yes, yes}, above("a", -1, 0), above("b", -20, 0), add("c", 1))
	f(true, "b", 1, []store.Outcome{yes, yes}, above("b", 1, 0), once(above("c", -21, 0), "t"))
	f(true, "a", 7, []store.Outcome{yes, yes}, once(above("a", -1, 0), "u"), once(above("a", -2, 7), "v"))
	f(false, "a", 3, []store.Outcome{yes, no, yes}, above("a", -2, 0), above("a", -9, 0), above("a", -2, 0))
	f(false, "b", 0, []store.Outcome{yes, no}, once(above("b", -1, 0), "w"), once(above("b", -1, 0), "x"))
	for _, token := range []string{"x", "t"} {
		if fate, err := s.Lookup(t.Context(), at(map[string]string{"x": "b", "t": "c"}[token]), token); err != nil ||
			fate.State != map[string]store.TokenState{"x": store.TokenRefused, "t": store.TokenApplied}[token] {
			t.Errorf("%s: %+v, %v", token, fate, err)
		}
	}
	f(false, "new", 0, []store.Outcome{no}, above("new", -1, 0))
	<-time.After(2 * pgstore.ShortFor) // By then they are tried the short way again.
	f(true, "a", 2, []store.Outcome{yes}, above("a", -1, 0))

	// What is pending counts.
	execute(t, fmt.Sprintf(`select %s.add('a', -2)`, schema))
	f(false, "a", 0, []store.Outcome{no}, above("a", -1, 0))
}

// TestOneWithin has the statement for one cell keep a bound, to the last.
func TestOneWithin(t *testing.T) {
	o := pgstore.Options{Schema: newSchema()}
	do(t, open(t, server.URL(), o), add("a", 5), add("b", 5), add("c", 5))
	s := open(t, server.URL(), o) // one that has seen nothing unusual
	w, err := store.Enlist(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	up := func(key string, n, ceiling int64) store.Delta {
		d := above(key, n, math.MinInt64)
		d.Guard.Bound.High = ceiling
		return d
	}
	for i, step := range []struct {
		d     store.Delta
		want  store.Outcome
		value int64
	}{
		{add("a", 0), store.Applied, 5}, // The writer has no mark before it.
		{above("a", -3, 2), store.Applied, 2},
		{above("a", -1, 2), store.Bounded, 2},
		{above("b", -6, 0), store.Bounded, 5},
		{up("c", 6, 10), store.Bounded, 5},
		{up("c", 5, 10), store.Applied, 10},
	} {
		r, err := try(t.Context(), s, store.Batch{Writer: w, Prev: uint64(i), Seq: uint64(i + 1), Deltas: []store.Delta{step.d}})
		if err != nil || r.Results[0].Outcome != step.want {
			t.Errorf("step %d: %+v, %v", i, r, err)
		}
		holds(t, s, step.d.Cell.Key, step.value)
	}
	audited(t, s)
}
