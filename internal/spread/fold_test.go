package spread

import (
	"math"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// outcomes is the answer to a call that applies batches: every delta has the same
// outcome.
func outcomes(calls []call, o store.Outcome) []answer {
	a := answer{replies: make([]store.Reply, len(calls[0].apply))}
	for i := range a.replies {
		a.replies[i].Results = slices.Repeat([]store.Result{{Outcome: o}}, len(calls[0].apply[i].Deltas))
	}
	return []answer{a}
}

// A fold whose mark home refuses looks again, and closes nothing: if home has lost its
// layout, a split can find the shards only while they are open.
func TestFoldUnmarked(t *testing.T) {
	m := (&core{partitions: 3}).newFold(subject)
	m.next(nil)
	calls := m.next([]answer{{values: []store.Value{{Exists: true, Version: 1, Layout: int64(hot.Home(7, 3))}}}})
	if m.at != foldMarked {
		t.Fatalf("it waits for answer %d", m.at)
	}
	calls = m.next(outcomes(calls, store.Unmet))
	if m.at != foldHome || len(calls) != 1 || !slices.Equal(calls[0].read, []store.Cell{subject}) {
		t.Errorf("then it makes %+v", calls)
	}
}

// Taking in depends on the version at which it was judged that the sum stays in
// int64: at first, and for ever if home or the sum is far from zero.
func TestTakeInVersion(t *testing.T) {
	f := func(home, shard int64, always bool) {
		t.Helper()
		word := hot.Home(7, 2).Fold()
		v := store.Value{Exists: true, N: home, Version: 5, Layout: int64(word)}
		m := (&core{partitions: 1}).newFold(subject)
		m.next(nil)
		calls := m.next([]answer{{values: []store.Value{v}}})
		m.next(outcomes(calls, store.Applied))
		m.next([]answer{{values: []store.Value{{Exists: true, N: shard, Layout: int64(hot.Open(7).Fold())}}}})
		for round := range roundsMax {
			v.Version++
			calls = m.next([]answer{{values: []store.Value{v}}})
			if m.at != foldTaken {
				t.Fatalf("it waits for answer %d", m.at)
			}
			var want []store.Condition
			if round < roundsCalm || always {
				want = []store.Condition{{Cell: subject, Version: v.Version}}
			}
			if b := calls[0].apply[0]; b.Deltas[0].N != shard || !slices.Equal(b.If, want) {
				t.Errorf("%d and %d, round %d: adds %d if %+v, want %+v", home, shard, round, b.Deltas[0].N, b.If, want)
			}
			m.next([]answer{{replies: []store.Reply{{Err: store.ErrChanged}}}})
		}
		if m.err == nil {
			t.Error("it never ends")
		}
	}
	f(10, 3, false)
	f(hot.Near, 0, false)
	f(hot.Near+1, -3, true)
	f(hot.Near, 1, true)
	f(math.MaxInt64-3, 3, true)
	f(math.MinInt64+3, -3, true)
}
