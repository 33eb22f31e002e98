package decide_test

import (
	"maps"
	"testing"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// held is a store of one cell and what it holds.
type held struct {
	value store.Value
	parts map[store.Part]store.Content
	full  bool
}

func (h *held) Cell(store.Cell) store.Value { return h.value }
func (h *held) Put(_ store.Cell, v store.Value) uint64 {
	if v.Version = 0; v.Exists {
		v.Version = 9
	}
	h.value = v
	return v.Version
}
func (h *held) Full(string, decide.Room, int64) bool                { return h.full }
func (h *held) Part(_ store.Cell, p store.Part) store.Content       { return h.parts[p] }
func (h *held) PutPart(_ store.Cell, p store.Part, v store.Content) { h.parts[p] = v }
func (h *held) Version() uint64                                     { return 9 }

func (h *held) Partition(store.Cell) int { return 0 }

// MergePart is what a log replays: it must come to v.
func (h *held) MergePart(c store.Cell, p store.Part, v store.Content, asks []byte) {
	next, _, _, ok := sketch.Decide(nil, h.parts[p].Bytes, asks)
	if !ok || string(next) != v.Bytes {
		panic("a log would come to something else")
	}
	h.PutPart(c, p, v)
}

// TestObjectMerged checks that a merge into a key that has expired takes nothing over, and that its
// record says so.
func TestObjectMerged(t *testing.T) {
	c := store.Cell{Namespace: "n", Key: "k"}
	asks := func(item string) []byte { return sketch.AppendUniqueRequest(nil, 5, []uint64{sketch.Hash(item)}) }
	for name, value := range map[string]store.Value{"orphan": {}, "object": {Version: 3, Exists: true, Layout: store.LayoutObject}} {
		h := &held{value: value, parts: map[store.Part]store.Content{store.Object: store.PartObject.Content(asks("old"))}}
		want := asks("new")
		if value.Exists {
			want, _, _, _ = sketch.Decide(nil, string(asks("old")), want)
		}
		d := store.Delta{Cell: c, Op: store.OpMerge, Event: &store.Event{Part: store.Object, Bytes: asks("new")}}
		res := decide.Event(h, decide.Clock{NowMS: nowMS}, &d, nil)
		if res.Outcome != store.Applied || h.parts[store.Object] != store.PartObject.Content(want) {
			t.Errorf("%s: %+v, and it is %+v", name, res, h.parts)
		}
	}
}

// TestObjectRecord checks that what a step records is what it changes, also if there are
// bytes of a key that has expired.
func TestObjectRecord(t *testing.T) {
	c := store.Cell{Namespace: "n", Key: "k"}
	bytes := func(s string) store.Content {
		return store.PartObject.Content([]byte(s))
	}
	sum := func(h *held) decide.Record {
		r := decide.Change(c, uint64(h.value.N))
		r.Merge(decide.PartChange(c, store.Object, uint64(h.parts[store.Object].N)))
		return r
	}
	object := store.Value{Version: 3, Exists: true, Layout: store.LayoutObject}
	for name, h := range map[string]*held{
		"absent": {}, "count": {value: store.Value{N: 7, Version: 3, Exists: true}},
		"object": {value: object, parts: map[store.Part]store.Content{store.Object: bytes("old")}},
		"orphan": {parts: map[store.Part]store.Content{store.Object: bytes("old")}},
	} {
		for past, ms := range map[string]int64{"stays": 0, "over": 1} {
			is := &held{value: h.value, parts: map[store.Part]store.Content{}}
			maps.Copy(is.parts, h.parts)
			before, rec := sum(is), decide.Record{}
			d := store.Delta{Cell: c, Op: store.OpPut, Want: true, Event: &store.Event{Part: store.Object, Bytes: []byte("new")}}
			if ms != 0 {
				d.Expiry, d.DeadlineMS = store.ExpirySet, ms
			}
			res := decide.Event(is, decide.Clock{NowMS: nowMS}, &d, &rec)
			want := store.Result{Outcome: store.Applied, After: bytes("new").N, Existed: h.value.Exists, Version: 9}
			if name == "object" {
				want.Before = bytes("old").N
			}
			has := bytes("new")
			if ms != 0 {
				want.Version, has = 0, store.Content{}
			}
			if res != want || is.parts[store.Object] != has || is.value.Exists != (ms == 0) {
				t.Errorf("%s, %s: %+v, want %+v; it is %+v, %+v", name, past, res, want, is.value, is.parts)
			}
			before.Merge(rec)
			if before.Deltas = 0; before != sum(is) {
				t.Errorf("%s, %s: recorded %+v, want %+v", name, past, before, sum(is))
			}
		}
	}
	gone := &held{parts: map[store.Part]store.Content{store.Object: bytes("old")}}
	before := sum(gone)
	if before.Merge(decide.Lose(gone, c)); before != sum(gone) || gone.parts[store.Object].Exists {
		t.Errorf("what was lost is %+v", gone.parts)
	}
	if r := decide.Lose(gone, c); r != (decide.Record{}) {
		t.Errorf("nothing was lost: %+v", r)
	}
}
