package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// TestReadMany reads so many cells and parts that they are read in the order of their rows,
// in another order than that, with some that are not there.
func TestReadMany(t *testing.T) {
	e := open(t, newMemDisk(), engine.Options{})
	plan := planOf(1, viewHour, viewDE)
	const cells = 500
	for i := 0; i < cells; i += 2 {
		doBatch(t, e, store.Batch{Deltas: []store.Delta{planned(add(cell(fmt.Sprint("k", i)), int64(i+1)), plan)}})
	}
	checkpoint(t, e)
	e.EvictNow()
	rng := rand.New(rand.NewPCG(1, 2))
	order := rng.Perm(cells)
	var ids []store.Cell
	var parts []store.PartCell
	for _, i := range order {
		ids = append(ids, cell(fmt.Sprint("k", i)))
		parts = append(parts, store.PartCell{Cell: ids[len(ids)-1], Part: viewHour}, store.PartCell{Cell: ids[len(ids)-1], Part: viewDE})
	}
	values, contents := make([]store.Value, len(ids)), make([]store.Content, len(parts))
	if err := e.Read(bg, ids, values); err != nil {
		t.Fatal(err)
	}
	if err := e.ReadParts(bg, parts, contents); err != nil {
		t.Fatal(err)
	}
	for n, i := range order {
		want := store.Content{}
		if i%2 == 0 {
			want = store.Content{N: int64(i + 1), Exists: true}
		}
		if got := (store.Content{N: values[n].N, Exists: values[n].Exists}); got != want || contents[2*n] != want || contents[2*n+1] != want {
			t.Errorf("k%d is %+v, with %+v: want %+v", i, got, contents[2*n:2*n+2], want)
		}
	}
}
