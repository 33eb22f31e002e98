package rest_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

// What a call may say besides its amount, and what is said of a refusal.
func TestTerms(t *testing.T) {
	f := open(t, rest.Options{})
	const a = "/api/v1/counters/a"
	inc := func(body string, headers ...string) reply { return f.do("POST", a+"/increment", body, headers...) }
	dec := func(body string, headers ...string) reply { return f.do("POST", a+"/decrement", body, headers...) }

	inc(`{"delta":5,"floor":0,"ceiling":9}`).want(t, 200, "applied=5", "value=5")
	r := dec(`{"delta":6,"floor":0}`)
	r.problem(t, 409, "bound", "adding -6 to 5 would end below the floor of 0")
	r.want(t, 409, "value=5", "asked=-6", "floor=0", "title=Out of bounds")
	r = inc(`{"delta":5,"ceiling":9}`, "Prefer: return=minimal")
	r.problem(t, 409, "bound", "above the ceiling of 9")
	r.want(t, 409, "value=5", "asked=5", "ceiling=9")
	dec(`{"delta":6,"floor":0,"saturate":true}`).want(t, 200, "applied=-5", "value=0")
	dec(`{"delta":6,"floor":0,"saturate":true}`, "Prefer: return=minimal").want(t, 200, "applied=0")
	inc(`{"floor":2,"ceiling":1}`).problem(t, 400, "invalid", "a floor of 2 is above the ceiling of 1")

	f.do("GET", a, "").want(t, 200, "expires_at")
	for range 2 { // The second is a repeat.
		inc(`{"delta":2,"ceiling":2,"ttl":"7d"}`, "Idempotency-Key: t").want(t, 200, "applied=2", "value=2")
	}
	if at := f.do("GET", a, "").fields(t)["expires_at"]; at == nil {
		t.Error("a counter with a lifetime does not say when it ends")
	}
	for _, other := range []string{`{"delta":2,"ceiling":3,"ttl":"7d"}`, `{"delta":2,"ceiling":2,"ttl":"8d"}`, `{"delta":2,"ceiling":2}`, `{"delta":2}`} {
		inc(other, "Idempotency-Key: t").problem(t, 422, "token",
			"the Idempotency-Key was used for another payload: both writes are to add 2, but they differ in who, time, dimensions, floor, ceiling, lifetime or version")
	}
	inc(`{"delta":3}`, "Idempotency-Key: t").problem(t, 422, "token", "the Idempotency-Key was used for another payload: first it was to add 2, now it is to add 3")
	f.do("PUT", a, `{"value":3}`, "Idempotency-Key: t").problem(t, 422, "token", "first it was to add 2, now it is to set to 3")
	f.do("DELETE", a, "", "Idempotency-Key: t").problem(t, 422, "token", "now it is to delete")

	inc(`{"at":"2026-01-02T03:04:05Z"}`, "Idempotency-Key: at").want(t, 200, "replayed=false")
	inc(`{"at":1767323045000}`, "Idempotency-Key: at").want(t, 200, "replayed=true")
	inc(`{"at":1767323045001}`, "Idempotency-Key: at").problem(t, 422, "token", "the Idempotency-Key was used for another payload")
	inc(`{"detla":1}`).problem(t, 400, "invalid", `unknown field "detla"; want delta, who, floor, ceiling, saturate, ttl, at, dims, at byte 1`)
	f.do("PUT", a, `{"delta":1}`).problem(t, 400, "invalid", `unknown field "delta"; want value, reason, actor, at byte 1`)
	f.do("POST", a+"/reset", `{"delta":1}`).problem(t, 400, "invalid", `unknown field "delta"; want reason, actor, at byte 1`)
}

func TestBatchTerms(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("POST", "/api/v1/batch", `{"ops":[{"key":"b","id":"own"},{"key":"b"}]}`, "Idempotency-Key: T").want(t, 200)
	r := f.do("POST", "/api/v1/batch", `{"ops":[
		{"key":"b","delta":9,"id":"own"},
		{"key":"b","delta":9},
		{"key":"c","delta":-1,"floor":0},
		{"key":"c","delta":-1,"floor":-9,"saturate":true,"ttl":"1h"}]}`, "Idempotency-Key: T")
	for _, part := range []string{
		`"detail":"the id was used for another payload: first it was to add 1, now it is to add 9"`,
		`"detail":"the Idempotency-Key was used for another payload: first it was to add 1, now it is to add 9"`,
		`"kind":"bound","value":0,"asked":-1,"floor":0}`,
		`{"key":"c","applied":-1,"value":-1`,
	} {
		if !strings.Contains(r.body, part) {
			t.Errorf("no %s in %s", part, r.body)
		}
	}
}
