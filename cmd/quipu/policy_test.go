package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu"
)

// An operator's session.
func TestPolicy(t *testing.T) {
	file := writeFile(t, "policies:\n  - {pattern: 'old:*', durability: written}\n  - {pattern: '*', preset: eventual}\n")
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, nil, "--data", dir, "--http", "127.0.0.1:0", "--config", file)
	client := p.client()
	f := func(want string, args ...string) {
		t.Helper()
		if got := client(append([]string{"policy"}, args...)...); got != want {
			t.Errorf("quipu policy %q:\n%s\nwant\n%s", args, got, want)
		}
	}
	const old = "file\t{pattern: \"old:*\", durability: written}\nfile\t{pattern: \"*\", timing: rollup, stale: 10m}"
	f(old, "list")
	f(`{pattern: "likes:*", timing: hybrid, interval: 2s, stale: 10m}`, "set", "likes:*", "preset=likes", "interval=2s")
	f(`{pattern: "*", single: true}`, "set", "*", "single=true")
	f(`{namespace: "shop", pattern: "likes:*"}`, "set", "likes:*", "--namespace", "shop")
	f(`{pattern: "likes:42", shards: 4}`, "set", "likes:42", "shards=4")
	f(`{pattern: "-5", partial: true}`, "set", "-5", "partial=true")
	// What is narrower stands before what is wider, and what was there keeps its place.
	f(`{pattern: "likes:*", timing: hybrid, stale: 10m}`, "set", "likes:*", "preset=likes")
	made := strings.Join([]string{
		`api	{namespace: "shop", pattern: "likes:*"}`,
		`api	{pattern: "likes:42", shards: 4}`,
		`api	{pattern: "likes:*", timing: hybrid, stale: 10m}`,
		`api	{pattern: "-5", partial: true}`,
		`api	{pattern: "*", single: true}`,
	}, "\n")
	f(made+"\n"+old, "list")

	f("likes:42 has policy 1, made by API: {pattern: \"likes:42\", shards: 4}\n"+
		"policy 2, made by API, names it too, and comes later: {pattern: \"likes:*\", timing: hybrid, stale: 10m}\n"+
		"policy 4, made by API, names it too, and comes later: {pattern: \"*\", single: true}\n"+
		"policy 6, from the configuration file, names it too, and comes later: {pattern: \"*\", timing: rollup, stale: 10m}\n"+
		"likes:42 has no definition: only its total is kept", "explain", "likes:42")
	f("namespace: any\npattern: likes:*\ndurability: synced\nshards: 1\nmax-shards: 64\nsingle: false\nspread: random\ncool-down: 10s\n"+
		"timing: hybrid\ninterval: 1s\nstale: 10m\npartial: false", "show", "likes:7")
	f("namespace: shop\npattern: likes:*\ndurability: synced\nshards: 1\nmax-shards: 64\nsingle: false\nspread: random\ncool-down: 10s\n"+
		"timing: fan-in\nstale: 0s\npartial: false", "show", "likes:7", "--namespace", "shop")

	// They hold over a restart, and so does the order.
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	p = start(t, nil, "--data", dir, "--http", "127.0.0.1:0", "--config", file)
	client = p.client()
	f(made+"\n"+old, "list")

	f("", "rm", "*")
	f("", "rm", "likes:42")
	f("", "rm", "likes:*")
	f("", "rm", "-5")
	refused(t, 1, "no policy for likes:* in any namespace was made through the API; there is one in namespace shop", "policy", "rm", "likes:*", "--addr", p.url)
	refused(t, 1, "no policy for likes:* in namespace sho was made through the API; there is one in namespace shop", "policy", "rm", "likes:*", "--namespace", "sho", "--addr", p.url)
	refused(t, 1, "is in the configuration file of the server", "policy", "rm", "old:*", "--addr", p.url)
	f("", "rm", "likes:*", "--namespace", "shop")
	f(old, "list")
	f("x has policy 1, from the configuration file: {pattern: \"*\", timing: rollup, stale: 10m}\nx has no definition: only its total is kept", "explain", "x")

	if got := client("policy", "list", "--json"); got !=
		`{"index":0,"source":"file","policy":{"pattern":"old:*","durability":"written"}}`+"\n"+
			`{"index":1,"source":"file","policy":{"pattern":"*","timing":"rollup","stale":"10m"}}` {
		t.Errorf("list --json: %s", got)
	}
	for _, args := range [][]string{{"set", "a"}, {"explain", "a"}, {"show", "a"}, {"rm", "a"}} {
		if got := client(append(append([]string{"policy"}, args...), "--json")...); !strings.HasPrefix(got, "{") || strings.Contains(got, "\n") {
			t.Errorf("policy --json %q: %s", args, got)
		}
	}
}

func TestPolicyRefused(t *testing.T) {
	p := serve(t) // a memory store, without a file for policies
	f := func(code int, text string, args ...string) {
		t.Helper()
		refused(t, code, text, append(append([]string{"policy"}, args...), "--addr", p.url)...)
	}
	f(1, "--policy-file (unsupported)", "set", "a", "preset=likes")
	f(2, "want NAME=VALUE", "set", "a", "likes")
	f(2, "pattern is given twice", "set", "a", "pattern=b")
	f(2, "can't be set here", "set", "a", "namespace=b")
	f(2, "shards is given twice", "set", "a", "shards=1", "shards=2")
	f(2, `unknown setting "shard" of a policy: did you mean shards?`, "set", "a", "shard=1")
	f(2, `unknown setting "max_shards" of a policy: did you mean max-shards?`, "set", "a", "max_shards=1")
	f(2, "want preset, namespace, pattern,", "set", "a", "colour=1")
	f(2, "want a number from 1 to 64", "set", "a", "shards=65")
	f(2, "may stand only at the end", "set", "a*b")
	f(2, "are not allowed", "set", "a", "--namespace", "a/b")
	f(1, "(invalid)", "explain", "a", "--namespace", "a/b")
	if got := p.client()("policy", "explain", "a\tb"); !strings.HasPrefix(got, `"a\tb" has the defaults: no policy names it`) {
		t.Errorf("explain: %s", got)
	}
	// What stands where the pattern goes is a setting.
	for _, setting := range []string{"pattern=a", "preset=likes", "max-shards=4", "namespace=n", "stale=*"} {
		f(2, "want PATTERN NAME=VALUE", "set", setting, "single=true")
	}
	f(1, "--policy-file", "set", "color=red*", "single=true") // it is a pattern
	refused(t, 1, "(read_only)", "policy", "set", "a", "--addr", serve(t, "--read-only").url)
	refused(t, 3, "connection refused", "policy", "list", "--addr", "http://127.0.0.1:1")
	refused(t, 1, "decode", "policy", "list", "--addr", reply(t, http.StatusOK, "not JSON"))
	refused(t, 1, `unknown setting "more"`, "policy", "list", "--addr", reply(t, http.StatusOK, `{"policies":[{"policy":{"pattern":"a","more":1}}]}`))
	// Who is slower each time is told so, in words that need no HTTP.
	for _, args := range [][]string{{"set", "a"}, {"rm", "old"}} {
		r := command(t, append(append([]string{"policy"}, args...), "--addr", changing(t))...)
		if r.code != 1 || !strings.Contains(r.stderr, "the policies of http://127.0.0.1:") ||
			!strings.Contains(r.stderr, "kept changing: this change was tried 12 times and not made; run it again") || strings.Contains(r.stderr, "If-Match") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	f(2, `cool-down: "0s": want more than 0s; leave it out for the default of 10s`, "set", "a*", "cool-down=0s")
	f(2, `interval: "0s": want 10ms to 1h`, "set", "a*", "timing=rollup", "interval=0s")
}

// serveHTTP serves with f.
func serveHTTP(t *testing.T, f http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// changing serves policies that are never those of If-Match.
func changing(t *testing.T) (url string) {
	t.Helper()
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"policies":[{"source":"api","policy":{"pattern":"old"}}]}`))
			return
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = w.Write([]byte(`{"detail":"the policies are not those of If-Match: read them again","kind":"changed"}`))
	})
}

// Commands that change the policies of servers which share their file, at the
// same time, all succeed, and lose nothing of each other.
func TestPolicyServersShareFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made.yaml")
	servers := []*process{serve(t, "--policy-file", file), serve(t, "--policy-file", file)}
	const each = 6
	change := func(verb string) {
		t.Helper()
		var wg sync.WaitGroup
		for w, p := range servers {
			wg.Go(func() {
				for n := range each {
					if r := command(t, "policy", verb, fmt.Sprintf("k%d.%d", w, n), "--addr", p.url); r.code != 0 {
						t.Errorf("%s: %+v", verb, r)
					}
				}
			})
		}
		wg.Wait()
	}
	change("set")
	if raw, err := os.ReadFile(file); err != nil || strings.Count(string(raw), "pattern:") != each*len(servers) {
		t.Errorf("policies after set: %s, %v", raw, err)
	}
	change("delete") // as rm is called too
	if raw, err := os.ReadFile(file); err != nil || strings.Contains(string(raw), "pattern:") {
		t.Errorf("policies after rm: %s, %v", raw, err)
	}
}

func TestPolicyCheck(t *testing.T) {
	f := func(text, stdout, stderr string) {
		t.Helper()
		file := writeFile(t, text)
		r := command(t, "policy", "check", file)
		if want := strings.ReplaceAll(stdout, "FILE", file); r.code != 0 || r.stdout != want || !strings.Contains(r.stderr, stderr) || stderr == "" && r.stderr != "" {
			t.Errorf("%q: %+v; want %q and %q", text, r, want, stderr)
		}
	}
	f("", "FILE: ok, 0 policies\n", "")
	f("http: 127.0.0.1:0\npolicies:\n  - {pattern: 'a*', preset: likes}\n  - pattern: '*'\n", "FILE: ok, 2 policies\n", "")
	f("policies: [{pattern: 'a*'}]\n", "FILE: ok, 1 policy\n", "")
	f("policies:\n- {pattern: 'a*'}\n\n- {pattern: abc}\n", "FILE: ok, 2 policies\n", ":4: policy 1 can never match: policy 0 matches all of its keys")
	file := writeFile(t, "policies:\n  - pattern: a\n    preset: like\n")
	refused(t, 1, file+":3: preset: \"like\": want accurate,", "policy", "check", file)
}

func TestCovers(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		parse := func(s string) quipu.Policy {
			namespace, pattern, _ := strings.Cut(s, "/")
			return quipu.Policy{Namespace: namespace, Pattern: pattern}
		}
		if got := covers(parse(a), parse(b)); got != want {
			t.Errorf("%s covers %s: %t", a, b, got)
		}
	}
	f("/*", "/*", true)
	f("/*", "/a*", true)
	f("/*", "n/a", true)
	f("/a*", "/a", true)
	f("/a*", "/a*", true)
	f("/a*", "/ab*", true)
	f("/a", "/a", true)
	f("n/*", "n/a*", true)
	f("/a", "/a*", false)
	f("/ab*", "/a*", false)
	f("/ab", "/a", false)
	f("n/*", "/a", false)
	f("n/*", "m/a", false)
}

// Policies are reloaded at a hangup, and what is wrong is said with its line and
// counted.
func TestHangup(t *testing.T) {
	file := writeFile(t, "policies: [{pattern: a}]\n")
	p := serve(t, "--config", file)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	metric := func(name string) string {
		_, body := httpGet(ctx, t, p.url+"/metrics")
		_, after, _ := strings.Cut(body, "\n"+name+" ")
		value, _, _ := strings.Cut(after, "\n")
		return value
	}
	hangup := func(text, meter, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.c.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for got := ""; got != want; { // or ctx ends
			got = metric(meter)
		}
	}
	hangup("policies: [{pattern: b}, {pattern: c}]\n", "quipu_policy_reloads_total", "1")
	const two = "file\t{pattern: \"b\"}\nfile\t{pattern: \"c\"}"
	if got := p.client()("policy", "list"); got != two {
		t.Errorf("policies: %s", got)
	}
	hangup("policies: [{pattern: b}]\nhttp: off\nhttp: off\n", "quipu_policy_reload_failures_total", "1")
	if got := p.client()("policy", "list"); got != two || metric("quipu_policies") != "2" {
		t.Errorf("policies: %s, %s of them", got, metric("quipu_policies"))
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 || !strings.Contains(p.stderr.String(), file+":3: http is given twice") {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}

// A hangup says what is wrong each time, also if another file is well.
func TestHangupSaysEachTime(t *testing.T) {
	file := writeFile(t, "policies: []\n")
	p := serve(t, "--config", file, "--policy-file", filepath.Join(filepath.Dir(file), "made.yaml"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := os.WriteFile(file, []byte("policies: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hangups = 3
	for n := range hangups {
		if err := p.c.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for body := ""; !strings.Contains(body, fmt.Sprintf("\nquipu_policy_reloads_total %d\n", n+1)); { // of the other file, or ctx ends
			_, body = httpGet(ctx, t, p.url+"/metrics")
		}
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 || strings.Count(p.stderr.String(), file+":1: policies: want a list") < hangups {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}

// A file of policies takes the place of those made before, as a whole or not at all.
func TestPolicyLoad(t *testing.T) {
	p := serve(t, "--policy-file", filepath.Join(t.TempDir(), "made.yaml"))
	load := func(text string, args ...string) result {
		t.Helper()
		return command(t, append([]string{"policy", "load", writeFile(t, text), "--addr", p.url}, args...)...)
	}
	list := func(want string) {
		t.Helper()
		if r := command(t, "policy", "list", "--addr", p.url); r.code != 0 || r.stdout != want {
			t.Errorf("list: %+v, want %q", r, want)
		}
	}
	if r := command(t, "policy", "set", "old", "single=true", "--addr", p.url); r.code != 0 {
		t.Fatalf("set: %+v", r)
	}
	if r := load("policies:\n  - {pattern: 'likes:*', preset: likes}\n  - {pattern: 'likes:1', shards: 4}\n"); r.code != 0 || r.stdout != "2 policies\n" ||
		!strings.Contains(r.stderr, "policy 1, made by API, can never match: policy 0 matches all of its keys") {
		t.Errorf("load: %+v", r)
	}
	const loaded = "api\t{pattern: \"likes:*\", timing: hybrid, stale: 10m}\napi\t{pattern: \"likes:1\", shards: 4}\n"
	list(loaded)
	if r := load("policies: [{pattern: a}, {pattern: b, shards: none}]\n"); r.code != 1 || !strings.Contains(r.stderr, ":1: shards: ") {
		t.Errorf("a file that is wrong: %+v", r)
	}
	for _, text := range []string{"definitions: [{pattern: 'views:*', windows: [{every: 1h, keep: 1d}]}]\n", "definitions: []\n", "", "log-level: debug\n"} {
		r := load(text)
		if r.code != 1 || r.stdout != "" || strings.Contains(text, "definitions") != strings.Contains(r.stderr, "quipu policy apply") {
			t.Errorf("%q: %+v", text, r)
		}
	}
	list(loaded)
	if r := load("policies: [{pattern: a}]\n", "--json"); r.code != 0 || !strings.HasPrefix(r.stdout, `{"policies":[{"index":0,`) {
		t.Errorf("json: %+v", r)
	}
	if r := load("policies: []\n"); r.code != 0 || r.stdout != "0 policies\n" {
		t.Errorf("none: %+v", r)
	}
	list("")
	refused(t, 1, "no such file", "policy", "load", "no-such.yaml", "--addr", p.url)
}

// What can never match is said: by set, and in the log of the server.
func TestPolicyNeverMatches(t *testing.T) {
	file := writeFile(t, "policies: [{pattern: 'likes:*'}]\n")
	p := serve(t, "--config", file, "--policy-file", filepath.Join(filepath.Dir(file), "made.yaml"))
	const text = `policy 1, from the configuration file, can never match: policy 0 matches all of its keys: {pattern: "likes:*"}, {pattern: "*", durability: written}`
	r := command(t, "policy", "set", "*", "durability=written", "--addr", p.url)
	if r.code != 0 || r.stdout != "{pattern: \"*\", durability: written}\n" || r.stderr != "quipu: "+text+"\n" {
		t.Errorf("set: %+v", r)
	}
	if r := command(t, "policy", "set", "likes:42", "--addr", p.url); r.code != 0 || strings.Contains(r.stderr, "policy 0, made by API, can") {
		t.Errorf("set: %+v", r)
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 || !strings.Contains(p.stderr.String(), `"msg":"some policies can never match, because earlier ones match all of their keys","count":1,"first":"`+file+`:1: policy 1 can never match`) {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}

// A file that someone broke is named to who would change it, and one that is gone
// is made anew.
func TestPolicyFileUnderway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made.yaml")
	p := serve(t, "--policy-file", file)
	p.client()("policy", "set", "a")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.client()("policy", "set", "b")
	if got := p.client()("policy", "list"); got != "api\t{pattern: \"a\"}\napi\t{pattern: \"b\"}" {
		t.Errorf("policies: %s", got)
	}
	if err := os.WriteFile(file, []byte("policies:\n  - patern: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, 1, file+`:2: unknown setting "patern" of a policy: did you mean pattern?`, "policy", "set", "c", "--addr", p.url)
}

// A server does not start with a file of policies that it can't read.
func TestPolicyFileAtStart(t *testing.T) {
	file := writeFile(t, "policies: [{pattern: a, shards: many}]\n")
	refused(t, 1, file+":1: shards:", "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--policy-file", file)
	p := serve(t, "--policy-file", filepath.Join(filepath.Dir(file), "new.yaml"))
	p.client()("policy", "set", "a")
	if raw, err := os.ReadFile(filepath.Join(filepath.Dir(file), "new.yaml")); err != nil || !slices.Contains(strings.Split(string(raw), "\n"), `  - {pattern: "a"}`) {
		t.Errorf("file %q, %v", raw, err)
	}
}
