package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rpc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// The door behind the listener of all doors: TLS, and API keys.
func TestTLSAndKeys(t *testing.T) {
	web := httptest.NewUnstartedServer(http.NotFoundHandler()) // has a certificate for 127.0.0.1
	web.StartTLS()
	defer web.Close()
	l, _, err := server.Listen{
		Addr: "127.0.0.1:0", ConnectionsMax: 10,
		TLS: &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}},
	}.Open()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := server.NewKeys([]string{"secret"})
	if err != nil {
		t.Fatal(err)
	}
	db := memory(quipu.Limits{}, 1)
	door := rpc.New(db, rpc.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)}), Logger: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	defer func() {
		if err := errors.Join(door.Close(), <-served, db.Close()); err != nil {
			t.Error(err)
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	s := &testServer{t: t, addr: l.Addr().String()}

	c := s.dial(client.Options{TLS: &tls.Config{RootCAs: roots}, APIKey: "secret"})
	if r, err := c.Add(t.Context(), "a", 2, quipu.WantValue()); err != nil || r.Value != 2 {
		t.Errorf("Add: %+v, %v", r, err)
	}
	w := newWriter(t, c, client.WriterOptions{})
	if err := w.Add(t.Context(), "a", 3); err != nil {
		t.Error(err)
	}
	closeWriter(t, w)
	holds(t, db, "a", 5)

	// Dial says what is wrong.
	f := func(o client.Options, want error, text string) {
		t.Helper()
		o.Timeout = time.Second
		c, err := client.Dial(t.Context(), s.addr, o)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), s.addr) {
			t.Errorf("Dial: %v, want %q", err, text)
		}
		if err == nil {
			_ = c.Close()
		}
	}
	trusted := &tls.Config{RootCAs: roots}
	f(client.Options{TLS: trusted, APIKey: "guess"}, client.ErrUnauthorized, "the API key is wrong or missing")
	f(client.Options{TLS: trusted}, client.ErrUnauthorized, "the API key is wrong or missing")
	f(client.Options{APIKey: "secret"}, quipu.ErrUnavailable, "it may want TLS, see Options.TLS")
	f(client.Options{TLS: &tls.Config{}, APIKey: "secret"}, quipu.ErrUnavailable, "certificate signed by unknown authority")
	s.addr = serve(t, memory(quipu.Limits{}, 1)).addr
	f(client.Options{TLS: trusted}, quipu.ErrUnavailable, "does not look like a TLS handshake")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	s.addr = other.Listener.Addr().String()
	f(client.Options{}, quipu.ErrUnavailable, "want that of --rpc")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = gone.Addr().String()
	_ = gone.Close()
	f(client.Options{}, quipu.ErrUnavailable, "connection refused")
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := client.Dial(ended, s.addr, client.Options{}); !errors.Is(err, quipu.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("Dial when it is over: %v", err)
	}
}

// A server may want another key after a restart.
func TestKeyChanged(t *testing.T) {
	keys, err := server.NewKeys([]string{"new"})
	if err != nil {
		t.Fatal(err)
	}
	first := serve(t, memory(quipu.Limits{}, 1))
	link := newLink(t, first.addr)
	c := link.dial(client.Options{APIKey: "old"})
	link.to(serveWith(t, memory(quipu.Limits{}, 1), rpc.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})}).addr)
	if _, err := c.Read(t.Context(), "a"); !errors.Is(err, client.ErrUnauthorized) || status.Code(err) != codes.Unauthenticated {
		t.Errorf("Read with an old key: %v", err)
	}
	if _, err := c.Writer(t.Context(), client.WriterOptions{}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("Writer with an old key: %v", err)
	}
}

func TestVerify(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	c := serve(t, db).dial(client.Options{})
	if _, err := c.Add(t.Context(), "a", 1, quipu.Token("t")); err != nil {
		t.Fatal(err)
	}
	got, err := c.Verify(t.Context())
	if want, _ := db.Verify(t.Context()); err != nil || got.Cells != want.Cells || got.Tokens != 1 || got.Deltas != want.Deltas || len(got.Drift) != 0 {
		t.Errorf("Verify: %+v, %v; want %+v", got, err, want)
	}
	h := new(storetest.Hooks)
	h.On(storetest.OnAudit, func(c *storetest.Call) error {
		c.Audit.Drift = []store.Drift{{What: "a", Have: "b", Want: "c"}}
		return nil
	})
	s := storetest.Wrap(memstore.New(memstore.Options{}), h)
	c = serve(t, quipu.New(s, quipu.Options{})).dial(client.Options{})
	if got, err := c.Verify(t.Context()); err != nil || len(got.Drift) != 1 || got.Drift[0] != (store.Drift{What: "a", Have: "b", Want: "c"}) {
		t.Errorf("Verify: %+v, %v", got, err)
	}
}

// A backup through the wire can be restored; a store that has none says so.
func TestBackup(t *testing.T) {
	db, err := quipu.Open(t.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, db).dial(client.Options{})
	for i := range 3 {
		if _, err := c.In("other").Add(t.Context(), "a", int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	var tar bytes.Buffer
	if err := c.Backup(t.Context(), &tar); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if err := quipu.Restore(&tar, dir); err != nil {
		t.Fatal(err)
	}
	restored, err := quipu.Open(dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = restored.Close() }()
	holds(t, restored.In("other"), "a", 3)

	broken := errors.New("broken")
	if err := c.Backup(t.Context(), failing{broken}); !errors.Is(err, broken) {
		t.Errorf("Backup to nowhere: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := c.Backup(ended, &tar); !errors.Is(err, context.Canceled) {
		t.Errorf("Backup given up: %v", err)
	}
	plain := serve(t, memory(quipu.Limits{}, 1)).dial(client.Options{})
	if err := plain.Backup(t.Context(), &tar); !errors.Is(err, quipu.ErrUnsupported) {
		t.Errorf("Backup of a store that has none: %v", err)
	}
	if err := plain.Close(); err != nil {
		t.Fatal(err)
	}
	if err := plain.Backup(t.Context(), &tar); !errors.Is(err, quipu.ErrClosed) {
		t.Errorf("Backup after Close: %v", err)
	}
}

// failing fails.
type failing struct{ err error }

// Write fails.
func (w failing) Write([]byte) (int, error) { return 0, w.err }

// A batch that takes several requests and fails between them is unknown, even if
// the request that failed changed nothing.
func TestAddBatchInParts(t *testing.T) {
	h := new(storetest.Hooks)
	serve := serve(t, quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{}))
	c := serve.dial(client.Options{})
	events := make([]quipu.Event, 10_000)
	for i := range events {
		events[i] = quipu.Event{Key: fmt.Sprint(strings.Repeat("x", 400), i), Delta: 1, Token: fmt.Sprint(i)}
	}
	first, err := c.AddBatch(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.AddBatch(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		if first[i].Replayed || !again[i].Replayed || first[i].Version != again[i].Version || first[i].Key != events[i].Key {
			t.Fatalf("event %d: first %+v, again %+v", i, first[i], again[i])
		}
	}
	h.On(storetest.OnWrite, storetest.Nth(1, math.MaxInt, storetest.Fail(store.ErrUnavailable)))
	c = serve.dial(client.Options{Timeout: 200 * time.Millisecond})
	if _, err := c.AddBatch(t.Context(), events); !errors.Is(err, quipu.ErrUnknown) {
		t.Errorf("AddBatch: %v", err)
	}
}

// refusing answers n writes by an error of a kind. If that is KindUnknown, they are
// applied.
func refusing(n int, kind store.Kind) storetest.Hook {
	err := store.Errorf(kind, "not now")
	if kind == store.KindUnknown {
		return storetest.Nth(0, n, storetest.Lose(err))
	}
	return storetest.Nth(0, n, storetest.Fail(err))
}

// What is sent again depends on what the server says, and on the token.
func TestWhatIsSentAgain(t *testing.T) {
	f := func(kind store.Kind, token string, want error) {
		t.Helper()
		h := new(storetest.Hooks)
		db := quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{})
		c := serve(t, db).dial(client.Options{})
		var opts []quipu.WriteOption
		if token != "" {
			opts = append(opts, quipu.Token(token))
		}
		h.On(storetest.OnWrite, refusing(2, kind))
		if _, err := c.Add(t.Context(), "a", 1, opts...); store.KindOf(err) != store.KindOf(want) {
			t.Errorf("kind %d, token %q: Add: %v, want %v", kind, token, err, want)
		}
		h.On(storetest.OnWrite, refusing(2, kind))
		events := []quipu.Event{{Key: "b", Delta: 1, Token: "t"}, {Key: "b", Delta: 1, Token: token}}
		if _, err := c.AddBatch(t.Context(), events); store.KindOf(err) != store.KindOf(want) {
			t.Errorf("kind %d, token %q: AddBatch: %v, want %v", kind, token, err, want)
		}
		if want != nil && kind != store.KindUnknown {
			return
		}
		holds(t, db, "a", 1)
		holds(t, db, "b", 2)
	}
	for _, token := range []string{"", "u"} {
		f(store.KindUnavailable, token, nil)
		f(store.KindClosed, token, nil)
		f(store.KindCorrupt, token, quipu.ErrCorrupt)
	}
	f(store.KindUnknown, "u", nil)
	f(store.KindUnknown, "", quipu.ErrUnknown)
}

// Options.Tokens gives each write a token of its own.
func TestOptionsTokens(t *testing.T) {
	db := memory(quipu.Limits{TokensMax: 3}, 1)
	c := serve(t, db).dial(client.Options{Tokens: true})
	for range 2 {
		if r, err := c.Add(t.Context(), "a", 1); err != nil || r.Replayed {
			t.Errorf("Add: %+v, %v", r, err)
		}
	}
	rs, err := c.AddBatch(t.Context(), []quipu.Event{{Key: "a", Delta: 1}, {Key: "a", Delta: 1}})
	if err != nil || rs[0].Err != nil || !errors.Is(rs[1].Err, quipu.ErrFull) { // a fourth token
		t.Errorf("AddBatch: %+v, %v", rs, err)
	}
	holds(t, db, "a", 3)
	if a, err := db.Verify(t.Context()); err != nil || a.Tokens != 3 {
		t.Errorf("%d tokens, %v", a.Tokens, err)
	}
}
