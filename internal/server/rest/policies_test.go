package rest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// A book keeps policies in memory.
type book struct {
	mu    sync.Mutex
	made  []quipu.Policy
	given []quipu.Policy
	err   error // what replacing returns
}

func (b *book) Policies() (all []quipu.Policy, made int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Concat(b.made, b.given), len(b.made)
}

func (b *book) ReplacePolicies(_ context.Context, old, made []quipu.Policy) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if !slices.Equal(old, b.made) {
		return store.ErrChanged
	}
	b.made = made
	return nil
}

func TestPolicies(t *testing.T) {
	b := &book{given: []quipu.Policy{{Namespace: "ads", Pattern: "v*"}}}
	f := open(t, rest.Options{Policies: b})
	const path = "/api/v1/policies"
	r := f.do("GET", path, "")
	if want := `{"policies":[{"index":0,"source":"file","policy":{"namespace":"ads","pattern":"v*"}}]}` + "\n"; r.body != want {
		t.Errorf("policies: %s, want %s", r.body, want)
	}
	none := r.header.Get("Etag")

	body := `{"policies":[{"pattern":"likes:*","preset":"likes","stale":"1m"},
		{"pattern":"k","shards":2,"max_shards":4,"cool_down":"1m30s","spread":"who","durability":"memory","partial":true}]}`
	r = f.do("PUT", path, body, "If-Match: "+none)
	want := `{"policies":[{"index":0,"source":"api","policy":{"pattern":"likes:*","timing":"hybrid","stale":"1m"}},` +
		`{"index":1,"source":"api","policy":{"pattern":"k","durability":"memory","shards":2,"max_shards":4,"spread":"who","cool_down":"1m30s","partial":true}},` +
		`{"index":2,"source":"file","policy":{"namespace":"ads","pattern":"v*"}}]}` + "\n"
	if r.status != 200 || r.body != want {
		t.Errorf("put: %d %s, want %s", r.status, r.body, want)
	}
	tag := r.header.Get("Etag")
	if got := f.do("GET", path, ""); got.body != want || got.header.Get("Etag") != tag || tag == none {
		t.Errorf("policies: %s %v, want %s, %s", got.body, got.header, want, tag)
	}

	other := strings.Replace(body, `"who"`, `"time"`, 1)
	if got := f.do("PUT", path, other, "If-Match: "+tag).header.Get("Etag"); got == tag {
		t.Error("other policies have the same tag")
	}
	f.do("PUT", path, body, "If-Match: "+tag).problem(t, 412, "changed", "read them again")
	f.do("PUT", path, body, "If-Match: *").want(t, 200)

	// Of two who read the same, one is told.
	f.do("PUT", path, `{"policies":[]}`, "If-Match: "+none).problem(t, 412, "changed", "read them again")
	f.do("PUT", path, `{"policies":[]}`, `If-Match: "1"`).problem(t, 412, "changed", "read them again")
	f.do("PUT", path, `{"policies":[]}`).problem(t, 400, "invalid", "If-Match: want the ETag of the policies")
	f.do("PUT", path, `{"policies":[]}`, "If-Match: "+tag+", "+none).problem(t, 400, "invalid", "If-Match")
	f.do("PUT", path, `{"policies":[]}`, "If-Match: *").want(t, 200)
	if got := f.do("GET", path, "").header.Get("Etag"); got != none {
		t.Errorf("the tag of no policies is %s and was %s", got, none)
	}

	b.err = store.Errorf(store.KindUnsupported, "start it with --policy-file")
	f.do("PUT", path, `{"policies":[]}`, "If-Match: *").problem(t, 501, "unsupported", "--policy-file")
	open(t, rest.Options{}).do("PUT", path, `{"policies":[]}`, "If-Match: *").problem(t, 501, "unsupported", "does not store policies")
	f.do("DELETE", path, "").problem(t, 405, "method", "DELETE")
	f.do("GET", path+"?key=a", "").problem(t, 400, "invalid", "no parameter of this name")
}

// Writers that go by the tag lose nothing of each other.
func TestPoliciesOfManyWriters(t *testing.T) {
	b := &book{}
	f := open(t, rest.Options{Policies: b})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := 0; n < 5; {
				r := f.do("GET", "/api/v1/policies", "")
				own := `{"pattern":"` + fmt.Sprint(w, "/", n) + `"}`
				var others strings.Builder
				for _, p := range strings.Split(r.body, `"policy":`)[1:] {
					p, _, _ = strings.Cut(p, "}")
					others.WriteString(p + "},")
				}
				put := f.do("PUT", "/api/v1/policies", `{"policies":[`+others.String()+own+`]}`, "If-Match: "+r.header.Get("Etag"))
				if put.status == 200 {
					n++
				} else if put.status != 412 {
					t.Errorf("put: %d %s", put.status, put.body)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(b.made) != 20 {
		t.Errorf("%d policies are left of 20: %v", len(b.made), b.made)
	}
}

func TestPoliciesRefused(t *testing.T) {
	f := open(t, rest.Options{Policies: &book{}})
	check := func(body, field string, offset int, detail string) {
		t.Helper()
		r := f.do("PUT", "/api/v1/policies", body, "If-Match: *")
		r.problem(t, 400, "invalid", detail)
		r.want(t, 400, "field="+field, "offset="+fmt.Sprint(offset))
	}
	check(`{"policies":[{"pattern":"a","cool_down":"0s"}]}`, "cool_down", 28, "want more than 0s; leave it out for the default of 10s")
	check(`{"policies":[{"pattern":"a","timing":"hybrid","interval":"0s"}]}`, "interval", 46, "want 10ms to 1h")
	check(``, "body", 0, "want an object")
	check(`{}`, "policies", 2, "missing")
	check(`{"policies":{}}`, "policies", 12, "want an array")
	check(`{"policies":[1]}`, "policies", 13, "want an object")
	check(`{"policies":[{}]}`, "policies", 13, "pattern is empty")
	check(`{"policies":[{"pattern":"a"},{"pattern":"a*b"}]}`, "policies", 29, "may stand only at the end")
	check(`{"policies":[{"patern":"a"}]}`, "policies", 14, `unknown field "patern"`)
	check(`{"policies":[{"pattern":"a","pattern":"a"}]}`, "pattern", 28, "given twice")
	check(`{"policies":[{"pattern":"a","shards":"two"}]}`, "shards", 37, "want an integer")
	check(`{"policies":[{"pattern":"a","shards":65}]}`, "shards", 28, "want a number from 1 to 64")
	check(`{"policies":[{"pattern":"a","single":"true"}]}`, "single", 37, "want true or false")
	check(`{"policies":[{"pattern":"a", "cool_down":"x"}]}`, "cool_down", 29, `cool_down: "x": want a duration such as 30s`)
	check(`{"policies":[{"pattern":"a","cool-down":"1s"}]}`, "policies", 28, "unknown field")
	check(`{"policies":[{"pattern":"a","preset":"x"}]}`, "preset", 28, "want accurate, best-effort")
	check(`{"policies":[{"pattern":"a","timing":null}]}`, "timing", 37, "want a string")
	check(`{"policies":[{"pattern":"a","single":true,"shards":2}]}`, "policies", 13, "never split")
	check(`{"policies":[]} x`, "body", 16, "something follows")
	many := `{"policies":[` + strings.Repeat(`{"pattern":"a"},`, policy.Max) + `{"pattern":"a"}]}`
	f.do("PUT", "/api/v1/policies", many, "If-Match: *").problem(t, 413, "too_large", "more than 1000")
}

func TestExplainPolicy(t *testing.T) {
	f := open(t, rest.Options{Policies: &book{
		made:  []quipu.Policy{{Pattern: "view:home", Durability: quipu.Written}, {Namespace: "ads", Pattern: "*", Timing: quipu.Rollup}},
		given: []quipu.Policy{{Pattern: "view:*", Single: true}},
	}})
	check := func(path, want string) {
		t.Helper()
		if r := f.do("GET", path, ""); r.status != 200 || strings.TrimSuffix(r.body, "\n") != want {
			t.Errorf("%s: %d %s\nwant %s", path, r.status, r.body, want)
		}
	}
	const defaults = `"shards":1,"max_shards":64,"single":false,"spread":"random","cool_down":"10s","timing":"fan-in","interval":"0s","stale":"0s","partial":false}`
	check("/api/v1/policies/explain?key=a", `{"namespace":"default","key":"a",`+
		`"effective":{"namespace":"","pattern":"*","durability":"synced",`+defaults+`,"others":[]}`)
	check("/api/v1/policies/explain?key=view%3Ahome", `{"namespace":"default","key":"view:home",`+
		`"holds":{"index":0,"source":"api","policy":{"pattern":"view:home","durability":"written"}},`+
		`"effective":{"namespace":"","pattern":"view:home","durability":"written",`+defaults+`,`+
		`"others":[{"index":2,"source":"file","policy":{"pattern":"view:*","single":true}}]}`)
	check("/api/v1/namespaces/ads/policies/explain?key=view:1", `{"namespace":"ads","key":"view:1",`+
		`"holds":{"index":1,"source":"api","policy":{"namespace":"ads","pattern":"*","timing":"rollup"}},`+
		`"effective":{"namespace":"ads","pattern":"*","durability":"synced","shards":1,"max_shards":64,"single":false,"spread":"random",`+
		`"cool_down":"10s","timing":"rollup","interval":"1s","stale":"0s","partial":false},`+
		`"others":[{"index":2,"source":"file","policy":{"pattern":"view:*","single":true}}]}`)
	f.do("GET", "/api/v1/policies/explain", "").problem(t, 400, "invalid", "key is empty")
	f.do("GET", "/api/v1/policies/explain?key=%ff", "").problem(t, 400, "invalid", "UTF-8")
	f.do("GET", "/api/v1/policies/explain?k=a", "").problem(t, 400, "invalid", "no parameter of this name")
	f.do("GET", "/api/v1/namespaces//policies/explain?key=a", "").problem(t, 400, "invalid", "namespace: it is empty")
	f.do("GET", "/api/v1/namespaces/a%2Fb/policies/explain?key=a", "").problem(t, 400, "invalid", "are not allowed")
}
