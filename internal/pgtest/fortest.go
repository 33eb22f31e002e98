package pgtest

import (
	"errors"
	"os"
	"testing"
)

// For starts a server for a test, which it stops when the test ends.
func For(t testing.TB, settings ...string) *Server {
	t.Helper()
	return during(t, func(dir string) (*Server, error) { return Start(t.Context(), dir, settings...) })
}

// Follow starts a standby for a test, which it stops when the test ends.
func (s *Server) Follow(t testing.TB, settings ...string) *Server {
	t.Helper()
	return during(t, func(dir string) (*Server, error) { return s.Standby(t.Context(), dir, settings...) })
}

// during starts a server on files that are removed when the test ends. It may not be
// able to read what is in the test's directory, so it has another.
func during(t testing.TB, start func(dir string) (*Server, error)) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgtest") //nolint:usetesting // as said
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(dir)
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Stop(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return s
}
