package rest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
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
