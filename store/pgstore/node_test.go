package pgstore_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// Nodes combine events over the store, and change none of the laws.
func TestEventsThroughNodes(t *testing.T) {
	storetest.Events(t, storetest.Around((&factory{url: server.URL()}).open, func(s store.Store) store.Store {
		return node.New(t.Context(), s, node.Options{})
	}))
}
