package store_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/quipudb/quipu/store"
)

func TestErrorsMatchByKind(t *testing.T) {
	err := fmt.Errorf("apply: %w", store.Errorf(store.KindMark, "batch %d: %w", 7, io.ErrUnexpectedEOF))
	if !errors.Is(err, store.ErrMark) {
		t.Errorf("%v does not match ErrMark", err)
	}
	if errors.Is(err, store.ErrToken) || errors.Is(err, store.ErrRetired) {
		t.Errorf("%v matches an error of another kind", err)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v does not match its cause", err)
	}
	if got := store.KindOf(err); got != store.KindMark {
		t.Errorf("kind %d, want %d", got, store.KindMark)
	}
	if got, want := err.Error(), "apply: quipu: batch 7: unexpected EOF"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestErrorWithoutCause(t *testing.T) {
	err := store.Errorf(store.KindFull, "no room for %q", "k")
	if err.Unwrap() != nil {
		t.Errorf("cause %v, want none", err.Unwrap())
	}
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("%v does not match ErrFull", err)
	}
}

func TestKindOfOther(t *testing.T) {
	for _, err := range []error{nil, io.EOF, fmt.Errorf("read: %w", io.EOF)} {
		if got := store.KindOf(err); got != store.KindOther {
			t.Errorf("kind of %v is %d, want KindOther", err, got)
		}
	}
}

// Kinds are sent to other programs: their numbers must never change.
func TestKindsAreFixed(t *testing.T) {
	f := func(err *store.Error, kind store.Kind, n uint8) {
		t.Helper()
		if err.Kind != kind || uint8(kind) != n {
			t.Errorf("%v has kind %d, want %d", err, err.Kind, n)
		}
	}
	f(store.ErrInvalid, store.KindInvalid, 1)
	f(store.ErrTooLarge, store.KindTooLarge, 2)
	f(store.ErrOverflow, store.KindOverflow, 3)
	f(store.ErrToken, store.KindToken, 4)
	f(store.ErrExpired, store.KindExpired, 5)
	f(store.ErrSettled, store.KindSettled, 6)
	f(store.ErrChanged, store.KindChanged, 7)
	f(store.ErrFull, store.KindFull, 8)
	f(store.ErrMark, store.KindMark, 9)
	f(store.ErrRetired, store.KindRetired, 10)
	f(store.ErrUnavailable, store.KindUnavailable, 11)
	f(store.ErrUnknown, store.KindUnknown, 12)
	f(store.ErrClosed, store.KindClosed, 13)
	f(store.ErrCorrupt, store.KindCorrupt, 14)
	f(store.ErrUnsupported, store.KindUnsupported, 15)
	f(store.ErrLost, store.KindLost, 16)
	f(store.ErrUnmet, store.KindUnmet, 17)
	f(store.ErrBound, store.KindBound, 18)
	f(store.ErrReadOnly, store.KindReadOnly, 19)
	f(store.ErrSplit, store.KindSplit, 20)
	f(store.ErrSessionLost, store.KindSessionLost, 21)
	for k, word := range map[store.Kind]string{store.KindOther: "internal", store.KindReadOnly: "read_only", store.KindSessionLost: "session_lost", 99: "kind 99"} {
		if k.String() != word {
			t.Errorf("%q, want %q", k, word)
		}
	}
}

// What one batch of a call ended with says nothing of the others.
func TestAnswer(t *testing.T) {
	f := func(errs []error, want error, told ...error) {
		t.Helper()
		replies := make([]store.Reply, len(errs))
		for i := range replies {
			replies[i].Results = []store.Result{{Outcome: store.Applied}}
		}
		if err := store.Answer(errs, replies); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", errs, err, want)
		}
		for i, err := range told {
			if !errors.Is(replies[i].Err, err) || (err == nil) != (len(replies[i].Results) == 1) {
				t.Errorf("%v: reply %d is %+v", errs, i, replies[i])
			}
		}
	}
	f(nil, nil)
	f([]error{nil, nil}, nil, nil, nil)
	f([]error{store.ErrUnknown}, store.ErrUnknown)
	f([]error{store.ErrUnavailable, store.ErrUnavailable}, store.ErrUnavailable)
	f([]error{nil, store.ErrUnknown}, nil, nil, store.ErrUnknown)
	f([]error{store.ErrUnavailable, store.ErrUnknown}, nil, store.ErrUnavailable, store.ErrUnknown)
}
