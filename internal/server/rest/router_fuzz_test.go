package rest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzKeyPath counts under any key, percent-encoded into the path, and expects
// the key back. A path that nobody encoded must be answered too, somehow.
func FuzzKeyPath(f *testing.F) {
	for _, seed := range []string{"a", "/", "%2F", "..", ".", "a/../b", "é", " ", "+", "?", "#", "\x00", "\xff", "", "increment", "exact", "a//b", "%", "{key}"} {
		f.Add(seed)
	}
	h := newHandler(f)
	call := func(escaped string) (int, string) {
		r := &http.Request{Method: http.MethodPost, Header: http.Header{}, Host: "q", URL: &url.URL{}}
		u, err := url.ParseRequestURI("/api/v1/counters/" + escaped + "/increment")
		if err != nil {
			return 0, ""
		}
		r.URL = u
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	f.Fuzz(func(t *testing.T, key string) {
		if status, body := call(key); status >= 500 {
			t.Fatalf("path %q: %d %s", key, status, body)
		}
		want := http.StatusOK
		switch {
		case len(key) > 512:
			want = http.StatusRequestEntityTooLarge
		case key == "" || !utf8.ValidString(key):
			want = http.StatusBadRequest
		}
		status, body := call(url.PathEscape(key))
		if status != want {
			t.Fatalf("key %q: %d, want %d: %s", key, status, want, body)
		}
		if status != http.StatusOK {
			return
		}
		var got struct{ Key string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Key != key {
			t.Fatalf("key %q came back as %q: %v", key, got.Key, err)
		}
	})
}

// FuzzViewQuery asks for ranges, values and ledgers with any query. It is answered, or
// refused as wrong; never is it a fault of the server.
func FuzzViewQuery(f *testing.F) {
	for _, seed := range []string{
		"", "from=-24h&step=1h", "from=2026-10-01&to=2026-10-02T00:00:00Z&step=1d&zone=Europe/Berlin", "from=now&to=-1h", "from=0&to=9223372036854775807&step=1s",
		"top=3", "top=0", "from=-7d&top=-1", "limit=5&actor=a&token=t", "limit=1001", "cursor=AAAA", "prefix=v&step=1mo", "zone=Local", "from=%zz", "step=7d&step=1h", "at=2026-10-01",
	} {
		for path := range uint8(5) {
			f.Add(path, seed)
		}
	}
	h := newHandler(f)
	call := func(method, target, body string) (int, string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return 0, ""
		}
		r := &http.Request{Method: method, Header: http.Header{}, Host: "q", URL: u, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
		if method == http.MethodPut {
			r.Header.Set("If-Match", "*")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const definitions = `{"definitions":[{"pattern":"v*","windows":[{"every":"1h","keep":"50y"},{"every":"1d","zone":"Europe/Berlin","keep":"50y"}],"dimensions":[{"by":"country","limit":5}],"ledger":"all"}]}`
	if status, said := call(http.MethodPut, "/api/v1/definitions", definitions); status != http.StatusOK {
		f.Fatal(status, said)
	}
	if status, said := call(http.MethodPost, "/api/v1/counters/v/increment", `{"dims":{"country":"DE"}}`); status != http.StatusOK {
		f.Fatal(status, said)
	}
	paths := []string{"/api/v1/counters/v/range", "/api/v1/range", "/api/v1/counters/v/by/country", "/api/v1/counters/v/ledger", "/api/v1/counters/v"}
	f.Fuzz(func(t *testing.T, path uint8, query string) {
		if status, said := call(http.MethodGet, paths[int(path)%len(paths)]+"?"+query, ""); status >= 500 {
			t.Errorf("%s?%s: %d %s", paths[int(path)%len(paths)], query, status, said)
		}
	})
}
