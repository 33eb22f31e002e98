package quipu_test

import (
	"context"
	"errors"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// A forgetful store can't say what became of a token.
type forgetful struct {
	*stub
	err error
}

func (s forgetful) Lookup(context.Context, store.Cell, string) (store.Fate, error) {
	return store.Fate{}, s.err
}

// A write that counted is never told that nothing changed, be it that its first
// result can't be read any more.
func TestReplayUnread(t *testing.T) {
	for _, err := range []error{store.ErrUnavailable, context.DeadlineExceeded} {
		s := newStub()
		s.result.Replayed = true
		db := quipu.New(forgetful{s, err}, quipu.Options{})
		_, got := db.Add(t.Context(), "k", 0, quipu.Token("t"), quipu.WantValue()) // 0 may be its value, or that it has none
		if !errors.Is(got, quipu.ErrUnknown) {
			t.Errorf("the look-up failed by %v: %v", err, got)
		}
	}
}

// The repeat of a batch asks the store for nothing else: most results tell whether
// the first write had asked for its value.
func TestReplayRead(t *testing.T) {
	f := func(delta int64, first store.Result, value, lookups int64) {
		t.Helper()
		s := &asking{stub: newStub()}
		s.result = first
		s.result.Outcome, s.result.Replayed = store.Applied, true
		r, err := quipu.New(s, quipu.Options{}).Add(t.Context(), "k", delta, quipu.Token("t"), quipu.WantValue())
		if err != nil || r.HasValue != (value >= 0) || r.HasValue && r.Value != value || s.lookups != lookups {
			t.Errorf("add %d, %+v: %+v, %v, and %d look-ups", delta, first, r, err, s.lookups)
		}
	}
	f(3, store.Result{Before: 4, After: 7}, 7, 0)
	f(3, store.Result{Before: -3}, 0, 0)
	f(3, store.Result{}, -1, 0) // it did not ask
	f(0, store.Result{Before: 4, After: 4}, 4, 0)
	f(0, store.Result{}, 0, 1)
}

// asking is a store whose tokens are all of writes that asked for their value.
type asking struct {
	*stub
	lookups int64
}

func (s *asking) Lookup(context.Context, store.Cell, string) (store.Fate, error) {
	s.lookups++
	return store.Fate{State: store.TokenApplied, Want: true}, nil
}
