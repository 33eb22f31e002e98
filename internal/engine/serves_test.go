package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// TestServes checks that the fast paths take nothing that they do not serve.
func TestServes(t *testing.T) {
	e, err := Open("/data", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	c := store.Cell{Namespace: "n", Key: "k"}
	first := store.Batch{Deltas: []store.Delta{{Cell: c, Op: store.OpSet, N: 1}}}
	if err := e.Apply(t.Context(), []store.Batch{first}, make([]store.Reply, 1)); err != nil {
		t.Fatal(err)
	}
	storetest.Serves(t, addOneServes, func(b *store.Batch) bool {
		_, done := e.addOne(t.Context(), b, &store.Reply{})
		return done
	})
	plan, err := store.NewPlan(store.Rider{Op: store.OpAdd, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Serves(t, ledServes|store.NeedMark|store.NeedIf, func(b *store.Batch) bool {
		d := b.Deltas[0] // made what is led, for the rest of what it asks
		d.Op, d.Event = store.OpSet, &store.Event{Part: store.PartFields{Kind: store.PartMember, Name: "u"}.Part(), Plan: plan}
		return isLed(&d)
	})
	storetest.Serves(t, liveServes|store.NeedMark|store.NeedIf|store.NeedFence, func(b *store.Batch) bool {
		d := b.Deltas[0] // made a merge into the sketch that a key is, for the rest of what it asks
		e := store.Event{}
		if d.Event != nil {
			e = *d.Event
		}
		e.Part, e.Bytes, e.Plan, e.Riders = store.Object, []byte{1}, nil, nil
		d.Op, d.Event = store.OpMerge, &e
		return isLive(&d)
	})
	// A delta knows nothing of its batch.
	storetest.Serves(t, unreadServes|store.NeedMark|store.NeedIf, func(b *store.Batch) bool {
		return !e.mustRead(&b.Deltas[0], unreadServes, &slot{}, 0, appendCell(nil, c), 1)
	})
}
