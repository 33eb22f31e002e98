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
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store/storetest"
)

// A stream is a live stream that a test reads.
type stream struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
	only bool // no other event may come
}

// live opens a live stream.
func (f *fixture) live(query string) *stream {
	f.t.Helper()
	return f.stream("/api/v1/live"+query, "")
}

// stream opens a stream, with a header or "".
func (f *fixture) stream(path, header string) *stream {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		req.Header.Set(name, value)
	}
	res, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
		f.t.Fatalf("%s %v", res.Status, res.Header)
	}
	return &stream{t: f.t, body: res.Body, in: bufio.NewReader(res.Body)}
}

// next returns the data of the next event of a name.
func (s *stream) next(name string) map[string]any {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			s.t.Fatalf("waiting for %s: %v", name, err)
		}
		data, err := s.in.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.in.ReadString('\n'); err != nil {
			s.t.Fatal(err)
		}
		if s.only && strings.TrimSpace(line) != "event: "+name {
			s.t.Errorf("%s came", line)
		}
		if strings.TrimSpace(line) != "event: "+name {
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &v); err != nil {
			s.t.Fatalf("%s: %v", data, err)
		}
		return v
	}
}

// The stream has an overview each second, the first with what was before, and the
// counter whenever it changes.
func TestLive(t *testing.T) {
	f := open(t, rest.Options{})
	s := f.live("?key=a")
	if got := s.next("counter"); got["exists"] != false {
		t.Errorf("at first %v", got)
	}
	c := loadContract(t)
	schema := c.at(map[string]any(c), "components", "schemas", "Overview")
	first := s.next("overview")
	for _, wrong := range (judge{c, false}).validate(schema, first, "overview") {
		t.Error(wrong)
	}
	f.do("POST", "/api/v1/counters/a/increment", `{"delta":41}`)
	if got := s.next("counter"); got["value"] != 41.0 || got["exact"] != true {
		t.Errorf("after an increment %v", got)
	}
	if next := s.next("overview"); next["history"] != nil || next["rates"] == nil {
		t.Errorf("the next overview is %v", next)
	}
	// What was counted is in the rates.
	for {
		if rates, _ := s.next("overview")["rates"].(map[string]any); rates["writes"] != 0.0 {
			break
		}
	}
}

// A stream lives longer than a call, and ends with the server.
func TestLiveEnds(t *testing.T) {
	var h *rest.Handler
	db := quipu.New(newMemory(), quipu.Options{})
	h = rest.New(db, rest.Options{Timeout: 100 * time.Millisecond})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	door := server.HTTP(h, 100*time.Millisecond, slog.New(slog.DiscardHandler))
	door.RegisterOnShutdown(h.EndStreams)
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	f := &fixture{t: t, url: "http://" + l.Addr().String(), client: &http.Client{Transport: &http.Transport{}}}
	s := f.live("")
	s.next("overview")
	s.next("overview") // a second later
	began := time.Now()
	if err := door.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the server ended after %v", took)
	}
	if _, err := io.ReadAll(s.body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	h.Close()
	f.client.CloseIdleConnections()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// streams tries to open a stream, with a header or "", and returns the status of the reply.
func (f *fixture) streams(ctx context.Context, path, header string) int {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		req.Header.Set(name, value)
	}
	res, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// There are only so many streams, and their places are given back.
func TestLiveIsLimited(t *testing.T) {
	f := open(t, rest.Options{})
	var all []*stream
	for range 64 {
		all = append(all, f.live(""))
	}
	f.do("GET", "/api/v1/live", "").problem(t, http.StatusServiceUnavailable, "unavailable", "64 live streams")
	_ = all[0].body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if f.streams(ctx, "/api/v1/live", "") == http.StatusOK {
			return
		}
	}
	t.Error("a place was not given back")
}

// What is wrong is said before the stream begins, and what goes wrong meanwhile in it.
func TestLiveProblems(t *testing.T) {
	h := new(storetest.Hooks)
	f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{})
	f.do("GET", "/api/v1/live?key=", "").problem(t, http.StatusBadRequest, "invalid", "key is empty")
	f.do("GET", "/api/v1/live?keys=a", "").problem(t, http.StatusBadRequest, "invalid", "no parameter of this name")
	f.do("GET", "/api/v1/live", "", "Sec-Fetch-Site: cross-site").problem(t, http.StatusForbidden, "forbidden", "another origin")
	s := f.live("?key=a")
	s.next("counter")
	h.On(storetest.OnRead, storetest.Fail(errors.New("gone")))
	if got := s.next("problem"); got["kind"] != "internal" {
		t.Errorf("the problem is %v", got)
	}
}

// With keys, only the page itself is there for everyone.
func TestPage(t *testing.T) {
	keys, err := server.NewKeys([]string{"right"})
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, rest.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})})
	page := f.do("GET", "/?utm=1", "", "Sec-Fetch-Site: cross-site")
	if page.status != http.StatusOK || !strings.Contains(page.body, "<!doctype html>") || page.header.Get("Content-Security-Policy") == "" {
		t.Errorf("the page is %d %v", page.status, page.header)
	}
	if got := f.do("GET", "/", "", "If-None-Match: "+page.header.Get("Etag")); got.status != http.StatusNotModified || got.body != "" {
		t.Errorf("with its ETag: %d", got.status)
	}
	if got := f.do("GET", "/dash/app.js", ""); got.status != http.StatusOK || got.header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("its script: %d %v", got.status, got.header)
	}
	for _, path := range []string{"/api/v1/overview", "/api/v1/live", "/api/v1/policies"} {
		f.do("GET", path, "").problem(t, http.StatusUnauthorized, "unauthorized", "Bearer")
	}
	if got := f.do("GET", "/api/v1/overview", "", "Authorization: Bearer right"); got.status != http.StatusOK {
		t.Errorf("with the key: %d", got.status)
	}
	local := open(t, rest.Options{Hosts: []string{"localhost"}})
	if got := local.dial("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", false); got != "HTTP/1.1 421 Misdirected Request" {
		t.Errorf("the page by a foreign name: %s", got)
	}
}

// A dry run checks policies, and changes none.
func TestPoliciesDryRun(t *testing.T) {
	b := &book{}
	f := openOver(t, newMemory(), rest.Options{Policies: b})
	f.do("PUT", "/api/v1/policies?dry_run=true", `{"policies":[{"pattern":"a*","preset":"likes"}]}`, "If-Match: *").want(t, 200)
	if all, _ := b.Policies(); len(all) != 0 {
		t.Errorf("a dry run has made %v", all)
	}
	f.do("PUT", "/api/v1/policies?dry_run=true", `{"policies":[{"pattern":"a*","shards":1000}]}`, "If-Match: *").problem(t, 400, "invalid", "shards")
	f.do("PUT", "/api/v1/policies?dry_run=true", `{"policies":[]}`, `If-Match: "p1"`).problem(t, 412, "changed", "If-Match")
	f.do("PUT", "/api/v1/policies?dry_run=yes", `{"policies":[]}`, "If-Match: *").problem(t, 400, "invalid", "dry_run")
}

// A counter alone is streamed to whoever may read it, with the reads that were asked for and
// large numbers as strings, and without overviews.
func TestWatch(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	reader := "Authorization: Bearer " + f.newKey("root", "reader", "read:default/a*")
	f.do("PUT", "/api/v1/counters/a", `{"value":9223372036854775806}`, "Authorization: Bearer root").want(t, 200)
	w := f.stream("/api/v1/counters/a/live?read=exact&int64=string", reader)
	if got := w.next("counter"); got["value"] != "9223372036854775806" || got["exact"] != true {
		t.Errorf("at first %v", got)
	}
	f.do("POST", "/api/v1/counters/a/increment", "", "Authorization: Bearer root").want(t, 200)
	w.only = true
	if got := w.next("counter"); got["value"] != "9223372036854775807" {
		t.Errorf("after an increment %v", got)
	}
	f.do("GET", "/api/v1/counters/b/live", "", reader).problem(t, http.StatusForbidden, "forbidden", "")
	f.do("GET", "/api/v1/live?key=a", "", reader).problem(t, http.StatusForbidden, "forbidden", "")
	f.do("GET", "/api/v1/counters/a/live?every=1", "", reader).problem(t, http.StatusBadRequest, "invalid", "no parameter of this name")
	f.do("GET", "/api/v1/counters/a/live?read=wrong", "", reader).problem(t, http.StatusBadRequest, "invalid", "read")
}

// There are so many streams of counters at a time, and they leave those of the server their
// places.
func TestWatchPlaces(t *testing.T) {
	f := open(t, rest.Options{})
	for range 256 {
		f.stream("/api/v1/counters/a/live", "")
	}
	f.do("GET", "/api/v1/counters/a/live", "").problem(t, http.StatusServiceUnavailable, "unavailable", "256 live streams")
	f.live("").next("overview")
}

// One principal gets a quarter of the places, so that others get theirs. A key that the server
// was started with may have all.
func TestPlacesOfEach(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	bearer := func(name string) string {
		return "Authorization: Bearer " + f.newKey("root", name, "read:*")
	}
	one, other := bearer("one"), bearer("other")
	for _, c := range []struct {
		path string
		own  int
	}{{"/api/v1/counters/a/live", 64}, {"/api/v1/live", 16}} {
		var last *stream
		for range c.own {
			last = f.stream(c.path, one)
		}
		if got := f.streams(t.Context(), c.path, one); got != http.StatusTooManyRequests {
			t.Fatalf("%s: status %d for one stream too many", c.path, got)
		}
		r := f.do("GET", c.path, "", one)
		r.problem(t, http.StatusTooManyRequests, "quota", "live streams already")
		if r.header.Get("Retry-After") == "" {
			t.Errorf("headers %v", r.header)
		}
		f.stream(c.path, other)
		for range c.own + 1 {
			f.stream(c.path, "Authorization: Bearer root")
		}
		_ = last.body.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for f.streams(ctx, c.path, one) != http.StatusOK { // until its place is free
			if ctx.Err() != nil {
				t.Fatalf("%s: a place was not given back", c.path)
			}
		}
		cancel()
	}
}
