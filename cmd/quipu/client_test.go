package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quipudb/quipu/store"
)

// A user's session.
func TestClient(t *testing.T) {
	p := serve(t)
	client := p.client()
	f := func(want string, args ...string) {
		t.Helper()
		if got := client(args...); got != want {
			t.Errorf("quipu %q: %q, want %q", args, got, want)
		}
	}
	f("1", "add", "views")
	f("6", "add", "views", "5")
	f("3", "add", "views", "-3")
	f("2", "add", "views", "--", "-1")
	f("12", "add", "--id", "order-1", "views", "10")
	f("12", "add", "views", "10", "--id", "order-1")
	f("12", "get", "views")
	f("12", "get", "views", "--exact")
	f("0", "get", "nothing")
	f("views\t12\nnothing\t0", "get", "views", "nothing")
	f("applied", "lookup", "order-1", "--key", "views")
	f("unknown", "lookup", "order-2", "--key", "views")
	f("settled", "settle", "order-2", "--key", "views")
	f("-9223372036854775808", "set", "low", "-9223372036854775808")
	f("100", "set", "stock", "100", "--if-version", "0")
	f("100", "reset", "stock")
	f("0", "delete", "stock")
	f("low\t-9223372036854775808\nviews\t12", "list")
	f("views\t12", "list", "v")
	f("", "list", "x")

	// Keys that no shell or URL likes.
	f("1", "add", "a/b %2F?#é", "1")
	f("1", "get", "a/b %2F?#é")
	f("7", "add", "-5", "7")
	f("6", "add", "-5", "-1")
	f("6", "get", "-5")
	f("6", "get", "--", "-5")
	f("8", "add", "--", "--key", "8")

	f("1", "add", "esc\x1b[31m")
	f(`"esc\x1b[31m"`+"\t1", "list", "esc")

	f("1", "add", "views", "--namespace", "shop")
	f("1", "get", "views", "--namespace", "shop")
	f("12", "get", "views")

	refused(t, 1, "(settled)", "add", "views", "--id", "order-2", "--addr", p.url)
	refused(t, 1, "(token)", "add", "views", "11", "--id", "order-1", "--addr", p.url)
	refused(t, 1, "(changed)", "set", "views", "1", "--if-version", "0", "--addr", p.url)
	refused(t, 1, "(changed)", "set", "views", "1", "--if-version", "99999", "--addr", p.url)
	refused(t, 1, "read with read=exact", "set", "views", "1", "--if-version", "4611686018427387904", "--addr", p.url)
	refused(t, 1, "is not a session", "get", "views", "--session", "nonsense", "--addr", p.url)
	refused(t, 1, "max_staleness: ", "get", "views", "--max-staleness=-1s", "--addr", p.url)
	refused(t, 1, "(overflow)", "add", "low", "-1", "--addr", p.url)
	refused(t, 1, "(too_large)", "add", strings.Repeat("k", 513), "--addr", p.url)
	refused(t, 1, "(invalid)", "add", "", "--addr", p.url)
	refused(t, 1, "(invalid)", "add", "a", "--namespace", "a/b", "--addr", p.url)
	f("12", "get", "views")
}

func TestClientJSON(t *testing.T) {
	// Totals are kept where a store is shared.
	p := serve(t, "--store", startPostgres(t).URL(), "--config", writeFile(t, "policies:\n  - {pattern: slow, timing: rollup, interval: 1h}\n"))
	client := p.client()
	f := func(want []string, args ...string) {
		t.Helper()
		got := client(append(args, "--json")...)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("quipu %q: no %q in %q", args, w, got)
			}
		}
	}
	f([]string{`{"key":"a","applied":2,"value":2,`}, "add", "a", "2", "--id", "t")
	f([]string{`{"key":"a","value":2,`, "\n{\"key\":\"b\","}, "get", "a", "b")
	f([]string{`{"key":"a","value":2,`}, "list")
	var r struct{ Session string }
	if err := json.Unmarshal([]byte(client("add", "c", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	f([]string{`{"key":"c","value":1,`, `"exact":true`}, "get", "c", "--session", r.Session)
	f([]string{`"source":"store"`}, "get", "slow")
	client("add", "slow")
	// A policy changes what a value is worth, not how it is printed.
	plain := func(stdout, stderr string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"get", "--addr", p.url, "slow"}, args...)...)
		if r.code != 0 || r.stdout != stdout || !strings.HasPrefix(r.stderr, stderr) || stderr == "" && r.stderr != "" {
			t.Errorf("get slow %q: %+v, want %q and %q", args, r, stdout, stderr)
		}
	}
	plain("0\n", "quipu: slow is not exact: as of ")
	plain("0\n", "quipu: slow is not exact: as of ", "--max-staleness", "1h")
	plain("slow\t0\nc\t1\n", "quipu: slow is not exact: as of ", "c")
	plain("1\n", "", "--exact")
	plain("1\n", "", "--max-staleness", "0s")
	if err := json.Unmarshal([]byte(client("add", "slow", "0", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	plain("1\n", "", "--session", r.Session)
	refused(t, 2, "--session is empty", "get", "slow", "--session", "", "--addr", p.url)
	refused(t, 2, "--session is empty", "QUIPU_SESSION=", "get", "slow", "--addr", p.url)
	// Nobody is told less than the exact reader was.
	f([]string{`{"key":"slow","value":1,`, `"source":"rollup"`}, "get", "slow", "--max-staleness", "1h")
	f([]string{`{"key":"slow","value":1,`, `"source":"store"`}, "get", "slow", "--max-staleness", "0s")
	f([]string{`{"key":"slow","value":1,`, `"source":"store"`}, "get", "slow", "--exact")
	f([]string{`{"id":"t","key":"a","state":"applied",`}, "lookup", "t", "--key", "a")
	f([]string{`{"ok":true,"cells":`, `"drift":[]`}, "verify") // A server's own entry in the list of servers is a cell too.
}

func TestList(t *testing.T) {
	p := serve(t)
	quipuOK := p.client()
	for i := range 7 {
		quipuOK("add", fmt.Sprintf("k%d", i))
	}
	r := command(t, "list", "--limit", "3", "--addr", p.url)
	if r.code != 0 || strings.Count(r.stdout, "\n") != 3 || !strings.Contains(r.stderr, "--all") {
		t.Errorf("list: %+v", r)
	}
	r = command(t, "list", "--limit", "3", "--all", "--addr", p.url)
	if r.code != 0 || strings.Count(r.stdout, "\n") != 7 || r.stderr != "" {
		t.Errorf("list --all: %+v", r)
	}
}

func TestVerify(t *testing.T) {
	p := serve(t)
	p.client()("add", "a")
	if got := p.client()("verify"); got != "ok: 1 cells, 1 tokens, 1 changes" {
		t.Errorf("verify: %q", got)
	}
	fake := reply(t, http.StatusOK, `{"ok":false,"cells":1,"tokens":0,"deltas":1,"drift":[{"what":"sum","have":"1","want":"2"}]}`)
	r := command(t, "verify", "--addr", fake)
	if r.code != 1 || r.stdout != "drift: sum: have 1, want 2\n" || r.stderr != "" {
		t.Errorf("verify with drift: %+v", r)
	}
	if r := command(t, "verify", "--json", "--addr", fake); r.code != 1 || !strings.Contains(r.stdout, `"drift":[{`) {
		t.Errorf("verify with drift: %+v", r)
	}
}

// reply serves the same reply to every request.
func reply(t *testing.T, status int, body string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A write whose outcome is unknown is sent again under the same token, whether
// the caller named it or not.
func TestRetry(t *testing.T) {
	var mu sync.Mutex // guards the two below
	var tokens []string
	fail := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, r.Header.Get("Idempotency-Key"))
		switch {
		case len(tokens) > fail:
			_, _ = w.Write([]byte(`{"value":7}`))
		case len(tokens)%2 == 1:
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			panic(http.ErrAbortHandler) // the connection breaks
		}
	}))
	defer s.Close()

	add := func(failures int, args ...string) (result, []string) {
		t.Helper()
		mu.Lock()
		tokens, fail = nil, failures
		mu.Unlock()
		r := command(t, append([]string{"add", "a", "--addr", s.URL}, args...)...)
		mu.Lock()
		defer mu.Unlock()
		return r, slices.Clone(tokens)
	}
	r, sent := add(2)
	if r.code != 0 || r.stdout != "7\n" || len(sent) != 3 || len(slices.Compact(slices.Clone(sent))) != 1 {
		t.Errorf("add: %+v, sent %q", r, sent)
	}
	if _, ok := store.TokenTime(sent[0]); !ok {
		t.Errorf("token %q carries no time", sent[0])
	}

	r, sent = add(99, "--id", "mine")
	if r.code != 4 || !strings.Contains(r.stderr, `--id "mine"`) || len(sent) < 3 || len(slices.Compact(sent)) != 1 {
		t.Errorf("add: %+v, sent %q", r, sent)
	}
}

func TestExitCodes(t *testing.T) {
	refused(t, 3, "connection refused", "add", "a", "--addr", "http://127.0.0.1:1")
	refused(t, 3, "connection refused", "get", "a", "--addr", "http://127.0.0.1:1")
	refused(t, 3, "busy (unavailable)", "get", "a", "--addr", reply(t, 503, `{"detail":"busy","kind":"unavailable"}`))
	refused(t, 3, "hm (unknown)", "get", "a", "--addr", reply(t, 504, `{"detail":"hm","kind":"unknown"}`))
	refused(t, 4, "hm (unknown)", "settle", "t", "--key", "a", "--addr", reply(t, 504, `{"detail":"hm","kind":"unknown"}`))
	refused(t, 1, "under request id r-7 (internal)", "get", "a", "--addr", reply(t, 500, `{"detail":"the log says more under this request id","kind":"internal","request_id":"r-7"}`))
	refused(t, 1, "500", "get", "a", "--addr", reply(t, 500, `not JSON`))
	refused(t, 1, "decode", "get", "a", "--addr", reply(t, 200, `not JSON`))
}

// A read at another door fails as any other; a write may have counted, for all
// that is known.
func TestWrongDoor(t *testing.T) {
	p := serve(t)
	_, rpc, _ := strings.Cut(p.ready, "rpc=")
	for _, addr := range []string{"http://127.0.0.1:" + p.respPort, "http://" + rpc} {
		refused(t, 1, "is that the REST API? --addr needs the address of the server's --http", "get", "a", "--addr", addr)
		refused(t, 1, "is that the REST API?", "advise", "--addr", addr)
		refused(t, 4, "is that the REST API?", "add", "a", "--addr", addr)
	}
}

// What a connection that is no HTTP ends by is left to chance: all of it is told
// alike.
func TestNotHTTP(t *testing.T) {
	f := func(err error) {
		t.Helper()
		r := remote{Addr: "http://127.0.0.1:6380"}
		for doubt, code := range map[int]int{exitUnavailable: exitFailed, exitUnknown: exitUnknown} {
			got := r.unreached(&url.Error{Op: "Get", URL: "http://127.0.0.1:6380/api/v1/x", Err: err}, doubt)
			if text := got.Error(); exitCode(got) != code || !strings.Contains(text, "at http://127.0.0.1:6380: ") ||
				!strings.Contains(text, "is that the REST API?") || strings.Contains(text, "%!w") || strings.Contains(text, "/api/") {
				t.Errorf("%v: exit %d, %v; want %d", err, exitCode(got), got, code)
			}
		}
	}
	f(io.EOF)
	f(io.ErrUnexpectedEOF)
	f(&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	f(&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)})
	f(errors.New("net/http: HTTP/1.x transport connection broken: %!w(<nil>)"))
	f(errors.New("readLoopPeekFailLocked: %!w(<nil>)"))
	f(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x18"`))
}

// A server that is not trusted was sent nothing.
func TestUntrustedCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	refused(t, 3, "SSL_CERT_FILE", "add", "a", "--addr", s.URL)
	host := strings.TrimPrefix(s.URL, "https://")
	refused(t, 1, "it speaks TLS: use --addr https://"+host, "add", "a", "--addr", host)
	refused(t, 3, "HTTP response to HTTPS client", "add", "a", "--addr", strings.Replace(reply(t, 200, "x"), "http:", "https:", 1))
	file := filepath.Join(t.TempDir(), "cert.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file)
	refused(t, 1, "404", "add", "a", "--addr", s.URL)
}

// What is not a file is not replaced by one.
func TestBackupReplacesFilesOnly(t *testing.T) {
	dir := t.TempDir()
	f := func(name, kind string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		refused(t, 2, "it is a "+kind, "backup", "--out", name, "--addr", reply(t, 200, "a backup"))
		if info, err := os.Lstat(name); err != nil || info.Mode().IsRegular() {
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	f(dir, "directory", nil)
	pipe := filepath.Join(dir, "pipe")
	f(pipe, "pipe", syscall.Mkfifo(pipe, 0o600))
	link := filepath.Join(dir, "link")
	f(link, "symbolic link", os.Symlink(pipe, link))
	// A socket stands for devices: a mistake here would replace the system's.
	socket := filepath.Join(dir, "socket")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	f(socket, "device or socket", nil)
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "q.tar")
	fake := reply(t, 200, "a backup")
	if r := command(t, "backup", "--out", file, "--addr", fake); r.code != 0 || r.stdout != "" {
		t.Errorf("backup: %+v", r)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "a backup" {
		t.Errorf("backup: %q, %v", raw, err)
	}
	if r := command(t, "backup", "--out", "-", "--addr", fake); r.code != 0 || r.stdout != "a backup" {
		t.Errorf("backup to stdout: %+v", r)
	}

	// What breaks leaves nothing, and the old one alone.
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
		panic(http.ErrAbortHandler)
	}))
	defer broken.Close()
	refused(t, 1, "read the backup", "backup", "--out", file, "--addr", broken.URL)
	refused(t, 1, "(unsupported)", "backup", "--out", file, "--addr", serve(t).url)
	entries, err := os.ReadDir(dir)
	if raw, _ := os.ReadFile(file); err != nil || len(entries) != 1 || string(raw) != "a backup" {
		t.Errorf("after failures: %v, %q, %v", entries, raw, err)
	}
}

// An address may leave out the scheme.
func TestAddress(t *testing.T) {
	p := serve(t)
	bare := strings.TrimPrefix(p.url, "http://")
	for _, addr := range []string{bare, p.url, p.url + "/"} {
		if r := command(t, "add", "k", "0", "--addr", addr); r.code != 0 || r.stdout != "0\n" {
			t.Errorf("add at %s: %+v", addr, r)
		}
	}
	for _, args := range [][]string{{"hot", "--once"}, {"policy", "list"}, {"verify"}, {"advise", "--for", "1ms"}} {
		if r := command(t, append(args, "--addr", bare)...); r.code != 0 {
			t.Errorf("%q at %s: %+v", args, bare, r)
		}
	}
	if r := command(t, "QUIPU_ADDR="+bare, "get", "k"); r.code != 0 || r.stdout != "0\n" {
		t.Errorf("by the environment: %+v", r)
	}
}
