package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/advise"
)

// What is advised is a configuration file that serve takes.
func TestAdvise(t *testing.T) {
	f := func(want quipu.Policy, args ...string) {
		t.Helper()
		r := command(t, append([]string{"advise"}, args...)...)
		file := writeFile(t, r.stdout)
		var c config
		if err := c.load(file, nil); err != nil || r.code != 0 || len(c.policies) != 1 || c.policies[0] != want {
			t.Errorf("advise %q: %v, %+v, %v; want %s", args, c.policies, r, err, want)
		}
	}
	f(quipu.Policy{Pattern: "*"}, "--writes-per-second", "10", "--reads-per-second", "10", "--accuracy", "exact")
	f(quipu.Policy{Pattern: "stock: \"x\"*", Single: true}, "--writes-per-second", "1e3", "--reads-per-second", "0", "--bounded", "--pattern", "stock: \"x\"*")
	f(quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Second, Stale: 2 * time.Second},
		"--writes-per-second", "10", "--reads-per-second", "500", "--accuracy", "bounded", "--freshness", "2s", "--store", "postgres://u:secret@h/d", "--nodes", "3")

	r := command(t, "advise", "--writes-per-second", "1e6", "--reads-per-second", "10", "--accuracy", "exact", "--store", "redis", "--json")
	for _, want := range []string{`{"policy":{"pattern":"*","shards":2},`, `"store":"redis"`, `"reasons":{"shards":"1,000,000 writes`, `"cells":3`, `"not_built":[]`} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("advise --json: %+v, want %s", r, want)
		}
	}

	bad := func(text string, args ...string) {
		t.Helper()
		refused(t, 2, text, append([]string{"advise"}, args...)...)
	}
	bad("give --writes-per-second, --reads-per-second, --accuracy")
	bad("give --freshness", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "bounded")
	bad("want a number from 0", "--writes-per-second=-1")
	bad("want a duration", "--freshness=-1s")
	bad("want exact, bounded or approximate", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "good", "--freshness", "1s")
	bad("want embedded:, memory:, postgres://", "--store", "mysql://x")
	bad("an embedded store has one server", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "exact", "--store", "embedded", "--nodes", "2")
	bad("--for 0s", "--addr", "http://127.0.0.1:1", "--for", "0s")
}

// A server is looked at twice, and what moved in between is its rate.
func TestAdviseLooks(t *testing.T) {
	p := serve(t)
	r := command(t, "advise", "--addr", p.url, "--for", "10ms", "--accuracy", "exact")
	if r.code != 0 || !strings.Contains(r.stderr, "seen on embedded: 0 writes and 0 reads a second") || !strings.Contains(r.stdout, "with 0 writes and 0 reads a second") {
		t.Errorf("advise: %+v", r)
	}
	var looks atomic.Int64
	url := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		n := looks.Add(1)
		_, _ = fmt.Fprintf(w, "# HELP a b\nquipu_writes_refused_total 0\nquipu_redis_calls_total 7\nquipu_node_callers_total %d\nquipu_resp_commands_total 5\n"+
			"quipu_http_requests_total{code=\"200\",method=\"GET\",route=\"/api/v1/counters/{key}\"} %d\n", n*1e9, n*2e9)
	})
	r = command(t, "advise", "--addr", url, "--for", "1ms", "--accuracy", "exact", "--writes-per-second", "3", "--json")
	if r.code != 0 || !strings.Contains(r.stdout, `"store":"redis"`) || !strings.Contains(r.stdout, `"write_calls_most":3,`) || strings.Contains(r.stdout, `"read_calls":0,`) {
		t.Errorf("advise: %+v", r)
	}
	refused(t, 1, "has no metrics of quipu", "advise", "--addr", reply(t, 200, "x 1"), "--for", "1ms")
	refused(t, 3, "connection refused", "advise", "--addr", "http://127.0.0.1:1")
}

func TestRates(t *testing.T) {
	const get, post, batch, read = `quipu_http_requests_total{code="200",method="GET",route="/api/v1/namespaces/{ns}/counters/{key}"}`,
		`quipu_http_requests_total{code="200",method="POST",route="/api/v1/counters/{key}/increment"}`,
		`quipu_http_requests_total{code="200",method="GET",route="/metrics"}`,
		`quipu_http_requests_total{code="200",method="POST",route="/api/v1/read"}`
	before := sample{get: 10, "quipu_postgres_connections": 1, "quipu_node_callers_total": 100}
	after := sample{get: 30, post: 1000, batch: 1000, read: 4, "quipu_postgres_connections": 1, "quipu_node_callers_total": 500, "quipu_resp_commands_total": 8}
	if got, want := after.since(before, 2*time.Second), (rates{writes: 200, reads: 12, resp: 4}); got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
	embedded := sample{get: 1000, "quipu_store_deltas_total": 10, "quipu_store_reads_total": 20}
	if got, want := embedded.since(nil, time.Second), (rates{writes: 10, reads: 20}); got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
}

// On a terminal, what is missing is asked for until the answer can be used.
func TestAdviseAsks(t *testing.T) {
	f := func(flags adviseCmd, given string, answers string, asked int, want advise.Needs) {
		t.Helper()
		n, err := flags.needs()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		q := questions{in: bufio.NewScanner(strings.NewReader(answers)), out: &out}
		flags.ask(&q, func(name string) bool { return strings.Contains(given, name) }, &n)
		if q.err == nil {
			q.err = flags.missing(&n)
		}
		if q.err != nil || n != want || strings.Count(out.String(), "?") != asked {
			t.Errorf("%q: %+v, %v, want %+v\n%s", answers, n, q.err, want, &out)
		}
	}
	f(adviseCmd{}, "", "\n\n\n\n\n", 5, advise.Needs{Writes: 100, Reads: 1000, Accuracy: advise.Exact})
	f(adviseCmd{}, "", "20,000\nmany\n-1\n5\nno\nn\nbest\nbounded\nsoon\n2s\n", 10, advise.Needs{Writes: 20_000, Reads: 5, Accuracy: advise.Bounded, Freshness: 2 * time.Second})
	f(adviseCmd{}, "", "1\n2\nmaybe\nyes\n", 4, advise.Needs{Writes: 1, Reads: 2, Bounded: true, Accuracy: advise.Exact})
	f(adviseCmd{}, "", "1\n2\n\ny\n\n", 5, advise.Needs{Writes: 1, Reads: 2, Unique: true, Accuracy: advise.Exact})
	one, second := 1.0, time.Second
	f(adviseCmd{Writes: &one, Reads: &one, Accuracy: "approximate", Freshness: &second}, "", "", 0,
		advise.Needs{Writes: 1, Reads: 1, Accuracy: advise.Approximate, Freshness: time.Second})
	f(adviseCmd{Writes: &one, Reads: &one, Unique: true}, "unique", "exact\n", 1, advise.Needs{Writes: 1, Reads: 1, Unique: true, Accuracy: advise.Exact})

	q := questions{in: bufio.NewScanner(strings.NewReader("1\n")), out: &bytes.Buffer{}}
	var n advise.Needs
	n.Writes, n.Reads = unknown, unknown
	(&adviseCmd{}).ask(&q, func(string) bool { return false }, &n)
	if q.err == nil || exitCode(q.err) != exitUsage {
		t.Errorf("answers that end: %v", q.err)
	}
}
