package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// A door is one that is open, for tests.
type door struct {
	*resp.Door
	db   *quipu.DB
	addr string
}

// open opens a door of a store in memory, until the test ends.
func open(t testing.TB, o resp.Options) *door {
	t.Helper()
	return openOver(t, quipu.New(memstore.New(memstore.Options{}), quipu.Options{}), o)
}

// openEmbedded opens a door of the embedded store.
func openEmbedded(t testing.TB) *door {
	t.Helper()
	db, err := quipu.Open(t.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return openOver(t, db, resp.Options{})
}

func openOver(t testing.TB, db *quipu.DB, o resp.Options) *door {
	t.Helper()
	return serveOn(t, listen(t, o), db, o)
}

func listen(t testing.TB, o resp.Options) net.Listener {
	t.Helper()
	connections := o.ConnectionsMax
	if connections == 0 {
		connections = resp.ConnectionsMaxDefault
	}
	l, _, err := server.Listen{Addr: "127.0.0.1:0", ConnectionsMax: connections, Refusal: resp.Refusal}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveOn opens a door on a listener.
func serveOn(t testing.TB, l net.Listener, db *quipu.DB, o resp.Options) *door {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return serveDoor(t, l, db, resp.New(db, o))
}

// serveDoor has a door serve, until the test ends.
func serveDoor(t testing.TB, l net.Listener, db *quipu.DB, d *resp.Door) *door {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- d.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
			_ = d.Close()
		}
		if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &door{d, db, l.Addr().String()}
}

// transports runs a test over both.
func transports(t *testing.T, f func(t *testing.T, o resp.Options)) {
	t.Run("loop", func(t *testing.T) { f(t, resp.Options{}) })
	t.Run("goroutines", func(t *testing.T) { f(t, resp.Options{Goroutines: true}) })
}

// A client speaks RESP and reads replies as they are.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

// array returns a command as RESP has it.
func array(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func (c *client) send(raw string) {
	c.t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.WriteString(c, raw); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// do sends a command and returns its reply, raw.
func (c *client) do(args ...string) string {
	c.t.Helper()
	c.send(array(args...))
	return c.reply()
}

// line sends a command of words without spaces.
func (c *client) line(words string) string {
	c.t.Helper()
	return c.do(strings.Fields(words)...)
}

// reply reads one reply.
func (c *client) reply() string {
	c.t.Helper()
	r, err := resp.ReadReply(c.r)
	if err != nil {
		c.t.Fatalf("reply: %v after %q", err, r)
	}
	return r
}

// expect checks the reply to words.
func (c *client) expect(words, want string) {
	c.t.Helper()
	if got := c.line(words); got != want {
		c.t.Errorf("%s: %q, want %q", words, got, want)
	}
}

// ended checks that the server has closed the connection.
func (c *client) ended() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if b, err := c.r.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("the connection is open: byte %q, %v", b, err)
	} else if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		c.t.Errorf("the connection is open: %v", err)
	}
}

// bulk returns a bulk string.
func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
