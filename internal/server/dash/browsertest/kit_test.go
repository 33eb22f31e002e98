package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

var (
	binary  string          // the command under test
	browser context.Context // that all tabs are of
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the server, starts a browser, and runs the tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quipu-browser-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "quipu")
	build := exec.Command("go", "build", "-ldflags", "-X main.version=v0.0.0-test", "-o", binary, "./cmd/quipu")
	build.Dir = filepath.Join("..", "..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		panic("chromium is missing: make servers installs it; on Debian, apt-get install chromium")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
	}
	for _, name := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(name, true))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var cancel context.CancelFunc
	browser, cancel = chromedp.NewContext(allocator)
	defer cancel()
	defer func() { _ = chromedp.Cancel(browser) }() // waits until it has written its profile
	if err := chromedp.Run(browser); err != nil {
		panic(fmt.Sprintf("start chromium: %v", err))
	}
	return m.Run()
}

// A server is a process that serves.
type server struct {
	t   *testing.T
	url string
	key string // that calls show; empty if none is needed
	cmd *exec.Cmd
	err bytes.Buffer
}

// serve starts a server on an embedded store of its own.
func serve(t *testing.T) *server {
	t.Helper()
	return serveIn(t, t.TempDir(), "127.0.0.1:0")
}

// serveIn starts a server on a directory and an address.
func serveIn(t *testing.T, dir, addr string, args ...string) *server {
	t.Helper()
	return start(t, append([]string{"--data", filepath.Join(dir, "data"), "--http", addr}, args...)...)
}

// serveOver starts a server on a store that others share.
func serveOver(t *testing.T, url string, args ...string) *server {
	t.Helper()
	return start(t, append([]string{"--store", url, "--http", "127.0.0.1:0", "--wait-for-store", "10s"}, args...)...)
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t}
	s.cmd = exec.Command(binary, append([]string{"serve", "--resp", "127.0.0.1:0", "--rpc", "127.0.0.1:0"}, args...)...)
	s.cmd.Stderr = &s.err
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_, rest, found := strings.Cut(line, "http=")
	if err != nil || !found {
		t.Fatalf("ready line %q, %v\n%s", line, err, s.err.String())
	}
	s.url = "http://" + strings.Fields(rest)[0]
	return s
}

// stop ends the server, as an operator does, and returns when it has ended.
func (s *server) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(os.Interrupt)
		_ = s.cmd.Wait()
	}
}

// call makes a call of the API that must succeed, and returns the body of its reply.
func (s *server) call(method, path, body string, header ...string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s: %s %s %v", method, path, res.Status, raw, err)
	}
	return string(raw)
}

// busy makes a counter one of the hottest. Those of an embedded store are found by
// looking at some of the calls.
func (s *server) busy(key string) {
	s.t.Helper()
	for range 200 {
		s.call("POST", "/counters/"+key+"/increment", "", "Prefer", "return=minimal")
	}
}

// define gives the server definitions of every kind.
func (s *server) define() {
	s.t.Helper()
	s.call("PUT", "/definitions", `{"definitions":[
		{"pattern":"views:*","windows":[{"every":"1m","keep":"1d"},{"every":"1h","keep":"90d"}],"dimensions":["country"],"unique":"who","ledger":"all","top":[{"name":"pages","by":"key"},{"name":"from","by":"referrer"}]},
		{"pattern":"post:*","choices":["like","love"]},
		{"pattern":"stock:*","floor":0,"reservations":{"per_who":3}},
		{"pattern":"api:*","limits":[{"name":"burst","algorithm":"bucket","rate":10,"per":"1s","burst":20}]}]}`, "If-Match", "*")
}

// A tab is a page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the browser has complained of
	expected []string // parts of complaints that are no fault
}

// open opens a tab of a size.
func open(t *testing.T, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		stop()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			if !b.allows(p) {
				t.Errorf("the browser complains: %s", p)
			}
		}
	})
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.complain(ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.LevelError || ev.Entry.Source == log.SourceSecurity {
				b.complain(ev.Entry.Text + " " + ev.Entry.URL)
			}
		}
	})
	b.do(emulation.SetDeviceMetricsOverride(width, height, 1, false))
	return b
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

func (b *tab) allows(text string) bool {
	for _, e := range b.expected {
		if strings.Contains(text, e) {
			return true
		}
	}
	return false
}

// expect names a complaint that is no fault.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// to opens an address.
func (b *tab) to(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// eval returns what a JavaScript expression is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	b.do(chromedp.Evaluate(expression, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// wait waits until a JavaScript expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	var ok bool
	poll := chromedp.Poll(expression, &ok, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience))
	err := chromedp.Run(b.ctx, poll)
	for again := 0; err != nil && again < 3 && (strings.Contains(err.Error(), "Cannot find context") || strings.Contains(err.Error(), "navigated")); again++ { // The page was exchanged meanwhile.
		err = chromedp.Run(b.ctx, poll)
	}
	if err != nil {
		b.t.Fatalf("%s does not become true: %v\nthe page says\n%s", expression, err, eval[string](b, `document.body.innerText`))
	}
}

// says waits until an element says something.
func (b *tab) says(selector, text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))`, selector, text))
}
