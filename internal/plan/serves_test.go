package plan_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

func TestServes(t *testing.T) {
	storetest.Serves(t, plan.Serves, func(b *store.Batch) bool {
		_, ok := plan.Of(b)
		return ok
	})
	storetest.Serves(t, plan.RidersServe, func(b *store.Batch) bool {
		_, ok := plan.WithRiders(b)
		return ok
	})
}
