package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
)

// A driver knows one kind of server.
type driver interface {
	dial(ctx context.Context) (conn, error)

	// pid returns the server's process, or 0 if it is unknown.
	pid(ctx context.Context) int
}

// A conn is one connection, used by one goroutine.
type conn interface {
	// add puts a request into the next batch.
	add(op Op, key uint64)

	// exchange sends the batch and waits for its replies, which come in order.
	// It calls got as they arrive.
	exchange(got func(replies)) error

	// close may be called while exchange runs, and again.
	close() error
}

// replies are some replies that came together.
type replies struct {
	n      int
	failed int    // errors among them
	first  string // of the errors
	denied bool   // by the first: none that follow will be taken either
}

// A DeniedError is that a server takes nothing from who does not say a key, or the
// right one.
type DeniedError struct{ Reply string }

// Error returns what the server replied.
func (e *DeniedError) Error() string { return "the server denies access: " + e.Reply }

// fail counts a reply that is an error.
func (r *replies) fail(text []byte, denied bool) {
	if r.failed == 0 {
		r.first, r.denied = string(text), denied
	}
	r.n++
	r.failed++
}

// driver returns the driver of a target.
func (c Config) driver() (driver, error) {
	target := c.Target
	if !strings.Contains(target, "://") {
		target = "redis://" + target
	}
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Path != "" && u.Path != "/":
		return nil, fmt.Errorf("target %q: want redis://HOST:PORT or http://HOST:PORT", c.Target)
	case u.User != nil:
		return nil, errors.New("the target has a password: give it as the API key")
	}
	name := cmp.Or(c.Key, KeyZero)
	n := network{host: u.Host, tls: u.Scheme == "rediss" || u.Scheme == "https"}
	switch u.Scheme {
	case "redis", "rediss":
		n.addr = withPort(u, "6379")
		return respDriver{n, c.APIKey, name}, nil
	case "http":
		n.addr = withPort(u, "80")
		return restDriver{n, c.APIKey, name}, nil
	case "https":
		n.addr = withPort(u, "443")
		return restDriver{n, c.APIKey, name}, nil
	default:
		return nil, fmt.Errorf("target %q: want redis://HOST:PORT or http://HOST:PORT", c.Target)
	}
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// A network is how a server is reached.
type network struct {
	host string // as the target has it
	addr string
	tls  bool
}

func (n network) dial(ctx context.Context) (net.Conn, error) {
	if n.tls {
		return (&tls.Dialer{}).DialContext(ctx, "tcp", n.addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", n.addr)
}

// A protocol is what a wire speaks.
type protocol interface {
	// request appends a request.
	request(b []byte, op Op, key uint64) []byte

	// scan counts the replies that end in p, and returns how much of p they
	// and what is known of the next one took. The rest comes again, with more.
	scan(p []byte) (used int, r replies, err error)
}

// The size of the buffer for replies. Nothing that must be seen whole is longer.
const readBytes = 64 << 10

// A wire is a conn of bytes.
type wire struct {
	net.Conn
	protocol
	out    []byte
	queued int
	in     []byte
	have   int // bytes in the buffer
}

func newWire(c net.Conn, p protocol) *wire {
	return &wire{Conn: c, protocol: p, in: make([]byte, readBytes)}
}

func (w *wire) add(op Op, key uint64) {
	w.out = w.request(w.out, op, key)
	w.queued++
}

func (w *wire) exchange(got func(replies)) error {
	want := w.queued
	_, err := w.Write(w.out)
	w.out, w.queued = w.out[:0], 0
	for want > 0 && err == nil {
		if w.have == len(w.in) {
			return errors.New("a reply is too long")
		}
		var n, used int
		n, err = w.Read(w.in[w.have:])
		w.have += n
		var r replies
		var scanErr error
		used, r, scanErr = w.scan(w.in[:w.have])
		w.have = copy(w.in, w.in[used:w.have])
		if r.n > want {
			return errors.New("more replies than requests")
		}
		if r.n > 0 {
			got(r)
		}
		want -= r.n
		if r.denied {
			return &DeniedError{r.first}
		}
		if scanErr != nil {
			return scanErr
		}
	}
	if want > 0 && errors.Is(err, io.EOF) {
		return errors.New("the server closed the connection")
	}
	if want == 0 {
		return nil
	}
	return err
}

func (w *wire) close() error { return w.Close() }
