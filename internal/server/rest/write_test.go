package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

const (
	maxInt = "9223372036854775807"
	minInt = "-9223372036854775808"
)

func TestIncrement(t *testing.T) {
	f := open(t, rest.Options{})
	check := func(path, body string, members ...string) {
		t.Helper()
		f.do("POST", "/api/v1/counters/"+path, body).want(t, 200, members...)
	}
	check("a/increment", "", "key=a", "applied=1", "before=0", "value=1", "durability=memory", "replayed=false")
	check("a/increment", `{}`, "applied=1", "value=2")
	check("a/increment", ` {"delta" : 40} `, "applied=40", "value=42")
	check("a/increment", `{"delta":-2}`, "applied=-2", "value=40")
	check("a/increment", `{"delta":0}`, "applied=0", "value=40")
	check("a/decrement", "", "applied=-1", "value=39")
	check("a/decrement", `{"delta":9}`, "applied=-9", "value=30")
	check("a/decrement", `{"delta":-9}`, "applied=9", "value=39")
	check("a/increment", `{"delta":1,"who":"ann"}`, "value=40")
	check("max/increment", `{"delta":`+maxInt+`}`, "value="+maxInt)
	check("min/increment", `{"delta":`+minInt+`}`, "value="+minInt, "applied="+minInt)
}

func TestIncrementRefusesOverflow(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/counters/a", `{"value":`+maxInt+`}`).want(t, 200, "value="+maxInt)
	f.do("POST", "/api/v1/counters/a/increment", "").problem(t, 409, "overflow", "int64")
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "value="+maxInt)
}

// Bad bodies are refused with what is wrong and where, and change nothing.
func TestBadBodies(t *testing.T) {
	f := open(t, rest.Options{})
	check := func(body, field string, offset int, detail string) {
		t.Helper()
		r := f.do("POST", "/api/v1/counters/a/increment", body)
		r.problem(t, 400, "invalid", detail)
		r.want(t, 400, "field="+field, fmt.Sprintf("offset=%d", offset))
		if at := fmt.Sprintf("at byte %d", offset); !strings.Contains(r.body, at) {
			t.Errorf("no %q in %s", at, r.body)
		}
	}
	const integer = "delta: want an integer between " + minInt + " and " + maxInt
	check(`{"delta":1.0}`, "delta", 9, integer)
	check(`{"delta":1e3}`, "delta", 9, integer)
	check(`{"delta":"1.0"}`, "delta", 9, integer)
	check(`{"delta": null}`, "delta", 10, integer)
	check(`{"delta":true}`, "delta", 9, integer)
	check(`{"delta":01}`, "delta", 9, integer)
	check(`{"delta":-}`, "delta", 9, integer)
	check(`{"delta":+1}`, "delta", 9, integer)
	check(`{"delta":9223372036854775808}`, "delta", 9, integer)
	check(`{"delta":-9223372036854775809}`, "delta", 9, integer)
	check(`{"delta":99999999999999999999999999999999}`, "delta", 9, integer)
	check(`{"delta":18446744073709551617}`, "delta", 9, integer)
	check(`{"Delta":1}`, "body", 1, `unknown field "Delta"`)
	check(`{"delta":1,"dleta":1}`, "body", 11, `unknown field "dleta"`)
	check(`{"delta":1,"delta":2}`, "delta", 11, "given twice")
	check(`{"delta":1}x`, "body", 11, "something follows")
	check(`{"delta":1}{}`, "body", 11, "something follows")
	check(`{"delta":1`, "body", 10, "want , or }")
	check(`{"delta":1,}`, "body", 11, "the body is not JSON: want a name in double quotes at byte 11")
	check(`{"delta" 1}`, "body", 9, "want :")
	check(`{delta:1}`, "body", 1, "the body is not JSON: want a name in double quotes at byte 1")
	check(`{bad`, "body", 1, "the body is not JSON: want a name in double quotes at byte 1")
	check(`{`, "body", 1, "the body is not JSON: want a name in double quotes at byte 1")
	check(`{1:2}`, "body", 1, "the body is not JSON: want a name in double quotes at byte 1")
	check(`delta=5`, "body", 0, "the body is not JSON: want an object at byte 0")
	check(`name=5`, "body", 0, "the body is not JSON: want an object at byte 0")
	check(`{"delta":five}`, "delta", 9, "the body is not JSON: "+integer)
	check(`{"delta":`, "delta", 9, "the body is not JSON: "+integer)
	check(`{"who":eve}`, "who", 7, "the body is not JSON: who: want a string at byte 7")
	check(`{"who":"eve`, "who", 7, "the body is not JSON: who: the string has no end at byte 7")
	check(`{"saturate":yes}`, "saturate", 12, "the body is not JSON: saturate: want true or false at byte 12")
	check(`[]`, "body", 0, "body: want an object")
	check(`1`, "body", 0, "body: want an object")
	check(`null`, "body", 0, "body: want an object")
	check(`{"ttl":"0s"}`, "ttl", 7, "want a duration of 1ms or more")
	check(`{"ttl":30}`, "ttl", 7, "want a string")
	check(`{"floor":1.5}`, "floor", 9, "want an integer")
	check(`{"saturate":1}`, "saturate", 12, "want true or false")
	check(`{"who":7}`, "who", 7, "want a string")
	check(`{"who":"`+"\xff"+`"}`, "who", 7, "not UTF-8")
	check(`{"who":"a`+"\n"+`"}`, "who", 9, "control character")
	check(`{"who":"a`, "who", 7, "no end")
	check(`{"who":"\x"}`, "who", 10, "bad escape")
	check(`{"who":"\ud800"}`, "who", 14, "bad escape")
	check(`{"who":"\ud800\u0041"}`, "who", 20, "bad escape")
	check(`{"who":"\udc00\ud800"}`, "who", 20, "bad escape")

	check(`{"at":"yesterday"}`, "at", 6, "want a time such as 2026-10-01T08:00:00Z or Unix milliseconds")
	check(`{"at":"-24h"}`, "at", 6, "want a time")
	check(`{"at":1.5}`, "at", 6, "want an integer")
	check(`{"at":null}`, "at", 6, "want an integer")
	check(`{"dims":[]}`, "dims", 8, "want an object")
	check(`{"dims":{"a":1}}`, "dims", 13, "want a string")
	check(`{"dims":{"a"}}`, "dims", 12, "want :")
	check(`{"dims":{"a":"b","a":"c"}}`, "dims", 17, `"a" is given twice`)
	f.do("POST", "/api/v1/counters/a/increment", `{"dims":{"x":"y"}}`).problem(t, 400, "invalid", "x")
	f.do("POST", "/api/v1/counters/a/decrement", `{"delta":`+minInt+`}`).problem(t, 400, "invalid", "delta")
	f.do("POST", "/api/v1/counters/a/increment", `{"who":"`+strings.Repeat("w", 256)+`"}`).problem(t, 413, "too_large", "at most 255")
	f.do("POST", "/api/v1/counters/a/reset", `{"value":1}`).problem(t, 400, "invalid", "unknown field")
	f.do("DELETE", "/api/v1/counters/a", `[]`).problem(t, 400, "invalid", "want an object")
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "exists=false")
}

func TestBodyLimits(t *testing.T) {
	f := open(t, rest.Options{})
	space := strings.Repeat(" ", 64<<10)
	f.do("POST", "/api/v1/counters/a/increment", space).want(t, 200, "value=1")
	f.do("POST", "/api/v1/counters/a/increment", space+" ").problem(t, 413, "too_large", "at most 65536")
	f.do("PUT", "/api/v1/counters/a", space+" ").problem(t, 413, "too_large", "at most 65536")
	space = strings.Repeat(space, 64)
	f.do("POST", "/api/v1/batch", `{"ops":[]}`+space).problem(t, 413, "too_large", "at most 4194304")

	// Without a length the limit is found while reading.
	req, err := http.NewRequestWithContext(t.Context(), "POST", f.url+"/api/v1/counters/a/increment",
		struct{ *strings.Reader }{strings.NewReader(space)})
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 413 {
		t.Errorf("chunked: status %d", res.StatusCode)
	}
}

func TestIdempotency(t *testing.T) {
	f := open(t, rest.Options{})
	check := func(replayed bool, method, path, body, token string, members ...string) {
		t.Helper()
		r := f.do(method, "/api/v1/counters/"+path, body, "Idempotency-Key: "+token)
		r.want(t, 200, append(members, fmt.Sprintf("replayed=%v", replayed))...)
		if got := r.header.Get("Idempotent-Replayed") == "true"; got != replayed {
			t.Errorf("Idempotent-Replayed: %v, want %v", got, replayed)
		}
	}
	for _, repeat := range []bool{false, true} {
		check(repeat, "POST", "a/increment", `{"delta":5}`, "t1", "applied=5", "value=5")
	}
	for _, repeat := range []bool{false, true} {
		check(repeat, "PUT", "a", `{"value":50}`, "t2", "applied=45", "value=50", "before=5")
	}
	check(false, "POST", "a/increment", "", "t3", "value=51")
	for _, repeat := range []bool{false, true} {
		check(repeat, "POST", "a/reset", "", "t4", "value=0", "before=51")
	}
	for _, repeat := range []bool{false, true} {
		check(repeat, "POST", "a/decrement", "", "t5", "value=-1")
	}
	for _, repeat := range []bool{false, true} {
		check(repeat, "DELETE", "a", "", "t6", "before=-1", "version=0")
	}
	check(true, "POST", "a/increment", `{"delta":5}`, "t1", "value=5") // the delete forgot nothing
	check(true, "POST", "a/increment", `{"delta":5}`, `"t1"`, "value=5")
	check(false, "POST", "a/increment", `{"delta":5}`, `"t\"1\\"`, "value=5")
	check(true, "POST", "a/increment", `{"delta":5}`, `t"1\`, "value=5")
	check(false, "POST", "b/increment", `{"delta":5}`, "t1", "value=5") // another counter

	const path = "/api/v1/counters/a/increment"
	f.do("POST", path, `{"delta":6}`, "Idempotency-Key: t1").problem(t, 422, "token", "another payload")
	f.do("POST", path, "", "Idempotency-Key: t1", "Idempotency-Key: t2").problem(t, 400, "invalid", "more than once")
	f.do("POST", path, "", "Idempotency-Key: ").problem(t, 400, "invalid", "empty")
	f.do("POST", path, "", `Idempotency-Key: ""`).problem(t, 400, "invalid", "empty")
	for _, bad := range []string{`"a`, `"a"b`, `"\a"`, `"`, `"\`} {
		f.do("POST", path, "", "Idempotency-Key: "+bad).problem(t, 400, "invalid", "quotation marks")
	}
	f.do("POST", path, "", "Idempotency-Key: "+strings.Repeat("t", 256)).problem(t, 413, "too_large", "at most 255")
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "value=5")
}

func TestTokenOlderThanTheWindow(t *testing.T) {
	f := open(t, rest.Options{})
	// A UUID of version 7 from 2024.
	f.do("POST", "/api/v1/counters/a/increment", "", "Idempotency-Key: 018d0000-0000-7000-8000-000000000000").
		problem(t, 409, "expired", "older than the window")
	// And one of 2199: the caller's clock is ahead.
	f.do("POST", "/api/v1/counters/a/increment", "", "Idempotency-Key: 06940000-0000-7000-8000-000000000000").
		problem(t, 409, "expired", "which is in the future: it may be ahead by less than the window, 24h;")
}

func TestPreferMinimal(t *testing.T) {
	f := open(t, rest.Options{})
	check := func(prefer string, minimal bool) {
		t.Helper()
		r := f.do("POST", "/api/v1/counters/a/increment", "", "Prefer: "+prefer)
		if minimal {
			r.want(t, 200, "applied=1", "value", "before")
		}
		want := map[bool]string{true: "return=minimal"}[minimal]
		if got := r.header.Get("Preference-Applied"); got != want {
			t.Errorf("Preference-Applied %q, want %q", got, want)
		}
		if _, ok := r.fields(t)["value"]; ok == minimal {
			t.Errorf("Prefer %q: %s", prefer, r.body)
		}
	}
	check("return=minimal", true)
	check("respond-async, Return=minimal", true)
	check(`return="minimal"`, true)
	check("return=representation", false)
	check("wait=10", false)
	r := f.do("PUT", "/api/v1/counters/a", `{"value":1}`, "Prefer: return=minimal")
	r.want(t, 200, "applied", "value", "before", "key=a")
	f.do("POST", "/api/v1/batch", `{"ops":[{"key":"a"}]}`, "Prefer: return=minimal").want(t, 200)
}

func TestCompareAndSet(t *testing.T) {
	f := open(t, rest.Options{})
	const path = "/api/v1/counters/a"
	f.do("PUT", path, `{"value":1}`, "If-None-Match: *").want(t, 200, "value=1")
	f.do("PUT", path, `{"value":2}`, "If-None-Match: *").problem(t, 412, "changed", "changed")
	tag := f.do("GET", path, "").header.Get("ETag")
	f.do("PUT", path, `{"value":3}`, "If-Match: "+tag).want(t, 200, "value=3", "before=1")
	f.do("PUT", path, `{"value":4}`, "If-Match: "+tag).problem(t, 412, "changed", "changed")
	tag = f.do("PUT", path, `{"value":5}`).header.Get("ETag")
	f.do("POST", path+"/increment", "", "If-Match: "+tag).want(t, 200, "value=6")
	f.do("POST", path+"/reset", "", "If-Match: "+tag).problem(t, 412, "changed", "changed")
	f.do("DELETE", path, "", "If-Match: "+tag).problem(t, 412, "changed", "changed")
	tag = f.do("GET", path, "").header.Get("ETag")
	f.do("DELETE", path, "", "If-Match: "+tag).want(t, 200, "before=6")
	f.do("PUT", path, `{"value":1}`, `If-Match: "0"`).want(t, 200, "value=1") // 0 is a counter that does not exist

	for _, foreign := range []string{`"abc"`, `abc`, `""`, `"-1"`, `"+1"`, `"01"`, `"99999999999999999999"`} {
		f.do("PUT", path, `{"value":9}`, "If-Match: "+foreign).problem(t, 412, "changed", "changed")
	}
	f.do("PUT", path, `{"value":9}`, "If-Match: *").problem(t, 400, "invalid", "one ETag")
	f.do("PUT", path, `{"value":9}`, `If-Match: "1", "2"`).problem(t, 400, "invalid", "one ETag")
	f.do("PUT", path, `{"value":9}`, `If-None-Match: "1"`).problem(t, 400, "invalid", "only *")
	f.do("PUT", path, `{"value":9}`, "If-Match: "+tag, "If-None-Match: *").problem(t, 400, "invalid", "not both")
	f.do("POST", "/api/v1/batch", `{"ops":[]}`, `If-Match: "1"`).problem(t, 400, "invalid", "batch")
	f.do("GET", path, "").want(t, 200, "value=1")
}

func TestSet(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/counters/a", `{"value":-5}`).want(t, 200, "value=-5", "before=0", "applied=-5", "key=a")
	f.do("PUT", "/api/v1/counters/a", "").problem(t, 400, "invalid", "want an object")
	f.do("PUT", "/api/v1/counters/a", `{}`).problem(t, 400, "invalid", "value: it is missing")
	f.do("PUT", "/api/v1/counters/a", `{"value":1.5}`).problem(t, 400, "invalid", "value: want an integer")
	f.do("PUT", "/api/v1/counters/a", `{"delta":1}`).problem(t, 400, "invalid", "unknown field")
}

func TestResetAndDelete(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("POST", "/api/v1/counters/a/reset", "").want(t, 200, "value=0", "before=0")
	f.do("POST", "/api/v1/counters/a/increment", `{"delta":5}`).want(t, 200, "value=5")
	f.do("POST", "/api/v1/counters/a/reset", "{}").want(t, 200, "value=0", "before=5", "applied=-5")
	f.do("DELETE", "/api/v1/counters/a", "").want(t, 200, "version=0")
	f.do("DELETE", "/api/v1/counters/a", "").want(t, 200, "version=0")
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "exists=false", "value=0")
}

func TestBatch(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/counters/full", `{"value":`+maxInt+`}`).want(t, 200)
	const body = `{"ops":[{"key":"a"},{"key":"b","delta":-7,"id":"own"},{"key":"full"},{"key":""},{"key":"a","delta":2,"who":"ann"}]}`
	for _, repeat := range []bool{false, true} {
		r := f.do("POST", "/api/v1/batch", body, "Idempotency-Key: T")
		results, _ := r.fields(t)["results"].([]any)
		if r.status != 200 || len(results) != 5 {
			t.Fatalf("batch: %d %s", r.status, r.body)
		}
		text := func(i int) string { return fmt.Sprint(results[i]) }
		check := func(i int, part string) {
			t.Helper()
			if !strings.Contains(text(i), part) {
				t.Errorf("result %d: no %q in %s", i, part, text(i))
			}
		}
		check(0, "value:1 ")
		check(1, "value:-7 ")
		check(2, "kind:overflow")
		check(3, "kind:invalid")
		check(4, "value:3 ")
		check(0, fmt.Sprintf("replayed:%v", repeat))
		check(1, fmt.Sprintf("replayed:%v", repeat))
	}
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "value=3")
	f.do("GET", "/api/v1/tokens/T%2F0?key=a", "").want(t, 200, "state=applied")
	f.do("GET", "/api/v1/tokens/T%2F1?key=b", "").want(t, 200, "state=unknown")
	f.do("GET", "/api/v1/tokens/own?key=b", "").want(t, 200, "state=applied")
	f.do("GET", "/api/v1/tokens/T%2F4?key=a", "").want(t, 200, "state=applied")
	f.do("POST", "/api/v1/batch", `{"ops":[]}`).want(t, 200, "results=[]")

	check := func(status int, kind, body, detail string) {
		t.Helper()
		f.do("POST", "/api/v1/batch", body).problem(t, status, kind, detail)
	}
	check(400, "invalid", "", "body: want an object")
	check(400, "invalid", `{}`, "ops: it is missing")
	check(400, "invalid", `{"ops":{}}`, "ops: want an array")
	check(400, "invalid", `{"ops":[{"delta":1}]}`, "key: operation 0 has none, at byte 8")
	check(400, "invalid", `{"ops":[{"key":"a"},{"key":"a","delta":1.5}]}`, "at byte 39")
	check(400, "invalid", `{"ops":[{"key":"a","id":""}]}`, "id: it is empty")
	check(400, "invalid", `{"ops":[{"key":"a","Key":"b"}]}`, "unknown field")
	check(400, "invalid", `{"ops":[{"key":"a"} {"key":"a"}]}`, "want , or ]")
	check(400, "invalid", `{"ops":[{"key":"a","dims":{"a":"b","a":"c"}}]}`, "dims")
	check(413, "too_large", `{"ops":[{"key":"a","dims":{`+manyDims(33)+`}}]}`, "dims: more than 32 dimensions")
	check(413, "too_large", `{"ops":[`+strings.Repeat(`{"key":"a"},`, 10_000)+`{"key":"a"}]}`, "more than 10000")
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "value=3")
}

func TestFullNamespace(t *testing.T) {
	f := openOver(t, memstore.New(memstore.Options{Limits: store.Limits{KeysMax: 1}}), rest.Options{})
	f.do("POST", "/api/v1/counters/a/increment", "").want(t, 200)
	f.do("POST", "/api/v1/counters/b/increment", "").problem(t, 507, "full", "limit")
	f.do("GET", "/readyz", "").want(t, 200) // full, and yet it serves
}

// What a store says of a failure decides between "nothing changed" and
// "nobody knows".
func TestStoreErrors(t *testing.T) {
	h := new(storetest.Hooks)
	f := openOver(t, storetest.Wrap(newMemory(), h), rest.Options{})
	check := func(err error, status int, kind, detail string) {
		t.Helper()
		h.On(storetest.OnWrite, storetest.Fail(err))
		r := f.do("POST", "/api/v1/counters/a/increment", "")
		r.problem(t, status, kind, detail)
		if got := r.header.Get("Retry-After"); (got != "") != (status == 503) {
			t.Errorf("status %d: Retry-After %q", status, got)
		}
		f.do("POST", "/api/v1/batch", `{"ops":[{"key":"a"}]}`).problem(t, status, kind, detail)
		if kind == "unknown" { // there is nothing to send again
			detail = "did not answer in time"
		}
		f.do("GET", "/readyz", "").problem(t, 503, kind, detail)
	}
	check(store.ErrUnavailable, 503, "unavailable", "unavailable")
	check(store.ErrUnknown, 504, "unknown", "unknown")
	check(store.ErrClosed, 503, "closed", "closing")
	check(store.ErrLost, 500, "lost", "the store has lost acknowledged writes")
	check(store.ErrSessionLost, 409, "session_lost", "read again without it")
	check(context.DeadlineExceeded, 503, "unavailable", "deadline")
	check(store.Errorf(store.KindCorrupt, "/var/lib/x: flipped"), 500, "corrupt", "log")
	check(fmt.Errorf("open /var/lib/x"), 500, "internal", "log")
}

// manyDims returns the members of an object with so many dimensions.
func manyDims(n int) string {
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf(`"d%d":"v"`, i))
	}
	return strings.Join(members, ",")
}
