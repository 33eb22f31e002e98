package server_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/server"
)

// A street is a listener of pipes.
type street struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (s *street) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *street) Close() error   { close(s.closed); return nil }
func (s *street) Addr() net.Addr { return &net.TCPAddr{} }

// A guarded street has a listener that limits it, and those it accepted.
type guarded struct {
	*street
	*server.Listener
	accepted chan net.Conn
}

func guard(o server.Listen) *guarded {
	s := &street{conns: make(chan net.Conn), closed: make(chan struct{})}
	g := &guarded{street: s, Listener: o.Limit(s), accepted: make(chan net.Conn, 100)}
	go func() {
		for {
			c, err := g.Listener.Accept()
			if err != nil {
				close(g.accepted)
				return
			}
			g.accepted <- c
		}
	}()
	return g
}

// dial returns the client's end of a connection.
func (g *guarded) dial() net.Conn {
	client, here := net.Pipe()
	g.conns <- here
	return client
}

// enter returns both ends of a connection that was accepted.
func (g *guarded) enter(t *testing.T) (client, here net.Conn) {
	t.Helper()
	client = g.dial()
	synctest.Wait()
	select {
	case here = <-g.accepted:
	default:
		t.Fatal("the connection was not accepted")
	}
	return client, here
}

// isOpen reports whether a client is still connected.
func isOpen(client net.Conn) bool {
	synctest.Wait()
	_ = client.SetReadDeadline(time.Now())
	_, err := client.Read(make([]byte, 1))
	return !errors.Is(err, io.EOF)
}

// A stranger is cut off at the deadline; a connection that has shown a key stays,
// and so does any where no key is needed.
func TestStrangersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 10, StrangersMax: 2})
		defer func() { _ = g.Listener.Close() }()
		silent, _ := g.enter(t)
		known, here := g.enter(t)
		if n := g.Connections(); n != (server.Connections{Open: 2, Strangers: 2}) {
			t.Fatalf("%+v", n)
		}
		server.PlaceOf(here).Known()
		server.PlaceOf(here).Known()
		<-time.After(server.LoginTimeoutDefault - 1)
		if !isOpen(silent) {
			t.Error("a stranger was cut off early")
		}
		<-time.After(2)
		if isOpen(silent) || !isOpen(known) {
			t.Errorf("after the deadline: stranger %v, known %v", isOpen(silent), isOpen(known))
		}
		if n := g.Connections(); n != (server.Connections{Open: 1, Expired: 1}) {
			t.Errorf("%+v", n)
		}
		_ = here.Close()
		_ = here.Close()
		if n := g.Connections(); n.Open != 0 {
			t.Errorf("%+v", n)
		}

		open := guard(server.Listen{ConnectionsMax: 10})
		defer func() { _ = open.Listener.Close() }()
		anyone, _ := open.enter(t)
		<-time.After(time.Hour)
		if !isOpen(anyone) || open.Connections().Strangers != 0 {
			t.Error("a connection was cut off where no key is needed")
		}
	})
}

// When the strangers' share is full the oldest makes room, and nobody who has
// shown a key does. Strangers that came just now have a moment to log in first.
func TestStrangersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 4, StrangersMax: 2})
		defer func() { _ = g.Listener.Close() }()
		known, here := g.enter(t)
		server.PlaceOf(here).Known()
		first, _ := g.enter(t)
		second, at := g.enter(t)

		third := g.dial()
		synctest.Wait()
		if len(g.accepted) != 0 || !isOpen(first) {
			t.Error("a stranger that came just now was dropped")
		}
		server.PlaceOf(at).Known() // which makes room at once
		synctest.Wait()
		if len(g.accepted) != 1 {
			t.Error("the place of a stranger that logged in was not given to the next")
		}
		<-g.accepted
		<-time.After(time.Second)
		fourth, _ := g.enter(t)
		if isOpen(first) || !isOpen(second) || !isOpen(third) || !isOpen(fourth) || !isOpen(known) {
			t.Error("not the oldest stranger was dropped, or more than that")
		}
		if n := g.Connections(); n != (server.Connections{Open: 4, Strangers: 2, Dropped: 1}) {
			t.Errorf("%+v", n)
		}
	})
}

// The known take the strangers' places when there are no others, and only then is
// a newcomer refused.
func TestKnownTakeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 3, StrangersMax: 2})
		defer func() { _ = g.Listener.Close() }()
		var last net.Conn
		for range 3 {
			for range 2 { // silent ones beside it
				g.dial()
				<-time.After(time.Second)
			}
			g.dial()
			<-time.After(time.Second)
			for len(g.accepted) > 0 {
				last = <-g.accepted
			}
			server.PlaceOf(last).Known()
		}
		refused := g.dial()
		if isOpen(refused) {
			t.Error("a connection over the limit was accepted")
		}
		if n := g.Connections(); n.Open != 3 || n.Strangers != 0 || n.Refused != 1 {
			t.Errorf("%+v", n)
		}
		_ = last.Close()
		if _, here := g.enter(t); here == nil {
			t.Error("a place that was given back was not given")
		}
	})
}

// A listener that waits for room can be closed.
func TestCloseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 2, StrangersMax: 1})
		g.enter(t)
		waiting := g.dial()
		synctest.Wait()
		_ = g.Listener.Close()
		if isOpen(waiting) {
			t.Error("the connection that waited is open")
		}
		if _, more := <-g.accepted; more {
			t.Error("it was accepted after the close")
		}
	})
}

// A connection that was handed over is dropped by whoever has it, also if its
// time was over meanwhile.
func TestOnDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 2, StrangersMax: 2})
		defer func() { _ = g.Listener.Close() }()
		_, here := g.enter(t)
		dropped := 0
		server.PlaceOf(here).OnDrop(func() { dropped++ })
		<-time.After(time.Minute)
		if dropped != 1 {
			t.Errorf("dropped %d times", dropped)
		}
		server.PlaceOf(here).OnDrop(func() { dropped++ })
		if dropped != 2 {
			t.Error("a connection that was dropped before it was handed over was kept")
		}
	})
}

// A stranger may make so many calls, and any connection with a key as many as it
// likes.
func TestStrangersCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 10, StrangersMax: 5})
		defer func() { _ = g.Listener.Close() }()
		client, here := g.enter(t)
		calls := 1
		for server.PlaceOf(here).Call() && calls < 1000 {
			calls++
		}
		if calls != 32 {
			t.Errorf("a stranger made %d calls", calls)
		}
		server.PlaceOf(here).Drop()
		if isOpen(client) || g.Connections().Open != 0 {
			t.Error("the connection is open")
		}
		known, here := g.enter(t)
		server.PlaceOf(here).Known()
		for range 100 {
			if !server.PlaceOf(here).Call() {
				t.Fatal("a caller with a key was stopped")
			}
		}
		server.PlaceOf(here).Drop()
		if !isOpen(known) {
			t.Error("a caller with a key was dropped")
		}
	})
}

// Strangers who call as often as they may, leave and come back, are slowed down
// together. A client with a key does not wait.
func TestStrangersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(server.Listen{ConnectionsMax: 100, StrangersMax: 10})
		defer func() { _ = g.Listener.Close() }()
		_, here := g.enter(t)
		known := server.PlaceOf(here)
		known.Known()
		calls := 0
		begin := time.Now()
		for range 200 {
			_, here := g.enter(t)
			for calls++; server.PlaceOf(here).Call(); {
				calls++
			}
			server.PlaceOf(here).Drop()
		}
		took := time.Since(begin)
		if rate := float64(calls) / took.Seconds(); rate < 490 || rate > 520 {
			t.Errorf("strangers made %d calls in %v: %.0f a second", calls, took, rate)
		}
		begin = time.Now()
		for range 1000 {
			known.Call()
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("a client with a key waited for %v", waited)
		}
	})
}
