package redisstore_test

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// A proxy stands between a store and its server. When it is armed, the reply to
// the next request about a counter is lost, or to a later one, and the connection
// with it.
type proxy struct {
	net.Listener
	server string
	armed  atomic.Int64 // requests until the one
}

// marker is in the requests that a proxy looks out for.
const marker = "marked"

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, server: server}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var lose atomic.Bool
	go func() {
		forward(client, server, func(b []byte) bool {
			if bytes.Contains(b, []byte(marker)) && p.armed.Add(-1) == 0 {
				lose.Store(true)
			}
			return true
		})
		_ = server.Close()
	}()
	forward(server, client, func([]byte) bool { return !lose.Load() })
}

// forward copies until the end, or until something is not let through.
func forward(from, to net.Conn, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// When the reply to a batch is lost, the batch was applied. What may be sent again
// is, and gets its first result; of the rest nobody knows. Nothing counts twice.
func TestReplyLost(t *testing.T) {
	p := newProxy(t, single.Addr)
	k := kit{t, open(t, "redis://"+p.Addr().String(), redisstore.Options{Prefix: prefix(), Partitions: 1})}
	present := func(d store.Delta) store.Delta {
		d.Guard.Exists = store.ExistsMust
		return d
	}
	w, at, seq := k.enlist(), int64(0), uint64(0)
	plain := add(marker, 1)
	decided := present(plain)
	k.reply(k.batch(add(marker, 0)))
	k.reply(k.batch(present(add(marker, 0))))
	f := func(b store.Batch, request int64, known bool) {
		t.Helper()
		p.armed.Store(request)
		r, err := k.try(t.Context(), b)
		if p.armed.Load() > 0 {
			t.Fatal("no reply was lost")
		}
		switch {
		case known && (err != nil || r.Results[0].Before != at || r.Results[0].After != at+1):
			t.Fatalf("%+v at %d: %+v, %v", b, at, r, err)
		case !known && !errors.Is(err, store.ErrUnknown):
			t.Fatalf("%+v: %+v, %v", b, r, err)
		}
		at++
		k.holds(marker, at)
	}
	numbered := func(d store.Delta) store.Batch {
		seq++
		return k.numbered(w, seq-1, seq, d)
	}
	f(k.batch(plain), 1, false)
	f(k.batch(once(plain, "t")), 1, true)
	f(numbered(plain), 1, true)
	// What is decided here is read first: that can be done again.
	f(k.batch(decided), 1, true)
	f(k.batch(decided), 2, false)
	f(k.batch(once(decided, "u")), 1, true)
	f(k.batch(once(decided, "v")), 2, true)
	f(numbered(decided), 2, true)
	p.armed.Store(1)
	k.holds(marker, at)
	if p.armed.Load() > 0 {
		t.Error("no reply was lost")
	}
	k.clean()
}
