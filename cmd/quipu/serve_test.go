package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
)

func TestServe(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := serve(t)
		if !regexp.MustCompile(`^ready http=127\.0\.0\.1:[1-9][0-9]* resp=127\.0\.0\.1:[1-9][0-9]* rpc=127\.0\.0\.1:[1-9][0-9]*$`).MatchString(p.ready) {
			t.Errorf("ready line %q", p.ready)
		}
		if got := p.client()("add", "a"); got != "1" {
			t.Errorf("add: %q", got)
		}
		if code, rest := p.signal(s); code != 0 || rest != "" {
			t.Errorf("%v: exit %d, stdout %q", s, code, rest)
		}
		for line := range strings.Lines(p.stderr.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("log line %q is no JSON", line)
			}
		}
		for door := range strings.FieldsSeq(strings.TrimPrefix(p.ready, "ready ")) { // said once
			if strings.Contains(p.stderr.String(), door) {
				t.Errorf("the log repeats %s: %s", door, p.stderr)
			}
		}
		if !strings.Contains(p.stderr.String(), `"msg":"drained"`) {
			t.Errorf("log: %s", p.stderr)
		}
	}
}

// Each door may be the only one.
func TestDoorsMayBeOff(t *testing.T) {
	for _, door := range []string{"http", "resp", "rpc"} {
		args := []string{"--store", "memory:"}
		for _, other := range []string{"http", "resp", "rpc"} {
			if other != door {
				args = append(args, "--"+other, "off")
			}
		}
		p := start(t, nil, append(args, "--"+door, "127.0.0.1:0")...)
		if !strings.HasPrefix(p.ready, "ready "+door+"=") || strings.Count(p.ready, "=") != 1 {
			t.Errorf("ready line %q", p.ready)
		}
		if code, _ := p.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("%s: exit %d", door, code)
		}
	}
}

// The RPC door is another way to the same counters, behind the same keys.
func TestRPC(t *testing.T) {
	p := serve(t, "--api-key", "secret")
	_, addr, _ := strings.Cut(p.ready, "rpc=")
	db, err := client.Dial(t.Context(), addr, client.Options{APIKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if r, err := db.Add(t.Context(), "a", 41, quipu.WantValue()); err != nil || r.Value != 41 {
		t.Fatalf("Add: %+v, %v", r, err)
	}
	if got := p.client()("add", "a", "--api-key", "secret"); got != "42" {
		t.Errorf("add: %q", got)
	}
	if _, err := client.Dial(t.Context(), addr, client.Options{}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("Dial without a key: %v", err)
	}
	// A writer does not keep the server from ending.
	w, err := db.Writer(t.Context(), client.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 || strings.Contains(p.stderr.String(), "cut off") {
		t.Errorf("exit %d, log: %s", code, p.stderr)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Errorf("close a writer that has nothing to ship: %v", err)
	}
}

// Durations are logged in words.
func TestLoggedDurations(t *testing.T) {
	p := serve(t)
	if _, _ = p.signal(syscall.SIGTERM); !strings.Contains(p.stderr.String(), `"up_to":"6s"`) {
		t.Errorf("log: %s", p.stderr)
	}
}

func TestHosts(t *testing.T) {
	f := func(p *process, host string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, res.StatusCode, want)
		}
	}
	p := serve(t, "--allow-host", "quipu.lan")
	f(p, "evil.example", 421)
	f(p, "quipu.lan:8080", 200)
	f(p, "localhost:8080", 200)
	f(serve(t, "--api-key", "k"), "evil.example", 200)
	f(serve(t, "--insecure"), "evil.example", 200)
}

// A body that does not come ends its call, with the deadline of calls.
func TestSlowBody(t *testing.T) {
	p := serve(t, "--request-timeout", "50ms")
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "POST /api/v1/counters/a/increment HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || line != "HTTP/1.1 408 Request Timeout\r\n" {
		t.Errorf("reply %q, %v", line, err)
	}
}

func TestExposure(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0"} {
		refused(t, 2, "--api-key", "serve", "--store", "memory:", "--http", addr)
	}
	// Nothing was made by then.
	dir := filepath.Join(t.TempDir(), "data")
	refused(t, 2, "--api-key", "serve", "--data", dir, "--http", "0.0.0.0:0")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory was made: %v", err)
	}
	f := func(args ...string) {
		t.Helper()
		p := start(t, nil, append([]string{"--store", "memory:", "--http", "0.0.0.0:0"}, args...)...)
		if !strings.HasPrefix(p.ready, "ready http=") {
			t.Errorf("ready line %q", p.ready)
		}
	}
	f("--insecure")
	f("--api-key", "k")
}

func TestAddressInUse(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr := l.Addr().String()
	refused(t, 1, "--http "+addr+": address already in use; choose another with --http, or --http off", "serve", "--store", "memory:", "--http", addr)
	refused(t, 1, "--rpc "+addr+": address already in use; choose another with --rpc", "serve", "--store", "memory:", "--http", "off", "--rpc", addr)
}

func TestAPIKeys(t *testing.T) {
	p := serve(t, "--api-key", "one", "--api-key", "two")
	refused(t, 1, "needs an API key: give it with --api-key, or in QUIPU_API_KEY (unauthorized)", "get", "a", "--addr", p.url)
	refused(t, 1, "does not accept this API key: check --api-key and QUIPU_API_KEY (unauthorized)", "get", "a", "--addr", p.url, "--api-key", "three")
	for _, key := range []string{"one", "two"} {
		if r := command(t, "get", "a", "--addr", p.url, "--api-key", key); r.code != 0 {
			t.Errorf("key %s: %+v", key, r)
		}
	}
	// The server's own environment serves the client too.
	if r := command(t, "QUIPU_API_KEY=two,four", "get", "a", "--addr", p.url); r.code != 0 {
		t.Errorf("key of the environment: %+v", r)
	}
	p = start(t, []string{"QUIPU_API_KEY=five,six"}, "--store", "memory:", "--http", "127.0.0.1:0")
	if r := command(t, "get", "a", "--addr", p.url, "--api-key", "six"); r.code != 0 {
		t.Errorf("key of the server's environment: %+v", r)
	}
}

func httpGet(ctx context.Context, t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestEndpoints(t *testing.T) {
	p := serve(t)
	f := func(path string, want int, text string) {
		t.Helper()
		if code, body := httpGet(t.Context(), t, p.url+path); code != want || !strings.Contains(body, text) {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	f("/healthz", 200, "ok")
	f("/readyz", 200, "ready")
	f("/metrics", 200, `quipu_connections_open{door="http"}`)
	f("/openapi.json", 200, `"openapi"`)
	f("/debug/pprof/", 404, "not_found")
	f("/", 200, "<title>Quipu</title>")
	f("/nothing", 404, "not_found")
	p = serve(t, "--pprof")
	f("/debug/pprof/", 200, "goroutine")
}

func TestLimits(t *testing.T) {
	p := serve(t, "--key-quota", "1", "--token-quota", "2")
	client := p.client()
	client("add", "a")
	refused(t, 1, "(full)", "add", "b", "--addr", p.url)
	client("add", "a")
	refused(t, 1, "(full)", "add", "a", "--addr", p.url) // the third token
	p = serve(t, "--namespace-quota", "1")
	p.client()("add", "a")
	refused(t, 1, "(full)", "add", "a", "--namespace", "other", "--addr", p.url)
}

// What the disk has too little room for is said at the start.
func TestWarnFull(t *testing.T) {
	f := func(full float64, want string) {
		t.Helper()
		var log bytes.Buffer
		warnFull(func(f func(name, help string, value float64)) {
			f("quipu_disk_full", "", full)
			f("quipu_disk_free_bytes", "", 20<<20)
		}, 256<<20, slog.New(slog.NewTextHandler(&log, nil)))
		if got := log.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("log %q, want %q", got, want)
		}
	}
	f(0, "")
	f(1, `lower --memory" free="20.0 MiB" needed="320.0 MiB" memory="256.0 MiB"`)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "quipu.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A flag goes before the environment, and that before the file.
func TestPrecedence(t *testing.T) {
	file := writeFile(t, "store: 'memory:'\nhttp: 127.0.0.1:0\nlog-level: error\nlog-format: text\nkey-quota: 1\npprof: true\n")
	f := func(quota int, env []string, args ...string) {
		t.Helper()
		p := start(t, env, append(args, "--config", file)...)
		for i := range quota {
			p.client()("add", "key"+string(rune('a'+i)))
		}
		refused(t, 1, "(full)", "add", "one-too-many", "--addr", p.url)
	}
	f(1, nil)
	f(2, []string{"QUIPU_KEY_QUOTA=2"})
	f(3, []string{"QUIPU_KEY_QUOTA=2"}, "--key-quota", "3")

	// The file itself may be named in the environment, which other commands
	// take no notice of.
	p := start(t, []string{"QUIPU_CONFIG=" + file})
	if code, _ := httpGet(t.Context(), t, p.url+"/debug/pprof/"); code != 200 {
		t.Errorf("pprof of the file: %d", code)
	}
	if r := command(t, "QUIPU_CONFIG="+file, "QUIPU_ADDR="+p.url, "get", "a"); r.code != 0 {
		t.Errorf("get: %+v", r)
	}
}

func TestConfigCheck(t *testing.T) {
	ok := func(text string) {
		t.Helper()
		file := writeFile(t, text)
		if r := command(t, "QUIPU_HTTP=nonsense", "config", "check", file); r.code != 0 || !strings.HasPrefix(r.stdout, file+": ok\nmemory: ") {
			t.Errorf("config %q: %+v", text, r)
		}
	}
	ok("store: 'memory:'\n")
	ok("store: 'postgres://u:p@no.such.host.invalid/d'\nwait-for-store: 5m\n") // nobody is asked
	ok("store: 'redis://no.such.host.invalid:6379,127.0.0.1:1/3'\n")
	ok("# nothing but this\ndata: /var/lib/quipu\nhttp: 127.0.0.1:8080\nresp: off\napi-key: [a, b]\nmemory: 1GB\ntoken-window: 48h\ninsecure: true\n")
	ok("store: 'memory:'\napi-key: a\npolicies:\n  - {namespace: ads, pattern: 'view.*', durability: written}\n  - pattern: '*'\n")

	ok("store: 'memory:'\npolicies:\n")
	ok("store: 'memory:'\ndefinitions:\n")
	ok("store: 'memory:'\ndefinitions:\n  - {pattern: 'v:*', windows: [{every: 1d, zone: Europe/Berlin, keep: 5y}], dimensions: [country], ledger: all}\n")
	file := writeFile(t, "store: 'memory:'\npolicies:\n  - pattern: '*'\n  - pattern: 'likes:*'\n")
	if r := command(t, "config", "check", file); r.code != 0 || !strings.Contains(r.stderr, file+":4: policy 1 can never match: policy 0 matches all of its keys") {
		t.Errorf("a policy that can never match: %+v", r)
	}

	bad := func(line, text, want string) {
		t.Helper()
		file := writeFile(t, text)
		r := command(t, "config", "check", file)
		if r.code != 1 || !strings.Contains(r.stderr, file+":"+line) || !strings.Contains(r.stderr, want) {
			t.Errorf("config %q: %+v; want line %s and %q", text, r, line, want)
		}
		// The server refuses it with the same words.
		refused(t, 2, file+":"+line, "serve", "--config", file)
	}
	bad("2", "store: 'memory:'\nhtp: x\n", `unknown setting "htp": did you mean http?`)
	bad("1", "config: x\n", "unknown setting")
	bad("1", "help: true\n", "unknown setting")
	bad("2", "store: 'memory:'\nstore: 'memory:'\n", "given twice")
	bad("1", "[]\n", "want a mapping")
	bad("1", "memory: lots\n", "want a size")
	bad("1", "key-quota: x\n", "key-quota")
	bad("2: key-quota: want at least 1\n", "store: 'memory:'\nkey-quota: 0\n", "")
	bad("2: memory: want at least 16MiB\n", "store: 'memory:'\nmemory: 1MiB\n", "")
	bad("1: http: listen on", "http: nonsense\n", "")
	bad("2", "store: 'memory:'\ntoken-window: 5\n", "token-window")
	bad("1", "policies: [{pattern: a, stale: long}]\n", "want a duration such as 30s")
	bad("1", "policies: [{pattern: a, stale: -1s}]\n", `stale: "-1s": want 0s or more`)
	bad("3", "policies:\n  - pattern: a\n  - pattern: *likes\n", "quote the pattern")
	bad("2", "policies:\n  - {pattern: *}\n", "quote the pattern")
	bad("2", "policies:\n\t- pattern: a\n", "a tab can't indent in YAML: use spaces")
	bad("4", "policies:\n  - pattern: a\n\n\tstale: 1s\n", "a tab can't indent in YAML: use spaces")
	bad("2", "policies:\n  - {pattern: a, max_shards: 2}\n", `unknown setting "max_shards" of a policy: did you mean max-shards?`)
	bad("2", "policies:\n  - {pattern: a, colour: red}\n", "want preset, namespace, pattern,")
	bad("1", "http:\n", "want a plain value")
	bad("1", "http: [a]\n", "want a plain value")
	bad("1", "api-key: [[a]]\n", "want a list of plain values")
	bad("1", "policies: x\n", "want a list")
	bad("2", "policies:\n  - {patern: x}\n", "unknown setting \"patern\"")
	bad("4", "store: 'memory:'\npolicies:\n  - pattern: a\n    durability: strong\n", "strong")
	bad("2", "policies:\n  - pattern: 'a*b'\n", "pattern")
	bad("3", "policies:\n  - pattern: a\n  - namespace: b\n", "pattern is empty")
	bad("2", " a: b\n\tc", "a tab")
	bad("1", "http: [a\n", "expected ',' or ']'")
	bad("2", "store: 'memory:'\n---\nhttp: 127.0.0.1:0\n", "a second")
	bad("4", "store: 'memory:'\n---\n a: b\n\tc", "a tab")

	bad("1", "definitions: x\n", "want a list of definitions")
	bad("3", "definitions:\n  - pattern: a\n    windos: []\n", `unknown setting "windos" of a definition: want `)
	bad("4", "store: 'memory:'\ndefinitions:\n  - pattern: a\n    windows: [{every: 1d, zone: Europe/Bonn, keep: 1y}]\n", "Europe/Bonn")
	bad("2", "policies:\n  - {pattern: a, cool-down: 0s}\n", `cool-down: "0s": want more than 0s`)

	refused(t, 1, "no such file", "config", "check", "missing.yaml")
	// What serve refuses without a line of the file, the check does.
	both := func(text, want string) {
		t.Helper()
		file := writeFile(t, text)
		refused(t, 1, want, "config", "check", file)
		refused(t, 2, want, "serve", "--config", file)
	}
	both("store: mysql://x\n", "want embedded:, memory:, postgres://")
	both("store: postgres://h:x/d\n", "the URL of the PostgreSQL server can't be read")
	both("store: postgres://h/d?sslmode=loud\n", "the URL of the PostgreSQL server can't be read")
	both("store: redis://\n", "redis URL: no host")
	both("store: redis://h:1/x\n", "redis URL: host, user or database")
	both("store: redis://h:1?a=b\n", "redis URL: no options are taken")
	both("store: redis://h:1\nstore-name: 'a{b}'\n", "has a brace")
	both("store: redis://h:1\nwait-for-store: -1s\n", ":2: wait-for-store: want 0s or more")
	both("http: 0.0.0.0:0\n", "--api-key")
	both("http: nonsense\n", "listen on")
	both("http: 127.0.0.1:99999\n", "listen on")
	both("tls-cert: missing.pem\ntls-key: missing.pem\n", "no such file")
	both("tls-cert: missing.pem\n", "--tls-key: want the private key of --tls-cert")
	both("token-window: 999us\n", "at least 1ms")
	both("allow-host: ['a:1']\n", "without a port")
}

// The line is told at which a file stops to be YAML, whichever part of the parser
// notices, and wherever.
func TestConfigSyntaxLine(t *testing.T) {
	const head = "store: 'memory:'\npolicies:\n  - {pattern: a,\n     shards: 2}\n" // four lines that are right
	const tail = "  - pattern: z\n    shards: 2\n  - {pattern: y}\n"
	f := func(line int, text, want string) {
		t.Helper()
		var c config
		file := writeFile(t, text)
		if err := c.load(file, nil); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s:%d: ", file, line)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want line %d and %q", text, err, line, want)
		}
	}
	for _, end := range []string{"", tail} {
		f(5, head+"  - {pattern: b\n"+end, "expected ',' or '}'")
		f(5, head+"  - {pattern: b, shards: [1, 2\n"+end, "expected ',' or ']'")
		f(6, head+"  - pattern: b\n    preset: [}\n"+end, "expected node content")
		f(7, head+"  - pattern: b\n    shards: 2\n   single: true\n"+end, "expected")
		f(6, head+"  - pattern: b\n  preset: likes\n"+end, "expected '-' indicator")
		f(6, head+"  - pattern: b\n    preset: a: b\n"+end, "mapping values are not allowed")
		f(6, head+"  - pattern: b\n    preset\n"+end, "could not find expected ':'")
		f(6, head+"  - pattern: b\n    preset: @likes\n"+end, "cannot start any token")
		f(6, head+"  - pattern: b\n    preset: 'likes\n"+end, "found unexpected end of stream")
		f(5, head+"  - pattern: \"b\\q\"\n"+end, "found unknown escape character")
		f(5, head+"  - pattern: !x!y b\n"+end, "found undefined tag handle")
		f(5, head+"  - pattern: b\x01\n"+end, "control characters are not allowed")
		f(5, head+"  - pattern: b\xff\n"+end, "UTF-8")
		f(5, head+"  - pattern: *b\n"+end, "quote the pattern")
		f(6, head+"  - pattern: b*\n    shards: 'a' 2\n"+end, "expected key")
		f(5, head+"\t- pattern: b\n"+end, "use spaces")
	}
	f(1, "{", "")
	f(1, "store: [}\n", "expected node content")
	f(1, "store: 'memory:\n", "found unexpected end of stream")
	f(2, "store: a\n b: c\n", "mapping values are not allowed")
	f(1, "@\n"+strings.Repeat(tail, 10_000), "cannot start any token")
	f(30_005, head+strings.Repeat(tail, 10_000)+"  - {pattern: b\n", "expected ',' or '}'")

	// What would take too long to find is told without a line.
	var c config
	file := writeFile(t, "store: 'memory:\n"+strings.Repeat(tail, 10_000))
	if err := c.load(file, nil); err == nil || err.Error() != file+": found unexpected end of stream" {
		t.Errorf("a quote that is never closed: %v", err)
	}
}

// A flag that means nothing to the store is refused, and it alone is named.
func TestIgnoredFlags(t *testing.T) {
	const pg, redis = "postgres://127.0.0.1:1/db", "redis://127.0.0.1:1"
	for _, f := range [][]string{
		{pg, "--memory", "1GiB"},
		{redis, "--memory", "1GiB"},
		{"memory:", "--memory", "1GiB"},
		{pg, "--data", "x"},
		{"memory:", "--data", "x"},
		{"embedded:", "--store-name", "x"},
		{"memory:", "--store-name", "x"},
		{redis, "--store-connections", "4"},
		{"embedded:", "--store-connections", "4"},
		{pg, "--redis-replicas", "1"},
		{"embedded:", "--redis-allow-eviction"},
		{"embedded:", "--wait-for-store", "1s"},
	} {
		r := command(t, append([]string{"serve", "--http", "127.0.0.1:0", "--store"}, f...)...)
		if r.code != 2 || !strings.Contains(r.stderr, f[1]+": it is for") || strings.Count(r.stderr, "--") > 3 {
			t.Errorf("%q: %+v", f, r)
		}
	}
}
