//go:build !race

package total_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store/memstore"
)

// TestAllocsOfTotals reads what is kept: that is what a counter with a million
// readers costs.
func TestAllocsOfTotals(t *testing.T) {
	db := over(t, far{memstore.New(memstore.Options{})}, quipu.Policy{Pattern: "kept", Timing: quipu.Rollup, Interval: time.Hour},
		quipu.Policy{Pattern: "own", Timing: quipu.Hybrid, Interval: time.Hour})
	ctx := t.Context()
	for _, key := range []string{"kept", "own"} {
		mustAdd(t, db, key, 1)
		mustRead(t, db, key)
		mustAdd(t, db, key, 1)
		if n := testing.AllocsPerRun(1000, func() {
			if c, err := db.Read(ctx, key); err != nil || c.Source != "rollup" {
				t.Fatalf("%+v, %v", c, err)
			}
		}); n != 0 {
			t.Errorf("a read of %q allocates %v times", key, n)
		}
	}
}
