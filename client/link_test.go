package client_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/quipudb/quipu/client"
)

// A link carries connections to a server that may change, and breaks them.
type link struct {
	t        testing.TB
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	down   bool
	life   func() int64 // bytes a connection carries in one direction before it breaks; nil for no limit
	conns  map[net.Conn]struct{}
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut(true)
		l.wg.Wait()
	})
	return l
}

// dial connects a client through the link.
func (l *link) dial(o client.Options) *client.DB {
	l.t.Helper()
	return (&testServer{t: l.t, addr: l.listener.Addr().String()}).dial(o)
}

// to moves the link to another server, and breaks the connections to the old one.
func (l *link) to(target string) {
	l.cut(true)
	l.mu.Lock()
	l.target = target
	l.mu.Unlock()
	l.cut(false)
}

// cut breaks all connections; if it is down, the next ones break too.
func (l *link) cut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for c := range l.conns {
		_ = c.Close()
	}
}

// breakAfter makes connections break at a random byte.
func (l *link) breakAfter(most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life = func() int64 { return 1 + rand.Int64N(most) }
}

func (l *link) serve() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.carry(c) })
	}
}

func (l *link) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	l.mu.Lock()
	down, target, life := l.down, l.target, l.life
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}()
	if down {
		return
	}
	s, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		wg.Go(func() {
			if life == nil {
				_, _ = io.Copy(way[0], way[1])
			} else {
				_, _ = io.CopyN(way[0], way[1], life())
			}
			_ = c.Close()
			_ = s.Close()
		})
	}
	wg.Wait()
}
