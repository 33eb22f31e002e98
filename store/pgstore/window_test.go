package pgstore_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// A store that asks for another window than the schema has is refused; one that
// asks for none has the schema's.
func TestWindow(t *testing.T) {
	const schema = "windows"
	open := func(window time.Duration) (*pgstore.Store, error) {
		return pgstore.Open(t.Context(), server.URL(), pgstore.Options{Schema: schema, Limits: store.Limits{TokenWindow: window}})
	}
	f := func(window time.Duration, kind store.Kind) {
		t.Helper()
		s, err := open(window)
		if store.KindOf(err) != kind {
			t.Fatalf("window %s: %v", window, err)
		}
		if err != nil {
			return
		}
		if got := s.Traits().Limits.TokenWindow; got != time.Hour {
			t.Errorf("window %s became %s", window, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	f(time.Hour, store.KindOther)
	f(time.Hour, store.KindOther)
	f(0, store.KindOther)
	f(time.Minute, store.KindInvalid)
}
