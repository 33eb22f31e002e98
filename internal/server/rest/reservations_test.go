package rest_test

import (
	"encoding/json"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

// TestReservations reserves over HTTP.
func TestReservations(t *testing.T) {
	f := openOver(t, newMemory(), rest.Options{})
	f.do("PUT", "/api/v1/counters/stock", `{"value":10}`).want(t, 200)
	id := func(r reply) string {
		t.Helper()
		var v struct{ ID string }
		if err := json.Unmarshal([]byte(r.body), &v); err != nil || v.ID == "" {
			t.Fatalf("%d %s", r.status, r.body)
		}
		return "/api/v1/reservations/" + v.ID
	}
	const body = `{"amount":4,"ttl":"1h","who":"eve"}`
	first := f.do("POST", "/api/v1/counters/stock/reserve", body, "Idempotency-Key: k")
	first.want(t, 200, "amount=4", "who=eve", "state=open", "value=10", "reserved=4", "available=6", "open=1", "replayed=false", "durability=memory")
	f.do("POST", "/api/v1/counters/stock/reserve", body, "Idempotency-Key: k").want(t, 200, "replayed=true", "reserved=4")
	f.do("POST", "/api/v1/counters/stock/reserve", `{"amount":5,"ttl":"1h"}`, "Idempotency-Key: k").want(t, 422, "kind=token")
	f.do("POST", "/api/v1/counters/stock/reserve", `{"amount":7,"ttl":"1h"}`).want(t, 409, "kind=bound", "asked=7", "available=6", "value=6", "floor=0", "detail=7 asked for, and 6 available")
	f.do("GET", "/api/v1/counters/stock", "").want(t, 200, "value=6")
	f.do("GET", "/api/v1/tokens/k?key=stock", "").want(t, 200, "state=applied")
	f.do("DELETE", "/api/v1/counters/stock", "").want(t, 412, "kind=unmet")

	one := id(first)
	f.do("POST", one+"/extend", `{"ttl":"2h"}`, "Prefer: return=minimal").want(t, 200, "state=open")
	f.do("POST", one+"/commit", `{"amount":5}`).want(t, 400, "kind=invalid")
	f.do("POST", one+"/commit", `{"amount":-1}`).want(t, 400, "kind=invalid")
	f.do("POST", one+"/commit", `{"amount":3}`, "Idempotency-Key: any").want(t, 200, "state=committed", "committed=3", "value=7", "reserved=0", "available=7")
	f.do("POST", one+"/commit", `{"amount":3}`).want(t, 200, "state=committed", "replayed=true")
	f.do("POST", one+"/commit", "").want(t, 410, "kind=ended")
	f.do("POST", one+"/release", "").want(t, 410, "kind=ended", "detail=the reservation has ended: it was committed, with 3")
	f.do("GET", one, "").want(t, 200, "state=committed", "committed=3")

	two := id(f.do("POST", "/api/v1/counters/stock/reserve", `{"ttl":"1h"}`))
	f.do("POST", two+"/release", "").want(t, 200, "state=released", "available=7")
	f.do("POST", two+"/release", "").want(t, 200, "state=released", "replayed=true")
	f.do("GET", "/api/v1/reservations?key=stock", "").want(t, 200, "value=7", "reserved=0", "available=7", "open=0")

	f.do("POST", "/api/v1/counters/stock/reserve", "").want(t, 400, "kind=invalid")
	f.do("POST", "/api/v1/counters/stock/reserve", `{"amount":1}`).want(t, 400, "field=ttl")
	f.do("POST", "/api/v1/counters/stock/reserve", `{"ttl":"1h"}`, `If-Match: "1"`).want(t, 400, "kind=invalid")
	f.do("POST", two+"x/release", "").want(t, 400, "kind=invalid")
	f.do("GET", "/api/v1/reservations", "").want(t, 400, "field=key")
	f.do("GET", "/api/v1/reservations?key=stock&cursor=x", "").want(t, 400, "kind=invalid")
	f.do("GET", "/api/v1/reservations?key=stock&limit=1001", "").want(t, 400, "kind=invalid")
}
