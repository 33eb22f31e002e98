package hot_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/hot"
)

// Where a user is, is stored: it may never change.
func TestSeat(t *testing.T) {
	f := func(user string, shards, want int) {
		t.Helper()
		if got := hot.Seat(user, shards); got != want {
			t.Errorf("%q of %d: %d, want %d", user, shards, got, want)
		}
	}
	f("", 16, 11)
	f("ana", 16, 10)
	f("ana", 64, 10)
	f("user-12345", 16, 11)
	f("é", 5, 0)
	for shards := 2; shards <= 64; shards++ {
		if w := hot.Seats(shards); w.Seated() != shards || w.Shards() != shards || w.Folding() || w.IsUnsure() || !w.Unsure().IsUnsure() || w.Unsure().Seated() != shards {
			t.Errorf("%d shards: %b", shards, w)
		}
		if w := hot.Home(hot.Generation(^uint64(0)), shards); w.Seated() != 0 || w.Fold().Seated() != 0 {
			t.Errorf("a split into %d has seats", shards)
		}
	}
}
