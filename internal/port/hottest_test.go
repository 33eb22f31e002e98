package port_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// An embedded DB times some of its writes, whichever way they come.
func TestHottestEmbedded(t *testing.T) {
	db, err := quipu.Open(t.TempDir(), quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Durability: quipu.Memory}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range 5000 {
		if _, err := db.Add(t.Context(), "added", 1); err != nil {
			t.Fatal(err)
		}
	}
	for started := 0; started < 5000; {
		deltas, results := []store.Delta{{Cell: store.Cell{Key: "started"}, Op: store.OpAdd, N: 1, Want: true}}, make([]store.Result, 1)
		done := make(chan error, 1)
		if db.Port().Start(deltas, results, func(err error) { done <- err }) {
			started++
			db.Port().Flush(true)
		} else { // It has not read the counter yet, or does not know yet what is split.
			done <- db.Port().Apply(t.Context(), deltas, results)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]port.HotCounter{}
	for _, h := range db.Port().Hottest(10) {
		found[h.Key] = h
	}
	f := func(key string, asked float64) {
		t.Helper()
		if h := found[key]; h.P99 <= 0 || h.P99 > 10*time.Second || h.Asked != asked || h.Decided != asked || h.SlowestShard != 0 {
			t.Errorf("%s: %+v", key, h)
		}
	}
	f("added", 0)
	f("started", 1)
}
