package quipu_test

import (
	"errors"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// TestReadOnly writes to a DB that is read-only, in every way there is: each is
// refused and changes nothing, while reads go on.
func TestReadOnly(t *testing.T) {
	s := memstore.New(memstore.Options{})
	writer, reader := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{ReadOnly: true})
	ctx := t.Context()
	if _, err := writer.Add(ctx, "k", 5, quipu.Token("t")); err != nil {
		t.Fatal(err)
	}
	f := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, quipu.ErrReadOnly) {
			t.Errorf("%s: %v, want %v", what, err, quipu.ErrReadOnly)
		}
	}
	_, err := reader.Add(ctx, "k", 1)
	f("add", err)
	_, err = reader.Add(ctx, "k", 5, quipu.Token("t"))
	f("repeat", err)
	_, err = reader.AddBatch(ctx, []quipu.Event{{Key: "k", Delta: 1}})
	f("batch", err)
	_, err = reader.Set(ctx, "k", 1)
	f("set", err)
	_, err = reader.Reset(ctx, "k")
	f("reset", err)
	_, err = reader.Delete(ctx, "k")
	f("delete", err)
	_, err = reader.Settle(ctx, "k", "u")
	f("settle", err)
	f("clear", reader.Clear(ctx))
	_, err = reader.Enlist(ctx)
	f("enlist", err)
	add := []store.Delta{{Cell: store.Cell{Key: "k"}, Op: store.OpAdd, N: 1}}
	f("apply", reader.Apply(ctx, add, make([]store.Result, 1)))
	f("apply if", reader.ApplyIf(ctx, nil, add, make([]store.Result, 1)))
	if reader.Start(add, make([]store.Result, 1), func(error) { t.Error("done") }) {
		t.Error("started a write")
	}

	if err := reader.Ready(ctx); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if c, err := reader.Read(ctx, "k"); err != nil || c.Value != 5 {
		t.Errorf("read %d, %v", c.Value, err)
	}
	get := []store.Delta{{Cell: store.Cell{Key: "k"}, Op: store.OpGet, Want: true}}
	results := make([]store.Result, 1)
	if err := reader.Apply(ctx, get, results); err != nil || results[0].After != 5 {
		t.Errorf("got %+v, %v", results[0], err)
	}
	if fate, err := reader.Lookup(ctx, "k", "t"); err != nil || fate.State != store.TokenApplied {
		t.Errorf("lookup: %+v, %v", fate, err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if err := reader.Ready(ctx); !errors.Is(err, quipu.ErrClosed) {
		t.Errorf("ready after close: %v", err)
	}
}
