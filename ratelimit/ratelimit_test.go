package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/ratelimit"
	"github.com/quipudb/quipu/store/memstore"
)

func width(s string) definition.Width {
	w, err := definition.ParseWidth(s)
	if err != nil {
		panic(err)
	}
	return w
}

var twice = call.AllowOptions{Limits: []definition.Limit{{Name: "calls", Rate: 2, Per: width("24h")}}}

func ExampleHandler() {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") })
	limited := ratelimit.Handler(db, ratelimit.Options{
		Name: "hello",
		Who:  func(r *http.Request) string { return r.Header.Get("X-User") },
		Call: twice,
	})(hello)

	for range 3 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("X-User", "eve")
		limited.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "calls";q=2;w=86400
	// 200 "calls";q=2;w=86400
	// 429 "calls";q=2;w=86400
}

// broken is an Allower that nobody can ask.
type broken struct{}

func (broken) Allow(context.Context, string, string, int64, call.AllowOptions) (call.Decision, error) {
	return call.Decision{}, errors.New("broken")
}

// An operator finds in the log why a handler answers 503, once a minute.
func TestHandlerLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		defer func() { _ = db.Close() }()
		var log strings.Builder
		o := ratelimit.Options{Name: "undefined", Logger: slog.New(slog.NewTextHandler(&log, nil))}
		limited := ratelimit.Handler(db, o)(http.NotFoundHandler())
		do := func(ctx context.Context, h http.Handler, lines int) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			if n := strings.Count(log.String(), "\n"); w.Code != http.StatusServiceUnavailable || n != lines {
				t.Errorf("status %d, %d lines, want %d: %s", w.Code, n, lines, &log)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		do(gone, limited, 0)
		do(t.Context(), limited, 1)
		if !strings.Contains(log.String(), "limit=undefined") || !strings.Contains(log.String(), "error=") {
			t.Errorf("%s", &log)
		}
		do(t.Context(), limited, 1)
		<-time.After(time.Minute)
		do(t.Context(), limited, 2)
		o.Failed = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) }
		do(t.Context(), ratelimit.Handler(db, o)(http.NotFoundHandler()), 2)
	})
}

func TestHandler(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	do := func(a ratelimit.Allower, o ratelimit.Options) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		ratelimit.Handler(a, o)(next).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		return w
	}
	f := func(code int, w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
		t.Helper()
		if w.Code != code {
			t.Errorf("%d %s, want %d", w.Code, w.Body, code)
		}
		return w
	}
	o := ratelimit.Options{Name: "api", Call: twice} // by the address, 192.0.2.1
	f(http.StatusTeapot, do(db, o))
	o.Cost = func(*http.Request) int64 { return 0 }
	f(http.StatusTeapot, do(db, o))
	o.Cost = nil
	f(http.StatusTeapot, do(db, o))
	w := f(http.StatusTooManyRequests, do(db, o))
	if w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit")[:11] != `"calls";r=0` || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("header %v", w.Header())
	}
	d, err := db.Allow(t.Context(), "api", "192.0.2.1", 0, twice)
	if err != nil || d.Remaining != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	f(http.StatusServiceUnavailable, do(broken{}, o))
	o.Failed = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusTeapot) }
	f(http.StatusTeapot, do(broken{}, o))
	o.Refused = func(w http.ResponseWriter, _ *http.Request, _ call.Decision) { w.WriteHeader(http.StatusConflict) }
	f(http.StatusConflict, do(db, o))
}
