package rest_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

const limited = `{"definitions":[{"pattern":"api","limits":[{"rate":1,"per":"24h","burst":2},{"name":"month","algorithm":"calendar","rate":50,"per":"1mo","zone":"Europe/Berlin"}]}]}`

// A decision is said in the body, and in the fields of the draft.
func TestAllow(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/definitions", limited, "If-Match: *").want(t, 200)
	header := func(r reply, name, want string) {
		t.Helper()
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	const allow = "/api/v1/limits/api/allow"
	r := f.do("POST", allow, `{"who":"eve"}`)
	r.want(t, 200, "allowed=true", "policy=24h", "limit=2", "remaining=1", "retry_after_ms=0", "source=store")
	header(r, "RateLimit", `"24h";r=1;t=86400`)
	header(r, "RateLimit-Policy", `"24h";q=1;w=86400, "month";q=50`)
	header(r, "Retry-After", "")
	header(r, "Cache-Control", "no-store")
	f.do("POST", allow, `{"who":"eve"}`).want(t, 200, "allowed=true", "remaining=0")
	r = f.do("POST", allow, `{"who":"eve"}`)
	r.want(t, 200, "allowed=false", "policy=24h", "limit=2", "remaining=0")
	header(r, "Retry-After", "86400")
	r = f.do("POST", allow+"?status=429", `{"who":"eve"}`)
	r.want(t, 429, "allowed=false")
	header(r, "Content-Type", "application/json")
	f.do("POST", allow+"?status=429", `{"who":"bob"}`).want(t, 200, "allowed=true")
	f.do("POST", allow, "").want(t, 200, "allowed=true", "remaining=1") // a client without a name
	r = f.do("POST", allow, `{"who":"bob","cost":3}`)
	r.want(t, 200, "allowed=false", "retry_after_ms=-1")
	header(r, "Retry-After", "")

	f.do("GET", "/api/v1/limits/api/clients/eve", "").want(t, 200, "allowed=true", "remaining=0")
	f.do("DELETE", "/api/v1/limits/api/clients/eve", "").want(t, 200, "name=api", "who=eve")
	f.do("GET", "/api/v1/limits/api/clients/eve", "").want(t, 200, "remaining=2")
	r = f.do("POST", allow, `{"who":"eve"}`, "Idempotency-Key: t")
	header(r, "Idempotent-Replayed", "")
	r = f.do("POST", allow, `{"who":"eve"}`, "Idempotency-Key: t")
	r.want(t, 200, "remaining=1", "replayed=true")
	header(r, "Idempotent-Replayed", "true")
	f.do("POST", allow, `{"who":"eve","cost":2}`, "Idempotency-Key: t").want(t, 422)
}

func TestAllowRefusesBadRequests(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/definitions", limited, "If-Match: *").want(t, 200)
	bad := func(path, body, want string) {
		t.Helper()
		r := f.do("POST", path, body)
		if r.status != 400 || !strings.Contains(r.body, want) {
			t.Errorf("%s %s: %d %s, want %q", path, body, r.status, r.body, want)
		}
	}
	const allow = "/api/v1/limits/api/allow"
	bad("/api/v1/limits/web/allow", "", "no limits are defined for")
	bad(allow+"?status=418", "", "want 200 or 429")
	bad(allow, `{"cost":-1}`, "cost of -1: want 0 to 1000000000000")
	bad(allow, `{"cost":1.5}`, "want an integer")
	bad(allow, `{"price":1}`, "unknown field")
	bad(allow, `{"limits":[{"rate":1,"per":"1x"}]}`, "per: ")
	bad(allow, `{"limits":[{"rate":1}]}`, "limit 1 of 1, which has no name: want per")
	bad(allow, `{"limits":[{"rate":1,"per":"1s","algorithm":"leaky"}]}`, "want bucket, window, sliding or calendar")
	bad(allow, `{"limits":[`+strings.Repeat(`{"rate":1,"per":"1s"},`, 8)+`{}]}`, "want at most 8")
	bad(allow, `{"limits":[{"rate":1,"per":"1s"}],"away":"maybe"}`, "want open, closed")
	bad(allow, `{"away":"open"}`, "away needs limits in the call")
}

// FuzzAsk decodes questions: whatever they are, what is taken can be asked or is refused with
// words.
func FuzzAsk(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"who":"eve","cost":3,"burn":true,"dry_run":false}`, `{"limits":[{"rate":1,"per":"1s","burst":2,"zone":"UTC"}],"away":{"then":"share","servers":3}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := rest.DecodeAsk(body); err != nil && err.Error() == "" {
			t.Errorf("%q is refused without a word", body)
		}
	})
}
