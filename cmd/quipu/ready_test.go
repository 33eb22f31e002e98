package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

// Whether a server is ready may be asked as often as one likes: that the store has
// lost what it had is told to who reads or writes.
func TestReadyTellsNoLoss(t *testing.T) {
	r := redisproc.For(t)
	p := start(t, nil, "--http", "127.0.0.1:0", "--store", "redis://"+r.Addr)
	for range 20 {
		p.client()("add", "a")
	}
	if code, body := httpGet(t.Context(), t, p.url+"/api/v1/counters/a"); code != 200 || !strings.Contains(body, `"value":20`) {
		t.Fatalf("%d %s", code, body)
	}
	if _, err := r.Command(t.Context(), "flushall"); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if code, body := httpGet(t.Context(), t, p.url+"/readyz"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	}
	if code, body := httpGet(t.Context(), t, p.url+"/api/v1/counters/a"); code != 500 || !strings.Contains(body, `"kind":"lost"`) {
		t.Errorf("after everything was lost: %d %s", code, body)
	}
}

// While PostgreSQL is away, who reads or asks whether the server is ready is told
// what is wrong.
func TestReadyWithoutPostgres(t *testing.T) {
	pg := startPostgres(t)
	p := start(t, nil, "--http", "127.0.0.1:0", "--store", pg.URL())
	p.client()("add", "a")
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`"detail":"(no connection to PostgreSQL|the connection to PostgreSQL failed|the store is unreachable since [^"]+)[:"]`)
	for _, path := range []string{"/readyz", "/api/v1/counters/a", "/readyz", "/api/v1/counters/a", "/api/v1/counters/a/exact"} {
		if code, body := httpGet(t.Context(), t, p.url+path); code != 503 || !want.MatchString(body) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// A server over a Redis Cluster that lacks one master is ready for the counters of
// the others, and says that some are out of reach.
func TestReadyOfACluster(t *testing.T) {
	c, err := redisproc.StartCluster(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	p := start(t, nil, "--http", "127.0.0.1:0", "--store", "redis://"+c.Nodes[0].Addr, "--request-timeout", "2s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	whole := func() {
		t.Helper()
		for metrics := ""; !strings.Contains(metrics, "\nquipu_partitions_unreachable 0\n"); { // until it is noticed
			if code, body := httpGet(ctx, t, p.url+"/readyz"); code != 200 {
				t.Fatalf("%d %s", code, body)
			}
			_, metrics = httpGet(ctx, t, p.url+"/metrics")
		}
	}
	whole()
	for _, slot := range []int{0, 8192, 16383} {
		master, replica, err := c.Owner(ctx, slot)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*redisproc.Server{replica, master} {
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if code, body := httpGet(ctx, t, p.url+"/readyz"); code != 200 || !strings.Contains(body, `"degraded"`) {
			t.Errorf("without the master of slot %d: %d %s", slot, code, body)
		}
		if _, metrics := httpGet(ctx, t, p.url+"/metrics"); strings.Contains(metrics, "\nquipu_partitions_unreachable 0\n") {
			t.Errorf("without the master of slot %d all partitions are there", slot)
		}
		for _, s := range []*redisproc.Server{master, replica} {
			if err := s.Restart(ctx); err != nil {
				t.Fatal(err)
			}
		}
		whole()
	}
}
