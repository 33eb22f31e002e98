package rest_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

// acceptStrings matches an Accept that asks for int64=string.
var acceptStrings = regexp.MustCompile(`(?:json|\*); ?int64="?string`)

// strings64 reports whether a request asks for int64=string.
func strings64(path string, headers []string) bool {
	if strings.Contains(path, "int64=") {
		return strings.Contains(path, "int64=string")
	}
	return slices.ContainsFunc(headers, acceptStrings.MatchString)
}

// A number beyond 2^53 arrives whole, in each kind of reply and request.
func TestInt64AsString(t *testing.T) {
	f := open(t, rest.Options{})
	const large = "9007199254740993" // 2^53 + 1, which a float64 does not hold
	path := "/api/v1/counters/a"
	for _, ask := range []struct {
		query, header string
		quoted        bool
	}{
		{"?int64=string", "X-None: 0", true},
		{"", "Accept: application/json;int64=string", true},
		{"", "Accept: text/plain, application/json; int64=\"string\"; q=0.9", true},
		{"", "Accept: */*;int64=string", true},
		{"?int64=number", "Accept: application/json;int64=string", false},
		{"", "Accept: text/plain;int64=string", false},
		{"", "Accept: application/json", false},
	} {
		r := f.do("PUT", path+ask.query, `{"value":"`+large+`"}`, ask.header)
		r.want(t, 200, "value="+large)
		if quoted := strings.Contains(r.body, `"value":"`+large+`"`); quoted != ask.quoted {
			t.Errorf("%+v: %s", ask, r.body)
		}
		r = f.do("GET", path+ask.query, "", ask.header)
		if quoted := strings.Contains(r.body, `"upper":"`+large+`"`); quoted != ask.quoted {
			t.Errorf("%+v: %s", ask, r.body)
		}
		if !strings.Contains(r.body, `"shards":1`) || r.header.Get("Vary") != "Accept" {
			t.Errorf("%+v: %s %v", ask, r.body, r.header)
		}
	}
	r := f.do("POST", path+"/increment?int64=string", `{"delta":"9223372036854775807","ceiling":"9223372036854775806"}`)
	r.problem(t, 409, "bound", "")
	if !strings.Contains(r.body, `"asked":"9223372036854775807","ceiling":"9223372036854775806"`) || !strings.Contains(r.body, `"status":409`) {
		t.Errorf("problem %s", r.body)
	}
	f.do("GET", path+"?int64=text", "").problem(t, 400, "invalid", "want int64=string or int64=number")
	f.do("GET", path, "", "Accept: application/json;int64=bigint").problem(t, 400, "invalid", "want int64=string or int64=number")
	f.do("GET", path+"?int64=string&int64=string", "").problem(t, 400, "invalid", "given more than once")
	f.do("GET", "/openapi.json?int64=string", "", "Accept: application/json;int64=string").want(t, 200, "openapi=3.1.0")
	etag := f.do("GET", path, "").header.Get("ETag")
	if r := f.do("GET", path+"?int64=string", "", "If-None-Match: "+etag); r.status != 304 || r.header.Get("Vary") != "Accept" {
		t.Errorf("status %d, headers %v", r.status, r.header)
	}
}

// An integer in quotes is one, and nothing else is.
func TestQuotedIntegers(t *testing.T) {
	f := open(t, rest.Options{})
	g := func(delta string) {
		t.Helper()
		f.do("POST", "/api/v1/counters/q/increment", `{"delta":`+delta+`}`).problem(t, 400, "invalid", "want an integer between")
	}
	for _, bad := range []string{`""`, `"-"`, `" 1"`, `"1 "`, `"1`, `"01"`, `"1.0"`, `"1e3"`, `"+1"`, `"\u0031"`, `"9223372036854775808"`, `"0x1"`, `"1"1`} {
		if bad == `"1"1` || bad == `"1` {
			f.do("POST", "/api/v1/counters/q/increment", `{"delta":`+bad+`}`).problem(t, 400, "invalid", "")
			continue
		}
		g(bad)
	}
	f.do("POST", "/api/v1/counters/q/increment", `{"delta":"-9223372036854775808"}`).want(t, 200, "value=-9223372036854775808")
	f.do("PUT", "/api/v1/definitions", `{"definitions":[{"pattern":"d*","floor":"-9007199254740993","limits":[{"rate":"1","per":"1h"}]}]}`, "If-Match: *").want(t, 200)
	// What was read so can be written back.
	r := f.do("GET", "/api/v1/definitions?int64=string", "")
	var book struct{ Definitions json.RawMessage }
	if err := json.Unmarshal([]byte(r.body), &book); err != nil || !strings.Contains(r.body, `"floor":"-9007199254740993"`) {
		t.Fatalf("definitions %s: %v", r.body, err)
	}
	f.do("PUT", "/api/v1/definitions", `{"definitions":`+string(book.Definitions)+`}`, "If-Match: *").want(t, 200)
}

// The table of names is what the document says, and no name is both an integer
// of 64 bits and another number.
func TestInt64Names(t *testing.T) {
	c := loadContract(t)
	wide, narrow := map[string]bool{}, map[string]bool{}
	for schema, s := range c.at(map[string]any(c), "components", "schemas") {
		for name := range c.at(s, "properties") {
			p := c.at(s, "properties", name)
			if p["type"] != "integer" && p["type"] != "number" {
				continue
			}
			is := p["format"] == "int64" || p["format"] == "uint64"
			if is {
				wide[name] = true
			} else {
				narrow[name] = true
			}
			if is && !rest.IsInt64(name) && (schema != "Adjustment" && schema != "Ask") { // those are never replied
				t.Errorf("%s of %s is an integer of 64 bits, and not in the table", name, schema)
			}
		}
	}
	for name := range narrow {
		if rest.IsInt64(name) {
			t.Errorf("%s is in the table, and another number somewhere", name)
		}
	}
	for _, name := range []string{"shards", "status", "offset", "rate", "partitions"} {
		if wide[name] {
			t.Errorf("%s is an integer of 64 bits somewhere", name)
		}
	}
}

// FuzzQuoteInt64 checks that only the quotes are new, and that what was JSON is.
func FuzzQuoteInt64(f *testing.F) {
	for _, seed := range []string{
		`{"key":"a","value":-5,"rate":1.5,"points":[{"value":1,"exact":true}],"counts":{"value\"":7,"x":-1},"status":4}`, `{"key":"value\\","value":0}`, `[]`, `"`, `{"value":1`, `{"value":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		out := rest.QuoteInt64(body)
		if !json.Valid(body) {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q", body, out)
		}
		plain := func(b []byte) string { return strings.ReplaceAll(string(b), `"`, "") }
		if plain(body) != plain(out) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}
