//go:build !race

package quipu_test

import (
	"testing"

	"github.com/quipudb/quipu"
)

// The race detector makes sync.Pool forget on purpose, so this file is not
// built with it.

func TestAllocs(t *testing.T) {
	ctx := t.Context()
	db := quipu.New(newStub(), quipu.Options{Policies: []quipu.Policy{
		{Pattern: "stock:*"}, {Pattern: "views:*", Durability: quipu.Memory},
	}})
	f := func(name string, want float64, call func() error) {
		t.Helper()
		got := testing.AllocsPerRun(1000, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		})
		if got != want {
			t.Errorf("%s allocates %v times, want %v", name, got, want)
		}
	}
	f("Add", 0, func() error {
		_, err := db.Add(ctx, "likes", 1)
		return err
	})
	f("Add with a value", 0, func() error {
		_, err := db.Add(ctx, "likes", 1, quipu.WantValue())
		return err
	})
	f("Add with a token", 0, func() error {
		_, err := db.Add(ctx, "likes", 1, quipu.Token("t"), quipu.Who("me"))
		return err
	})
	f("Set", 0, func() error {
		_, err := db.Set(ctx, "likes", 1, quipu.IfVersion(3))
		return err
	})
	f("Read", 0, func() error {
		_, err := db.Read(ctx, "likes", quipu.Exact())
		return err
	})
	events := make([]quipu.Event, 100)
	for i := range events {
		events[i] = quipu.Event{Key: "likes", Delta: 1}
	}
	f("AddBatch", 1, func() error { // the receipts
		_, err := db.AddBatch(ctx, events)
		return err
	})
}
