package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestServe(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := serve(t)
		if !regexp.MustCompile(`^ready http=127\.0\.0\.1:[1-9][0-9]*$`).MatchString(p.ready) {
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
		if !strings.Contains(p.stderr.String(), `"msg":"drained"`) {
			t.Errorf("log: %s", p.stderr)
		}
	}
}

// The doors that are not built yet take their flags.
func TestFlagsOfOtherDoors(t *testing.T) {
	p := serve(t, "--resp", "127.0.0.1:0", "--rpc", "off")
	if strings.Contains(p.ready, "resp") || strings.Contains(p.ready, "rpc") {
		t.Errorf("ready line %q", p.ready)
	}
}

func TestExposure(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0"} {
		refused(t, 2, "--api-key", "serve", "--store", "memory:", "--http", addr)
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
	refused(t, 1, "address already in use", "serve", "--store", "memory:", "--http", l.Addr().String())
}

func TestAPIKeys(t *testing.T) {
	p := serve(t, "--api-key", "one", "--api-key", "two")
	refused(t, 1, "unauthorized", "get", "a", "--addr", p.url)
	refused(t, 1, "unauthorized", "get", "a", "--addr", p.url, "--api-key", "three")
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
	f("/", 404, "not_found")
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
		if r := command(t, "QUIPU_HTTP=nonsense", "config", "check", file); r.code != 0 || r.stdout != file+": ok\n" {
			t.Errorf("config %q: %+v", text, r)
		}
	}
	ok("store: 'memory:'\n")
	ok("# nothing but this\nstore: 'memory:'\ndata: /var/lib/quipu\nhttp: 127.0.0.1:8080\nresp: off\napi-key: [a, b]\nmemory: 1GB\ntoken-window: 48h\ninsecure: true\n")
	ok("store: 'memory:'\napi-key: a\npolicies:\n  - {namespace: ads, pattern: 'view.*', durability: written}\n  - pattern: '*'\n")

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
	bad("2", "store: 'memory:'\nhtp: x\n", `unknown setting "htp"`)
	bad("1", "config: x\n", "unknown setting")
	bad("1", "help: true\n", "unknown setting")
	bad("2", "store: 'memory:'\nstore: 'memory:'\n", "given twice")
	bad("1", "[]\n", "want a mapping")
	bad("1", "memory: lots\n", "want a size")
	bad("1", "key-quota: x\n", "key-quota")
	bad("2", "store: 'memory:'\ntoken-window: 5\n", "token-window")
	bad("1", "http:\n", "want a plain value")
	bad("1", "http: [a]\n", "want a plain value")
	bad("1", "api-key: [[a]]\n", "want a list of plain values")
	bad("1", "policies: x\n", "want a list")
	bad("2", "policies:\n  - {patern: x}\n", "unknown setting \"patern\"")
	bad("4", "store: 'memory:'\npolicies:\n  - pattern: a\n    durability: strong\n", "strong")
	bad("2", "policies:\n  - pattern: 'a*b'\n", "pattern")
	bad("3", "policies:\n  - pattern: a\n  - namespace: b\n", "pattern is empty")
	bad("", " a: b\n\tc", "line")

	refused(t, 1, "no such file", "config", "check", "missing.yaml")
	refused(t, 1, "not built into this version", "config", "check", writeFile(t, "store: redis://x\n"))
}
