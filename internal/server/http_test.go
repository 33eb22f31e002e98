package server_test

import (
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server"
)

// A connection that never says anything does not hold up a drain.
func TestShutdownDoesNotWaitForTheSilent(t *testing.T) {
	accepted := make(chan struct{}, 1)
	s := server.HTTP(http.NotFoundHandler(), time.Minute, slog.New(slog.DiscardHandler))
	note := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		note(c, state)
		accepted <- struct{}{}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	<-accepted
	began := time.Now()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 4*time.Second { // net/http alone takes 5 s
		t.Errorf("shutting down took %v", took)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection is still open: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
}
