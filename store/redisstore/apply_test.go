package redisstore

import (
	"errors"
	"testing"

	"github.com/quipudb/quipu/store"
)

func TestResendable(t *testing.T) {
	f := func(want bool, b store.Batch) {
		t.Helper()
		if got := resendable(&b); got != want {
			t.Errorf("%+v may be sent again: %v, want %v", b, got, want)
		}
	}
	blind := store.Delta{Op: store.OpAdd}
	once := store.Delta{Op: store.OpAdd, Guard: store.Guard{Token: "t"}}
	get := store.Delta{Op: store.OpGet}
	f(true, store.Batch{})
	f(false, store.Batch{Deltas: []store.Delta{blind}})
	f(true, store.Batch{Deltas: []store.Delta{once}})
	f(true, store.Batch{Deltas: []store.Delta{once, get}})
	f(false, store.Batch{Deltas: []store.Delta{once, blind}})
	f(true, store.Batch{Writer: 1, Deltas: []store.Delta{blind}})
	f(false, store.Batch{Deltas: []store.Delta{once}, If: make([]store.Condition, 1)})
	f(true, store.Batch{Writer: 1, Deltas: []store.Delta{blind}, If: make([]store.Condition, 1)})
}

// What is said of a call is true of each of its batches.
func TestTogether(t *testing.T) {
	away, unknown := error(store.ErrUnavailable), error(store.ErrUnknown)
	f := func(want error, refused int, errs ...error) {
		t.Helper()
		replies := make([]store.Reply, len(errs))
		if err := together(errs, replies); !errors.Is(err, want) {
			t.Errorf("%v together are %v, want %v", errs, err, want)
		}
		for _, r := range replies {
			if r.Err != nil {
				refused--
			}
		}
		if refused != 0 {
			t.Errorf("%v are in the replies %+v", errs, replies)
		}
	}
	f(nil, 0)
	f(nil, 0, nil, nil)
	f(away, 0, away, away)
	f(nil, 1, nil, away)
	f(unknown, 0, nil, unknown)
	f(unknown, 0, away, unknown)
}
