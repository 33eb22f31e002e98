package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
)

// A contract is the OpenAPI document.
type contract map[string]any

var theContract = sync.OnceValues(func() (contract, error) {
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	var c contract
	return c, json.Unmarshal(raw, &c)
})

func loadContract(t *testing.T) contract {
	t.Helper()
	c, err := theContract()
	if err != nil {
		t.Fatalf("openapi.json: %v", err)
	}
	return c
}

// at walks down members by name; references are followed.
func (c contract) at(v any, names ...string) map[string]any {
	m, _ := v.(map[string]any)
	for _, n := range names {
		next, _ := m[n].(map[string]any)
		m = c.resolve(next)
	}
	return c.resolve(m)
}

func (c contract) resolve(m map[string]any) map[string]any {
	if to, ok := m["$ref"].(string); ok {
		return c.at(map[string]any(c), strings.Split(strings.TrimPrefix(to, "#/"), "/")...)
	}
	return m
}

// operations returns "METHOD path" of everything documented.
func (c contract) operations() []string {
	var all []string
	for path, item := range c.at(map[string]any(c), "paths") {
		for method := range c.at(item) {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}

// template returns the documented path that a request's path is of.
func (c contract) template(path string) string {
	path, _, _ = strings.Cut(path, "?")
	have := strings.Split(path, "/")
	best := "" // A segment as it is goes before one that stands for any.
	for template := range c.at(map[string]any(c), "paths") {
		want := strings.Split(template, "/")
		if slices.EqualFunc(have, want, func(h, w string) bool { return h == w || strings.HasPrefix(w, "{") }) &&
			(best == "" || strings.Count(template, "{") < strings.Count(best, "{")) {
			best = template
		}
	}
	return best
}

// check compares a reply with what is documented for it. If quoted, integers of 64
// bits are strings.
func (c contract) check(t *testing.T, method, path string, r reply, quoted bool) {
	t.Helper()
	mime := r.header.Get("Content-Type")
	if mime != "application/json" && mime != "application/problem+json" || r.body == "" {
		return
	}
	var schema map[string]any
	if mime == "application/problem+json" {
		schema = c.at(map[string]any(c), "components", "schemas", "Problem")
	} else {
		responses := c.at(map[string]any(c), "paths", c.template(path), strings.ToLower(method), "responses")
		schema = c.at(responses, fmt.Sprint(r.status), "content", mime, "schema")
	}
	if schema == nil {
		t.Errorf("%s %s: %d %s is not documented", method, path, r.status, mime)
		return
	}
	var v any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Errorf("%s %s: %v in %s", method, path, err, r.body)
		return
	}
	for _, wrong := range (judge{c, quoted && !strings.HasPrefix(path, "/openapi")}).validate(schema, v, "reply") {
		t.Errorf("%s %s: %s: %s", method, path, wrong, r.body)
	}
}

// A judge compares values with what is documented.
type judge struct {
	contract
	quoted bool // integers of 64 bits are strings
}

// validate returns what of v is not as the schema says. A member that the
// schema does not name is wrong too.
func (c judge) validate(schema map[string]any, v any, where string) []string {
	schema = c.resolve(schema)
	if either, ok := schema["oneOf"].([]any); ok {
		return c.validateOne(either, v, where)
	}
	wrong := c.validateType(schema, v, where)
	switch v := v.(type) {
	case map[string]any:
		properties := c.at(schema, "properties")
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s has no %s", where, name))
			}
		}
		for name, member := range v {
			if properties == nil {
				if all, ok := schema["additionalProperties"].(map[string]any); ok {
					wrong = append(wrong, c.validate(all, member, where+"."+name)...)
				}
				continue
			}
			if properties[name] == nil {
				wrong = append(wrong, fmt.Sprintf("%s has %s, which is not documented", where, name))
				continue
			}
			wrong = append(wrong, c.validate(c.at(properties, name), member, where+"."+name)...)
		}
	case []any:
		for i, element := range v {
			wrong = append(wrong, c.validate(c.at(schema, "items"), element, fmt.Sprintf("%s[%d]", where, i))...)
		}
	}
	return wrong
}

func (c judge) validateOne(either []any, v any, where string) []string {
	var wrong []string
	for _, s := range either {
		w := c.validate(c.at(s), v, where)
		if len(w) == 0 {
			return nil
		}
		wrong = append(wrong, w...)
	}
	return wrong
}

// typesOf returns schemas of one type each.
func typesOf(names []any) (schemas []any) {
	for _, n := range names {
		schemas = append(schemas, map[string]any{"type": n})
	}
	return schemas
}

func (c judge) validateType(schema map[string]any, v any, where string) []string {
	if either, several := schema["type"].([]any); several {
		return c.validateOne(typesOf(either), v, where)
	}
	var ok bool
	switch schema["type"] {
	case "object":
		_, ok = v.(map[string]any)
	case "array":
		_, ok = v.([]any)
	case "string":
		var s string
		s, ok = v.(string)
		if words, limited := schema["enum"].([]any); limited && !slices.Contains(words, any(s)) {
			ok = false
		}
		if schema["format"] == "date-time" {
			_, err := time.Parse(time.RFC3339Nano, s)
			ok = ok && err == nil
		}
	case "null":
		ok = v == nil
	case "boolean":
		_, ok = v.(bool)
	case "number":
		_, ok = v.(float64)
	case "integer":
		if f := schema["format"]; c.quoted && (f == "int64" || f == "uint64") {
			s, _ := v.(string)
			_, err := strconv.ParseInt(s, 10, 64)
			ok = err == nil
			break
		}
		var n float64
		n, ok = v.(float64)
		ok = ok && n == math.Trunc(n)
	default:
		return []string{fmt.Sprintf("%s: the schema has type %v", where, schema["type"])}
	}
	if !ok {
		return []string{fmt.Sprintf("%s is %v, want %v", where, v, schema["type"])}
	}
	return nil
}

func TestEveryRouteIsDocumented(t *testing.T) {
	served := rest.Routes()
	slices.Sort(served)
	documented := loadContract(t).operations()
	for _, r := range served {
		if !slices.Contains(documented, r) {
			t.Errorf("%s is served and not documented", r)
		}
	}
	for _, r := range documented {
		if !slices.Contains(served, r) {
			t.Errorf("%s is documented and not served", r)
		}
	}
}

// Every documented operation answers 200, with what is documented; do checks
// the latter for every reply of every test.
func TestEveryOperationAnswersAsDocumented(t *testing.T) { everyOperation(t, "") }

// So does it with integers of 64 bits as strings: each of them, and no other.
func TestEveryOperationAnswersAsDocumentedWithStrings(t *testing.T) {
	everyOperation(t, "Accept: application/json;int64=string")
}

func everyOperation(t *testing.T, header string) {
	t.Helper()
	c := loadContract(t)
	s := &archive{Store: newMemory()}
	f := openOver(t, s, rest.Options{Policies: &book{}, Gate: guarded(t, s, server.GateOptions{})})
	left := map[string]bool{}
	for _, o := range c.operations() {
		left[o] = true
	}
	call := func(method, path, body string, headers ...string) {
		t.Helper()
		if header != "" {
			headers = append(headers, header)
		}
		if r := f.do(method, path, body, headers...); r.status != 200 {
			t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
		}
		delete(left, method+" "+c.template(path))
	}
	for _, prefix := range []string{"/api/v1", "/api/v1/namespaces/n"} {
		call("POST", prefix+"/counters/a/increment", `{"delta":1,"who":"w","floor":0,"ceiling":9,"saturate":true,"ttl":"1h"}`, "Idempotency-Key: t")
		call("PUT", prefix+"/definitions", windowed, "If-Match: *")
		call("GET", prefix+"/definitions", "")
		call("POST", prefix+"/counters/v1/increment", `{"at":"2026-01-02T03:04:05Z","dims":{"country":"DE"}}`, "Idempotency-Key: v")
		call("POST", prefix+"/counters/v1/adjust", `{"delta":2,"reason":"r","actor":"a","at":1767323045000}`)
		call("POST", prefix+"/tokens/v/undo?key=v1", `{"reason":"r"}`)
		call("POST", prefix+"/counters/v1/recount", `{"reason":"r"}`)
		call("PUT", prefix+"/counters/s1", `{"value":10}`)
		call("POST", prefix+"/counters/s1/reserve", `{"amount":2,"ttl":"1h","who":"eve","floor":1}`, "Idempotency-Key: s")
		var held struct{ ID string }
		if err := json.Unmarshal([]byte(f.do("POST", prefix+"/counters/s1/reserve", `{"amount":2,"ttl":"1h","who":"eve","floor":1}`, "Idempotency-Key: s").body), &held); err != nil {
			t.Fatal(err)
		}
		call("POST", prefix+"/reservations/"+held.ID+"/extend", `{"ttl":"2h"}`, "Prefer: return=minimal")
		call("GET", prefix+"/reservations/"+held.ID, "")
		call("GET", prefix+"/reservations?key=s1&who=eve&limit=5", "")
		call("POST", prefix+"/reservations/"+held.ID+"/commit", `{"amount":1}`)
		call("POST", prefix+"/counters/s1/reserve", `{"ttl":"1h"}`, "Idempotency-Key: s2")
		if err := json.Unmarshal([]byte(f.do("POST", prefix+"/counters/s1/reserve", `{"ttl":"1h"}`, "Idempotency-Key: s2").body), &held); err != nil {
			t.Fatal(err)
		}
		call("POST", prefix+"/reservations/"+held.ID+"/release", "")
		call("GET", prefix+"/counters/v1/range", "")
		call("GET", prefix+"/range?prefix=v", "")
		call("GET", prefix+"/counters/v1/by/country,os", "")
		call("GET", prefix+"/counters/v1/ledger?limit=1", "")
		call("PUT", prefix+"/definitions", `{"definitions":[{"pattern":"p*","choices":["like","dislike"]},{"pattern":"o*","once":"1d"},{"pattern":"b*","once":{"every":"1d","approximate":"0.1%","users":1000}}]}`, "If-Match: *")
		call("PUT", prefix+"/reactions/p1/ana", `{"choice":"like"}`, "Idempotency-Key: r")
		call("PUT", prefix+"/reactions/p1/bob", `{"choice":"dislike"}`, "Prefer: return=minimal")
		call("DELETE", prefix+"/reactions/p1/bob", "")
		call("GET", prefix+"/reactions/p1/ana", "")
		call("GET", prefix+"/reactions/p1", "")
		call("POST", prefix+"/reactions/read", `{"user":"ana","keys":["p1","p2"]}`)
		call("GET", prefix+"/members/p1?choice=like&limit=5", "")
		call("POST", prefix+"/counters/b1/increment", `{"who":"ana"}`)
		call("POST", prefix+"/counters/b1/increment", `{"who":"ana"}`)
		call("POST", prefix+"/counters/o1/increment", `{"who":"ana"}`)
		call("POST", prefix+"/counters/o1/increment", `{"who":"ana"}`)
		call("PUT", prefix+"/definitions", `{"definitions":[{"pattern":"u*","windows":[{"every":"1h","keep":"1d"}],"dimensions":["os"],"unique":{"of":"who","error":"2%"},"top":[{"name":"first","by":"key"},{"name":"oses","by":"os","k":5}]}]}`, "If-Match: *")
		call("GET", prefix+"/definitions", "")
		call("POST", prefix+"/counters/u1/increment", `{"who":"ana","dims":{"os":"linux"}}`)
		call("POST", prefix+"/uniques/u1", `{"items":["ana","bob"]}`)
		call("GET", prefix+"/uniques/u1?from=-1h&by=os&top=1&with=u2", "")
		call("GET", prefix+"/tops/first?from=-1h&k=5", "")
		call("GET", prefix+"/tops/first?trend=true", "")
		call("GET", prefix+"/counters/u1/top/oses?k=5", "")
		call("PUT", prefix+"/sketches/k1", `{"kind":"filter","capacity":100,"error":0.01,"growth":2}`)
		call("PUT", prefix+"/sketches/k2", `{"kind":"frequencies","epsilon":0.01,"confidence":0.99,"ttl":"7d"}`)
		call("PUT", prefix+"/sketches/k3", `{"kind":"top","k":3}`)
		for i, key := range []string{"k1", "k2", "k3"} {
			call("POST", prefix+"/sketches/"+key+"/items", `{"items":["a",{"item":"b","n":`+[]string{"1", "3", "5"}[i]+`}],"ttl":"1h"}`, "Idempotency-Key: i")
			call("POST", prefix+"/sketches/"+key+"/items", `{"items":["a",{"item":"b","n":`+[]string{"1", "3", "5"}[i]+`}],"ttl":"1h"}`, "Idempotency-Key: i")
			call("POST", prefix+"/sketches/"+key+"/query", `{"items":["a","c"]}`)
			call("POST", prefix+"/sketches/"+key+"/merge", `{"from":["`+key+`",{"key":"`+key+`","weight":1}],"ttl":"1h"}`, "Idempotency-Key: m")
			call("GET", prefix+"/sketches/"+key, "")
		}
		call("GET", prefix+"/sketches/k3?k=1", "")
		call("POST", prefix+"/uniques/k4", `{"items":["ana"]}`)
		call("GET", prefix+"/sketches/k4", "")
		call("DELETE", prefix+"/subjects/a", "")
		call("GET", prefix+"/policies/explain?key=v1", "")
		call("POST", prefix+"/counters/a/decrement", "", "Prefer: return=minimal")
		call("GET", prefix+"/counters/a", "")
		call("GET", prefix+"/counters/a/exact", "")
		call("PUT", prefix+"/counters/a", `{"value":9223372036854775807}`)
		call("POST", prefix+"/batch", `{"ops":[{"key":"a"},{"key":"b"},{"key":""}]}`) // a overflows
		call("POST", prefix+"/events", `[{"specversion":"1.0","id":"1","source":"s","type":"b"},{}]`, "Content-Type: application/cloudevents-batch+json")
		call("POST", prefix+"/events", `{"amount":2}`, "Content-Type: application/json", "Ce-Specversion: 1.0", "Ce-Id: 2", "Ce-Source: s", "Ce-Type: b")
		call("POST", prefix+"/counters/a/reset", "")
		call("DELETE", prefix+"/counters/a", "")
		call("POST", prefix+"/read", `{"keys":["a","b"]}`)
		call("GET", prefix+"/counters?limit=1", "")
		call("GET", prefix+"/sum?prefix=a", "")
		call("GET", prefix+"/openmetrics?prefix=a", "")
		call("GET", prefix+"/tokens/t?key=a", "")
		call("POST", prefix+"/tokens/t/settle?key=a", "")
		call("PUT", prefix+"/definitions", `{"definitions":[{"pattern":"api","limits":[{"rate":2,"per":"1h"}],"away":{"then":"share","servers":2},"clients":9}]}`, "If-Match: *")
		call("GET", prefix+"/definitions", "")
		call("POST", prefix+"/limits/api/allow?status=429", `{"who":"w","cost":2,"burn":true}`, "Idempotency-Key: l")
		call("POST", prefix+"/limits/api/allow", `{"who":"w","limits":[{"name":"a","algorithm":"sliding","rate":1,"per":"1h"}],"away":"open","dry_run":true}`)
		call("GET", prefix+"/limits/api/clients/w", "")
		call("DELETE", prefix+"/limits/api/clients/w", "")
		call("GET", prefix+"/policies/explain?key=a", "")
		call("HEAD", prefix+"/live?key=a", "")
		delete(left, "GET "+prefix+"/live") // TestLive reads it
		call("HEAD", prefix+"/counters/a/live?read=exact", "")
		delete(left, "GET "+prefix+"/counters/{key}/live") // TestWatch reads it
	}
	delete(left, "GET /api/v1/namespaces/{ns}/live")
	delete(left, "GET /api/v1/namespaces/{ns}/counters/{key}/live")
	call("PUT", "/api/v1/policies", `{"policies":[{"pattern":"a","preset":"likes"}]}`, "If-Match: *")
	call("GET", "/api/v1/policies", "")
	call("PUT", "/api/v1/policies?dry_run=true", `{"policies":[]}`, "If-Match: *")
	call("GET", "/api/v1/hot?limit=3", "")
	call("GET", "/api/v1/overview", "")
	call("GET", "/api/v1/servers", "")
	call("GET", "/api/v1/alerts", "")
	call("GET", "/api/v1/backup", "")
	call("POST", "/api/v1/verify", "")
	call("GET", "/api/v1/session", "")
	key := f.newKey("", "root", "all:*") // From here on, everyone else is a stranger.
	as := "Authorization: Bearer " + key
	delete(left, "POST /api/v1/keys")
	call("POST", "/api/v1/session", `{"key":"`+key+`"}`)
	call("DELETE", "/api/v1/session", "")
	other := f.do("POST", "/api/v1/keys", `{"name":"other","grants":["read:n"],"quota":{"requests":9,"writes":9,"bytes":9,"connections":9},"expires":"90d"}`, as)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(other.body), &made); err != nil {
		t.Fatal(err)
	}
	call("POST", "/api/v1/keys/"+made.ID+"/rotate", `{"grace":"1h"}`, as)
	call("GET", "/api/v1/keys", "", as)
	call("DELETE", "/api/v1/keys/"+made.ID, "", as)
	call("GET", "/api/v1/audit?limit=5", "", as)
	call("GET", "/metrics", "", as)
	call("GET", "/healthz", "")
	call("GET", "/readyz", "")
	call("GET", "/openapi.json", "")
	for _, o := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s was not called", o)
	}
}

// Every reference in the document leads somewhere, and everything it defines
// is used.
func TestReferences(t *testing.T) {
	c := loadContract(t)
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for rest := text; ; {
		_, after, found := strings.Cut(rest, `"$ref": "`)
		if !found {
			break
		}
		to, _, _ := strings.Cut(after, `"`)
		if c.resolve(map[string]any{"$ref": to}) == nil {
			t.Errorf("%s leads nowhere", to)
		}
		rest = after
	}
	for _, kind := range []string{"parameters", "headers", "schemas", "responses"} {
		for name := range c.at(map[string]any(c), "components", kind) {
			if !strings.Contains(text, `"#/components/`+kind+"/"+name+`"`) {
				t.Errorf("%s %s is not used", kind, name)
			}
		}
	}
}

// The words for kinds in the document are those that are sent.
func TestKindsAreDocumented(t *testing.T) {
	kinds, _ := loadContract(t).at(map[string]any(loadContract(t)), "components", "schemas", "Problem", "properties", "kind")["enum"].([]any)
	for _, word := range append(kindWords(), "unauthorized", "forbidden", "not_found", "method", "timeout", "misdirected", "quota") {
		if !slices.Contains(kinds, any(word)) {
			t.Errorf("kind %s is not documented", word)
		}
	}
}
