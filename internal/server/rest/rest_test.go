package rest_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

func TestMain(m *testing.M) {
	// net/http keeps a connection that it refused for half a second more.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// A fixture is a door that serves, and a client in front of it.
type fixture struct {
	t      *testing.T
	url    string
	client *http.Client
}

// open serves a new memory store. Its limits are small enough to be reached.
func open(t *testing.T, o rest.Options) *fixture {
	t.Helper()
	limits := store.Limits{KeysMax: 1000, TokensMax: 1000}
	return openOver(t, memstore.New(memstore.Options{Limits: limits}), o)
}

// openOver serves a store, on a server that may be changed first.
func openOver(t *testing.T, s store.Store, o rest.Options, change ...func(*http.Server)) *fixture {
	t.Helper()
	db := quipu.New(s, quipu.Options{})
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := rest.New(db, o)
	srv := httptest.NewUnstartedServer(h)
	for _, f := range change {
		f(srv.Config)
	}
	srv.Start()
	client := srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		client.CloseIdleConnections()
		h.Close()
		srv.Close()
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &fixture{t: t, url: srv.URL, client: client}
}

// A reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
}

// do makes a call. Headers are written "Name: value"; the body is sent if it
// is not empty. Every reply must be as the OpenAPI document says.
func (f *fixture) do(method, path, body string, headers ...string) reply {
	f.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, in)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	res, err := f.client.Do(req)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	r := reply{res.StatusCode, res.Header, string(raw)}
	loadContract(f.t).check(f.t, method, path, r, strings64(path, headers))
	return r
}

// fields returns the members of a JSON object; numbers stay as they were
// written.
func (r reply) fields(t *testing.T) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(r.body))
	d.UseNumber()
	m := map[string]any{}
	if err := d.Decode(&m); err != nil {
		t.Fatalf("reply %q: %v", r.body, err)
	}
	return m
}

// want checks the status, and members of the reply: "name=value" each, where
// "name" alone must be absent.
func (r reply) want(t *testing.T, status int, members ...string) {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	m := r.fields(t)
	for _, member := range members {
		name, want, present := strings.Cut(member, "=")
		got, ok := m[name]
		text, _ := json.Marshal(got)
		if !present && ok || present && (!ok || strings.Trim(string(text), `"`) != want) {
			t.Errorf("%s is %s, want %q in %s", name, text, want, r.body)
		}
	}
}

// problem checks that the reply is problem details of a kind, whose detail
// contains a text.
func (r reply) problem(t *testing.T, status int, kind, detail string) {
	t.Helper()
	r.want(t, status, "kind="+kind, "type=urn:quipu:problem:"+kind)
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if got, _ := r.fields(t)["detail"].(string); !strings.Contains(got, detail) {
		t.Errorf("detail %q, want %q in it", got, detail)
	}
	if got, _ := r.fields(t)["request_id"].(string); got == "" || got != r.header.Get("X-Request-Id") {
		t.Errorf("request id %q, header %q", got, r.header.Get("X-Request-Id"))
	}
}

func TestMethods(t *testing.T) {
	f := open(t, rest.Options{})
	check := func(method, path, allow string) {
		t.Helper()
		r := f.do(method, path, "")
		r.problem(t, http.StatusMethodNotAllowed, "method", method)
		if got := r.header.Get("Allow"); got != allow {
			t.Errorf("%s %s: Allow %q, want %q", method, path, got, allow)
		}
	}
	check("POST", "/api/v1/counters/a", "DELETE, GET, HEAD, PUT")
	check("GET", "/api/v1/counters/a/increment", "POST")
	check("DELETE", "/api/v1/namespaces/n/counters", "GET, HEAD")
	check("PATCH", "/healthz", "GET, HEAD")
	check("PUT", "/api/v1/tokens/a/settle", "POST")
}

func TestPathsThatNameNothing(t *testing.T) {
	f := open(t, rest.Options{})
	for _, path := range []string{"/nothing", "/dash/", "/dash/nothing", "/dash/index.html", "/dash/../healthz", "/api/v1/counters/a/b", "/api/v1/counters/a/exact/", "/api/v2/counters/a", "/debug/pprof/"} {
		f.do("GET", path, "").problem(t, http.StatusNotFound, "not_found", "nothing is served")
	}
	f.do("GET", "/api/v1//counters/a", "").problem(t, http.StatusNotFound, "not_found", "nothing is served")
	f.do("GET", "/api/v1/counters/", "").problem(t, http.StatusBadRequest, "invalid", "key is empty")
	f.do("POST", "/api/v1/counters//increment", "").problem(t, http.StatusBadRequest, "invalid", "key is empty")
	f.do("GET", "/api/v1/namespaces//counters/a", "").problem(t, http.StatusBadRequest, "invalid", "namespace is empty")
}

func TestHead(t *testing.T) {
	f := open(t, rest.Options{})
	r := f.do("HEAD", "/api/v1/counters/a", "")
	if r.status != http.StatusOK || r.body != "" || r.header.Get("Etag") != `"0"` {
		t.Errorf("HEAD: %+v", r)
	}
}

// Every key works through percent-encoding, and comes back as it was.
func TestKeys(t *testing.T) {
	f := open(t, rest.Options{})
	keys := map[string]string{
		"a/b":                    "a%2Fb",
		"/":                      "%2F",
		"//a//":                  "%2F%2Fa%2F%2F",
		"100%":                   "100%25",
		"%2F":                    "%252F",
		"a b":                    "a%20b",
		"a+b":                    "a+b",
		"été":                    "%C3%A9t%C3%A9",
		"日本":                     "日本",
		".":                      "%2E",
		"..":                     "%2E%2E",
		"./..":                   ".%2F..",
		"a?b#c":                  "a%3Fb%23c",
		`"\`:                     "%22%5C",
		"\x00\n":                 "%00%0A",
		"increment":              "increment",
		"a;b,c=d&e":              "a;b,c=d&e",
		strings.Repeat("k", 512): strings.Repeat("k", 512),
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		path := "/api/v1/counters/" + keys[key]
		got := f.do("POST", path+"/increment", `{"delta":7}`)
		if m := got.fields(t); m["key"] != key || got.status != http.StatusOK {
			t.Errorf("increment of %q by %s: %d %s", key, path, got.status, got.body)
		}
		f.do("GET", path, "").want(t, 200, "value=7", "exists=true")
	}
	f.do("GET", "/api/v1/counters/"+strings.Repeat("k", 513), "").problem(t, 413, "too_large", "at most 512")
	f.do("GET", "/api/v1/counters/%ff", "").problem(t, 400, "invalid", "UTF-8")
}

func TestNamespaces(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("POST", "/api/v1/namespaces/shop/counters/a/increment", `{"delta":3}`).want(t, 200, "value=3")
	f.do("POST", "/api/v1/counters/a/increment", "").want(t, 200, "value=1")
	f.do("GET", "/api/v1/namespaces/default/counters/a", "").want(t, 200, "value=1")
	f.do("GET", "/api/v1/namespaces/shop/counters/a/exact", "").want(t, 200, "value=3")
	f.do("POST", "/api/v1/namespaces/shop/batch", `{"ops":[{"key":"a"}]}`).want(t, 200)
	f.do("POST", "/api/v1/namespaces/shop/read", `{"keys":["a"]}`).want(t, 200)
	f.do("GET", "/api/v1/namespaces/shop/counters/a", "").want(t, 200, "value=4")
	f.do("PUT", "/api/v1/namespaces/shop/counters/a", `{"value":9}`).want(t, 200, "value=9", "applied=5")
	f.do("GET", "/api/v1/namespaces/a%2Fb/counters/a", "").problem(t, 400, "invalid", "namespace")
	f.do("GET", "/api/v1/namespaces/"+strings.Repeat("n", 65)+"/counters/a", "").problem(t, 413, "too_large", "at most 64")
}
