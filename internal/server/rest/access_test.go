package rest_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/keyring"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
)

// guarded returns a gate with the keys of a store, and with the keys given that may do everything.
func guarded(t *testing.T, s store.Store, o server.GateOptions, keys ...string) *server.Gate {
	t.Helper()
	var err error
	if o.Keys, err = server.NewKeys(keys); err != nil {
		t.Fatal(err)
	}
	o.Ring = keyring.New(s, keyring.Options{Logger: slog.New(slog.DiscardHandler), Quota: o.Quota})
	o.Logger = slog.New(slog.DiscardHandler)
	g := server.NewGate(o)
	o.Ring.OnChange(g.Changed)
	return g
}

// newKey makes a key by the API.
func (f *fixture) newKey(as, name string, grants ...string) string {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "grants": grants})
	if err != nil {
		f.t.Fatal(err)
	}
	r := f.do("POST", "/api/v1/keys", string(body), "Authorization: Bearer "+as)
	var k struct{ Key string }
	if err := json.Unmarshal([]byte(r.body), &k); err != nil || r.status != 200 || k.Key == "" {
		f.t.Fatalf("key %s: %d %s, %v", name, r.status, r.body, err)
	}
	return k.Key
}

// Every route has a row in the table of package access, and every row has a route.
func TestEveryRouteHasARow(t *testing.T) {
	needs, seen := access.REST(), map[string]bool{}
	for route, operation := range rest.Operations() {
		seen[operation] = true
		if _, ok := needs.Of(operation); !ok {
			t.Errorf("%s (%s) has no row in internal/access/operations.go", route, operation)
		}
	}
	for operation := range needs {
		if !seen[operation] {
			t.Errorf("row %s has no route", operation)
		}
	}
}

// A try is a principal and what it is granted, told apart by the rule.
type try struct {
	rule access.Rule
	key  string
}

// tries makes a key for every single grant on every kind of place.
func tries(t *testing.T, f *fixture) (all []try) {
	t.Helper()
	for _, g := range []string{"read", "write", "decide", "admin", "all"} {
		for _, where := range []string{"*", "n", "n/in:*", "other", "*/in:*", "n/in:deep*"} {
			text := g + ":" + where
			rule, err := access.ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, try{rule, f.newKey("root", text, text)})
		}
	}
	return all
}

// grants is what a rule should mean, spelled out: the test's own judge.
func grants(need access.Need, r access.Rule, namespace, key string) bool {
	var on bool
	here := r.Every || r.Namespace == namespace
	switch need.Scope {
	case access.OnNothing, access.OnLogin:
		return true
	case access.OnSome:
		on = true
	case access.OnKeys, access.OnPrefix:
		on = here && len(key) >= len(r.Prefix) && key[:len(r.Prefix)] == r.Prefix
	case access.OnNamespace:
		on = here && r.Prefix == ""
	case access.OnServer:
		on = r.Every && r.Prefix == ""
	}
	if need.Any {
		return on && need.Grants&r.Grants != 0
	}
	return on && need.Grants&^r.Grants == 0
}

// Every route, called by every principal, on keys that it is granted and on others, is allowed
// or refused as the table says.
func TestRoutesByPrincipal(t *testing.T) {
	s := newMemory()
	gate := guarded(t, s, server.GateOptions{}, "root")
	f := openOver(t, s, rest.Options{Gate: gate, Policies: &book{}})
	const root = "Authorization: Bearer root"
	ids := map[string]string{}
	for _, namespace := range []string{"default", "n", "other"} {
		for _, key := range []string{"in:1", "in:deep", "out"} {
			path := "/api/v1/namespaces/" + namespace + "/counters/" + key
			f.do("PUT", path, `{"value":1000000}`, root)
			var held struct{ ID string }
			r := f.do("POST", path+"/reserve", `{"ttl":"1h"}`, root)
			if err := json.Unmarshal([]byte(r.body), &held); err != nil || held.ID == "" {
				t.Fatalf("%d %s", r.status, r.body)
			}
			ids[namespace+"/"+key] = held.ID
		}
	}
	needs, cells := access.REST(), 0
	all := tries(t, f)
	for _, route := range rest.Routes() {
		operation := rest.Operations()[route]
		need, _ := needs.Of(operation)
		method, template, _ := strings.Cut(route, " ")
		if strings.HasSuffix(operation, "live") { // which would stream
			method = http.MethodHead
		}
		if operation == "POST /api/v1/keys" || strings.Contains(operation, "/keys/{id}") { // these look at a key of the store: see TestKeysByPrincipal
			continue
		}
		namespaces := []string{"default"}
		if strings.Contains(template, "{ns}") {
			namespaces = []string{"n", "other"}
		}
		for _, namespace := range namespaces {
			for _, key := range []string{"in:1", "in:deep", "out"} {
				path := strings.NewReplacer("{ns}", namespace, "{key}", key, "{name}", key, "{who}", "w", "{user}", "u", "{dimension}", "d").Replace(template)
				switch {
				case strings.Contains(path, "/reservations/{id}"):
					path = strings.ReplaceAll(path, "{id}", ids[namespace+"/"+key])
				case strings.Contains(path, "/tokens/{id}"):
					path = strings.ReplaceAll(path, "{id}", "t") + "?key=" + key
				case strings.HasSuffix(path, "/reservations"), strings.HasSuffix(path, "/policies/explain"):
					path += "?key=" + key
				case need.Scope == access.OnPrefix:
					path += "?prefix=" + key
				}
				body, kind := "", "application/json"
				switch {
				case strings.HasSuffix(operation, "batch"):
					body = `{"ops":[{"key":"` + key + `"}]}`
				case strings.HasSuffix(operation, "POST events"):
					kind = "application/cloudevents+json"
					body = `{"specversion":"1.0","type":"t","source":"s","id":"i","subject":"` + key + `"}`
				case strings.HasSuffix(operation, "POST read"):
					body = `{"keys":["` + key + `"]}`
				case strings.HasSuffix(operation, "reactions/read"):
					body = `{"user":"u","keys":["` + key + `"]}`
				}
				for _, p := range all {
					r := f.do(method, path, body, "Authorization: Bearer "+p.key, "Content-Type: "+kind)
					allowed := r.status != http.StatusForbidden && r.status != http.StatusUnauthorized
					if want := grants(need, p.rule, namespace, key); allowed != want && operation != "POST /api/v1/session" {
						t.Errorf("%s %s by %s: %d %s; want allowed: %v", method, path, p.rule, r.status, r.body, want)
					}
					cells++
				}
				if r := f.do(method, path, body); (r.status != http.StatusUnauthorized) != need.Open() && operation != "POST /api/v1/session" {
					t.Errorf("%s %s by a stranger: %d", method, path, r.status)
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

// Of many keys in one call each is looked at.
func TestMixedKeys(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	key := "Authorization: Bearer " + f.newKey("root", "p", "all:n/in:*")
	call := func(want int, method, path, body string) {
		t.Helper()
		if r := f.do(method, "/api/v1/namespaces/n"+path, body, key); r.status != want {
			t.Errorf("%s %s %s: %d %s, want %d", method, path, body, r.status, r.body, want)
		}
	}
	call(200, "POST", "/batch", `{"ops":[{"key":"in:1"},{"key":"in:2"}]}`)
	call(403, "POST", "/batch", `{"ops":[{"key":"in:1"},{"key":"out"}]}`)
	call(403, "POST", "/batch", `{"ops":[{"key":"out"},{"key":"in:1"}]}`)
	call(403, "POST", "/batch", `{"ops":[]}`)
	call(200, "POST", "/read", `{"keys":["in:1","in:2"]}`)
	call(403, "POST", "/read", `{"keys":["in:1","out"]}`)
	call(403, "POST", "/reactions/read", `{"user":"u","keys":["in:1","out"]}`)
	call(403, "GET", "/uniques/in:1?with=out", "")
	call(200, "GET", "/counters?prefix=in:", "")
	call(403, "GET", "/counters", "")
	call(403, "GET", "/counters?prefix=", "")
	call(403, "GET", "/counters?prefix=in", "")
	call(403, "GET", "/sum?prefix=i", "")
	// The key is what its path stands for, however that is written.
	call(200, "GET", "/counters/in%3A1", "")
	call(200, "GET", "/counters/%69n:1", "")
	call(403, "GET", "/counters/in%253A1", "")
	call(403, "GET", "/counters/out%2Fin:1", "")
	call(200, "GET", "/counters/in:%2F..%2Fout", "") // a key, and no path
	call(403, "GET", "/counters/IN:1", "")
	call(404, "GET", "/counters/in:1/../out", "")
	r := f.do("GET", "/api/v1/namespaces/n%2Fin:/counters/in:1", "", key)
	if r.status != 403 && r.status != 400 {
		t.Errorf("a namespace with a slash: %d", r.status)
	}
	if got := f.do("GET", "/api/v1/namespaces/n/counters/out", "", "Authorization: Bearer root"); strings.Contains(got.body, `"exists":true`) {
		t.Errorf("a refused batch has counted: %s", got.body)
	}
}

// Keys are made, changed and told by those who administer all that they are granted.
func TestKeysByPrincipal(t *testing.T) {
	s := newMemory()
	gate := guarded(t, s, server.GateOptions{})
	f := openOver(t, s, rest.Options{Gate: gate})
	as := func(key string) string { return "Authorization: Bearer " + key }
	f.do("POST", "/api/v1/counters/a/increment", "").want(t, 200)
	// The first key closes the server, and so has to administer it.
	f.do("POST", "/api/v1/keys", `{"name":"x","grants":["read:n"]}`).problem(t, 400, "invalid", "admin:*")
	f.do("POST", "/api/v1/counters/a/increment", "").want(t, 200)
	root := f.newKey("", "root", "all:*")
	f.do("POST", "/api/v1/counters/a/increment", "").problem(t, 401, "unauthorized", "")
	f.do("POST", "/api/v1/counters/a/increment", "", as(root)).want(t, 200)

	team := f.newKey(root, "team", "all:n")
	part := f.newKey(team, "part", "all:n/in:*")
	for _, body := range []string{
		`{"name":"y","grants":["read:other"]}`, `{"name":"y","grants":["read:*"]}`, `{"name":"y","grants":["read:n","read:other"]}`, `{"name":"y","grants":["admin:*/in:*"]}`,
	} {
		f.do("POST", "/api/v1/keys", body, as(team)).problem(t, 403, "forbidden", "administer")
	}
	f.do("POST", "/api/v1/keys", `{"name":"y","grants":["read:n"]}`, as(part)).problem(t, 403, "forbidden", "administer")
	f.do("POST", "/api/v1/keys", `{"name":"team","grants":["read:n"]}`, as(root)).problem(t, 400, "invalid", "already")
	for _, body := range []string{
		`{"name":"","grants":["read:n"]}`, `{"name":"z"}`, `{"name":"z","grants":["fly:n"]}`, `{"name":"z","grants":["read:n/in:"]}`, `{"name":"z","grants":["read:n"],"expires":"soon"}`,
		`{"name":"z","grants":["read:n"],"quota":{"writes":-1}}`, `{"name":"z","grants":["read:n"],"more":1}`, `[]`, `{"name":"z","grants":["read:n"]} x`,
	} {
		f.do("POST", "/api/v1/keys", body, as(root)).problem(t, 400, "invalid", "")
	}
	names := func(key string) (names []string) {
		var list struct{ Keys []struct{ Name, Key string } }
		r := f.do("GET", "/api/v1/keys", "", as(key))
		if err := json.Unmarshal([]byte(r.body), &list); err != nil {
			t.Fatal(err)
		}
		for _, k := range list.Keys {
			names = append(names, k.Name+k.Key)
		}
		return names
	}
	if got := names(root); !slices.Equal(got, []string{"root", "team", "part"}) {
		t.Errorf("keys %q", got)
	}
	if got := names(team); !slices.Equal(got, []string{"team", "part"}) {
		t.Errorf("keys of the team %q", got)
	}
	id := func(key string) string { return strings.Split(key, "_")[1] }
	f.do("DELETE", "/api/v1/keys/"+id(root), "", as(team)).problem(t, 403, "forbidden", "administer")
	f.do("POST", "/api/v1/keys/"+id(root)+"/rotate", "", as(team)).problem(t, 403, "forbidden", "administer")
	f.do("DELETE", "/api/v1/keys/"+id(root), "", as(root)).problem(t, 400, "invalid", "last key")
	f.do("DELETE", "/api/v1/keys/nosuch", "", as(root)).problem(t, 400, "invalid", "no key")

	// A key that is rotated is another one; the old one lives for the grace.
	r := f.do("POST", "/api/v1/keys/"+id(team)+"/rotate", `{"grace":"1h"}`, as(root))
	var k struct{ Key string }
	if err := json.Unmarshal([]byte(r.body), &k); err != nil || r.status != 200 || k.Key == team {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for _, key := range []string{team, k.Key} {
		f.do("GET", "/api/v1/namespaces/n/counters/a", "", as(key)).want(t, 200)
	}
	f.do("POST", "/api/v1/keys/"+id(team)+"/rotate", "", as(root)).want(t, 200)
	for _, key := range []string{team, k.Key} {
		f.do("GET", "/api/v1/namespaces/n/counters/a", "", as(key)).problem(t, 401, "unauthorized", "")
	}
	f.do("DELETE", "/api/v1/keys/"+id(part), "", as(root)).want(t, 200, "state=revoked")
	f.do("DELETE", "/api/v1/keys/"+id(part), "", as(root)).want(t, 200, "state=revoked")
	f.do("GET", "/api/v1/namespaces/n/counters/in:a", "", as(part)).problem(t, 401, "unauthorized", "")

	// All of it is in the audit log, and no secret is.
	r = f.do("GET", "/api/v1/audit", "", as(root))
	for _, act := range []string{"POST /api/v1/keys", "POST /api/v1/keys/{id}/rotate", "DELETE /api/v1/keys/{id}"} {
		if !strings.Contains(r.body, act) {
			t.Errorf("no %q in the audit log: %s", act, r.body)
		}
	}
	if strings.Contains(r.body, "qk_") {
		t.Errorf("a key in the audit log: %s", r.body)
	}
}

// A browser logs in for a cookie, which changes nothing for pages of other sites.
func TestLogin(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	f.do("POST", "/api/v1/session", `{"key":"guess"}`).problem(t, 401, "unauthorized", "wrong")
	f.do("GET", "/api/v1/session", "").problem(t, 401, "unauthorized", "")
	f.do("POST", "/api/v1/session", `{"key":"root"}`, "Sec-Fetch-Site: cross-site").problem(t, 403, "forbidden", "origin")
	reader := f.newKey("root", "reader", "read:n")
	r := f.do("POST", "/api/v1/session", `{"key":"`+reader+`"}`)
	r.want(t, 200, "name=reader", "kind=key")
	set := r.header.Get("Set-Cookie")
	for _, part := range []string{"quipu_session_", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="} {
		if !strings.Contains(set, part) {
			t.Errorf("cookie %q has no %s", set, part)
		}
	}
	if secure := f.do("POST", "/api/v1/session", `{"key":"root"}`, "Sec-Fetch-Site: same-origin", "Origin: https://front.example").header.Get("Set-Cookie"); !strings.Contains(secure, "Secure") || strings.Contains(set, "Secure") {
		t.Errorf("cookie %q behind TLS, and %q without", secure, set)
	}
	if strings.Contains(set, "qk_") || strings.Contains(r.body, reader) {
		t.Error("the key comes back")
	}
	cookie := "Cookie: " + strings.Split(set, ";")[0]
	f.do("GET", "/api/v1/session", "", cookie).want(t, 200, "name=reader", "csrf="+csrf(t, r))
	f.do("GET", "/api/v1/session", "", "Authorization: Bearer "+reader).want(t, 200, "name=reader", "csrf")
	if at := f.do("GET", "/api/v1/session", "", cookie); !strings.Contains(at.body, `"expires_at"`) {
		t.Errorf("nobody knows when the login ends: %s", at.body)
	}
	f.do("GET", "/api/v1/namespaces/n/counters/a", "", cookie).want(t, 200)
	f.do("GET", "/api/v1/namespaces/m/counters/a", "", cookie).problem(t, 403, "forbidden", "not granted")
	r = f.do("POST", "/api/v1/session", `{"key":"root"}`)
	admin := "Cookie: " + strings.Split(r.header.Get("Set-Cookie"), ";")[0]
	token := "X-Csrf-Token: " + csrf(t, r)
	const path = "/api/v1/counters/a/increment"
	f.do("POST", path, "", admin, token).problem(t, 403, "forbidden", "origin") // nobody says where the page is from
	f.do("POST", path, "", admin, token, "Sec-Fetch-Site: cross-site").problem(t, 403, "forbidden", "origin")
	f.do("POST", path, "", admin, token, "Sec-Fetch-Site: none").problem(t, 403, "forbidden", "origin")
	f.do("POST", path, "", admin, token, "Origin: https://evil.example").problem(t, 403, "forbidden", "origin")
	f.do("POST", path, "", admin, token, "Origin: null").problem(t, 403, "forbidden", "origin")
	f.do("POST", path, "", admin, "Sec-Fetch-Site: same-origin").problem(t, 403, "forbidden", "X-Csrf-Token")
	f.do("POST", path, "", admin, "X-Csrf-Token: 0", "Sec-Fetch-Site: same-origin").problem(t, 403, "forbidden", "X-Csrf-Token")
	f.do("POST", path, "", cookie, token, "Sec-Fetch-Site: same-origin").problem(t, 403, "forbidden", "X-Csrf-Token") // that of another login
	f.do("POST", path, "", admin, token, "Origin: "+f.url).want(t, 200)
	f.do("POST", path, "", admin, token, "Sec-Fetch-Site: same-origin").want(t, 200)
	f.do("POST", "/api/v1/read", `{"keys":["a"]}`, admin).want(t, 200) // changes nothing
	// The login of one port is none on another: a browser sends the cookie to both.
	f.do("GET", "/api/v1/session", "", strings.Replace(admin, "quipu_session_", "quipu_session_1", 1)).problem(t, 401, "unauthorized", "")
	// Another login ends the one before, without what a change needs.
	again := f.do("POST", "/api/v1/session", `{"key":"root"}`, admin, "Sec-Fetch-Site: same-origin")
	f.do("GET", "/api/v1/session", "", admin).problem(t, 401, "unauthorized", "")
	admin, token = "Cookie: "+strings.Split(again.header.Get("Set-Cookie"), ";")[0], "X-Csrf-Token: "+csrf(t, again)
	f.do("DELETE", "/api/v1/session", "", admin, token).problem(t, 403, "forbidden", "origin")
	f.do("DELETE", "/api/v1/session", "", admin, token, "Sec-Fetch-Site: same-origin").want(t, 200)
	f.do("GET", "/api/v1/session", "", admin).problem(t, 401, "unauthorized", "")
	// A key that is revoked takes its logins along.
	id := strings.Split(reader, "_")[1]
	f.do("DELETE", "/api/v1/keys/"+id, "", "Authorization: Bearer root").want(t, 200)
	f.do("GET", "/api/v1/session", "", cookie).problem(t, 401, "unauthorized", "")
}

// csrf returns what a login replied that changes have to show.
func csrf(t *testing.T, r reply) string {
	t.Helper()
	var i struct{ CSRF string }
	if err := json.Unmarshal([]byte(r.body), &i); err != nil || len(i.CSRF) != 32 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	return i.CSRF
}

// Whoever shows nothing may do what was granted to everyone, and no more; a wrong key is not
// taken for none.
func TestAnonymous(t *testing.T) {
	s := newMemory()
	rules, err := access.ParseRules([]string{"read:n/public:*"})
	if err != nil {
		t.Fatal(err)
	}
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{Anonymous: rules}, "root")})
	f.do("GET", "/api/v1/namespaces/n/counters/public:1", "").want(t, 200)
	f.do("GET", "/api/v1/session", "").want(t, 200, "kind=anonymous", "open=false")
	f.do("GET", "/api/v1/namespaces/n/counters/private", "").problem(t, 401, "unauthorized", "")
	f.do("POST", "/api/v1/namespaces/n/counters/public:1/increment", "").problem(t, 401, "unauthorized", "")
	f.do("GET", "/api/v1/counters/public:1", "").problem(t, 401, "unauthorized", "")
	f.do("GET", "/api/v1/namespaces/n/counters/public:1", "", "Authorization: Bearer wrong").problem(t, 401, "unauthorized", "")
	f.do("POST", "/api/v1/namespaces/n/counters/public:1/increment", "", "Authorization: Bearer root").want(t, 200)
}

// Quotas refuse what is over them, each of its own principal.
func TestQuotas(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	limited := func(name, quota string) string {
		r := f.do("POST", "/api/v1/keys", `{"name":"`+name+`","grants":["all:n"],"quota":`+quota+`}`, "Authorization: Bearer root")
		var k struct{ Key string }
		if err := json.Unmarshal([]byte(r.body), &k); err != nil || k.Key == "" {
			t.Fatalf("%d %s", r.status, r.body)
		}
		return "Authorization: Bearer " + k.Key
	}
	const path = "/api/v1/namespaces/n/counters/a"
	few := limited("few", `{"requests":1}`)
	f.do("GET", path, "", few)
	refused := 0
	for range 20 {
		if r := f.do("GET", path, "", few); r.status == 429 {
			r.problem(t, 429, "quota", "1 requests a second")
			if r.header.Get("Retry-After") == "" {
				t.Errorf("headers %v", r.header)
			}
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	writer := limited("writer", `{"writes":3}`)
	f.do("POST", "/api/v1/namespaces/n/batch", `{"ops":[{"key":"a"},{"key":"b"},{"key":"c"},{"key":"d"},{"key":"e"}]}`, writer).problem(t, 429, "quota", "writes")
	f.do("GET", path, "", writer).want(t, 200)
	small := limited("small", `{"bytes":100}`)
	f.do("POST", path+"/increment", `{"delta":1}`, small).want(t, 200)
	f.do("POST", path+"/increment", `{"delta":1,"who":"`+strings.Repeat("x", 200)+`"}`, small).problem(t, 429, "quota", "more than the quota")
	f.do("GET", path, "", limited("free", `{}`)).want(t, 200)
}

// A login counts against the quota of its key, once.
func TestLoginCosts(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	key := func(name string) (key, body string) {
		r := f.do("POST", "/api/v1/keys", `{"name":"`+name+`","grants":["read:n"],"quota":{"requests":1}}`, "Authorization: Bearer root")
		var k struct{ Key string }
		if err := json.Unmarshal([]byte(r.body), &k); err != nil || k.Key == "" {
			t.Fatalf("%d %s", r.status, r.body)
		}
		return k.Key, `{"key":"` + k.Key + `"}`
	}
	_, body := key("flooder")
	refused := 0
	for range 20 {
		if r := f.do("POST", "/api/v1/session", body); r.status == 429 {
			r.problem(t, 429, "quota", "1 requests a second")
			if r.header.Get("Set-Cookie") != "" || r.header.Get("Retry-After") == "" {
				t.Errorf("headers %v", r.header)
			}
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	own, body := key("own")
	f.do("POST", "/api/v1/session", body, "Authorization: Bearer "+own).want(t, 200, "name=own")
}

// A caller who is refused much more often than its quota waits for its refusals.
func TestFloodWaits(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	r := f.do("POST", "/api/v1/keys", `{"name":"few","grants":["all:n"],"quota":{"requests":1}}`, "Authorization: Bearer root")
	var k struct{ Key string }
	if err := json.Unmarshal([]byte(r.body), &k); err != nil {
		t.Fatal(err)
	}
	const path, callers, each = "/api/v1/namespaces/n/counters/a", 8, 50
	began := time.Now()
	var flood sync.WaitGroup
	for range callers {
		flood.Go(func() {
			for range each {
				if r := f.do("GET", path, "", "Authorization: Bearer "+k.Key); r.status != 429 && r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
		})
	}
	f.do("GET", path, "", "Authorization: Bearer root").want(t, 200)
	flood.Wait()
	if took := time.Since(began); took < 200*time.Millisecond { // a hundred at once, and a thousand a second
		t.Errorf("%d calls took %s", callers*each, took)
	}
}

// Whoever guesses is slowed down, and does not lock out who has a key of the store.
func TestGuessing(t *testing.T) {
	s := newMemory()
	f := openOver(t, s, rest.Options{Gate: guarded(t, s, server.GateOptions{}, "root")})
	good := "Authorization: Bearer " + f.newKey("root", "good", "read:default")
	limited := 0
	for i := range 200 {
		switch r := f.do("GET", "/api/v1/counters/a", "", fmt.Sprintf("Authorization: Bearer guess%d", i)); r.status {
		case 401:
		case 429:
			limited++
		default:
			t.Fatalf("a guess: %d %s", r.status, r.body)
		}
	}
	if limited < 100 {
		t.Errorf("%d of 200 guesses were slowed down", limited)
	}
	f.do("GET", "/api/v1/counters/a", "", "Authorization: Bearer root").problem(t, 429, "quota", "wrong credentials")
	f.do("GET", "/api/v1/counters/a", "", good).want(t, 200)
}

// FuzzAuthorization sends any header and cookie: none of them opens anything, nor breaks it.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{"Bearer root", "Bearer", "bearer  root", "Basic cm9vdA==", "Bearer qk_000000000000_", "Bearer a.b.c", "Bearer \x00", "Bearer root root", "root"} {
		f.Add(seed, "quipu_session="+seed)
	}
	s := newMemory()
	keys, err := server.NewKeys([]string{"a-key-that-nobody-guesses"})
	if err != nil {
		f.Fatal(err)
	}
	ring := keyring.New(s, keyring.Options{})
	h := newHandlerWith(f, s, rest.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Ring: ring, Logger: slog.New(slog.DiscardHandler)})})
	f.Fuzz(func(t *testing.T, header, cookie string) {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/counters/a", nil)
		r.Header = http.Header{"Cookie": {cookie}}
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized && w.Code != http.StatusTooManyRequests {
			t.Fatalf("header %q, cookie %q: %d", header, cookie, w.Code)
		}
	})
}
