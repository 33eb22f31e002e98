package redisstore

import (
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
