package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
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
}

// A Listener accepts connections up to a limit, and refuses those beyond it
// instead of letting them wait.
type Listener struct {
	net.Listener
	max     int64
	refusal []byte
	open    atomic.Int64
	refused atomic.Int64
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
	l := &Listener{Listener: tcp, max: int64(o.ConnectionsMax)}
	if o.TLS == nil {
		l.refusal = []byte(o.Refusal)
		return l, l, nil
	}
	return tls.NewListener(l, o.TLS), l, nil
}

// Connections returns how many connections are open, and how many were refused
// since the start.
func (l *Listener) Connections() (open, refused int64) { return l.open.Load(), l.refused.Load() }

// Accept returns the next connection under the limit.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &conn{Conn: c, listener: l}, nil
		}
		l.open.Add(-1)
		l.refuse(c)
	}
}

// refuse never waits for long: the words fit in an empty socket buffer.
func (l *Listener) refuse(c net.Conn) {
	l.refused.Add(1)
	if c.SetWriteDeadline(time.Now().Add(refusalTimeout)) == nil {
		_, _ = c.Write(l.refusal) // a courtesy: the close says the same
	}
	_ = c.Close()
}

// conn gives its place back when it is closed, once.
type conn struct {
	net.Conn
	listener *Listener
	closed   atomic.Bool
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close()
}

// LoadTLS reads a certificate and its key from PEM files.
func LoadTLS(certFile, keyFile string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}, nil
}
