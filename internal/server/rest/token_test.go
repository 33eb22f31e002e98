package rest_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

func TestTokens(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("GET", "/api/v1/tokens/t1?key=a", "").want(t, 200, "id=t1", "key=a", "state=unknown", "result", "at")
	f.do("POST", "/api/v1/counters/a/increment", `{"delta":4}`, "Idempotency-Key: t1").want(t, 200)
	for _, path := range []string{"GET /api/v1/tokens/t1?key=a", "POST /api/v1/tokens/t1/settle?key=a"} {
		method, path, _ := strings.Cut(path, " ")
		r := f.do(method, path, "")
		r.want(t, 200, "state=applied")
		result, _ := r.fields(t)["result"].(map[string]any)
		if result["value"].(interface{ String() string }).String() != "4" || result["key"] != "a" {
			t.Errorf("%s: result %v", path, result)
		}
	}

	// Without a value, the amount is still known.
	f.do("POST", "/api/v1/counters/m/increment", `{"delta":4}`, "Idempotency-Key: t3", "Prefer: return=minimal").want(t, 200)
	if r := f.do("GET", "/api/v1/tokens/t3?key=m", ""); !strings.Contains(r.body, `"result":{"key":"m","applied":4,"version"`) {
		t.Errorf("minimal: %s", r.body)
	}

	// What is preferred is no part of the payload.
	f.do("POST", "/api/v1/counters/m/increment", `{"delta":4}`, "Idempotency-Key: t4").want(t, 200, "value=8")
	f.do("POST", "/api/v1/counters/m/increment", `{"delta":4}`, "Idempotency-Key: t4", "Prefer: return=minimal").want(t, 200, "replayed=true", "value")
	f.do("POST", "/api/v1/counters/m/increment", `{"delta":4}`, "Idempotency-Key: t4").want(t, 200, "replayed=true", "value=8")
	f.do("POST", "/api/v1/counters/m/increment", `{"delta":4}`, "Idempotency-Key: t3").want(t, 200, "replayed=true", "value")

	// Settled first: the write never arrives.
	f.do("POST", "/api/v1/tokens/t2/settle?key=a", "").want(t, 200, "state=settled")
	f.do("POST", "/api/v1/tokens/t2/settle?key=a", "{}").want(t, 200, "state=settled")
	f.do("GET", "/api/v1/tokens/t2?key=a", "").want(t, 200, "state=settled")
	f.do("POST", "/api/v1/counters/a/increment", "", "Idempotency-Key: t2").problem(t, 409, "settled", "settled")
	f.do("GET", "/api/v1/counters/a", "").want(t, 200, "value=4")

	f.do("GET", "/api/v1/tokens/t%2F%C3%A9?key=a%2Fb", "").want(t, 200, "id=t/é", "key=a/b", "state=unknown")
	f.do("GET", "/api/v1/namespaces/n/tokens/t1?key=a", "").want(t, 200, "state=unknown")
	f.do("GET", "/api/v1/tokens/018d0000-0000-7000-8000-000000000000?key=a", "").want(t, 200, "state=expired")
	f.do("GET", "/api/v1/tokens/t1", "").problem(t, 400, "invalid", "key")
	f.do("POST", "/api/v1/tokens/t1/settle", "").problem(t, 400, "invalid", "key")
	f.do("POST", "/api/v1/tokens/t1/settle?key=a", "[]").problem(t, 400, "invalid", "want an object")
	f.do("GET", "/api/v1/tokens/"+strings.Repeat("t", 256)+"?key=a", "").problem(t, 413, "too_large", "at most 255")
}
