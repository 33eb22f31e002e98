package quipu

import (
	"testing"

	"github.com/quipudb/quipu/store"
)

// Two writes told their values, at ticks 5 and 9, and the later one is noted first.
// A total that was asked for in between counts the first alone, and must not be
// served to those who write here.
func TestNotedOutOfOrder(t *testing.T) {
	var e total
	d, r := store.Delta{Op: store.OpAdd, N: 1, Want: true}, store.Result{Outcome: store.Applied, Version: 1}
	e.note(&d, &r, 8, 9)
	e.note(&d, &r, 4, 5)
	if e.written != 9 {
		t.Errorf("written at %d, want 9", e.written)
	}
}
