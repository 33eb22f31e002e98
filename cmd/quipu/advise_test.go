package main

import (
	"bufio"
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
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
	f(quipu.Policy{Pattern: "*", Shards: 4}, "--writes-per-second", "1.5M", "--reads-per-second", "20k", "--accuracy", "exact", "--store", "postgres")
	f(quipu.Policy{Pattern: "stock: \"x\"*", Single: true}, "--writes-per-second", "1e3", "--reads-per-second", "0", "--bounded", "--pattern", "stock: \"x\"*")
	f(quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Second, Stale: 2 * time.Second},
		"--writes-per-second", "10", "--reads-per-second", "500", "--accuracy", "bounded", "--freshness", "2s", "--store", "postgres://u:secret@h/d", "--nodes", "3")

	r := command(t, "advise", "--writes-per-second", "1e6", "--reads-per-second", "10", "--accuracy", "exact", "--store", "redis", "--json")
	for _, want := range []string{`{"policy":{"pattern":"*","shards":2},`, `"store":"redis"`, `"reasons":{"shards":"1,000,000 writes`, `"cells":2`, `"not_built":[]`} {
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
	bad("is exact, so approximate is not possible", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "approximate", "--bounded")
	bad(`"20q": want a number from 0`, "--writes-per-second=20q")
	bad(`"-1": want a number from 0`, "--writes-per-second=-1")
	bad(`"-1": want a number from 0`, "--reads-per-second", "-1")
	bad(`"many": want a number from 0`, "--reads-per-second", "many")
	bad(`"NaN": want a number from 0`, "--reads-per-second", "NaN")
	bad(`--accuracy "sharp": want exact, bounded or approximate`, "--accuracy", "sharp")
	bad(`--accuracy "sharp": want exact, bounded or approximate`, "--accuracy", "sharp", "--addr", "http://127.0.0.1:1")
	bad("want a duration", "--freshness=-1s")
	bad(`"1e30": want a number from 0 to 1,000,000,000,000`, "--reads-per-second", "1e30")
	bad("--pattern: ", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "exact", "--pattern", "a*b")
	bad("--pattern: ", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "exact", "--pattern", "")
	bad("want exact, bounded or approximate", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "good", "--freshness", "1s")
	bad("want embedded:, memory:, postgres://", "--store", "mysql://x")
	bad("an embedded store has one server", "--writes-per-second", "1", "--reads-per-second", "1", "--accuracy", "exact", "--store", "embedded", "--nodes", "2")
	bad("--for 0s", "--addr", "http://127.0.0.1:1", "--for", "0s")
}

// The hottest counters of a server are judged by what they take and what they
// have; what should change is a configuration file that serve takes.
func TestAdviseHot(t *testing.T) {
	conf := writeFile(t, "policies:\n  - {pattern: 'wide*', shards: 8}\n  - {namespace: n, pattern: total, timing: rollup, interval: 5s}\n")
	p := serve(t, "--config", conf)
	look := func(args ...string) result {
		t.Helper()
		r := command(t, append([]string{"advise", "--addr", p.url}, args...)...)
		if r.code != 0 {
			t.Fatalf("advise %q: %+v", args, r)
		}
		return r
	}
	// Of a server that does nothing there is nothing to say.
	if r := look("--for", "1ms"); r.stdout != "# Too little was seen in 1ms to advise: 0 writes, 0 reads; look longer with --for.\n" || !strings.Contains(r.stderr, "store embedded: ") {
		t.Errorf("advise: %+v", r)
	}
	if r := look("--for", "1ms", "--json"); r.stdout != `{"counters":[]}`+"\n" {
		t.Errorf("advise --json: %+v", r)
	}
	const counters = "/api/v1/namespaces/n/counters/"
	var stop atomic.Bool
	var writers sync.WaitGroup
	defer func() { stop.Store(true); writers.Wait() }()
	for _, key := range []string{"wide", "total", "plain"} {
		writers.Go(func() {
			for !stop.Load() {
				writeBlind(t.Context(), t, p.url+counters+key+"/increment")
			}
		})
	}
	// A machine that is busy takes longer to write enough.
	var r result
	enough := ""
	for d := time.Second; d < 30*time.Second; d *= 2 {
		enough = d.String()
		if r = look("--for", enough); strings.Count(r.stdout, "# ") > 6 && !strings.Contains(strings.ToLower(r.stdout), "too little was seen") {
			break
		}
	}
	for _, want := range []string{
		"\n#   change shards from 8 to 1: one log takes all writes of an embedded store",
		"\n#   change timing from rollup to fan-in: an embedded store reads from its own memory",
		"\n#   it has the defaults: no policy names it\n#   nothing has to change in it\n",
		"\n#   it has policy 0, from the configuration file: {pattern: \"wide*\", shards: 8}\n",
		"\n#   its policy below must stand before \"wide*\" in the configuration file",
		"\n#   its policy below replaces that one\n",
		"\npolicies:\n",
	} {
		if !strings.Contains("\n"+r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	var c config
	if err := c.load(writeFile(t, r.stdout), nil); err != nil || len(c.policies) != 2 ||
		!slices.Contains(c.policies, quipu.Policy{Namespace: "n", Pattern: "wide"}) || !slices.Contains(c.policies, quipu.Policy{Namespace: "n", Pattern: "total"}) {
		t.Errorf("policies %v, %v of\n%s", c.policies, err, r.stdout)
	}
	r = look("--json", "--for", enough)
	for _, want := range []string{
		`"key":"wide","rate":`, `"policy":{"pattern":"wide*","shards":8},"advised":{"namespace":"n","pattern":"wide"},"changes":[{"setting":"shards","from":"8","to":"1","why":"`,
		`"policy":null,"advised":null,"changes":[],"notes":[]}`,
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %s in %s", want, r.stdout)
		}
	}
	for _, flag := range []string{"--writes-per-second=1", "--bounded", "--unique", "--store=redis", "--pattern=a"} {
		refused(t, 2, "leave out --", "advise", "--addr", p.url, flag)
	}
	refused(t, 2, "give --freshness", "advise", "--addr", p.url, "--accuracy", "bounded")
	refused(t, 2, "--freshness needs --accuracy", "advise", "--addr", p.url, "--freshness", "1s")
	refused(t, 1, "has no metrics of quipu", "advise", "--addr", reply(t, 200, "x 1"), "--for", "1ms")
	refused(t, 3, "connection refused", "advise", "--addr", "http://127.0.0.1:1")
}

func TestRates(t *testing.T) {
	const get, post, batch, read = `quipu_http_requests_total{code="200",method="GET",route="/api/v1/namespaces/{ns}/counters/{key}"}`,
		`quipu_http_requests_total{code="200",method="POST",route="/api/v1/counters/{key}/increment"}`,
		`quipu_http_requests_total{code="200",method="GET",route="/metrics"}`,
		`quipu_http_requests_total{code="200",method="POST",route="/api/v1/read"}`
	before := sample{get: 10, "quipu_postgres_connections": 1}
	after := sample{get: 30, post: 1000, batch: 1000, read: 4, "quipu_postgres_connections": 1, "quipu_resp_commands_total": 8}
	if got, want := after.since(before, 2*time.Second), (rates{reads: 12, resp: 4}); got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
	embedded := sample{get: 1000, "quipu_store_reads_total": 20}
	if got, want := embedded.since(nil, time.Second), (rates{reads: 20}); got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
}

// On a terminal, what is missing is asked for until the answer can be used.
func TestAdviseAsks(t *testing.T) {
	f := func(flags adviseCmd, given string, answers string, asked int, want advise.Needs) {
		t.Helper()
		flags.Pattern, flags.Nodes = cmp.Or(flags.Pattern, "*"), max(flags.Nodes, 1)
		want.Pattern, want.Nodes = cmp.Or(want.Pattern, "*"), max(want.Nodes, 1)
		n, err := flags.needs()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		q := questions{in: bufio.NewScanner(strings.NewReader(answers)), out: &out}
		flags.ask(&q, func(name string) bool { return slices.Contains(strings.Fields(given), name) }, &n)
		if q.err == nil {
			q.err = flags.missing(&n)
		}
		if q.err != nil || n != want || strings.Count(out.String(), "?") != asked {
			t.Errorf("%q: %+v, %v, want %+v\n%s", answers, n, q.err, want, &out)
		}
	}
	const where = "pattern nodes" // and a store
	f(adviseCmd{}, "", "\n\n\n\n\n\n\n\n", 8, advise.Needs{Store: advise.Embedded, Writes: 100, Reads: 1000, Accuracy: advise.Exact})
	f(adviseCmd{Store: "redis"}, where, "20,000\nmany\n-1\n5\nno\nn\nbest\nbounded\nsoon\n2s\n", 10,
		advise.Needs{Store: advise.Redis, Writes: 20_000, Reads: 5, Accuracy: advise.Bounded, Freshness: 2 * time.Second})
	f(adviseCmd{Store: "redis"}, where, "1\n2\nmaybe\nyes\n", 4, advise.Needs{Store: advise.Redis, Writes: 1, Reads: 2, Bounded: true, Accuracy: advise.Exact})
	f(adviseCmd{Store: "redis"}, where, "1\n2\n\ny\n\n", 5, advise.Needs{Store: advise.Redis, Writes: 1, Reads: 2, Unique: true, Accuracy: advise.Exact})
	one, second := rate(1), time.Second
	f(adviseCmd{Writes: &one, Reads: &one, Accuracy: "approximate", Freshness: &second, Store: "redis"}, where, "", 0,
		advise.Needs{Store: advise.Redis, Writes: 1, Reads: 1, Accuracy: advise.Approximate, Freshness: time.Second})
	f(adviseCmd{Writes: &one, Reads: &one, Unique: true, Store: "redis"}, where+" unique", "exact\n", 1,
		advise.Needs{Store: advise.Redis, Writes: 1, Reads: 1, Unique: true, Accuracy: advise.Exact})

	// Where it is counted: servers that share a store leave less of a choice.
	told := adviseCmd{Writes: &one, Reads: &one, Accuracy: "exact"}
	want := advise.Needs{Writes: 1, Reads: 1, Accuracy: advise.Exact, Pattern: "likes:*", Nodes: 2, Store: advise.Postgres}
	f(told, "", "a*b\nlikes:*\nfew\n0\n2\nembedded\n\n", 7, want)
	told.Nodes, told.Pattern, want.Store = 2, "likes:*", advise.Redis
	f(told, where, "mysql\nredis\n", 2, want)
	told.Nodes, told.Store, want.Nodes, want.Store = 1, "embedded", 1, advise.Embedded
	f(told, "pattern", "", 0, want)

	q := questions{in: bufio.NewScanner(strings.NewReader("1\n")), out: &bytes.Buffer{}}
	n := advise.Needs{Pattern: "*", Nodes: 1, Writes: unknown, Reads: unknown}
	(&adviseCmd{}).ask(&q, func(string) bool { return false }, &n)
	if q.err == nil || exitCode(q.err) != exitUsage {
		t.Errorf("answers that end: %v", q.err)
	}
}
