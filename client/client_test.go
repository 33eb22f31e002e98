package client_test

import (
	"log/slog"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/dbtest"
	"github.com/quipudb/quipu/internal/server/rpc"
	"github.com/quipudb/quipu/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLaws runs the laws of the product through the wire, over the embedded
// engine and over the reference store.
func TestLaws(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		dbtest.Run(t, overWire(func(t testing.TB, o quipu.Options) *quipu.DB {
			o.Logger = slog.New(slog.DiscardHandler)
			db, err := quipu.Open(t.TempDir(), o)
			if err != nil {
				t.Fatal(err)
			}
			return db
		}))
	})
	t.Run("memory", func(t *testing.T) {
		dbtest.Run(t, overWire(func(_ testing.TB, o quipu.Options) *quipu.DB {
			return quipu.New(memstore.New(memstore.Options{Limits: o.Limits, Partitions: 3}), o)
		}))
	})
}

// overWire puts a server and a client before what open makes.
func overWire(open func(t testing.TB, o quipu.Options) *quipu.DB) dbtest.Open {
	return func(t testing.TB, o quipu.Options) func(string) dbtest.DB {
		t.Helper()
		db := open(t, o)
		s := serve(t, db)
		c := s.dial(client.Options{})
		return func(namespace string) dbtest.DB { return c.In(namespace) }
	}
}

// A testServer is a door on a port of its own.
type testServer struct {
	t    testing.TB
	addr string
	door *rpc.Door
}

// serve serves a DB until the test ends, and closes it then.
func serve(t testing.TB, db *quipu.DB) *testServer {
	t.Helper()
	return serveWith(t, db, rpc.Options{})
}

func serveWith(t testing.TB, db *quipu.DB, o rpc.Options) *testServer {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{t: t, addr: l.Addr().String(), door: rpc.New(db, o)}
	served := make(chan error, 1)
	go func() { served <- s.door.Serve(l) }()
	t.Cleanup(func() {
		if err := s.door.Close(); err != nil {
			t.Errorf("close the door: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("close the DB: %v", err)
		}
	})
	return s
}

// dial connects until the test ends.
func (s *testServer) dial(o client.Options) *client.DB {
	s.t.Helper()
	c, err := client.Dial(s.t.Context(), s.addr, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Errorf("close the client: %v", err)
		}
	})
	return c
}
