package rest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store/memstore"
)

// spans keeps spans.
type spans struct {
	mu  sync.Mutex
	all []*trace.Span
}

func (s *spans) Take(span *trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, span)
}

func attribute(s *trace.Span, key string) trace.Attribute {
	i := slices.IndexFunc(s.Attributes, func(a trace.Attribute) bool { return a.Key == key })
	if i < 0 {
		return trace.Attribute{}
	}
	return s.Attributes[i]
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A call has a span in the trace of its caller, which says what the call was and what
// became of it, and nothing that was sent.
func TestSpans(t *testing.T) {
	var got spans
	h := newHandlerWith(t, memstore.New(memstore.Options{}), rest.Options{Tracer: trace.NewTracer(&got, 0)})
	f := func(method, path, traceparent, name string, status int) {
		t.Helper()
		got.all = nil
		r := httptest.NewRequest(method, path, strings.NewReader(`{"who":"secret"}`))
		r.Host = "127.0.0.1"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "secret")
		r.Header.Set("Authorization", "Bearer secret")
		if traceparent != "" {
			r.Header.Set("traceparent", traceparent)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if name == "" {
			if len(got.all) != 0 {
				t.Errorf("%s %s has a span: %+v", method, path, got.all[0])
			}
			return
		}
		if len(got.all) != 1 {
			t.Errorf("%s %s has %d spans", method, path, len(got.all))
			return
		}
		s := got.all[0]
		if s.Name != name || s.Context.Parent()[:35] != parent[:35] || s.Kind != trace.Server || s.Failed != (status >= 500) {
			t.Errorf("%s %s: %+v", method, path, s)
		}
		_, route, _ := strings.Cut(name, " ")
		if attribute(s, "http.response.status_code").Number != int64(status) || attribute(s, "http.request.method").Text != method || attribute(s, "http.route").Text != route ||
			attribute(s, "quipu.request_id").Text != w.Header().Get("X-Request-Id") {
			t.Errorf("%s %s: %+v", method, path, s.Attributes)
		}
		for _, a := range s.Attributes {
			if strings.Contains(a.Text, "secret") {
				t.Errorf("%s %s says %+v", method, path, a)
			}
		}
	}
	f("POST", "/api/v1/counters/secret/increment", parent, "POST /api/v1/counters/{key}/increment", 200)
	f("GET", "/api/v1/counters/secret", parent, "GET /api/v1/counters/{key}", 200)
	f("GET", "/api/v1/namespaces/secret/counters/secret", parent, "GET /api/v1/namespaces/{ns}/counters/{key}", 200)
	f("GET", "/api/v1/counters/secret?nonsense=secret", parent, "GET /api/v1/counters/{key}", 400)
	f("PATCH", "/api/v1/counters/secret", parent, "HTTP /api/v1/counters/{key}", 405)
	f("GET", "/api/v1/counters/secret", "", "", 0)
	f("GET", "/api/v1/counters/secret", parent[:53]+"00", "", 0)
	f("GET", "/api/v1/counters/secret", "nonsense", "", 0)
	f("GET", "/healthz", parent, "", 0)
	f("GET", "/metrics", parent, "", 0)
	f("GET", "/nowhere", parent, "", 0)
}

// Tracing costs nothing where a call is not sampled: no allocation, also if others are.
func TestUnsampled(t *testing.T) {
	allocations := func(tracer *trace.Tracer) float64 {
		h := newHandlerWith(t, memstore.New(memstore.Options{}), rest.Options{Tracer: tracer})
		r := httptest.NewRequest(http.MethodGet, "/api/v1/counters/a", nil)
		r.Host = "127.0.0.1"
		w := discard{header: http.Header{}}
		return testing.AllocsPerRun(2000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		})
	}
	off, none := allocations(nil), allocations(trace.NewTracer(&spans{}, 0))
	if none > off {
		t.Errorf("%v allocations, and %v without a tracer", none, off)
	}
}

// BenchmarkTracing compares a call that is not traced, one that might have been, and one
// that is.
func BenchmarkTracing(b *testing.B) {
	f := func(name string, tracer *trace.Tracer) {
		b.Run(name, func(b *testing.B) {
			h := newHandlerWith(b, memstore.New(memstore.Options{}), rest.Options{Tracer: tracer})
			b.ReportAllocs()
			r := httptest.NewRequest(http.MethodPost, "/api/v1/counters/hot/increment", nil)
			r.Host = "127.0.0.1"
			w := discard{header: http.Header{}}
			for b.Loop() {
				clear(w.header)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), 0
				h.ServeHTTP(w, r)
			}
		})
	}
	f("off", nil)
	f("unsampled", trace.NewTracer(nowhere{}, 0))
	f("sampled", trace.NewTracer(nowhere{}, 1))
}

// nowhere forgets spans.
type nowhere struct{}

func (nowhere) Take(*trace.Span) {}
