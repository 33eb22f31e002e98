package quipu_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// sketchShapes are sketches of each kind, whole and in pieces.
var sketchShapes = map[string]call.Shape{
	"filter":       {Kind: call.SketchFilter, Capacity: 1000},
	"large filter": {Kind: call.SketchFilter, Capacity: 300_000},
	"counts":       {Kind: call.SketchFrequencies},
	"large counts": {Kind: call.SketchFrequencies, Width: 200_000, Depth: 5}, // of more pieces than an event has riders
	"top":          {Kind: call.SketchTop, K: 20},
}

// manyItems are items of each sketch, in most pieces.
func manyItems() []call.Item {
	items := make([]call.Item, 300)
	for i := range items {
		items[i].Item = fmt.Sprint("item ", i)
	}
	return items
}

// TestSketchTokensSurvive repeats writes after a restart: they count once, and other items are refused.
func TestSketchTokensSurvive(t *testing.T) {
	dir := t.TempDir()
	open := func() *quipu.DB {
		t.Helper()
		db, err := quipu.Open(dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db, items := open(), manyItems()
	totals := map[string]int64{}
	total := func(key string) int64 {
		t.Helper()
		is, err := db.Sketch(t.Context(), key, 0)
		if err != nil {
			t.Fatal(err)
		}
		return is.Total
	}
	for key, shape := range sketchShapes {
		if _, err := db.MakeSketch(t.Context(), key, shape); err != nil {
			t.Fatal(err)
		}
		if a, err := db.AddItems(t.Context(), key, items, quipu.Token("t")); err != nil || a.Replayed {
			t.Fatalf("%s: %+v, %v", key, a.Replayed, err)
		}
		totals[key] = total(key)
	}
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open()
		for key, want := range totals {
			if a, err := db.AddItems(t.Context(), key, items, quipu.Token("t")); err != nil || !a.Replayed {
				t.Errorf("%s: %+v, %v", key, a.Replayed, err)
			}
			if _, err := db.AddItems(t.Context(), key, items[1:], quipu.Token("t")); !errors.Is(err, quipu.ErrToken) {
				t.Errorf("%s: %v", key, err)
			}
			if got := total(key); got != want {
				t.Errorf("%s has %d, and had %d", key, got, want)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSketchTokensOfSeveralServers has two servers send the same writes to one store at once, over and over, and
// lose answers: each counts once, all of it.
func TestSketchTokensOfSeveralServers(t *testing.T) {
	h := new(storetest.Hooks)
	under := memstore.New(memstore.Options{Shared: true})
	defer func() { _ = under.Close() }()
	h.On(storetest.OnClose, storetest.Ignore)
	s := storetest.Wrap(under, h)
	dbs := []*quipu.DB{quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{})}
	defer func() {
		for _, db := range dbs {
			_ = db.Close()
		}
	}()
	items := manyItems()
	for key, shape := range sketchShapes {
		if _, err := dbs[0].MakeSketch(t.Context(), key, shape); err != nil {
			t.Fatal(err)
		}
	}
	var nth atomic.Int64
	h.On(storetest.OnApply, func(c *storetest.Call) error {
		if nth.Add(1)%5 == 0 {
			return storetest.Lose(store.ErrUnknown)(c)
		}
		return c.Pass()
	})
	const tokens = 6
	var all sync.WaitGroup
	for i, db := range dbs {
		for _, key := range slices.Sorted(maps.Keys(sketchShapes)) {
			all.Go(func() {
				for token := range tokens {
					for {
						_, err := db.AddItems(t.Context(), key, items, quipu.Token(fmt.Sprint(token)))
						if err == nil {
							break
						}
						if !errors.Is(err, quipu.ErrUnknown) && !errors.Is(err, quipu.ErrUnavailable) {
							t.Errorf("server %d, %s: %v", i, key, err)
							return
						}
					}
				}
			})
		}
	}
	all.Wait()
	for key, shape := range sketchShapes {
		is, err := dbs[1].Sketch(t.Context(), key, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(tokens * len(items))
		if shape.Kind == call.SketchFilter {
			if is.Total > int64(len(items)) || is.Total < int64(len(items))-20 {
				t.Errorf("%s has %d of %d items", key, is.Total, len(items))
			}
		} else if is.Total != want {
			t.Errorf("%s has %d, want %d", key, is.Total, want)
		}
	}
}

// TestSketchTokenUsedMeanwhile has another server use a token for other items after this one has looked for it: nothing
// of this write is applied.
func TestSketchTokenUsedMeanwhile(t *testing.T) {
	h := new(storetest.Hooks)
	under := memstore.New(memstore.Options{Shared: true})
	h.On(storetest.OnClose, storetest.Ignore)
	db, other := quipu.New(storetest.Wrap(under, h), quipu.Options{}), quipu.New(under, quipu.Options{})
	defer func() { _ = errors.Join(db.Close(), other.Close()) }()
	items := manyItems()
	for key, shape := range sketchShapes {
		if _, err := other.MakeSketch(t.Context(), key, shape); err != nil {
			t.Fatal(err)
		}
		if _, err := other.AddItems(t.Context(), key, items[:1]); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		h.On(storetest.OnLookup, func(c *storetest.Call) error {
			err := c.Pass()
			once.Do(func() { // to a filter this changes nothing, but that the token was used
				if _, err := other.AddItems(t.Context(), key, items[:1], quipu.Token("t")); err != nil {
					t.Error(err)
				}
			})
			return err
		})
		if _, err := db.AddItems(t.Context(), key, items, quipu.Token("t")); !errors.Is(err, quipu.ErrToken) {
			t.Errorf("%s: %v", key, err)
		}
		is, err := other.Sketch(t.Context(), key, 0)
		if err != nil || is.Total > 2 {
			t.Errorf("%s: %+v, %v", key, is, err)
		}
	}
}
