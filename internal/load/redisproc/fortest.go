package redisproc

import (
	"errors"
	"os"
	"testing"
)

// For starts a server for a test, and stops it when the test ends if that has not.
func For(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := Start(t.Context(), t.TempDir(), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	})
	return s
}
