package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// TestToken decides by a token of every age.
func TestToken(t *testing.T) {
	const window = time.Hour
	w := window.Milliseconds()
	first := store.Result{Outcome: store.Applied, Before: 1, After: 3, Version: 9, Existed: true, DeadlineMS: 4}
	write := store.Delta{Op: store.OpAdd, N: 2, Want: true, Guard: store.Guard{Token: "t", Digest: 7}}
	settle := store.Delta{Op: store.OpSettle, Guard: store.Guard{Token: "t"}}
	other := write
	other.Guard.Digest = 8
	again := store.Result{Outcome: store.Applied, Replayed: true, Before: 1, After: 3, Version: 9}

	at := decide.Clock{NowMS: nowMS, Window: window}
	applied, settled := decide.Remembered(&write, first, nowMS), decide.Remembered(&settle, store.Result{}, nowMS)
	// f says what is known of a token by then, and what becomes of three deltas under
	// it: the same write, one with another payload, a settling. A new one has no result.
	f := func(was *decide.Token, ageMS int64, full bool, state store.TokenState, same, differs, ends store.Result) {
		t.Helper()
		remembered := decide.Token{}
		if was != nil {
			remembered = *was
		}
		got, known := decide.Recall("t", remembered, was != nil, ageMS, at)
		if got != state {
			t.Errorf("after %d ms: %v, want %v", ageMS, got, state)
		}
		for d, want := range map[*store.Delta]store.Result{&write: same, &other: differs, &settle: ends} {
			if res, done := known.Verdict(got, d, full); res != want || done != (want != store.Result{}) {
				t.Errorf("after %d ms, %+v: %+v, %t, want %+v", ageMS, d, res, done, want)
			}
		}
	}
	fresh := store.Result{}
	is := func(o store.Outcome) store.Result { return store.Result{Outcome: o} }
	gone := store.Result{Outcome: store.Settled, Replayed: true}

	f(nil, 0, false, store.TokenUnknown, fresh, fresh, fresh)
	f(nil, 0, true, store.TokenUnknown, is(store.Full), is(store.Full), is(store.Full))
	for _, full := range []bool{false, true} { // what is known needs no room
		for _, age := range []int64{0, w - 1} {
			f(&applied, age, full, store.TokenApplied, again, is(store.Mismatch), again)
			f(&settled, age, full, store.TokenSettled, gone, gone, gone)
		}
		for _, age := range []int64{w, 2*w - 1} {
			f(&applied, age, full, store.TokenExpired, is(store.Expired), is(store.Expired), is(store.Expired))
			f(&settled, age, full, store.TokenExpired, is(store.Expired), is(store.Expired), is(store.Expired))
		}
	}
	f(&applied, 2*w, false, store.TokenUnknown, fresh, fresh, fresh)
	f(&settled, 2*w, false, store.TokenUnknown, fresh, fresh, fresh)
}

// TestTokenTime decides by the time that a token carries, when it is not known.
func TestTokenTime(t *testing.T) {
	const window = time.Hour
	w := window.Milliseconds()
	f := func(aheadMS int64, want store.TokenState) {
		t.Helper()
		ms := nowMS + aheadMS
		name := fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16, ms&0xffff)
		state, known := decide.Recall(name, decide.Token{}, false, 0, decide.Clock{NowMS: nowMS, Window: window})
		if state != want || known != (decide.Token{}) {
			t.Errorf("made %d ms ahead: %v, %+v, want %v", aheadMS, state, known, want)
		}
	}
	f(0, store.TokenUnknown)
	f(-w, store.TokenUnknown)
	f(-w-1, store.TokenExpired)
	f(w-1, store.TokenUnknown)
	f(w, store.TokenExpired)
}

func TestFate(t *testing.T) {
	write := store.Delta{Op: store.OpAdd, N: 2, Want: true, Guard: store.Guard{Token: "t", Digest: 7}}
	token := decide.Remembered(&write, store.Result{Outcome: store.Applied, After: 3, Existed: true}, nowMS)
	f := func(state store.TokenState, want store.Fate) {
		t.Helper()
		if got := token.Fate(state); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	f(store.TokenExpired, store.Fate{State: store.TokenExpired, AtMS: nowMS})
	f(store.TokenApplied, store.Fate{
		State: store.TokenApplied, AtMS: nowMS, Op: store.OpAdd, N: 2, Want: true,
		Result: store.Result{Outcome: store.Applied, After: 3},
	})
}
