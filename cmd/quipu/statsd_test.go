package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What StatsD has sent and the server has taken is on the disk when it has drained.
func TestStatsD(t *testing.T) {
	data := t.TempDir()
	flags := []string{"--http", "127.0.0.1:0", "--data", data, "--statsd", "127.0.0.1:0", "--statsd-namespace", "udp"}
	p := start(t, nil, flags...)
	c, err := net.Dial("udp", p.addrOf("statsd"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte(strings.Repeat("a:2|c\n", 500) + "b|c\n")); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-tick.C {
		r, err := http.Get(p.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if strings.Contains(text, "quipu_statsd_counters_total 500\n") && strings.Contains(text, "quipu_statsd_malformed_total 1\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no lines came")
		}
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	p = start(t, nil, flags...)
	if got := p.client()("get", "--namespace", "udp", "a"); got != "1000" {
		t.Errorf("a is %s", got)
	}
	refused(t, 2, "StatsD has no keys: give --insecure", "serve", "--store", "memory:", "--statsd", "0.0.0.0:8125", "--api-key", "k")
	refused(t, 2, "--statsd", "serve", "--store", "memory:", "--statsd", "nonsense")
	refused(t, 2, "--statsd-namespace", "serve", "--store", "memory:", "--statsd", "127.0.0.1:0", "--statsd-namespace", "")
	refused(t, 2, "takes no writes", "serve", "--store", "memory:", "--statsd", "127.0.0.1:0", "--read-only")
}
