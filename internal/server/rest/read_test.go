package rest_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server/rest"
)

func TestGet(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "key=a", "value=0", "exists=false", "version=0")
	f.do("POST", "/api/v1/counters/a/increment", `{"delta":12}`).want(t, 200)
	before := time.Now()
	for _, path := range []string{"/api/v1/counters/a", "/api/v1/counters/a/exact"} {
		r := f.do("GET", path, "")
		r.want(t, 200, "key=a", "value=12", "lower=12", "upper=12", "exact=true", "complete=true", "exists=true",
			"staleness_ms=0", "source=store", "shards=1")
		asOf, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r.fields(t)["as_of"]))
		if err != nil || asOf.Before(before) {
			t.Errorf("as_of %v (%v), read after %v", asOf, err, before)
		}
		if tag := fmt.Sprintf(`"%v"`, r.fields(t)["version"]); r.header.Get("ETag") != tag {
			t.Errorf("ETag %s, want %s", r.header.Get("ETag"), tag)
		}
		if r.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("headers %v", r.header)
		}
	}
}

func TestGetParameters(t *testing.T) {
	f := open(t, rest.Options{})
	session, _ := f.do("POST", "/api/v1/counters/a/increment", "").fields(t)["session"].(string)
	if session == "" {
		t.Fatal("no session")
	}
	ok := func(query, cache string) {
		t.Helper()
		r := f.do("GET", "/api/v1/counters/a?"+query, "")
		r.want(t, 200, "value=1")
		if got := r.header.Get("Cache-Control"); got != cache {
			t.Errorf("%s: Cache-Control %q, want %q", query, got, cache)
		}
	}
	ok("read=cached", "no-cache")
	ok("read=exact", "no-cache")
	ok("read=session&session="+session, "no-cache")
	ok("session="+session, "no-cache")
	ok("max_staleness=5s", "max-age=5")
	ok("max_staleness=500ms", "no-cache")
	ok("max_staleness=5s&read=exact", "no-cache")
	ok("max_staleness=5s&session="+session, "no-cache")
	ok("max_error=100", "no-cache")
	ok("max_staleness=5s&max_error=100", "no-cache")

	bad := func(query, field string) {
		t.Helper()
		r := f.do("GET", "/api/v1/counters/a?"+query, "")
		r.problem(t, 400, "invalid", field)
	}
	bad("read=wrong", "read")
	bad("read=", "read")
	bad("read=session", "session")
	bad("session=", "session")
	bad("read=exact&session=", "session")
	bad("max_staleness=", "max_staleness")
	bad("max_error=", "max_error")
	bad("session=wrong", "session")
	bad("max_staleness=5", "max_staleness")
	bad("max_staleness=-5s", "max_staleness")
	bad("max_error=-1", "max_error")
	bad("max_error=1.5", "max_error")
	bad("read=%zz", "query")
	bad("max_stale=5s", "max_stale: this path has no parameter of this name")
	bad("read=exact&read=cached", "read: given more than once")
}

func TestNotModified(t *testing.T) {
	f := open(t, rest.Options{})
	const path = "/api/v1/counters/a"
	check := func(status int, header string) {
		t.Helper()
		r := f.do("GET", path, "", "If-None-Match: "+header)
		if r.status != status || (r.body == "") != (status == 304) {
			t.Errorf("If-None-Match %s: %d %q, want %d", header, r.status, r.body, status)
		}
	}
	check(304, f.do("GET", path, "").header.Get("ETag")) // that it does not exist is known too
	check(304, `"x", W/"0"`)
	check(200, `"1"`)
	check(200, `*`)
	f.do("POST", path+"/increment", "").want(t, 200)
	check(200, `"0"`)
	tag := f.do("GET", path, "").header.Get("ETag")
	check(304, tag)
	check(304, "W/"+tag)
	check(304, `"x", `+tag)
	check(304, "*")
	f.do("POST", path+"/increment", "").want(t, 200)
	check(200, tag)
}

func TestReadMany(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("POST", "/api/v1/counters/b/increment", `{"delta":2}`).want(t, 200)
	r := f.do("POST", "/api/v1/read", `{"keys":["b","a","b"]}`)
	r.want(t, 200, "next")
	counters, _ := r.fields(t)["counters"].([]any)
	got := ""
	for _, c := range counters {
		m, _ := c.(map[string]any)
		got += fmt.Sprint(m["key"], m["value"], " ")
	}
	if got != "b2 a0 b2 " {
		t.Errorf("read %q: %s", got, r.body)
	}
	f.do("POST", "/api/v1/read?read=exact", `{"keys":[]}`).want(t, 200, "counters=[]")

	check := func(status int, kind, body, detail string) {
		t.Helper()
		f.do("POST", "/api/v1/read", body).problem(t, status, kind, detail)
	}
	check(400, "invalid", "", "want an object")
	check(400, "invalid", `{}`, "keys: it is missing")
	check(400, "invalid", `{"keys":"a"}`, "keys: want an array")
	check(400, "invalid", `{"keys":[1]}`, "keys: want a string at byte 9")
	check(400, "invalid", `{"keys":[""]}`, "empty")
	check(413, "too_large", `{"keys":[`+strings.Repeat(`"a",`, 10_000)+`"a"]}`, "more than 10000")
	f.do("POST", "/api/v1/read?read=wrong", `{"keys":[]}`).problem(t, 400, "invalid", "read")
}

func TestList(t *testing.T) {
	f := open(t, rest.Options{})
	for i := range 25 {
		f.do("POST", fmt.Sprintf("/api/v1/counters/k%02d/increment", i), "").want(t, 200)
	}
	f.do("POST", "/api/v1/counters/other/increment", "").want(t, 200)
	var keys []string
	cursor := ""
	for pages := 1; ; pages++ {
		r := f.do("GET", "/api/v1/counters?prefix=k&limit=10&cursor="+url.QueryEscape(cursor), "")
		if r.status != 200 {
			t.Fatalf("list: %s", r.body)
		}
		counters, _ := r.fields(t)["counters"].([]any)
		for _, c := range counters {
			m, _ := c.(map[string]any)
			keys = append(keys, fmt.Sprint(m["key"]))
		}
		next, more := r.fields(t)["next"].(string)
		if !more {
			if pages != 3 {
				t.Errorf("%d pages, want 3", pages)
			}
			break
		}
		cursor = next
	}
	if len(keys) != 25 || keys[0] != "k00" || keys[24] != "k24" {
		t.Errorf("keys %q", keys)
	}
	f.do("GET", "/api/v1/counters?prefix=nothing", "").want(t, 200, "counters=[]", "next")
	for _, bad := range []string{"0", "-1", "x", "1.5"} {
		f.do("GET", "/api/v1/counters?limit="+bad, "").problem(t, 400, "invalid", "limit")
	}
	f.do("GET", "/api/v1/counters?limit=10001", "").problem(t, 413, "too_large", "10001")
	f.do("GET", "/api/v1/counters?cursor=!!", "").problem(t, 400, "invalid", "cursor")
	f.do("GET", "/api/v1/counters?prefix=%ff", "").problem(t, 400, "invalid", "prefix")
}
