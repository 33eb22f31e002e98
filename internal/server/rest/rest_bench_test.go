package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// connections is how many keep-alive connections the benchmarks use.
const connections = 64

// BenchmarkOverTCP measures whole calls, client included: raw requests on
// keep-alive connections.
func BenchmarkOverTCP(b *testing.B) {
	f := func(name, request string) {
		b.Run(name, func(b *testing.B) {
			addr := serveTCP(b)
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			done := make(chan error, connections)
			conns := make([]net.Conn, connections)
			for i := range conns {
				var d net.Dialer
				c, err := d.DialContext(b.Context(), "tcp", addr)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				conns[i] = c
			}
			b.ResetTimer()
			for _, c := range conns {
				go func() { done <- callUntil(c, request, &left) }()
			}
			for range conns {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
	f("increment", post("/api/v1/counters/hot/increment", "", ""))
	f("increment-body", post("/api/v1/counters/hot/increment", "Idempotency-Key: a\r\n", `{"delta":1}`))
	f("get", "GET /api/v1/counters/hot HTTP/1.1\r\nHost: q\r\n\r\n")
	ops := strings.Repeat(`{"key":"hot","delta":1},`, 100)
	f("batch-100", post("/api/v1/batch", "", `{"ops":[`+ops[:len(ops)-1]+`]}`))
}

// BenchmarkHandler measures the door without the connection.
func BenchmarkHandler(b *testing.B) {
	f := func(name, method, path, body string) {
		b.Run(name, func(b *testing.B) {
			h := newHandler(b)
			b.ReportAllocs()
			w := discard{header: http.Header{}}
			r, err := http.NewRequestWithContext(b.Context(), method, path, nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				clear(w.header)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				h.ServeHTTP(w, r)
			}
		})
	}
	f("increment", "POST", "/api/v1/counters/hot/increment", "")
	f("increment-body", "POST", "/api/v1/counters/hot/increment", `{"delta":1}`)
	f("get", "GET", "/api/v1/counters/hot", "")
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func post(path, headers, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: q\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

func newHandler(tb testing.TB) *rest.Handler {
	tb.Helper()
	return newHandlerWith(tb, memstore.New(memstore.Options{}), rest.Options{})
}

func newHandlerWith(tb testing.TB, s store.Store, o rest.Options) *rest.Handler {
	tb.Helper()
	db := quipu.New(s, quipu.Options{})
	o.Logger = slog.New(slog.DiscardHandler)
	h := rest.New(db, o)
	tb.Cleanup(func() {
		h.Close()
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return h
}

// serveTCP serves a handler as the command does, and returns its address.
func serveTCP(tb testing.TB) string {
	tb.Helper()
	l, _, err := server.Listen{Addr: "127.0.0.1:0", ConnectionsMax: 1000}.Open()
	if err != nil {
		tb.Fatal(err)
	}
	door := server.HTTP(newHandler(tb), time.Minute, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- door.Serve(l) }()
	tb.Cleanup(func() {
		if err := door.Shutdown(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
	return l.Addr().String()
}

// callUntil makes calls on a connection until there are none left to make.
func callUntil(c net.Conn, request string, left *atomic.Int64) error {
	in := bufio.NewReader(c)
	for left.Add(-1) >= 0 {
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		if err := skipReply(in); err != nil {
			return err
		}
	}
	return nil
}

func skipReply(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		text := string(line)
		if first && !strings.HasPrefix(text, "HTTP/1.1 200") {
			return fmt.Errorf("reply %q", text)
		}
		if n, ok := strings.CutPrefix(text, "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(n)); err != nil {
				return err
			}
		}
		if text == "\r\n" {
			_, err := in.Discard(length)
			return err
		}
	}
}
