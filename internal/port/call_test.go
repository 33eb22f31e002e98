package port_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// More than fits into a batch is decided all the same, that of one counter in its
// order, and each result is where its delta was. A caller that can't wait is told so.
func TestApplyMany(t *testing.T) {
	f := func(partitions, n, keyBytes int, tokens bool) {
		t.Helper()
		db := quipu.New(memstore.New(memstore.Options{Partitions: partitions}), quipu.Options{})
		deltas, results := make([]store.Delta, n), make([]store.Result, n)
		for i := range deltas {
			key := fmt.Sprint(i % 7)
			d := store.Delta{Cell: store.Cell{Key: key + strings.Repeat("k", keyBytes-len(key))}, Op: store.OpAdd, N: 1, Want: true}
			if tokens {
				d.Guard.Token = fmt.Sprintf("%0255d", i)
			}
			deltas[i] = d
		}
		if db.Port().Start(deltas, results, func(error) {}) {
			t.Errorf("%d partitions: %d deltas were started", partitions, n)
		}
		if err := db.Port().Apply(t.Context(), deltas, results); err != nil {
			t.Fatalf("%d partitions: %v", partitions, err)
		}
		for i, r := range results {
			if r.Outcome != store.Applied || r.After != int64(i/7+1) {
				t.Fatalf("%d partitions: delta %d: %+v", partitions, i, r)
			}
		}
	}
	for _, partitions := range []int{1, 5} {
		f(partitions, store.BatchDeltasMax+100, 20, false)
		f(partitions, store.BatchBytesMax/400, 500, false)
		f(partitions, store.BatchBytesMax/400, 250, true)
	}
}
