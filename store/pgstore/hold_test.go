package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// TestFirstHold has one of two servers delete counters that the other has just reserved, in
// namespaces of which it has never heard that they have reservations.
func TestFirstHold(t *testing.T) {
	stores := several(t, 2, server.URL(), pgstore.Options{})
	var dbs [2]*quipu.DB
	for i, s := range stores {
		dbs[i] = quipu.New(s, quipu.Options{})
		dbs[i].Port().Due().Close() // It hears of nothing by itself.
	}
	for i := range 10 {
		here, there := dbs[0].In(fmt.Sprint("shop", i)), dbs[1].In(fmt.Sprint("shop", i))
		if _, err := there.Set(t.Context(), "shoes", 10); err != nil {
			t.Fatal(err)
		}
		r, err := here.Reserve(t.Context(), "shoes", 3, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, err = there.Delete(t.Context(), "shoes")
		} else {
			_, err = there.Reset(t.Context(), "shoes")
		}
		if store.KindOf(err) != store.KindUnmet {
			t.Errorf("%v", err)
		}
		if _, err := there.Release(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
		if c, err := here.Read(t.Context(), "shoes", quipu.Exact()); err != nil || c.Value != 10 {
			t.Errorf("%+v, %v", c, err)
		}
	}
}
