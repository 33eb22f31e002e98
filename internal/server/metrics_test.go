package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/server"
)

type twoMeters struct{}

func (twoMeters) Meters(f func(name, help string, value float64)) {
	f("quipu_things_total", "Things.", 7)
	f("quipu_room_bytes", "Room.", 1.5)
}

// Hottest returns two counters, of which one is split and has a total.
func (twoMeters) Hottest(n int) []port.HotCounter {
	return []port.HotCounter{
		{
			Namespace: "n", Key: "a\nb", Rate: 1000.5, Shards: 4, GrowthRate: 2000, Waiting: 0.25, RetryRate: 12.5, P99: 10 * time.Millisecond, SlowestShard: 20 * time.Millisecond,
			Asked: 0.5, Decided: 0.75,
			RollupAge: 3 * time.Second, RollupEvery: 2 * time.Second, HasRollup: true,
		},
		{Namespace: "n", Key: "c", Rate: float64(n), Shards: 1},
	}
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
	m.Route("GET", "/nobody")
	m.Call("Nobody")
	c := m.Call("Add")
	c.Observe(codes.OK, time.Millisecond)
	c.Observe(codes.Aborted, time.Second)
	m.Commands().Observe(time.Millisecond, 3)
	m.Commands().Observe(2*time.Millisecond, 5)
	m.Commands().Observe(time.Minute, 1)
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
		"# TYPE quipu_resp_command_duration_seconds histogram\n" + `quipu_resp_command_duration_seconds_bucket{le="0.0001"} 0`,
		`quipu_resp_command_duration_seconds_bucket{le="0.001"} 3`,
		`quipu_resp_command_duration_seconds_bucket{le="0.0025"} 8`,
		`quipu_resp_command_duration_seconds_bucket{le="10"} 8`,
		`quipu_resp_command_duration_seconds_bucket{le="+Inf"} 9`,
		"quipu_resp_command_duration_seconds_sum 60.013",
		"quipu_resp_command_duration_seconds_count 9",
		`quipu_connections_open{door="http"} 0`,
		`quipu_connections_refused_total{door="http"} 0`,
		"quipu_request_memory_bytes 7",
		"quipu_requests_waiting 0",
		"quipu_requests_refused_total 1",
		`quipu_hot_rate{key="a\nb",namespace="n"} 1000.5`,
		`quipu_hot_rate{key="c",namespace="n"} 10`, // so many are asked for
		`quipu_hot_shards{key="a\nb",namespace="n"} 4`,
		`quipu_hot_shards{key="c",namespace="n"} 1`,
		`quipu_hot_growth_rate{key="a\nb",namespace="n"} 2000`,
		`quipu_hot_rollup_age_ratio{key="a\nb",namespace="n"} 1.5`,
		`quipu_hot_waiting_ratio{key="a\nb",namespace="n"} 0.25`,
		`quipu_hot_waiting_ratio{key="c",namespace="n"} 0`,
		`quipu_hot_retries{key="a\nb",namespace="n"} 12.5`,
		`quipu_hot_retries{key="c",namespace="n"} 0`,
		`quipu_hot_p99_seconds{key="a\nb",namespace="n"} 0.01`,
		`quipu_hot_shard_seconds_max{key="a\nb",namespace="n"} 0.02`,
		`quipu_hot_decided_ratio{key="a\nb",namespace="n"} 0.75`,
		`quipu_hot_value_ratio{key="a\nb",namespace="n"} 0.5`,
		`quipu_hot_value_ratio{key="c",namespace="n"} 0`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("no line %q in\n%s", line, w.Body)
		}
	}
	if strings.Contains(strings.ToLower(w.Body.String()), "nobody") {
		t.Errorf("series of what nobody has called in\n%s", w.Body)
	}
	// What has no meaning is left out.
	for _, name := range []string{"quipu_hot_growth_rate{", "quipu_hot_rollup_age_ratio{", "quipu_hot_shard_seconds_max{", "quipu_hot_p99_seconds{"} {
		if n := strings.Count(w.Body.String(), name); n != 1 {
			t.Errorf("%d times %s", n, name)
		}
	}
}
