package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// press fills in the fields of a form and presses one of its buttons.
func (b *tab) press(form, button string, fields ...string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`document.querySelector('form[aria-label=%q] fieldset:not(:disabled)') !== null`, form))
	for i := 0; i+1 < len(fields); i += 2 {
		b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector('form[aria-label=%q] [name=%q]').value = %q`, form, fields[i], fields[i+1]), nil))
	}
	b.do(chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll('form[aria-label=%q] button')].find((x) => x.innerText === %q).click()`, form, button), nil))
}

// answers waits until a form says something.
func (b *tab) answers(form, text string) {
	b.t.Helper()
	b.says(fmt.Sprintf(`form[aria-label=%q] .said`, form), text)
}

// What the API does with counters can be done from their pages, and what it refuses is said
// in its words.
func TestActions(t *testing.T) {
	s := filled(t)
	s.call("PUT", "/counters/large", `{"value":9007199254740993}`)
	b := open(t, 375, 1400)
	for _, expected := range []string{"status of 409", "status of 400"} {
		b.expect(expected)
	}

	const add = "Add to the counter"
	b.to(s.url + "/#/counter/default/views%3Ahome")
	b.says("main", "Ledger")
	b.press(add, "Add", "delta", "5", "who", "zoe", "dims.country", "FR", "dims.referrer", "chat")
	b.answers(add, "+5: the value is 45")
	if by := s.call("GET", "/counters/views:home/by/country?from=-1h", ""); !strings.Contains(by, `{"value":"FR","count":5}`) {
		t.Errorf("by country: %s", by)
	}
	b.to(s.url + "/#/counter/default/large")
	b.press(add, "Add", "delta", "9007199254740993")
	b.answers(add, "the value is 18,014,398,509,481,986")
	b.press(add, "Add", "delta", "9223372036854775807")
	b.answers(add, "overflow") // the kind

	const react = "React for a user"
	b.to(s.url + "/#/counter/default/post%3A42")
	b.press(react, "like", "user", "bob")
	b.answers(react, "bob has chosen like")
	b.press(react, "love", "user", "bob")
	b.answers(react, "bob has chosen love, and like before")
	b.press("What has a user chosen?", "Look", "user", "bob")
	b.answers("What has a user chosen?", "bob has chosen love.")
	b.press(react, "Take back", "user", "bob")
	b.answers(react, "bob has taken back love")

	const reserve = "Reserve"
	b.to(s.url + "/#/counter/default/stock%3Ashoes")
	b.press(reserve, "Reserve", "amount", "7", "who", "bob")
	b.says(".problem-box", "6 available")
	b.readable("a refusal")
	b.press(reserve, "Reserve", "amount", "2", "ttl", "90s", "who", "bob")
	b.answers(reserve, "2 reserved until")
	b.readable("an answer")
	b.wait(`document.querySelectorAll("tbody tr .row-buttons").length === 2`)
	row := func(who, button string) {
		t.Helper()
		b.do(chromedp.Evaluate(fmt.Sprintf(`[...[...document.querySelectorAll("tbody tr")].find((r) => r.innerText.includes(%q)).querySelectorAll("button")].find((x) => x.innerText === %q).click()`, who, button), nil))
	}
	row("bob", "Extend")
	b.says("main", "Extended until")
	row("bob", "Commit")
	b.says("main", "2 committed")
	row("ana", "Release")
	b.says("main", "4 released")
	b.says("main", "Nothing is reserved now")
	if c := s.call("GET", "/counters/stock:shoes", ""); !strings.Contains(c, `"value":8`) {
		t.Errorf("after all this: %s", c)
	}

	const try = "Try a limit"
	b.to(s.url + "/#/decided")
	b.press(try, "Use it", "name", "api:x", "who", "bob", "cost", "15")
	b.answers(try, "Allowed: 15 used")
	b.press(try, "Use it", "name", "api:x", "who", "bob", "cost", "20")
	b.answers(try, "Refused: nothing was used")
	b.press(try, "What is left?", "name", "api:x", "who", "bob")
	b.says("main", "of 20 left")
}

// A form is used from the keyboard alone, and a bad number is refused before it is sent.
func TestActionsByKeyboard(t *testing.T) {
	s := filled(t)
	b := open(t, 1440, 1400)
	b.to(s.url + "/#/counter/default/plain")
	b.says("main", "Does not exist")
	b.do(chromedp.Focus(`form[aria-label="Add to the counter"] [name="delta"]`), chromedp.KeyEvent(kb.End), chromedp.KeyEvent("2"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.answers("Add to the counter", "+12")
	b.wait(`document.activeElement.innerText === "Add"`) // pressing again adds again
	b.do(chromedp.KeyEvent(kb.Enter))
	b.answers("Add to the counter", "the value is 24")
	b.press("Add to the counter", "Add", "delta", "1.5")
	b.wait(`document.querySelector('form[aria-label="Add to the counter"] [name="delta"]:invalid') !== null`)
	if c := s.call("GET", "/counters/plain", ""); !strings.Contains(c, `"value":24`) {
		t.Errorf("the counter is %s", c)
	}
}

// Whoever is not granted an action sees that before pressing, and a server that takes no
// writes says so.
func TestActionsNotGranted(t *testing.T) {
	s := guarded(t, t.TempDir(), "127.0.0.1:0")
	s.define()
	s.call("POST", "/counters/stock:shoes/increment", `{"delta":10}`)
	s.call("POST", "/counters/stock:shoes/reserve", `{"amount":1,"ttl":"10m"}`)
	key, _ := s.newKey("clerk", "read:default")
	b := open(t, 1440, 1400)
	b.expect("status of 401")
	b.expect("status of 403")
	b.to(s.url + "/#/counter/default/stock%3Ashoes")
	b.login(key)
	b.says("main", "Your key is not granted decide on this key")
	b.says("main", "Your key is not granted write on this key")
	b.wait(`[...document.querySelectorAll("form.action fieldset, .row-buttons button")].length >= 5 && [...document.querySelectorAll("form.action fieldset, .row-buttons button")].every((e) => e.disabled)`)
	writer, _ := s.newKey("writer", "read+write+decide:default/stock:*")
	b.do(chromedp.Click("#logout"))
	b.login(writer)
	b.loggedIn("writer")
	b.press("Add to the counter", "Add", "delta", "1")
	b.answers("Add to the counter", "the value is 10")
}

// Whoever presses again because nobody knows whether the first press counted, counts once.
func TestActionCountsOnce(t *testing.T) {
	s := filled(t)
	b := open(t, 1440, 1400)
	b.expect("ERR_")
	b.to(s.url + "/#/counter/default/once")
	b.says("main", "Does not exist")
	// The reply of the first call is lost on its way.
	b.do(chromedp.Evaluate(`(() => { const real = fetch; window.fetch = async (path, o) => { const res = await real(path, o); if (o?.method === "POST") { window.fetch = real; throw new TypeError("lost"); } return res; }; })()`, nil))
	b.press("Add to the counter", "Add", "delta", "3")
	b.answers("Add to the counter", "It may have counted")
	b.press("Add to the counter", "Add")
	b.answers("Add to the counter", "the value is 3")
	b.answers("Add to the counter", "counted by the press before")
}
