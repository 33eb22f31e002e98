package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pages are all pages, and what each says when it has loaded.
func pages() []struct{ path, says string } {
	return []struct{ path, says string }{
		{"#/", "embedded store"},
		{"#/counters", "post:42"},
		{"#/counter/default/views%3Ahome", "Top referrer"},
		{"#/counter/default/post%3A42", "love"},
		{"#/counter/default/stock%3Ashoes", "Available"},
		{"#/policies", "views:*"},
		{"#/decided", "10 per 1s"},
		{"#/operations", "rules of deploy/alerts.yml"},
	}
}

// filled starts a server that has something to show on every page.
func filled(t *testing.T) *server {
	t.Helper()
	s := serve(t)
	s.define()
	for i := range 40 {
		s.call("POST", "/counters/views:home/increment", fmt.Sprintf(`{"who":"u%d","dims":{"country":%q,"referrer":"mail"}}`, i, []string{"DE", "PE"}[i%2]))
	}
	s.call("PUT", "/reactions/post:42/ana", `{"choice":"love"}`)
	s.call("PUT", "/counters/stock:shoes", `{"value":10}`)
	s.call("POST", "/counters/stock:shoes/reserve", `{"amount":4,"ttl":"10m","who":"ana"}`)
	return s
}

// Every page loads in both sizes and both themes, fits into its window, and has words
// that can be read.
func TestPages(t *testing.T) {
	s := filled(t)
	for _, width := range []int64{375, 1440} {
		b := open(t, width, 900)
		for _, p := range pages() {
			b.to(s.url + "/" + p.path)
			b.says("main", p.says)
			b.says("#live", "Live")
			b.readable(p.path)
			// What is folded has to be readable too.
			b.do(chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil))
			b.readable(p.path + " unfolded")
		}
	}
}

// readable checks that the page fits into its window, that its words can be read in both
// themes, and that everything has a name.
func (b *tab) readable(page string) {
	b.t.Helper()
	width := eval[int](b, `innerWidth`)
	if over := eval[[]string](b, outside); len(over) > 0 {
		b.t.Errorf("%s at %d: outside of the window: %s", page, width, over)
	}
	for _, theme := range []string{"light", "dark"} {
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
		for _, bad := range eval[[]string](b, contrast) {
			b.t.Errorf("%s at %d, %s: too little contrast: %s", page, width, theme, bad)
		}
	}
	for _, bad := range eval[[]string](b, nameless) {
		b.t.Errorf("%s at %d: nothing says what this is: %s", page, width, bad)
	}
}

// outside finds what is wider than the window: the page itself, and what is in no part of it
// that scrolls by itself.
const outside = `(() => {
	const bad = new Set();
	const wide = document.documentElement.scrollWidth - innerWidth;
	if (wide > 0) bad.add("the page, by " + wide);
	for (const e of document.querySelectorAll("main *, header *")) {
		if (!e.getClientRects().length || e.closest(".scroll, .hidden, svg")) continue;
		const r = e.getBoundingClientRect();
		if (r.right > innerWidth + 0.5 || r.left < -0.5) bad.add(e.tagName + "." + e.className + " " + e.textContent.slice(0, 30));
	}
	return [...bad];
})()`

// contrast finds words whose colour is too near to that behind them (WCAG 2, AA).
const contrast = `(() => {
	const parse = (c) => { const v = c.match(/[\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
	const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
	const bad = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walk.nextNode()); ) {
		const e = n.parentElement, style = getComputedStyle(e);
		if (!n.textContent.trim() || !e.getClientRects().length || style.visibility === "hidden" || e.closest(":disabled, noscript")) continue;
		const colour = e instanceof SVGElement ? style.fill : style.color;
		const [a, b] = [light(parse(colour)), light(behind(e))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
		if (ratio < (large ? 3 : 4.5)) bad.add(n.textContent.trim().slice(0, 40) + " " + ratio.toFixed(2));
	}
	for (const e of document.querySelectorAll("input, textarea")) {
		if (!e.getClientRects().length || e.closest(":disabled")) continue;
		for (const [what, pseudo] of [["value", null], ["placeholder", "::placeholder"]]) {
			const [a, b] = [light(parse(getComputedStyle(e, pseudo).color)), light(behind(e))];
			const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (ratio < 4.5) bad.add("the " + what + " of " + e.name + " " + ratio.toFixed(2));
		}
	}
	return [...bad];
})()`

// nameless finds what can be pressed or filled in and has no name.
const nameless = `[...document.querySelectorAll("button, a, input, textarea, [role=img]")].filter((e) =>
	!(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length || e.querySelector?.("img[alt]"))).map((e) => e.outerHTML.slice(0, 80))`

// What is counted while a page is open appears on it.
func TestLive(t *testing.T) {
	s := serve(t)
	b := open(t, 1440, 900)
	b.to(s.url + "/#/counter/default/hello%2Fw%C3%B6rld")
	b.says("main", "Does not exist")
	for range 3 {
		s.call("POST", "/counters/"+url.PathEscape("hello/wörld")+"/increment", "")
	}
	b.wait(`document.querySelector(".big")?.innerText === "3"`)
	b.says(".pill", "Exact")
	b.to(s.url + "/")
	s.busy("hot")
	b.says("table", "hot")
}

// A top list is of all time, or of the range that is picked.
func TestTopOfRange(t *testing.T) {
	s := filled(t)
	b := open(t, 1440, 1800)
	b.to(s.url + "/#/counter/default/views%3Ahome")
	b.says("section", "Top referrer")
	b.says("section", "40 in all.")
	b.do(chromedp.Evaluate(`[...document.querySelectorAll("section")].find((x) => x.innerText.startsWith("Top referrer")).querySelectorAll("button")[1].click()`, nil))
	b.says("section", "40 in all, since")
}

// Numbers that JavaScript can't hold are shown to the last digit.
func TestLargeNumbers(t *testing.T) {
	s := serve(t)
	s.call("PUT", "/counters/large", `{"value":9007199254740993}`)
	b := open(t, 1440, 900)
	b.to(s.url + "/#/counter/default/large")
	b.wait(`document.querySelector(".big")?.innerText === "9,007,199,254,740,993"`)
	b.to(s.url + "/#/counters")
	b.says("td", "9,007,199,254,740,993")
}

// The theme follows the system until one is chosen, and the choice stays.
func TestTheme(t *testing.T) {
	s := serve(t)
	b := open(t, 1440, 900)
	system := func(theme string) chromedp.Action {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}})
	}
	dark := func(want bool) {
		t.Helper()
		b.wait(fmt.Sprintf(`(getComputedStyle(document.body).backgroundColor.match(/\d+/g)[0] < 60) === %t`, want))
	}
	b.do(system("dark"))
	b.to(s.url + "/")
	dark(true)
	b.do(system("light"))
	dark(false)
	b.do(chromedp.Click("#theme"), chromedp.Click("#theme")) // light, and then dark
	dark(true)
	b.to(s.url + "/")
	dark(true)
	b.do(system("dark"), chromedp.Click("#theme"))
	b.says("#theme", "Auto")
	dark(true)
	b.do(chromedp.Click("#theme"))
	dark(false)
}

// A policy is changed after a preview, and what is wrong is said where it is.
func TestPolicies(t *testing.T) {
	s := serve(t)
	b := open(t, 1440, 1200)
	b.expect("status of 400")
	b.expect("status of 412")
	b.to(s.url + "/#/policies")
	b.says("main", "There are no policies")
	area := `textarea[aria-label="Edit the policies made here"]`
	fill := func(text string) {
		b.do(chromedp.Evaluate(fmt.Sprintf(`(() => { const a = document.querySelector(%q); a.closest("details").open = true; a.value = %q; a.dispatchEvent(new Event("input")); })()`, area, text), nil))
	}
	press := func(name string) {
		t.Helper()
		b.do(chromedp.Evaluate(fmt.Sprintf(`[...document.querySelector(%q).form.querySelectorAll("button")].find((x) => x.innerText === %q).click()`, area, name), nil))
	}
	applies := func() bool {
		return !eval[bool](b, fmt.Sprintf(`[...document.querySelector(%q).form.querySelectorAll("button")].find((x) => x.innerText === "Apply").disabled`, area))
	}
	b.wait(fmt.Sprintf(`document.querySelector(%q).value === "[]"`, area))
	for text, says := range map[string]string{
		`nonsense`: "This is not JSON",
		`{}`:       "This is not a list",
		"[{\"pattern\":\"a*\"},\n{\"shards\":1000}]": "(Line 2.)",
		`[{"pattern":"a*","colour":"red"}]`:          "colour",
	} {
		fill(text)
		press("Preview")
		b.says("#policies-wrong", says)
		if applies() {
			t.Errorf("%s can be applied", text)
		}
	}
	fill(`[{"pattern":"likes:*","preset":"likes"}]`)
	press("Preview")
	b.says(".preview", "likes:*: begins")
	if got := s.call("GET", "/policies", ""); strings.Contains(got, "likes") {
		t.Errorf("the preview has changed the policies: %s", got)
	}
	press("Apply")
	b.says("table", "timing: hybrid")
	if got := s.call("GET", "/policies", ""); !strings.Contains(got, "likes:*") {
		t.Errorf("the policies are %s", got)
	}
	// Somebody else changes them meanwhile.
	fill(`[]`)
	press("Preview")
	b.says(".preview", "likes:*: ends")
	s.call("PUT", "/policies", `{"policies":[{"pattern":"other:*"}]}`, "If-Match", "*")
	press("Apply")
	b.says("#policies-wrong", "Somebody else")
}

// Definitions are changed alike, and bad ones are refused with the server's words.
func TestDefinitions(t *testing.T) {
	s := serve(t)
	b := open(t, 1440, 1200)
	b.expect("status of 400")
	b.to(s.url + "/#/policies")
	b.says("main", "has no definitions")
	edit := func(text, button string) {
		b.do(chromedp.Evaluate(fmt.Sprintf(`(() => { const a = document.querySelector('textarea[aria-label="Edit the definitions"]'); a.closest("details").open = true;
			if (a.value !== %q) { a.value = %[1]q; a.dispatchEvent(new Event("input")); }
			[...a.form.querySelectorAll("button")].find((x) => x.innerText === %q).click(); })()`, text, button), nil))
	}
	edit(`[{"pattern":"v:*","windows":[{"every":"7s"}]}]`, "Preview")
	b.wait(`document.querySelector("#definitions-wrong").innerText.length > 10`)
	good := `[{"pattern":"v:*","windows":[{"every":"1h","keep":"90d"}]}]`
	edit(good, "Preview")
	b.says(".preview", "windows of 1h begin now")
	edit(good, "Apply")
	b.says(".card", "every: 1h")
	b.do(chromedp.SendKeys(`input[name="key"]`, "v:1"+kb.Enter))
	b.says("main", "Its definition is v:*")
}

// Verify says that all is well, and the alerts that none fires.
func TestOperations(t *testing.T) {
	s := filled(t)
	b := open(t, 1440, 1200)
	b.to(s.url + "/#/operations")
	b.says("main", "No alert fires")
	b.do(chromedp.Click(`section button.primary`))
	b.says("main", "All sums agree")
	b.do(chromedp.Click(`details summary`))
	b.says("table", "QuipuDiskFull")
}

// A server that ends and starts again is found again.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, dir, "127.0.0.1:0")
	s.call("POST", "/counters/a/increment", "")
	b := open(t, 1440, 900)
	b.expect("ERR_CONNECTION_REFUSED")
	b.expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
	b.to(s.url + "/#/counter/default/a")
	b.wait(`document.querySelector(".big")?.innerText === "1"`)
	s.stop()
	if strings.Contains(s.err.String(), "cut off") {
		t.Errorf("the live stream held up the end:\n%s", s.err.String())
	}
	b.says("#live", "Reconnecting")
	s = serveIn(t, dir, strings.TrimPrefix(s.url, "http://"))
	s.call("POST", "/counters/a/increment", "")
	b.says("#live", "Live")
	b.wait(`document.querySelector(".big")?.innerText === "2"`)
}

// The page can be used from the keyboard: what is focused can be seen, and charts are
// read by arrow keys.
func TestKeyboard(t *testing.T) {
	s := filled(t)
	b := open(t, 1440, 900)
	b.to(s.url + "/")
	b.says("main", "embedded store")
	b.do(chromedp.KeyEvent(kb.Tab))
	b.wait(`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait(`document.activeElement.id === "main" && location.hash !== "#main"`)
	b.wait(`document.querySelector(".chart .line-0").points.length > 0`)
	b.do(chromedp.Focus(".chart"), chromedp.KeyEvent(kb.ArrowLeft))
	b.says(".tip", "writes")
	b.wait(`getComputedStyle(document.activeElement).outlineStyle !== "none"`)
	// A row that is focused stays where it is while others become hotter.
	s.busy("hot")
	b.says("table", "hot")
	b.do(chromedp.Focus(".counter-link"))
	s.busy("warmer")
	b.says("table", "warmer")
	b.wait(`document.activeElement.className === "counter-link"`)
}

// Nothing moves once a page is there.
func TestLayoutShift(t *testing.T) {
	s := filled(t)
	b := open(t, 1440, 1400)
	for _, p := range pages() {
		b.to(s.url + "/" + p.path)
		b.says("main", p.says)
		b.says("#live", "Live")
		shift := eval[float64](b, `new Promise((done) => { let sum = 0; new PerformanceObserver((l) => { for (const e of l.getEntries()) sum += e.value; }).observe({ type: "layout-shift", buffered: true }); setTimeout(() => done(sum), 300); })`)
		if shift > 0.1 { // what Google calls good
			t.Errorf("%s: layout shift of %.2f", p.path, shift)
		}
	}
}

// A page of another origin can neither count, nor frame the dashboard, nor read.
func TestOtherOrigin(t *testing.T) {
	s := serve(t)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<iframe src="%s/"></iframe>`, s.url)
	}))
	defer evil.Close()
	b := open(t, 1440, 900)
	for _, expected := range []string{"403", "frame", "CORS", "ERR_", "Framing", "Failed to load"} {
		b.expect(expected)
	}
	b.to(evil.URL)
	got := eval[string](b, fmt.Sprintf(`(async () => {
		const out = [];
		for (const [method, path] of [["POST", "/counters/a/increment"], ["PUT", "/policies"], ["GET", "/live"], ["GET", "/overview"]]) {
			try { const r = await fetch(%q + "/api/v1" + path, { method, mode: "no-cors" }); out.push(r.type); } catch (e) { out.push("refused"); }
			try { await fetch(%[1]q + "/api/v1" + path, { method, headers: { "If-Match": "*" } }); out.push("READ"); } catch (e) { out.push("refused"); }
		}
		return out.join(" ");
	})()`, s.url))
	if strings.Contains(got, "READ") {
		t.Errorf("a page of another origin got %s", got)
	}
	if body := s.call("GET", "/counters/a", ""); !strings.Contains(body, `"exists":false`) {
		t.Errorf("a page of another origin has counted: %s", body)
	}
	if framed := eval[bool](b, `(() => { try { return document.querySelector("iframe").contentDocument.body.innerText.includes("Overview"); } catch { return document.querySelector("iframe").contentWindow.length > 0; } })()`); framed {
		t.Error("a page of another origin has framed the dashboard")
	}
}
