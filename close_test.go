package quipu_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store/memstore"
)

// TestCloseReading closes a DB while somebody begins to read a counter whose total is
// to be kept: he is answered or told that it is closed, and nothing goes on. What is
// wrong here, the race detector finds.
func TestCloseReading(t *testing.T) {
	for range 1000 {
		db := quipu.New(far{memstore.New(memstore.Options{})}, quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Timing: quipu.Rollup, Interval: time.Second}}})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := db.Read(t.Context(), "a"); err != nil && !errors.Is(err, quipu.ErrClosed) {
				t.Error(err)
			}
		})
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
