package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

func TestAPIKeys(t *testing.T) {
	keys, err := server.NewKeys([]string{"first", "second"})
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, rest.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})})
	const path = "/api/v1/counters/a/increment"
	for _, header := range []string{
		"X-None: 1", "Authorization: Bearer", "Authorization: Bearer third", "Authorization: Bearer firs", "Authorization: first", "Authorization: Basic first",
	} {
		r := f.do("POST", path, "", header)
		r.problem(t, 401, "unauthorized", "API key")
		if r.header.Get("WWW-Authenticate") != `Bearer realm="quipu"` {
			t.Errorf("headers %v", r.header)
		}
	}
	f.do("POST", path, "", "Authorization: Bearer first").want(t, 200, "value=1")
	f.do("POST", path, "", "Authorization: bearer  second").want(t, 200, "value=2")
	for _, r := range rest.Routes() {
		method, path, _ := strings.Cut(r, " ")
		want := http.StatusUnauthorized
		if path == "/healthz" || path == "/readyz" || path == "/openapi.json" || r == "DELETE /api/v1/session" {
			want = http.StatusOK
		}
		if got := f.do(method, strings.NewReplacer("{", "", "}", "").Replace(path), "").status; got != want {
			t.Errorf("%s without a key: %d, want %d", r, got, want)
		}
	}
}

func TestCrossOrigin(t *testing.T) {
	f := open(t, rest.Options{})
	const path = "/api/v1/counters/a"
	f.do("POST", path+"/increment", "", "Sec-Fetch-Site: cross-site").problem(t, 403, "forbidden", "origin")
	f.do("POST", path+"/increment", "", "Origin: https://example.com").problem(t, 403, "forbidden", "origin")
	f.do("POST", path+"/increment", "", "Sec-Fetch-Site: same-origin").want(t, 200, "value=1")
	f.do("POST", path+"/increment", "", "Origin: "+f.url).want(t, 200, "value=2")
	f.do("GET", path, "", "Sec-Fetch-Site: cross-site").want(t, 200, "value=2")

	// Every route is closed to pages of other origins, unless it is one of few.
	public := []string{"/healthz", "/readyz", "/openapi.json", "/api/v1/counters/{key}", "/api/v1/namespaces/{ns}/counters/{key}"}
	for _, r := range rest.Routes() {
		method, path, _ := strings.Cut(r, " ")
		at := strings.NewReplacer("{", "", "}", "").Replace(path)
		for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://example.com", "Origin: null"} {
			got := f.do(method, at, "", header)
			if open := method == "GET" && slices.Contains(public, path); open == (got.status == http.StatusForbidden) {
				t.Errorf("%s with %s: %d", r, header, got.status)
			}
		}
	}
	if got := f.do("GET", "/metrics", "", "Sec-Fetch-Site: none").status; got != http.StatusOK {
		t.Errorf("metrics, typed into the address bar: %d", got)
	}
}

// A web page that has its own name point here is refused by that name.
func TestHosts(t *testing.T) {
	f := open(t, rest.Options{Hosts: []string{"localhost", "quipu.lan"}})
	ask := func(host string) string {
		t.Helper()
		return f.dial("GET /api/v1/counters/a HTTP/1.1\r\nHost: "+host+"\r\n\r\n", false)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "10.0.0.7:1", "localhost", "localhost:8080", "LocalHost", "quipu.lan:80"} {
		if got := ask(host); got != "HTTP/1.1 200 OK" {
			t.Errorf("host %q: %s", host, got)
		}
	}
	for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80", ""} {
		if got := ask(host); got != "HTTP/1.1 421 Misdirected Request" {
			t.Errorf("host %q: %s", host, got)
		}
	}
	f = open(t, rest.Options{})
	if got := ask("evil.example"); got != "HTTP/1.1 200 OK" {
		t.Errorf("any host: %s", got)
	}
}

// Large bodies share a budget: one that finds it used up waits, and is refused
// at its deadline. Small ones need none.
func TestBudget(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	h := new(storetest.Hooks)
	h.On(storetest.OnWrite, storetest.Hold(started, finish))
	f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{Budget: server.NewBudget(32 << 10), Timeout: 300 * time.Millisecond})
	large := `{"ops":[` + strings.Repeat(" ", 32<<10) + `{"key":"a"}]}`
	first := make(chan reply)
	go func() { first <- f.do("POST", "/api/v1/batch", large) }()
	<-started
	r := f.do("POST", "/api/v1/batch", large)
	r.problem(t, 503, "unavailable", "memory for requests")
	if r.header.Get("Retry-After") == "" {
		t.Errorf("headers %v", r.header)
	}
	f.do("GET", "/api/v1/counters?limit=10000", "").problem(t, 503, "unavailable", "memory for requests")
	f.do("POST", "/api/v1/batch", `{"ops":[{"key":"b"}]}`).want(t, 200)
	f.do("POST", "/api/v1/counters/b/increment", strings.Repeat(" ", 4<<10)).want(t, 200, "value=2")

	close(finish)
	<-first // it gives back what it had, though its own deadline has passed
	f.do("POST", "/api/v1/batch", large).want(t, 200)
	chunked := "POST /api/v1/counters/c/increment HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"2000\r\n" + strings.Repeat(" ", 0x2000) + "\r\nb\r\n{\"delta\":2}\r\n0\r\n\r\n"
	if got := f.dial(chunked, false); got != "HTTP/1.1 200 OK" {
		t.Errorf("chunked: %s", got)
	}
	f.do("GET", "/api/v1/counters/c", "").want(t, 200, "value=2")
}

// A caller pays for a large body when it takes memory for it, before all of it has come, and
// only once.
func TestBodyIsPaidFirst(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")}, func(s *http.Server) { s.ReadTimeout = 2 * time.Second })
	r := f.do("POST", "/api/v1/keys", `{"name":"slow","grants":["all:default"],"quota":{"bytes":100000}}`, "Authorization: Bearer root")
	var k struct{ Key string }
	if err := json.Unmarshal([]byte(r.body), &k); err != nil || k.Key == "" {
		t.Fatalf("%d %s", r.status, r.body)
	}
	head := "POST /api/v1/batch HTTP/1.1\r\nHost: q\r\nAuthorization: Bearer " + k.Key + "\r\nContent-Length: "
	if got := f.dial(head+"4000000\r\n\r\n"+strings.Repeat(" ", 5000), false); got != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("a body that does not come: %s", got)
	}
	whole := `{"ops":[` + strings.Repeat(" ", 60_000) + `{"key":"a"}]}`
	f.do("POST", "/api/v1/batch", whole, "Authorization: Bearer "+k.Key).want(t, 200)
}

// A body that comes too slowly ends the call at its deadline.
func TestSlowBody(t *testing.T) {
	const timeout = 50 * time.Millisecond
	f := openOver(t, newMemory(), rest.Options{Timeout: timeout}, func(s *http.Server) {
		like := server.HTTP(s.Handler, timeout, slog.New(slog.DiscardHandler))
		s.ReadTimeout = like.ReadTimeout
	})
	const half = "POST /api/v1/counters/a/increment HTTP/1.1\r\nHost: q\r\nContent-Length: 11\r\n\r\n{\"del"
	if got := f.dial(half, false); got != "HTTP/1.1 408 Request Timeout" {
		t.Errorf("a body that does not come: %s", got)
	}
}

func TestRequestIDs(t *testing.T) {
	f := open(t, rest.Options{})
	ask := func(header string) string {
		t.Helper()
		return f.do("GET", "/healthz", "", "X-Request-Id: "+header).header.Get("X-Request-Id")
	}
	for _, sane := range []string{"a", "0f8fad5b-d9cb-469f-a165-70867728950e", "a/b:c=d", strings.Repeat("x", 128)} {
		if got := ask(sane); got != sane {
			t.Errorf("id %q came back as %q", sane, got)
		}
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", `a"b`, "é", strings.Repeat("x", 129)} {
		got := ask(bad)
		if got == bad || got == "" || seen[got] {
			t.Errorf("id %q came back as %q", bad, got)
		}
		seen[got] = true
	}
}

// logged collects records as text.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range parts {
		if !strings.Contains(l.text.String(), p) {
			return false
		}
	}
	return true
}

// A panic becomes a 500 that says nothing of it, and the log says all.
func TestPanic(t *testing.T) {
	var log logged
	h := new(storetest.Hooks)
	h.On(storetest.OnWrite, func(*storetest.Call) error { panic("secret thing") })
	f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r := f.do("POST", "/api/v1/counters/a/increment", "", "X-Request-Id: req-1")
	r.problem(t, 500, "internal", "log")
	if strings.Contains(r.body, "secret") || strings.Contains(r.body, ".go") {
		t.Errorf("the client learns of the panic: %s", r.body)
	}
	if !log.has("secret thing", "req-1", "chain_test.go") {
		t.Errorf("log: %s", log.text.String())
	}
	h.On(storetest.OnWrite)
	f.do("POST", "/api/v1/counters/a/increment", "").want(t, 200, "value=1")
}

// Details that may name files go to the log, not to the client.
func TestPrivateDetails(t *testing.T) {
	var log logged
	h := new(storetest.Hooks)
	f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	check := func(k store.Kind, status int, kind, id, detail string) {
		t.Helper()
		h.On(storetest.OnWrite, storetest.Fail(store.Errorf(k, "log stopped: write /var/lib/quipu/%s.log: flipped at 77", id)))
		r := f.do("POST", "/api/v1/counters/a/increment", "", "X-Request-Id: "+id)
		r.problem(t, status, kind, detail)
		if strings.Contains(r.body, "/var") || !log.has("/var/lib/quipu/"+id+".log", "request_id="+id) {
			t.Errorf("reply %s, log %s", r.body, log.text.String())
		}
	}
	check(store.KindCorrupt, 500, "corrupt", "req-1", "the server's log says more")
	check(store.KindLost, 500, "lost", "req-2", "the store has lost acknowledged writes; this call counted nothing; try again")
	check(store.KindUnavailable, 503, "unavailable", "req-3", "log stopped; nothing changed")
	check(store.KindUnknown, 504, "unknown", "req-4", "log stopped; it may have counted")

	// The same goes for one operation of a batch.
	h.On(storetest.OnWrite, func(c *storetest.Call) error {
		c.Replies[0].Err = store.Errorf(store.KindCorrupt, "/var/torn: flipped")
		return nil
	})
	r := f.do("POST", "/api/v1/batch", `{"ops":[{"key":"a"}]}`, "X-Request-Id: req-5")
	if r.want(t, 200); strings.Contains(r.body, "/var") || !strings.Contains(r.body, `"corrupt"`) || !log.has("/var/torn", "request_id=req-5") {
		t.Errorf("reply %s, log %s", r.body, log.text.String())
	}
}

func TestRequestsAreLoggedAtDebug(t *testing.T) {
	var log logged
	f := open(t, rest.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	f.do("GET", "/api/v1/counters/a%2Fb", "", "X-Request-Id: req-3").want(t, 200)
	if !log.has("req-3", "a%2Fb", "status=200") {
		t.Errorf("log: %s", log.text.String())
	}
}

// A store that does not answer holds no caller longer than the deadline. What
// it says then decides: nothing changed, or nobody knows.
func TestDeadline(t *testing.T) {
	h := new(storetest.Hooks)
	f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{Timeout: 50 * time.Millisecond})
	const path = "/api/v1/counters/a/increment"
	start := time.Now()
	h.On(storetest.OnWrite, storetest.Hang(nil, store.KindOther))
	f.do("POST", path, "").problem(t, 503, "unavailable", "deadline")
	h.On(storetest.OnWrite, storetest.Hang(nil, store.KindUnknown))
	f.do("POST", path, "").problem(t, 504, "unknown", "no answer; it may have counted")
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("two deadlines of 50 ms took %v", took)
	}
	h.On(storetest.OnWrite)
	f.do("POST", path, "").want(t, 200, "value=1")
}

// dial sends text on a new connection, and returns the status line of the
// reply.
func (f *fixture) dial(text string, hangUp bool) string {
	f.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(f.t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, text); err != nil {
		f.t.Fatal(err)
	}
	if hangUp {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			f.t.Fatal(err)
		}
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// A body that ends early, or does not come, is refused and changes nothing.
func TestShortBody(t *testing.T) {
	f := openOver(t, newMemory(), rest.Options{}, func(s *http.Server) { s.ReadTimeout = 50 * time.Millisecond })
	const half = "POST /api/v1/counters/a/increment HTTP/1.1\r\nHost: q\r\nContent-Length: 11\r\n\r\n{\"del"
	if got := f.dial(half, true); got != "HTTP/1.1 400 Bad Request" {
		t.Errorf("a body that ends early: %s", got)
	}
	if got := f.dial(half, false); got != "HTTP/1.1 408 Request Timeout" {
		t.Errorf("a body that does not come: %s", got)
	}
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "exists=false")
}

// Long work outlives the time that a connection has for a request.
func TestLongWorkIsUnhurried(t *testing.T) {
	const hurry = 20 * time.Millisecond
	long := func(ctx context.Context) error {
		select {
		case <-time.After(5 * hurry):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a := &archive{Store: newMemory(), audit: long}
	f := openOver(t, a, rest.Options{}, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = hurry, hurry })
	f.do("POST", "/api/v1/verify", "").want(t, 200, "ok=true")
	a.snapshot = func(ctx context.Context, w io.Writer) error {
		if err := long(ctx); err != nil {
			return err
		}
		_, err := io.WriteString(w, "tar")
		return err
	}
	if r := f.do("GET", "/api/v1/backup", ""); r.status != 200 || r.body != "tar" {
		t.Errorf("backup: %+v", r)
	}
	a.snapshot = func(ctx context.Context, _ io.Writer) error { return errors.Join(long(ctx), store.ErrUnavailable) }
	f.do("GET", "/api/v1/backup", "").problem(t, 503, "unavailable", "unavailable")
}

// A read that failed says nothing of changes: nobody has asked for one.
func TestFailedReads(t *testing.T) {
	check := func(err error, status int, kind, detail string) {
		t.Helper()
		h := new(storetest.Hooks)
		h.On(storetest.OnGet, storetest.Fail(err))
		f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{})
		for _, r := range []reply{f.do("GET", "/api/v1/counters/a", ""), f.do("POST", "/api/v1/read", `{"keys":["a"]}`)} {
			r.problem(t, status, kind, detail)
			if got, _ := r.fields(t)["detail"].(string); got != detail {
				t.Errorf("detail %q, want %q", got, detail)
			}
		}
	}
	check(store.Errorf(store.KindUnavailable, "the store can't be reached: refused"), 503, "unavailable", "the store can't be reached")
	check(store.ErrClosed, 503, "closed", "the server is closing")
	check(store.Errorf(store.KindLost, "partition 37: gone"), 500, "lost", "the store has lost acknowledged writes; try again")
}
