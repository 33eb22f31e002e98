package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// windowed are definitions with all that there is.
const windowed = `{"definitions":[{"pattern":"v*","windows":[{"every":"1h","keep":"50y"},{"every":"1d","zone":"Europe/Berlin","keep":"50y"}],"dimensions":[{"by":"country","limit":5},{"by":["country","os"],"limit":5}],"ledger":"all"}]}`

// defined opens a door whose default namespace has definitions.
func defined(t *testing.T) *fixture {
	t.Helper()
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/definitions", windowed, "If-Match: *").want(t, 200, "id=1", "dry_run=false")
	return f
}

func TestDefinitions(t *testing.T) {
	f := open(t, rest.Options{})
	const path = "/api/v1/definitions"
	r := f.do("GET", path, "")
	r.want(t, 200, "namespace=default", "id=0", "definitions=[]", "views=[]")
	none := r.header.Get("ETag")

	f.do("PUT", path, windowed).problem(t, 400, "invalid", "If-Match: want the ETag of the definitions")
	f.do("PUT", path, windowed, "If-Match: d1").problem(t, 400, "invalid", "If-Match")
	f.do("PUT", path+"?dry_run=perhaps", windowed, "If-Match: *").problem(t, 400, "invalid", "dry_run: want true or false")
	f.do("PUT", path, windowed, `If-Match: "d7"`).problem(t, 412, "changed", "the definitions are not those of If-Match")
	f.do("PUT", path+"?dry_run=true", windowed).want(t, 200, "id=1", "dry_run=true")
	f.do("GET", path, "").want(t, 200, "id=0")
	f.do("PUT", path, windowed, "If-Match: "+none).want(t, 200, "id=1", "dry_run=false")
	f.do("PUT", path, `{"definitions":[{"pattern":"w"}]}`, "If-Match: "+none).problem(t, 412, "changed", "the definitions are not those of If-Match")
	f.do("PUT", path, `{"definitions":[]}`, "If-Match: "+none).problem(t, 412, "changed", "the definitions are not those of If-Match")
	f.do("PUT", path, windowed, `If-Match: "d1"`).want(t, 200, "id=1", "changes=[]")

	r = f.do("GET", path, "")
	r.want(t, 200, "id=1")
	for _, part := range []string{`"pattern":"v*"`, `"zone":"Europe/Berlin"`, `"name":"windows of 1h"`, `"since":"`, `"in_force":"`, `"record":"all"`} {
		if !strings.Contains(r.body, part) {
			t.Errorf("no %s in %s", part, r.body)
		}
	}
	if r := f.do("GET", "/api/v1/policies/explain?key=v1", ""); r.status != 200 || !strings.Contains(r.body, `"definition":{"namespace":"default","id":1,`) {
		t.Errorf("a key with a definition: %s", r.body)
	}
	if r := f.do("GET", "/api/v1/policies/explain?key=w", ""); strings.Contains(r.body, "definition") {
		t.Errorf("a key without a definition: %s", r.body)
	}
	f.do("GET", "/api/v1/namespaces/n/definitions", "").want(t, 200, "namespace=n", "id=0")

	bad := func(body, detail string) {
		t.Helper()
		f.do("PUT", path, body, "If-Match: *").problem(t, 400, "invalid", detail)
	}
	bad(``, "body: EOF")
	bad(`[]`, "body: cannot unmarshal array")
	bad(`{}`, "definitions: it is missing")
	bad(`{"definitions":[]} x`, "body: something follows the value")
	bad(`{"definitions":[],"policies":[]}`, `unknown field "policies"`)
	bad(`{"definitions":[{"pattern":"a","windows":[{"every":"7d","keep":"1y"}]}]}`, "7d")
	bad(`{"definitions":[{"pattern":"a","windows":[{"every":"1d","zone":"Europe/Bonn","keep":"1y"}]}]}`, "Europe/Bonn")
	bad(`{"definitions":[{"pattern":"a","namespace":"n"}]}`, "a namespace other than that of the path")
	bad(`{"definitions":[{"pattern":"a*"},{"pattern":"ab"}]}`, "an earlier pattern matches all of its keys")
}

func TestRange(t *testing.T) {
	f := defined(t)
	at := func(key, when, dims string, n int) {
		t.Helper()
		f.do("POST", "/api/v1/counters/"+key+"/increment", fmt.Sprintf(`{"delta":%d,"at":%q,"dims":{%s}}`, n, when, dims)).want(t, 200)
	}
	at("v1", "2024-10-01T08:00:00Z", `"country":"DE","os":"linux"`, 3)
	at("v1", "2024-10-01T10:59:59.999Z", `"country":"PE"`, 4)
	at("v2", "2024-10-01T08:30:00Z", ``, 10)

	const span = "?from=2024-10-01T08:00:00Z&to=2024-10-01T11:00:00Z&step=1h"
	r := f.do("GET", "/api/v1/counters/v1/range"+span, "")
	r.want(t, 200, "key=v1", "step=1h", "step_ms=3600000", "sum=7", "exact=true")
	for _, part := range []string{`"from":"2024-10-01T08:00:00Z","to":"2024-10-01T09:00:00Z","value":3,"exact":true`, `"value":0,`, `"value":4,`} {
		if !strings.Contains(r.body, part) {
			t.Errorf("no %s in %s", part, r.body)
		}
	}
	if strings.Contains(r.body, "rate") {
		t.Errorf("rates that nobody asked for: %s", r.body)
	}
	r = f.do("GET", "/api/v1/counters/v1/range"+span+"&rate=true", "")
	r.want(t, 200, "rate=0.0006481481481481481")
	if !strings.Contains(r.body, `"value":3,"rate":0.0008333333333333334,"exact":true`) || !strings.Contains(r.body, `"value":0,"rate":0,`) {
		t.Errorf("rates: %s", r.body)
	}
	f.do("GET", "/api/v1/range"+span+"&prefix=v&rate=true", "").want(t, 200, "sum=17", "rate=0.001574074074074074")
	f.do("GET", "/api/v1/range"+span+"&prefix=v", "").want(t, 200, "prefix=v", "sum=17")
	f.do("GET", "/api/v1/counters/v1/range?from=2024-10-01&to=2024-10-02&step=1d&zone=Europe/Berlin", "").want(t, 200, "sum=7", "zone=Europe/Berlin", "exact=true")
	f.do("GET", "/api/v1/counters/v1/range?from=1727769600000&to=2024-10-01T09:00:00Z", "").want(t, 200)
	f.do("GET", "/api/v1/counters/v1/range?from=-24h", "").want(t, 200, "sum=0")
	r = f.do("GET", "/api/v1/counters/v1/range?to=1971-02-01", "")
	r.want(t, 200, "points=[]", "sum=0", "exact=false", "complete=false")
	if strings.Contains(r.body, `"complete_from":"1971`) { // Its windows begin with the definition.
		t.Errorf("complete too early: %s", r.body)
	}
	f.do("GET", "/api/v1/counters/v1/range?from=2024-10-01T08:01:00Z&to=2024-10-01T08:02:00Z", "").want(t, 200, "points=[]", "exact=false", "complete=false")
	f.do("GET", "/api/v1/counters/v1/by/country?from=2024-10-01T08:01:00Z&to=2024-10-01T08:02:00Z", "").
		want(t, 200, "sum=0", "exact=false", "complete=false", "from=2024-10-01T09:00:00Z", "to=2024-10-01T09:00:00Z")

	f.do("GET", "/api/v1/counters/v1/by/country", "").want(t, 200, "dimension=country", "sum=7", "other=0")
	if r := f.do("GET", "/api/v1/counters/v1/by/country?top=1", ""); !strings.Contains(r.body, `"values":[{"value":"PE","count":4}],"other":3`) {
		t.Errorf("the top: %s", r.body)
	}
	if r := f.do("GET", "/api/v1/counters/v1/by/country,os"+strings.Replace(span, "&step=1h", "", 1), ""); !strings.Contains(r.body, `{"values":["DE","linux"],"count":3}`) || !strings.Contains(r.body, `{"values":["PE",""],"count":4}`) {
		t.Errorf("pairs: %s", r.body)
	}

	bad := func(path, detail string) {
		t.Helper()
		f.do("GET", path, "").problem(t, 400, "invalid", detail)
	}
	bad("/api/v1/counters/v1/range?from=yesterday", `from: want a time such as 2026-10-01T08:00:00Z, 2026-10-01, Unix milliseconds, -24h or now, not "yesterday"`)
	bad("/api/v1/counters/v1/range?to=", "to: want a time")
	bad("/api/v1/counters/v1/range?step=7d", "step: ")
	bad("/api/v1/counters/v1/range?rate=fast", "rate: want true or false")
	bad("/api/v1/counters/v1/range?zone=Europe/Bonn", "Europe/Bonn")
	bad("/api/v1/counters/v1/range?from=2024-10-01&to=2024-10-01", "is empty: want to after from")
	bad("/api/v1/range", "prefix: name the counters")
	bad("/api/v1/range?prefix=zzz", `no windows are defined for keys that start with "zzz"`)
	bad("/api/v1/counters/v1/by/colour", "colour")
	bad("/api/v1/counters/v1/by/country?top=0", "top: want an integer of at least 1")
	bad("/api/v1/counters/other/range", "other")
	f.do("POST", "/api/v1/counters/v1/increment", `{"dims":{"colour":"red"}}`).problem(t, 400, "invalid", `unknown dimension "colour": want country`)
}

// A refusal that no token can remember says so.
func TestForgotten(t *testing.T) {
	f := openOver(t, memstore.New(memstore.Options{Limits: store.Limits{TokensMax: 10}}), rest.Options{})
	f.do("PUT", "/api/v1/definitions", windowed, "If-Match: *").want(t, 200)
	const body = `{"delta":-1,"floor":0}`
	first := f.do("POST", "/api/v1/counters/v1/increment", body, "Idempotency-Key: one")
	first.problem(t, 409, "bound", "below the floor of 0")
	if strings.Contains(first.body, "forgotten") {
		t.Errorf("%s", first.body)
	}
	f.do("GET", "/api/v1/tokens/one?key=v1", "").want(t, 200, "state=refused")
	f.do("POST", "/api/v1/tokens/one/settle?key=v1", "").want(t, 200, "state=refused")
	f.do("POST", "/api/v1/counters/v1/increment", body, "Idempotency-Key: two").want(t, 409, "forgotten=true", "floor=0")
	f.do("GET", "/api/v1/tokens/two?key=v1", "").want(t, 200, "state=unknown")
}

// The reply of a late event says so.
func TestLate(t *testing.T) {
	f := open(t, rest.Options{})
	define := func(late string) {
		t.Helper()
		f.do("PUT", "/api/v1/definitions", `{"definitions":[{"pattern":"v*","windows":[{"every":"1h","keep":"2d"}]`+late+`}]}`, "If-Match: *").want(t, 200, "dry_run=false")
	}
	define("")
	const add, old = "/api/v1/counters/v1/increment", `{"at":"2024-10-01T08:00:00Z"}`
	if r := f.do("POST", add, ""); strings.Contains(r.body, "late") {
		t.Errorf("an event of now: %s", r.body)
	}
	f.do("POST", add, old, "Idempotency-Key: t").want(t, 200, "value=2", "late=true")
	if r := f.do("POST", add, old, "Idempotency-Key: t"); strings.Contains(r.body, "late") {
		t.Errorf("a repeat: %s", r.body)
	}
	define(`,"late":{"after":"1h","then":"clamp"}`)
	if r := f.do("POST", "/api/v1/batch", `{"ops":[{"key":"v1"},{"key":"v1","at":"2024-10-01T08:00:00Z"}]}`); strings.Count(r.body, `"late":true`) != 1 {
		t.Errorf("a batch: %s", r.body)
	}
	define(`,"late":"refuse"`)
	f.do("POST", add, old).problem(t, 400, "invalid", "the definition of its counter refuses events older than 2d")
	f.do("POST", "/api/v1/counters/v1/adjust", `{"delta":1,"reason":"r","at":"2024-10-01T08:00:00Z"}`).problem(t, 400, "invalid", "older than 2d")
	if r := f.do("GET", "/api/v1/definitions", ""); !strings.Contains(r.body, `"late":{"then":"refuse"}`) {
		t.Errorf("%s", r.body)
	}
}

func TestLedger(t *testing.T) {
	f := defined(t)
	const v = "/api/v1/counters/v1"
	f.do("POST", v+"/increment", `{"delta":5,"at":"2024-10-01T08:00:00Z","who":"u1","dims":{"country":"DE"}}`, "Idempotency-Key: one").want(t, 200)
	f.do("POST", v+"/adjust", `{"delta":-2,"reason":"bots","actor":"ana"}`, "Idempotency-Key: two").want(t, 200, "applied=-2", "value=3", "replayed=false")
	f.do("POST", v+"/adjust", `{"delta":-2,"reason":"bots","actor":"ana"}`, "Idempotency-Key: two").want(t, 200, "replayed=true")
	f.do("POST", v+"/adjust", `{"delta":-2,"reason":"bats","actor":"ana"}`, "Idempotency-Key: two").problem(t, 422, "token", "another payload")
	f.do("POST", "/api/v1/tokens/one/undo?key=v1", `{"reason":"a mistake","actor":"ana"}`).want(t, 200, "applied=-5")
	r := f.do("GET", v+"/ledger", "")
	r.want(t, 200)
	for _, part := range []string{`"kind":"undo"`, `"reason":"a mistake"`, `"kind":"adjust"`, `"actor":"u1"`, `"undone":true`, `"dims":{"country":"DE"}`, `"delta":-5`} {
		if !strings.Contains(r.body, part) {
			t.Errorf("no %s in %s", part, r.body)
		}
	}
	f.do("GET", v+"/range?from=2024-10-01&to=2024-10-02", "").want(t, 200, "sum=0")

	// What sets a counter may say why.
	const w = "/api/v1/counters/v3"
	f.do("PUT", w, `{"value":9,"actor":"ana","reason":"stocktaking"}`, "Idempotency-Key: set").want(t, 200, "value=9")
	f.do("PUT", w, `{"value":9,"actor":"ana","reason":"stocktaking"}`, "Idempotency-Key: set").want(t, 200, "replayed=true")
	f.do("PUT", w, `{"value":9,"actor":"eve","reason":"stocktaking"}`, "Idempotency-Key: set").problem(t, 422, "token", "another payload")
	f.do("POST", w+"/reset", `{"actor":"bob"}`).want(t, 200, "before=9")
	f.do("DELETE", w+"?reason=gone&actor=cem", "").want(t, 200)
	f.do("PUT", "/api/v1/counters/plain", `{"value":9,"actor":"ana","reason":"nobody writes it down"}`).want(t, 200, "value=9")
	if r := f.do("GET", w+"/ledger?limit=3", ""); !strings.Contains(r.body, `"actor":"cem","reason":"gone"`) || !strings.Contains(r.body, `"actor":"bob"`) || !strings.Contains(r.body, `"actor":"ana","reason":"stocktaking"`) {
		t.Errorf("assignments: %s", r.body)
	}
	f.do("PUT", w, `{"actor":"ana"}`).problem(t, 400, "invalid", "value: it is missing")
	f.do("PUT", w, `{"value":1,"reason":"`+strings.Repeat("x", 1025)+`"}`).problem(t, 413, "too_large", "reason of 1025 bytes")
	f.do("DELETE", w+"?who=cem", "").problem(t, 400, "invalid", "no parameter of this name")
	f.do("DELETE", w, `{"reason":"gone"}`).problem(t, 400, "invalid", "unknown field")
	f.do("POST", w+"/reset", `{"value":0}`).problem(t, 400, "invalid", "unknown field")

	// The ledger knows the command line from other callers.
	f.do("PUT", "/api/v1/namespaces/default/counters/v2", `{"value":1}`, "User-Agent: curl/8").want(t, 200)
	f.do("PUT", "/api/v1/namespaces/default/counters/v2", `{"value":2}`, "User-Agent: quipu-cli/dev").want(t, 200)
	if r := f.do("GET", "/api/v1/counters/v2/ledger", ""); !strings.Contains(r.body, `"source":"cli"`) || strings.Index(r.body, `"source":"rest"`) < strings.Index(r.body, `"source":"cli"`) {
		t.Errorf("sources: %s", r.body)
	}

	page := f.do("GET", v+"/ledger?limit=1", "")
	cursor, _ := page.fields(t)["cursor"].(string)
	if cursor == "" || !strings.Contains(page.body, `"kind":"undo"`) {
		t.Fatalf("the first page: %s", page.body)
	}
	if r := f.do("GET", v+"/ledger?limit=1&cursor="+cursor, ""); !strings.Contains(r.body, `"kind":"adjust"`) {
		t.Errorf("the second page: %s", r.body)
	}
	if r := f.do("GET", v+"/ledger?token=one&actor=u1", ""); strings.Count(r.body, `"kind":`) != 1 {
		t.Errorf("one token: %s", r.body)
	}
	f.do("DELETE", "/api/v1/subjects/u1", "").want(t, 200, "who=u1", "lines=1", "counters=1")
	if r := f.do("GET", v+"/ledger", ""); strings.Contains(r.body, `"u1"`) || !strings.Contains(r.body, `"erased":true`) {
		t.Errorf("after the erasure: %s", r.body)
	}

	f.do("POST", "/api/v1/tokens/one/undo", "").problem(t, 400, "invalid", "key: name the counter")
	f.do("POST", "/api/v1/tokens/one/undo?key=v1", `{"why":"x"}`).problem(t, 400, "invalid", "want reason, actor")
	f.do("POST", v+"/adjust", "").problem(t, 400, "invalid", "body: want an object")
	f.do("POST", v+"/adjust", `{"reason":"x"}`).problem(t, 400, "invalid", "delta: it is missing")
	f.do("POST", v+"/adjust", `{"delta":1}`).problem(t, 400, "invalid", "reason")
	f.do("POST", v+"/adjust", `{"delta":1,"ttl":"1s"}`).problem(t, 400, "invalid", "want reason, actor, delta, at, dims")
	f.do("GET", v+"/ledger?cursor=x", "").problem(t, 400, "invalid", "")
	f.do("GET", v+"/ledger?limit=100000", "").problem(t, 413, "too_large", "")
}

func TestReadAsOf(t *testing.T) {
	f := defined(t)
	f.do("POST", "/api/v1/counters/v1/increment", `{"delta":5,"at":"2024-10-01T08:00:00Z"}`).want(t, 200)
	f.do("POST", "/api/v1/counters/v1/increment", `{"delta":7}`).want(t, 200)
	f.do("GET", "/api/v1/counters/v1?at=2024-10-02", "").want(t, 200, "value=5")
	f.do("DELETE", "/api/v1/counters/v1", "").want(t, 200)
	f.do("GET", "/api/v1/counters/v1?at=2024-10-02", "").want(t, 200, "value=5", "exists=true")
	f.do("GET", "/api/v1/counters/v1?at=2024-09-02", "").want(t, 200, "value=0", "exists=false")
	f.do("GET", "/api/v1/counters/v1?at=tomorrow", "").problem(t, 400, "invalid", "at: want a time")
}
