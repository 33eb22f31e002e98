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
		_, got := db.Add(t.Context(), "k", 1, quipu.Token("t"), quipu.WantValue())
		if !errors.Is(got, quipu.ErrUnknown) {
			t.Errorf("the look-up failed by %v: %v", err, got)
		}
	}
}
