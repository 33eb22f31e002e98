// Package server has what all protocols share: listeners with their limits, API
// keys, the table from kinds of errors to the codes of each protocol, metrics,
// and an orderly shutdown.
//
// A door is the implementation of a protocol: it decodes a request, calls the
// DB, and encodes the reply. Each door is a package of its own below this one.
// It imports no other door and no store, and is given to a Server, which serves
// a listener with it. A Server ends in this order: it stops accepting, finishes
// the running calls, and only then returns, so that the DB can be closed
// afterwards.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Door serves one wire on a listener. *http.Server is one.
type Door interface {
	// Serve accepts connections until Shutdown or Close. It closes the
	// listener.
	Serve(l net.Listener) error

	// Shutdown stops accepting and returns when the calls under way are done,
	// or with the error of ctx.
	Shutdown(ctx context.Context) error

	// Close ends at once.
	Close() error
}

// A Server runs doors. It is not safe for concurrent use, save that anyone may ask
// where its doors are.
type Server struct {
	logger *slog.Logger
	mu     sync.Mutex // held by who adds a door, and by who asks where they are
	doors  []entrance
}

type entrance struct {
	name     string
	listener net.Listener
	door     Door
}

// New returns a server without doors.
func New(logger *slog.Logger) *Server { return &Server{logger: logger} }

// Add adds a door, to be served on l under a name.
func (s *Server) Add(name string, l net.Listener, d Door) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doors = append(s.doors, entrance{name, l, d})
}

// A DoorAddress is where a door can be reached.
type DoorAddress struct{ Name, Address string }

// Doors returns where the doors can be reached that were added.
func (s *Server) Doors() []DoorAddress {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]DoorAddress, len(s.doors))
	for i, d := range s.doors {
		all[i] = DoorAddress{d.name, d.listener.Addr().String()}
	}
	return all
}

// Ready returns the line that says where the server can be reached, such as
// "ready http=127.0.0.1:8080".
func (s *Server) Ready() string {
	var b strings.Builder
	b.WriteString("ready")
	for _, d := range s.doors {
		fmt.Fprintf(&b, " %s=%s", d.name, d.listener.Addr())
	}
	return b.String()
}

// Run serves every door until ctx ends or a door fails. Then it drains: it
// stops accepting, and gives the calls under way up to drain to finish. It
// returns nil if ctx ended, even if some calls had to be cut off: those
// callers see a broken connection, and the log says so.
func (s *Server) Run(ctx context.Context, drain time.Duration) error {
	failed := make(chan error, len(s.doors))
	for _, d := range s.doors {
		go func() {
			err := d.door.Serve(d.listener)
			if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("serve %s: %w", d.name, err)
			}
			failed <- err
		}()
	}
	var cause error
	ended := 0
	select {
	case <-ctx.Done():
		s.logger.Info("draining", "up_to", drain)
	case cause = <-failed:
		ended++
	}
	s.drain(drain)
	for ; ended < len(s.doors); ended++ {
		cause = errors.Join(cause, <-failed)
	}
	return cause
}

// drain shuts every door at the same time.
func (s *Server) drain(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan struct{}, len(s.doors))
	for _, d := range s.doors {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := d.door.Shutdown(ctx); err == nil {
				return
			}
			s.logger.Warn("calls did not finish in time and were cut off", "door", d.name, "limit", limit)
			if err := d.door.Close(); err != nil {
				s.logger.Warn("close door", "door", d.name, "error", err)
			}
		}()
	}
	for range s.doors {
		<-done
	}
}
