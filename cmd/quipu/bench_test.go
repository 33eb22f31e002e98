package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

func TestBenchUsage(t *testing.T) {
	f := func(text string, args ...string) {
		t.Helper()
		refused(t, 2, text, append([]string{"bench"}, args...)...)
	}
	f("want redis://", "--target", "ftp://127.0.0.1")
	f("--op", "--op", "lpush")
	f("--dist", "--dist", "normal")
	f("0 keys", "--dist", "uniform", "--keys", "0")
	f("0 connections", "-c", "0")
	f("depth 0", "--depth", "0")
	f("duration", "--duration", "0s")
	f("--requests 0: want a number from 1", "--requests", "0")
	f("--requests -1: want a number from 1", "--requests=-1")
	f("share of reads", "--op", "mixed", "--read-share", "2")
	f("rate", "--rate=-1")
	f("one key goes with distribution hot", "--key", "a", "--dist", "zipf")
}

// What is sent through the REST door is counted.
func TestBenchREST(t *testing.T) {
	p := serve(t)
	bench := func(args ...string) result {
		t.Helper()
		return command(t, append([]string{"bench", "--target", p.url, "--warmup", "0s", "-c", "3"}, args...)...)
	}
	want := regexp.MustCompile(`^http://\S+: incr, one hot key, 3 connections, depth 1, closed loop
1,001 operations in [0-9.]+ s, [0-9,]+/s, 0 errors
latency: p50 \S+ ms, p90 \S+ ms, p99 \S+ ms, p99\.9 \S+ ms, max \S+ ms
client:  [0-9,]+ ns of CPU an operation, [0-9.]+ cores busy
$`)
	if r := bench("--requests", "1001"); r.code != 0 || !want.MatchString(r.stdout) || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	if got := p.client()("get", "key:000000000000"); got != "1001" {
		t.Errorf("counted %s", got)
	}
	for _, args := range [][]string{
		{"--op", "set", "--dist", "uniform", "--keys", "10"},
		{"--op", "get", "--dist", "zipf", "--keys", "10", "--depth", "7"},
		{"--op", "mixed", "--rate", "2000"},
	} {
		if r := bench(append(args, "--requests", "500")...); r.code != 0 || !strings.Contains(r.stdout, "500 operations") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if got := p.client()("list"); strings.Count(got, "\n")+1 != 10 {
		t.Errorf("listed %q", got)
	}
	const own = "likes/42 é"
	r := bench("--requests", "7", "--op", "add", "--key", own)
	if value := p.client()("get", own); value != "7" || !strings.Contains(r.stdout, `: add, hot key "likes/42 é", 3`) {
		t.Errorf("counted %s: %+v", value, r)
	}
}

// What is sent through the RESP door is counted, and the server's process found.
func TestBenchRESP(t *testing.T) {
	p := start(t, nil, "--store", "memory:", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "off")
	m := regexp.MustCompile(`resp=(\S+)`).FindStringSubmatch(p.ready)
	if m == nil {
		t.Fatalf("ready line %q", p.ready)
	}
	r := command(t, "bench", "--target", m[1], "--warmup", "0s", "--depth", "16", "--requests", "10001", "--json")
	var got load.Report
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	if got.Operations != 10_001 || got.Errors != 0 || got.Server == nil || got.Server.PID != p.c.Process.Pid {
		t.Errorf("%+v", got)
	}
	if value := p.client()("get", "key:000000000000"); value != "10001" {
		t.Errorf("counted %s", value)
	}
	command(t, "bench", "--target", m[1], "--warmup", "0s", "--requests", "7", "--op", "mixed", "--read-share", "0", "--key", "-5")
	if value := p.client()("get", "-5"); value != "7" {
		t.Errorf("counted %s of its own key", value)
	}
}

// A server that denies access is asked no further, whichever door it is.
func TestBenchDenied(t *testing.T) {
	p := start(t, nil, "--store", "memory:", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "off", "--api-key", "secret")
	resp := regexp.MustCompile(`resp=(\S+)`).FindStringSubmatch(p.ready)
	if resp == nil {
		t.Fatalf("ready line %q", p.ready)
	}
	redis := redisproc.For(t, "--requirepass", "secret")
	for target, reply := range map[string]string{p.url: "401 Unauthorized", resp[1]: "NOAUTH ", redis.Addr: "NOAUTH "} {
		for _, warmup := range []string{"0s", "10m"} {
			r := command(t, "bench", "--target", target, "--warmup", warmup, "--duration", "10m", "--depth", "3")
			if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "the server denies access: "+reply) || !strings.Contains(r.stderr, "with --api-key") {
				t.Errorf("%+v", r)
			}
		}
		if r := command(t, "bench", "--target", target, "--warmup", "0s", "--requests", "100", "--api-key", "secret"); r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// What a server refuses of its own accord is counted.
func TestBenchRefused(t *testing.T) {
	p := serve(t)
	p.client()("set", "full", "9223372036854775807")
	r := command(t, "bench", "--target", p.url, "--warmup", "0s", "--requests", "100", "--key", "full")
	if r.code != 1 || !strings.Contains(r.stdout, "100 errors") || !strings.Contains(r.stderr, "replied 100 errors, the first: 4") {
		t.Errorf("%+v", r)
	}
}

// The REST door has another target.
func TestBenchWrongDoor(t *testing.T) {
	p := serve(t)
	refused(t, 1, "speaks HTTP: want --target http://HOST:PORT", "bench", "--target", strings.TrimPrefix(p.url, "http://"), "--requests", "10")
}

func TestBenchUnreachable(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	plot := filepath.Join(t.TempDir(), "x.svg")
	refused(t, 3, "connect to redis://"+addr, "bench", "--target", "redis://"+addr, "--plot", plot)
	if _, err := os.Stat(plot); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a chart of nothing: %v", err)
	}
	refused(t, 1, "--plot", "bench", "--plot", filepath.Join(plot, "y.svg"))
}

// A Redis server is measured, its process found, the result drawn.
func TestBenchRedis(t *testing.T) {
	s := redisproc.For(t)
	plot := filepath.Join(t.TempDir(), "x.svg")
	r := command(t, "bench", "--target", s.Addr, "--duration", "300ms", "--warmup", "10ms", "--depth", "16", "--json", "--plot", plot)
	var got load.Report
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	if got.Operations == 0 || got.Errors != 0 || got.Server == nil || got.Server.PID != s.PID() || got.Client == nil || got.Config.Depth != 16 {
		t.Errorf("%+v", got)
	}
	raw, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(raw))
	for err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) || !bytes.Contains(raw, []byte("<svg")) {
		t.Errorf("%v in %s", err, raw)
	}
}

// Ctrl-C prints what was measured so far.
func TestBenchInterrupted(t *testing.T) {
	s := redisproc.For(t)
	c := exec.CommandContext(t.Context(), binary, "bench", "--target", s.Addr, "--duration", "10m", "--warmup", "0s")
	c.Env = environment()
	var out bytes.Buffer
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for working := false; !working; {
		working = redisCounted(t, s) != "0"
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "0 errors, interrupted") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// redisCounted returns the number of keys that a server has.
func redisCounted(t *testing.T, s *redisproc.Server) string {
	t.Helper()
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "DBSIZE\r\nQUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ := strings.Cut(strings.TrimPrefix(string(raw), ":"), "\r\n")
	return n
}
