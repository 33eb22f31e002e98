package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// refusalTimeout is how long a refused client may take to read why.
const refusalTimeout = time.Second

// Listen describes a listener.
type Listen struct {
	Addr string // HOST:PORT; port 0 picks a free one

	// Exposed allows an address that other machines can reach. Without it
	// Resolve refuses anything but loopback.
	Exposed bool

	ConnectionsMax int         // connections open at a time; at least 1
	Refusal        string      // written to a client over the limit, unless TLS is on
	TLS            *tls.Config // nil for none

	// StrangersMax is how many connections may be open at a time on which no key
	// was shown, and LoginTimeout how long each of them may; 0 for
	// LoginTimeoutDefault. If StrangersMax is 0 no key is needed. Otherwise the
	// door must say which connections are known: see Place.
	StrangersMax int
	LoginTimeout time.Duration
}

// A Listener accepts connections up to a limit, and refuses those beyond it
// instead of letting them wait.
type Listener struct {
	net.Listener
	places  *places
	refusal []byte
	close   func()
}

// ExposedError is returned by Resolve for an address that other machines can
// reach.
type ExposedError struct{ Addr string }

// Error says which address was refused.
func (e *ExposedError) Error() string {
	return fmt.Sprintf("listen on %s: other machines can reach this address", e.Addr)
}

// Resolve returns the address that Open listens on, or why it would refuse to.
func (o Listen) Resolve() (*net.TCPAddr, error) {
	addr, err := net.ResolveTCPAddr("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", o.Addr, err)
	}
	if !o.Exposed && !addr.IP.IsLoopback() {
		return nil, &ExposedError{Addr: o.Addr}
	}
	return addr, nil
}

// Open starts to listen.
func (o Listen) Open() (net.Listener, *Listener, error) {
	addr, err := o.Resolve()
	if err != nil {
		return nil, nil, err
	}
	tcp, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %s: %w", o.Addr, err)
	}
	l := o.limit(tcp)
	if o.TLS == nil {
		return l, l, nil
	}
	return tls.NewListener(l, o.TLS), l, nil
}

// limit puts limits on what another listener accepts.
func (o Listen) limit(of net.Listener) *Listener {
	if o.LoginTimeout == 0 {
		o.LoginTimeout = LoginTimeoutDefault
	}
	ps := newPlaces(o.ConnectionsMax, o.StrangersMax, o.LoginTimeout)
	l := &Listener{Listener: of, places: ps, close: sync.OnceFunc(func() { close(ps.closed) })}
	if o.TLS == nil {
		l.refusal = []byte(o.Refusal)
	}
	return l
}

// Strange has connections be strangers from now on: keys are required that were not before.
func (l *Listener) Strange(most int) { l.places.strange(most) }

// Connections returns how many connections are open, and what became of others.
func (l *Listener) Connections() Connections { return l.places.count() }

// Close stops listening. Connections that were accepted stay open.
func (l *Listener) Close() error {
	l.close()
	return l.Listener.Close()
}

// Accept returns the next connection under the limit.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if p := l.places.take(func() { _ = c.Close() }); p != nil {
			return &conn{Conn: c, place: p}, nil
		}
		l.refuse(c)
	}
}

// refuse never waits for long: the words fit in an empty socket buffer.
func (l *Listener) refuse(c net.Conn) {
	if len(l.refusal) > 0 && c.SetWriteDeadline(time.Now().Add(refusalTimeout)) == nil {
		_, _ = c.Write(l.refusal) // a courtesy: the close says the same
	}
	_ = c.Close()
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	place *Place
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	c.place.Release()
	return c.Conn.Close()
}
