package access_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/access"
)

func TestRules(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		r, err := access.ParseRule(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, r, err, want)
		}
	}
	f("read:shop", "read:shop")
	f("read+write:shop", "read+write:shop")
	f("write+read:shop", "read+write:shop")
	f("read+write+decide+admin:*", "all:*")
	f("all:*", "all:*")
	f("read:shop/*", "read:shop")
	f("read:shop/stock:*", "read:shop/stock:*")
	f("read:*/stock:*", "read:*/stock:*")
	f("read:a:b/c/d**", "read:a:b/c/d**") // a star, and any more
	for _, bad := range []string{
		"", "read", "read:", ":shop", "fly:shop", "read,write:shop", "read+:shop", "READ:shop", "read:shop/stock:", "read:sh\x00op", "read:shop/\xff*",
		"read: /x", "read:" + strings.Repeat("n", 65), "read:n/" + strings.Repeat("k", 513) + "*", "read:" + strings.Repeat("n", 1000),
	} {
		if r, err := access.ParseRule(bad); err == nil && bad != "read: /x" {
			t.Errorf("%q was taken for %s", bad, r)
		}
	}
}

func principal(t testing.TB, rules ...string) *access.Principal {
	t.Helper()
	parsed, err := access.ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return &access.Principal{Rules: parsed}
}

// What rules grant is added up for each key; of prefixes only what one rule covers counts.
func TestPrincipal(t *testing.T) {
	p := principal(t, "read:shop", "write:shop/stock:*", "admin:*/x*", "decide:other")
	f := func(got, want access.Grant, what string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	f(p.Key("shop", "stock:1"), access.Read|access.Write, "stock:1")
	f(p.Key("shop", "stock"), access.Read, "stock")
	f(p.Key("shop", "x"), access.Read|access.Admin, "x")
	f(p.Key("shop", ""), access.Read, "no key")
	f(p.Key("shop2", "stock:1"), 0, "another namespace")
	f(p.Key("", "stock:1"), 0, "the store's own namespace")
	f(p.Prefix("shop", ""), access.Read, "the whole namespace")
	f(p.Prefix("shop", "stock"), access.Read, "a prefix that is shorter")
	f(p.Prefix("shop", "stock:1"), access.Read|access.Write, "a prefix that is longer")
	f(p.Server(), 0, "the server")
	f(p.Some("shop"), access.Read|access.Write|access.Admin, "some of shop")
	f(p.Anything(), access.All, "anything")
	f(principal(t).Key("shop", "a"), 0, "nothing granted")
	f(access.Everything(access.Configured, "root").Server(), access.All, "everything")
	if p.Home("default") != "default" || principal(t, "read:a", "write:a/x*").Home("default") != "a" || principal(t).Home("default") != "default" ||
		principal(t, "read:a", "read:b").Home("default") != "default" {
		t.Error("a home is the only namespace")
	}
}

// Whoever gives grants has to hold all of them.
func TestCovers(t *testing.T) {
	p := principal(t, "admin:shop", "admin:*/mine:*")
	f := func(rule string, want bool) {
		t.Helper()
		r, err := access.ParseRule(rule)
		if err != nil || p.Covers(access.Admin, r) != want {
			t.Errorf("%s: %v, want %v", rule, !want, want)
		}
	}
	f("read:shop", true)
	f("read:shop/a*", true)
	f("read:*", false)
	f("read:*/mine:*", true)
	f("read:*/mine*", false)
	f("read:other/mine:x*", true)
	f("read:other", false)
}

func TestMappings(t *testing.T) {
	values := func(field string) []string {
		return map[string][]string{"groups": {"shop", "*", "a/b", "x=y"}, "CN": {"billing"}, "tenant": {"acme"}}[field]
	}
	f := func(want string, texts ...string) {
		t.Helper()
		ms, err := access.ParseMappings(texts)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(access.RuleTexts(access.RulesFor(ms, values)), ","); got != want {
			t.Errorf("%q: %q, want %q", texts, got, want)
		}
	}
	f("read:n", "groups=shop => read:n")
	f("", "groups=sho => read:n")
	f("read:n", "CN=* => read:n")
	f("read:n,write:m/x*", "CN=billing=>read:n", "CN=billing => write:m/x*", "CN=* => read:n")
	f("all:acme", "tenant=* => all:{}")
	f("all:acme/in:*", "tenant=* => all:{}/in:*")
	f("read:shop,read:x=y", "groups=* => read:{}") // * and a/b are no namespaces
	f("read:n", "groups=x=y => read:n")
	f("", "nothing=* => all:*")
	for _, bad := range []string{"", "=>", "groups => read:n", "groups= => read:n", "=x => read:n", "a=b => ", "a=b => read", "a=b => read:n/x", "a=b read:n", "a=b => read:{}x"} {
		if m, err := access.ParseMapping(bad); err == nil && bad != "a=b => read:{}x" {
			t.Errorf("%q was taken for %+v", bad, m)
		}
	}
}

func TestKeyText(t *testing.T) {
	var secret [access.SecretBytes]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	text := access.KeyText("0123456789ab", secret)
	id, digest, ok := access.ParseKey(text)
	if !ok || id != "0123456789ab" || digest != sha256.Sum256([]byte(text)) || len(text) != 68 {
		t.Errorf("%q: %q, %v", text, id, ok)
	}
	for _, bad := range []string{"", "qk_", text[1:], text + "a", text[:len(text)-1], "qk_0123456789AB" + text[15:], "qk_0123456789ab-" + text[16:]} {
		if _, _, ok := access.ParseKey(bad); ok {
			t.Errorf("%q was taken for a key", bad)
		}
	}
}

// record returns a key with a secret.
func record(id, name string, secret byte) access.Record {
	d := sha256.Sum256([]byte{secret})
	return access.Record{ID: id, Name: name, Grants: []string{"read:n"}, Secrets: []access.Secret{{SHA256: hex.EncodeToString(d[:])}}}
}

func TestRoll(t *testing.T) {
	var r access.Roll
	if err := r.Add(record("1", "a", 1), 100); err != nil {
		t.Fatal(err)
	}
	if err := r.Add(record("2", "a", 2), 100); err == nil {
		t.Error("two keys of one name")
	}
	digest := sha256.Sum256([]byte{9})
	if _, err := r.Rotate("1", digest, 1000, 500); err != nil {
		t.Fatal(err)
	}
	spent := &access.Spending{}
	ps, secrets := r.Keys[0].Principals(access.Quota{}, spent)
	if len(ps) != 2 || !secrets[0].Is(digest) || secrets[1].Is(digest) || ps[0].UntilMS != 0 || ps[1].UntilMS != 1500 || ps[1].Ended(1499) || !ps[1].Ended(1500) {
		t.Errorf("principals %+v", ps)
	}
	again, err := access.ParseRoll(r.Bytes())
	if err != nil || string(again.Bytes()) != string(r.Bytes()) {
		t.Errorf("roll %s, %v", again.Bytes(), err)
	}
	if _, err := r.Revoke("1", 2000); err != nil || r.Keys[0].Live(2000) || len(r.Keys[0].Secrets) != 0 {
		t.Errorf("revoked: %+v, %v", r.Keys[0], err)
	}
	if _, err := r.Rotate("1", digest, 2000, 0); err == nil {
		t.Error("a revoked key was rotated")
	}
	// Keys that were revoked make room; those in use do not.
	var full access.Roll
	for i := range access.KeysMax {
		if err := full.Add(record(fmt.Sprint(i), fmt.Sprint("k", i), 1), 1); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := full.Add(record("x", "x", 1), 1); err == nil {
		t.Error("more keys than there may be")
	}
	for i := range access.KeysMax + 10 {
		if _, err := full.Revoke(full.Keys[len(full.Keys)-1].ID, 1); err != nil {
			t.Fatal(err)
		}
		if err := full.Add(record(fmt.Sprint("y", i), fmt.Sprint("y", i), 1), 1); err != nil {
			t.Fatal(i, err)
		}
	}
	if n := len(full.Keys); n > 2*access.KeysMax {
		t.Errorf("%d records", n)
	}
}

// A second's worth may be spent at once, and comes back evenly.
func TestSpending(t *testing.T) {
	var s access.Spending
	q := access.Quota{Requests: 10, Bytes: 100}
	now := int64(1_000_000_000)
	for i := range 10 {
		if e := s.Spend(q, access.Cost{Requests: 1, Bytes: 1}, now); e != nil {
			t.Fatal(i, e)
		}
	}
	e := s.Spend(q, access.Cost{Requests: 1}, now)
	if e == nil || e.What != "requests" || e.Limit != 10 || e.RetryMS != 100 {
		t.Errorf("over it: %+v", e)
	}
	if e := s.Spend(q, access.Cost{Requests: 1}, now+100_000); e != nil {
		t.Error(e)
	}
	if e := s.Spend(q, access.Cost{Bytes: 101}, now+10_000_000); e == nil || e.RetryMS != -1 {
		t.Errorf("more than a second's worth: %+v", e)
	}
	if e := s.Spend(access.Quota{}, access.Cost{Requests: 1 << 50, Writes: 1, Bytes: 1, Connections: 1}, now); e != nil {
		t.Error(e)
	}
}

// FuzzParseRule reads what it has written, and grants nothing beyond the prefix.
func FuzzParseRule(f *testing.F) {
	for _, seed := range []string{"read:shop", "all:*", "read+write:shop/stock:*", "admin:*/*", "read:a:b/c*", "read:\x00", "+:", "read:x/*/y*"} {
		f.Add(seed, "shop", "stock:1")
	}
	f.Fuzz(func(t *testing.T, text, namespace, key string) {
		r, err := access.ParseRule(text)
		if err != nil {
			return
		}
		again, err := access.ParseRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %s, and that is %s, %v", text, r, again, err)
		}
		p := access.Principal{Rules: []access.Rule{r}}
		if p.Key(namespace, key) != 0 && (!r.Every && r.Namespace != namespace || !strings.HasPrefix(key, r.Prefix)) {
			t.Fatalf("%s grants something on %q/%q", r, namespace, key)
		}
		if p.Prefix(namespace, key)&^p.Key(namespace, key) != 0 {
			t.Fatalf("%s grants more on a prefix than on a key", r)
		}
	})
}

// FuzzParseMapping grants only namespaces that the mapping, or the value, names.
func FuzzParseMapping(f *testing.F) {
	f.Add("groups=shop => read:n", "groups", "shop")
	f.Add("tenant=* => all:{}/x*", "tenant", "*")
	f.Add("a=b=c=>read:n=>x", "a", "b=c=>read:n")
	f.Fuzz(func(t *testing.T, text, field, value string) {
		m, err := access.ParseMapping(text)
		if err != nil {
			return
		}
		for _, r := range access.RulesFor([]access.Mapping{m}, func(name string) []string {
			if name == field {
				return []string{value}
			}
			return nil
		}) {
			if r.Every && !m.Rule.Every || m.Named && r.Namespace != value || r.Grants != m.Rule.Grants || r.Prefix != m.Rule.Prefix {
				t.Fatalf("%q with %q=%q grants %s", text, field, value, r)
			}
		}
	})
}

// FuzzParseRoll takes any bytes, and writes what it has read.
func FuzzParseRoll(f *testing.F) {
	var r access.Roll
	if err := r.Add(record("1", "a", 1), 1); err != nil {
		f.Fatal(err)
	}
	f.Add(r.Bytes())
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"keys":[{"grants":["fly:n"]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := access.ParseRoll(raw)
		if err != nil {
			return
		}
		if _, err := access.ParseRoll(r.Bytes()); err != nil {
			t.Fatalf("%s: %v", r.Bytes(), err)
		}
		for i := range r.Keys {
			r.Keys[i].Principals(access.Quota{}, nil)
		}
	})
}

// A principal that is refused much more often than it may be rests longer, up to a limit, and
// one that is refused a little does not.
func TestRest(t *testing.T) {
	var s access.Spending
	q := access.Quota{Requests: 1}
	now := int64(1e15)
	if e := s.Spend(q, access.Cost{Requests: 1}, now); e != nil {
		t.Fatal(e)
	}
	rest := func() int64 { return s.Spend(q, access.Cost{Requests: 2}, now).RestUS } // never allowed
	for i := range 100 {
		if got := rest(); got != 0 {
			t.Fatalf("after %d refusals: %d", i, got)
		}
	}
	last := int64(0)
	for range 500 {
		got := rest()
		if got != last+1000 {
			t.Fatalf("%d after %d", got, last)
		}
		last = got
	}
	for range 1000 {
		if got := rest(); got != 500_000 {
			t.Fatalf("%d at last", got)
		}
	}
	for range 1000 { // as often as it may be
		now += 1000
		if got := rest(); got > 500_000 {
			t.Fatalf("%d then", got)
		}
	}
	now += 700_000
	if e := s.Spend(access.Quota{Requests: 1000}, access.Cost{Requests: 2000}, now); e == nil || e.RestUS != 0 {
		t.Errorf("%+v after a while", e)
	}
}
