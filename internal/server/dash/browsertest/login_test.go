package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// guarded starts a server that is closed to who shows no key.
func guarded(t *testing.T, dir, addr string) *server {
	t.Helper()
	s := serveIn(t, dir, addr, "--api-key", "right-key")
	s.key = "right-key"
	return s
}

// newKey makes a key that is granted something, and returns it and its id.
func (s *server) newKey(name, grant string) (key, id string) {
	s.t.Helper()
	var made struct{ ID, Key string }
	if err := json.Unmarshal([]byte(s.call("POST", "/keys", fmt.Sprintf(`{"name":%q,"grants":[%q]}`, name, grant))), &made); err != nil {
		s.t.Fatal(err)
	}
	return made.Key, made.ID
}

// login fills in the form that asks for a key.
func (b *tab) login(key string) {
	b.t.Helper()
	b.wait(`document.querySelector("#login").open && !document.querySelector("#login-send").disabled`)
	b.do(chromedp.Evaluate(`document.querySelector("#login-key").value = ""`, nil), chromedp.SendKeys("#login-key", key+kb.Enter))
}

func (b *tab) loggedIn(name string) {
	b.t.Helper()
	b.wait(`!document.querySelector("#login").open`)
	b.says("#user", name)
}

// A server with keys asks for one, and the browser has a cookie from then on that no script
// can read. The key is in no address, in no store of the browser, and all tabs are logged in.
func TestLogin(t *testing.T) {
	s := guarded(t, t.TempDir(), "127.0.0.1:0")
	b := open(t, 1440, 900)
	b.expect("status of 401")
	b.to(s.url + "/")
	b.login("wrong-key")
	b.says("#login-problem", "did not accept")
	b.login("right-key")
	b.loggedIn("server-key")
	b.says("#live", "Live")
	b.says("main", "embedded store")
	kept := eval[string](b, `location.href + document.cookie + JSON.stringify([localStorage, sessionStorage]) + JSON.stringify(performance.getEntries().map((e) => e.name))`)
	if strings.Contains(kept, "right-key") || strings.Contains(kept, "quipu_session") {
		t.Errorf("a script finds the key or the cookie: %s", kept)
	}
	b.do(chromedp.Reload())
	b.says("#live", "Live")
	b.says("main", "embedded store")
	other := open(t, 1440, 900)
	other.expect("status of 401")
	other.to(s.url + "/#/counter/default/a")
	other.says("#live", "Live")
	b.do(chromedp.Click("#logout"))
	b.wait(`document.querySelector("#login").open`)
	b.wait(`!document.querySelector("main").innerText.includes("embedded store")`)
	other.wait(`document.querySelector("#login").open`)
	// One tab logs in, and the other goes on.
	other.login("right-key")
	other.loggedIn("server-key")
	b.loggedIn("server-key")
	b.do(page.BringToFront()) // a tab that nobody sees asks for nothing
	b.says("main", "embedded store")
}

// The login of a key that is revoked, and of a server that starts again, is asked for anew:
// the page stays as it is, with what was typed, and what was pressed is done after it.
func TestLoginEnds(t *testing.T) {
	dir := t.TempDir()
	s := guarded(t, dir, "127.0.0.1:0")
	key, id := s.newKey("operator", "all:*")
	b := open(t, 1440, 1400)
	for _, expected := range []string{"status of 401", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING"} {
		b.expect(expected)
	}
	b.to(s.url + "/#/policies")
	b.login(key)
	b.loggedIn("operator")
	b.says("#live", "Live")
	typed := `[{"pattern":"likes:*","preset":"likes"}]`
	area := `textarea[aria-label="Edit the policies made here"]`
	b.wait(fmt.Sprintf(`document.querySelector(%q)?.value === "[]"`, area))
	b.do(chromedp.Evaluate(fmt.Sprintf(`(() => { const a = document.querySelector(%q); a.closest("details").open = true; a.value = %q; a.dispatchEvent(new Event("input")); })()`, area, typed), nil))
	s.call("DELETE", "/keys/"+id, "")
	b.says("#login-why", "Your login has ended") // the live stream ends with the key
	b.login(key)
	b.says("#login-problem", "did not accept")
	next, _ := s.newKey("operator", "all:*")
	b.login(next)
	b.loggedIn("operator")
	b.says("#live", "Live")
	if got := eval[string](b, fmt.Sprintf(`document.querySelector(%q).value`, area)); got != typed {
		t.Errorf("after the login the page has %q, not what was typed", got)
	}
	s.stop()
	b.says("#live", "Reconnecting")
	guarded(t, dir, strings.TrimPrefix(s.url, "http://"))
	b.says("#login-why", "Your login has ended")
	b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).form.requestSubmit()`, area), nil)) // it waits behind the form
	b.login(next)
	b.loggedIn("operator")
	b.says(".preview", "likes:*: begins")
}

// Two servers on one machine, which share the cookies of a browser, do not log each other's
// users out.
func TestLoginsOfTwoServers(t *testing.T) {
	first, second := guarded(t, t.TempDir(), "127.0.0.1:0"), guarded(t, t.TempDir(), "127.0.0.1:0")
	b := open(t, 1440, 900)
	b.expect("status of 401")
	for _, s := range []*server{first, second} {
		b.to(s.url + "/")
		b.login("right-key")
		b.says("#live", "Live")
	}
	b.to(first.url + "/")
	b.says("#live", "Live")
}

// Whoever is granted a namespace alone sees its counters, though not the overview.
func TestLoginWithLittle(t *testing.T) {
	s := guarded(t, t.TempDir(), "127.0.0.1:0")
	s.call("POST", "/namespaces/shop/counters/a/increment", `{"delta":42}`)
	key, _ := s.newKey("a shop that has a long name", "read:shop")
	b := open(t, 375, 812)
	b.expect("status of 401")
	b.expect("status of 403")
	b.to(s.url + "/")
	b.login("wrong-key")
	b.says("#login-problem", "did not accept")
	b.readable("the login")
	b.login(key)
	b.says("main", "Not granted")
	b.readable("what is not granted")
	b.to(s.url + "/#/counter/shop/a")
	b.wait(`document.querySelector(".big")?.innerText === "42"`)
	s.call("POST", "/namespaces/shop/counters/a/increment", "")
	b.wait(`document.querySelector(".big")?.innerText === "43"`)
}

// Whoever may look without a key does, and logs in to do more.
func TestLoginToDoMore(t *testing.T) {
	s := serveIn(t, t.TempDir(), "127.0.0.1:0", "--api-key", "right-key", "--anonymous", "read:*")
	b := open(t, 1440, 900)
	b.expect("status of 401")
	b.to(s.url + "/#/counter/default/a")
	b.says("main", "Without a key you are not granted write")
	b.says("#live", "Live")
	b.says("#logout", "Log in")
	b.do(chromedp.Click("#logout"))
	b.wait(`document.querySelector("#login").open`)
	b.do(chromedp.Click("#login-without"))
	b.wait(`!document.querySelector("#login").open`)
	b.do(chromedp.Click("#logout"))
	b.login("right-key")
	b.loggedIn("server-key")
	b.press("Add to the counter", "Add")
	b.answers("Add to the counter", "the value is 1")
	b.do(chromedp.Click("#logout"))
	b.says("main", "Without a key you are not granted write")
	b.wait(`!document.querySelector("#login").open`)
}

// A page of another origin can't use the login of a browser: the browser sends no cookie, or
// the server refuses it, also from another port of this machine, which shares the cookies.
func TestForged(t *testing.T) {
	s := guarded(t, t.TempDir(), "127.0.0.1:0")
	b := open(t, 1440, 900)
	for _, expected := range []string{"status of 401", "status of 403", "CORS", "ERR_FAILED", "Failed to load"} {
		b.expect(expected)
	}
	b.to(s.url + "/")
	b.login("right-key")
	b.says("#live", "Live")
	// The page itself, without the token that it knows, and with it.
	path := s.url + "/api/v1/counters/a/increment"
	if got := eval[int](b, fmt.Sprintf(`fetch(%q, { method: "POST" }).then((r) => r.status)`, path)); got != http.StatusForbidden {
		t.Errorf("a change without the token: %d", got)
	}
	if got := eval[int](b, fmt.Sprintf(`fetch("api/v1/session").then((r) => r.json()).then((i) => fetch(%q, { method: "POST", headers: { "X-Csrf-Token": i.csrf } })).then((r) => r.status)`, path)); got != http.StatusOK {
		t.Errorf("a change with the token: %d", got)
	}
	sent := make(chan string, 1)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case sent <- r.Header.Get("Cookie"):
		default:
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form id="f" method="post" action=%q><button>go</button></form>`, path)
	}))
	defer evil.Close()
	b.to(evil.URL)
	if !strings.Contains(<-sent, "quipu_session") { // otherwise this proves nothing
		t.Error("the browser did not send the cookie to another port of the machine")
	}
	eval[string](b, fmt.Sprintf(`fetch(%q, { method: "POST", mode: "no-cors", credentials: "include" }).then((r) => r.type, () => "refused")`, path))
	b.do(chromedp.Evaluate(`document.querySelector("#f").submit()`, nil))
	b.wait(`document.body.innerText.includes("Cross-origin request")`)
	if body := s.call("GET", "/counters/a", ""); !strings.Contains(body, `"value":1`) {
		t.Errorf("a page of another origin has counted: %s", body)
	}
}
