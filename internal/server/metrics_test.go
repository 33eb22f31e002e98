package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu/internal/server"
)

type twoMeters struct{}

func (twoMeters) Meters(f func(name, help string, value float64)) {
	f("quipu_things_total", "Things.", 7)
	f("quipu_room_bytes", "Room.", 1.5)
}

func TestMetrics(t *testing.T) {
	m := server.NewMetrics(twoMeters{})
	l, limited := listen(t, 1)
	defer func() { _ = l.Close() }()
	m.Watch("http", limited)
	b := server.NewBudget(100)
	m.WatchBudget(b)
	if _, err := b.Take(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := b.Take(ended, 100); err == nil {
		t.Fatal("the budget gave too much")
	}
	r := m.Route("GET", "/x")
	r.Observe(http.StatusOK, time.Millisecond)
	r.Observe(http.StatusOK, time.Second)
	r.Observe(http.StatusTeapot, time.Second)
	c := m.Call("Add")
	c.Observe(codes.OK, time.Millisecond)
	c.Observe(codes.Aborted, time.Second)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		"# TYPE quipu_things_total counter\nquipu_things_total 7",
		"# TYPE quipu_room_bytes gauge\nquipu_room_bytes 1.5",
		`quipu_http_requests_total{code="200",method="GET",route="/x"} 2`,
		`quipu_http_requests_total{code="418",method="GET",route="/x"} 1`,
		`quipu_http_request_duration_seconds_bucket{method="GET",route="/x",le="0.001"} 1`,
		`quipu_rpc_calls_total{code="OK",method="Add"} 1`,
		`quipu_rpc_calls_total{code="Aborted",method="Add"} 1`,
		`quipu_rpc_call_duration_seconds_bucket{method="Add",le="0.001"} 1`,
		`quipu_connections_open{door="http"} 0`,
		`quipu_connections_refused_total{door="http"} 0`,
		"quipu_request_memory_bytes 7",
		"quipu_requests_waiting 0",
		"quipu_requests_refused_total 1",
	} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("no line %q in\n%s", line, w.Body)
		}
	}
}
