package rest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

const (
	structured = "Content-Type: application/cloudevents+json; charset=utf-8"
	batched    = "Content-Type: application/cloudevents-batch+json"
)

// envelope returns an event with more members.
func envelope(id, more string) string {
	return `{"specversion":"1.0","id":"` + id + `","source":"/shop","type":"order.placed"` + more + `}`
}

func TestCloudEvents(t *testing.T) {
	f := open(t, rest.Options{})
	post := func(query, body string, headers ...string) reply {
		t.Helper()
		return f.do("POST", "/api/v1/events"+query, body, headers...)
	}
	// Each mode, and what counts by default.
	post("", envelope("1", ""), structured).want(t, 200, "key=order.placed", "applied=1", "value=1", "replayed=false")
	post("", envelope("1", ""), structured).want(t, 200, "key=order.placed", "value=1", "replayed=true")
	post("", envelope("2", `,"subject":"page:7","data":{"amount":"9007199254740993"},"custom":null`), structured).want(t, 200, "key=page:7", "applied=9007199254740993")
	post("", envelope("3", `,"subject":"page:7","data":{"key":"orders","amount":-2,"who":17},"time":"2026-01-02T03:04:05.5+01:00"`), structured).want(t, 200, "key=orders", "applied=-2")
	binary := []string{"Content-Type: application/json", "ce-specversion: 1.0", "ce-id: 4", "ce-source: /shop", "ce-type: order.placed", "ce-subject: caf%C3%A9"}
	post("", `{"amount":3}`, binary...).want(t, 200, "key=café", "applied=3")
	post("", `{"amount":3}`, binary...).want(t, 200, "key=café", "replayed=true")
	post("", "plain text", append([]string{"Content-Type: text/plain", "ce-id: 5"}, append(binary[1:2:2], binary[3:]...)...)...).want(t, 200, "key=café", "applied=1")
	post("", "", append([]string{"ce-id: 6"}, append(binary[1:2:2], binary[3:]...)...)...).want(t, 200, "value=5")
	post("", envelope("1", ""), structured, "Prefer: return=minimal").want(t, 200, "replayed=true", "value")
	// The source is a part of the token, and no seam between it and the id.
	other := strings.Replace(envelope("1", ""), "/shop", "/shop2", 1)
	post("", other, structured).want(t, 200, "value=2", "replayed=false")

	// What somebody else's events count.
	mapped := `,"data":{"user":{"id":"ana"},"geo":{"country":"DE"},"n":5,"page":"home","web":true}`
	f.do("PUT", "/api/v1/definitions", `{"definitions":[{"pattern":"order.placed:*","windows":[{"every":"1d","keep":"10y"}],"dimensions":["country","web"],"ledger":"all"}]}`, "If-Match: *").want(t, 200)
	query := "?key=type,data.page&amount=data.n&who=data.user.id&dims=data.geo.country,web:data.web,os:data.none"
	post(query, envelope("7", mapped+`,"time":"2026-01-02T03:04:05Z"`), structured).want(t, 200, "key=order.placed:home", "applied=5")
	r := f.do("GET", "/api/v1/counters/order.placed:home/ledger", "")
	for _, want := range []string{`"at":"2026-01-02T03:04:05Z"`, `"actor":"ana"`, `"dims":{"country":"DE","web":"true"}`, `"delta":5`, `"token":"ce-`} {
		if !strings.Contains(r.body, want) {
			t.Errorf("no %s in %s", want, r.body)
		}
	}
	post("?key=type,data.page", envelope("8", `,"data":{"page":"home","dims":{"country":"FR","web":null}}`), structured).want(t, 200)
	if r := f.do("GET", "/api/v1/counters/order.placed:home/by/country", ""); !strings.Contains(r.body, `{"value":"FR","count":1}`) {
		t.Errorf("by country: %s", r.body)
	}

	// A batch is answered event by event.
	batch := "[" + strings.Join([]string{envelope("1", ""), envelope("10", `,"data":{"amount":1.5}`), envelope("11", ""), `{"id":"x"}`, envelope("12", `,"time":"yesterday"`)}, ",") + "]"
	for _, again := range []string{"false", "true"} {
		r := post("", batch, batched)
		if r.status != 200 || strings.Count(r.body, `"replayed":true`) < 1 || strings.Count(r.body, `"error":{`) != 3 || !strings.Contains(r.body, `"value":3,"before":2,"version"`) ||
			!strings.Contains(r.body, `"field":"amount"`) || !strings.Contains(r.body, `"field":"specversion"`) || !strings.Contains(r.body, `"field":"time"`) {
			t.Errorf("repeat %s: %d %s", again, r.status, r.body)
		}
	}
	f.do("GET", "/api/v1/counters/order.placed", "").want(t, 200, "value=3")
	post("", "[]", batched).want(t, 200)
}

func TestCloudEventsRefused(t *testing.T) {
	f := open(t, rest.Options{})
	refused := func(status int, kind, detail, query, body string, headers ...string) {
		t.Helper()
		f.do("POST", "/api/v1/events"+query, body, headers...).problem(t, status, kind, detail)
	}
	refused(400, "invalid", "specversion: want 1.0", "", strings.Replace(envelope("1", ""), "1.0", "0.3", 1), structured)
	refused(400, "invalid", "id: each event must have one", "", envelope("", ""), structured)
	refused(400, "invalid", "Content-Type", "", envelope("1", ""), "Content-Type: application/json")
	refused(400, "invalid", "Content-Type", "", "x", "Content-Type: application/cloudevents+avro")
	refused(400, "invalid", "Content-Type", "", "x", "Content-Type: /")
	refused(400, "invalid", `"id" is given twice`, "", envelope("1", `,"id":"2"`), structured)
	refused(400, "invalid", "something follows", "", envelope("1", "")+"x", structured)
	refused(400, "invalid", "want a value", "", envelope("1", `,"data":01`), structured)
	refused(413, "too_large", "nested too deeply", "", envelope("1", `,"data":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)), structured)
	refused(413, "too_large", "attributes", "", envelope("1", manyAttributes(40)), structured)
	refused(400, "invalid", "amount: the event has no data.n", "?amount=data.n", envelope("1", ""), structured)
	refused(400, "invalid", "key: the event has no data.page", "?key=data.page", envelope("1", `,"data":{"page":{}}`), structured)
	refused(400, "invalid", "key: want the name of an attribute", "?key=type,", envelope("1", ""), structured)
	refused(400, "invalid", "dims: want the name of an attribute", "?dims=data..x", envelope("1", ""), structured)
	refused(400, "invalid", "leave it out: the source and the id of an event are its token", "", envelope("1", ""), structured, "Idempotency-Key: x")
	refused(400, "invalid", "an event has no version", "", envelope("1", ""), structured, "If-None-Match: *")
	refused(400, "invalid", "percent-encoded", "", "", "ce-specversion: 1.0", "ce-id: %zz", "ce-source: s", "ce-type: t")
	refused(400, "invalid", "unknown dimension", "", envelope("1", `,"data":{"dims":{"os":"x"}}`), structured)
	f.do("POST", "/api/v1/events", envelope("1", ""), structured).want(t, 200, "value=1")
	refused(422, "token", "the id was used for another payload", "", envelope("1", `,"data":{"amount":2}`), structured)
	f.do("GET", "/api/v1/counters/order.placed", "").want(t, 200, "value=1")
}

func manyAttributes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"a%d":1`, i)
	}
	return b.String()
}

// A batch of which the store has not taken all has no outcome, and counts once when it is
// sent again.
func TestCloudEventsSentAgain(t *testing.T) {
	var hooks storetest.Hooks
	lost := 0
	hooks.On(storetest.OnWrite, func(c *storetest.Call) error {
		err := c.Pass()
		if lost++; lost == 1 {
			return store.ErrUnknown // the answer gets lost
		}
		return err
	})
	f := openOver(t, storetest.Wrap(memstore.New(memstore.Options{}), &hooks), rest.Options{})
	body := "[" + envelope("1", "") + "," + envelope("2", "") + "]"
	f.do("POST", "/api/v1/events", body, batched).problem(t, 504, "unknown", "")
	if r := f.do("POST", "/api/v1/events", body, batched); r.status != 200 || strings.Count(r.body, `"replayed":true`) != 2 {
		t.Errorf("%d %s", r.status, r.body)
	}
	f.do("GET", "/api/v1/counters/order.placed", "").want(t, 200, "value=2")
}

// So has a batch of which the answer of one partition got lost.
func TestCloudEventsPending(t *testing.T) {
	var hooks storetest.Hooks
	lost := false
	var mu sync.Mutex // calls for several partitions are made at once
	hooks.On(storetest.OnApply, func(c *storetest.Call) error {
		err := c.Pass()
		mu.Lock()
		defer mu.Unlock()
		if err == nil && !lost {
			lost = true
			c.Replies[0] = store.Reply{Err: store.ErrUnknown}
		}
		return err
	})
	f := openOver(t, storetest.Wrap(memstore.New(memstore.Options{Partitions: 3}), &hooks), rest.Options{})
	events := make([]string, 20)
	for i := range events {
		events[i] = envelope(fmt.Sprint(i), fmt.Sprintf(`,"subject":"s%d"`, i))
	}
	body := "[" + strings.Join(events, ",") + "]"
	f.do("POST", "/api/v1/events", body, batched).problem(t, 504, "unknown", "")
	if r := f.do("POST", "/api/v1/events", body, batched); r.status != 200 || strings.Count(r.body, `"replayed":true`) != len(events) {
		t.Errorf("%d %s", r.status, r.body)
	}
	f.do("GET", "/api/v1/sum?prefix=s", "").want(t, 200, "sum=20")
	if !lost {
		t.Error("no answer got lost")
	}
}
