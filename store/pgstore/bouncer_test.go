package pgstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// Behind pgbouncer in transaction mode every transaction may be on another
// connection: nothing that a session keeps may be needed.
func TestBouncer(t *testing.T) {
	b, err := server.Bounce(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	stores := several(t, 2, b.URL(), pgstore.Options{MaxConns: 8})
	hunt(t, stores, 25)
	schema := fmt.Sprintf("t%d", schemas.Load())
	for i := range int64(20) {
		s := stores[i%2]
		execute(t, fmt.Sprintf(`select %s.add('sql', 1, '%d')`, schema, i))
		holds(t, s, "sql", i+1)
		do(t, s, store.Delta{Cell: at("short"), Op: store.OpSet, N: i, Expiry: store.ExpirySet, DeadlineMS: 1})
		holds(t, s, "short", 0)
		if f, err := s.Lookup(t.Context(), at("sql"), fmt.Sprint(i)); err != nil || f.State != store.TokenApplied {
			t.Errorf("lookup finds %+v, %v", f, err)
		}
	}
	if names, err := stores[0].Namespaces(t.Context(), "", 10); err != nil || !slices.Contains(names, "default") {
		t.Errorf("the namespaces are %q, %v", names, err)
	}
	audited(t, stores[1])
}
