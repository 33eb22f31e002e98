package quipu_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Whatever way a write comes, one that is refused for want of room is counted.
func TestFullIsCounted(t *testing.T) {
	synctest.Test(t, testFullIsCounted)
}

func testFullIsCounted(t *testing.T) {
	s := memstore.New(memstore.Options{Limits: store.Limits{KeysMax: 1, TokensMax: 1}})
	db := quipu.New(s, quipu.Options{})
	ctx := t.Context()
	want := 0.0
	check := func(what string, more float64) {
		t.Helper()
		want += more
		db.Meters(func(name, _ string, got float64) {
			if name == "quipu_writes_full_total" && got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		})
	}
	if _, err := db.Add(ctx, "a", 1, quipu.Token("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Add(ctx, "a", 1, quipu.IfVersion(1<<40)); !errors.Is(err, quipu.ErrChanged) {
		t.Fatal(err)
	}
	check("room enough", 0)
	if _, err := db.Add(ctx, "b", 1); !errors.Is(err, quipu.ErrFull) {
		t.Error(err)
	}
	check("one key too many", 1)
	if _, err := db.Add(ctx, "a", 1, quipu.Token("two")); !errors.Is(err, quipu.ErrFull) {
		t.Error(err)
	}
	check("one token too many", 1)
	if _, err := db.AddBatch(ctx, []quipu.Event{{Key: "a", Delta: 1}, {Key: "b", Delta: 1}, {Key: "c", Delta: 1}}); err != nil {
		t.Error(err)
	}
	check("a batch", 2)
	deltas := []store.Delta{{Cell: store.Cell{Key: "b"}, Op: store.OpAdd, N: 1}}
	if err := db.Apply(ctx, deltas, make([]store.Result, 1)); err != nil {
		t.Error(err)
	}
	check("deltas", 1)
	synctest.Wait() // until it is known what is split
	ended := make(chan error, 1)
	if !db.Start(deltas, make([]store.Result, 1), func(err error) { ended <- err }) {
		t.Fatal("not started")
	}
	db.Flush(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	check("deltas that were started", 1)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
