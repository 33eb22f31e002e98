package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// serveHot serves replies to a look at the hottest counters, one after the
// other and the last for ever; "" is one that says 503. It calls asked with the
// number of each look, before it replies.
func serveHot(t *testing.T, asked func(n int), replies ...string) string {
	t.Helper()
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Method + " " + r.URL.String(); got != "GET /api/v1/hot?limit=20" {
			t.Errorf("asked %s", got)
		}
		n++
		asked(n)
		reply := replies[min(n, len(replies))-1]
		if reply == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

const hotReply = `{"counters":[` +
	`{"namespace":"default","key":"likes:42","rate":12345.6,"shards":4,"p99_ms":12.34,"slowest_shard_p99_ms":1534.9,"growth_rate":30000.1,"rollup_age_ms":40,"rollup_interval_ms":1000},` +
	`{"namespace":"shop","key":"ord\ners","rate":3.14,"shards":1,"p99_ms":0.04},` +
	`{"namespace":"a-namespace-that-is-quite-long","key":"%s","rate":0,"shards":2,"growth_rate":0}]}`

func TestHotTable(t *testing.T) {
	url := serveHot(t, func(int) {}, fmt.Sprintf(hotReply, strings.Repeat("é", 100)))
	// Whatever is no terminal gets it once.
	for _, args := range [][]string{{"hot"}, {"hot", "--once"}} {
		r := command(t, append(args, "--addr", url)...)
		want := "" +
			"     RATE      P99  WORST SHARD  SHARDS     GROWTH         ROLLUP  NAMESPACE                 KEY\n" +
			"   12,346     12ms         1.5s       4     30,000     40ms of 1s  default                   likes:42\n" +
			"      3.1     40µs            -       1          -              -  shop                      \"ord\\ners\"\n" +
			"      0.0        -            -       2        0.0              -  a-namespace-that-is-qui…  " + strings.Repeat("é", 59) + "…\n"
		if r.code != 0 || r.stdout != want {
			t.Errorf("%q: %+v, want\n%s", args, r, want)
		}
	}
	r := command(t, "hot", "--json", "--addr", url)
	if lines := strings.Split(r.stdout, "\n"); r.code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[1], `{"namespace":"shop","key":"ord\ners",`) {
		t.Errorf("json: %+v", r)
	}
}

// A terminal is redrawn until the end, also while the server can't be asked,
// and then is as it was, below it the last table.
func TestHotWatch(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	row := func(key string) string {
		return `{"counters":[{"namespace":"n","key":"` + key + `","rate":1,"shards":1}]}`
	}
	url := serveHot(t, func(n int) {
		if n == 5 {
			end()
		}
	}, row("first"), row("second"), "", row("last"))
	var stdout bytes.Buffer
	c := hotCmd{Addr: address(url), Limit: 20, Every: time.Millisecond}
	if err := c.Run(ctx, &output{stdout: &stdout, stderr: io.Discard, stdoutTerminal: true}); err != nil {
		t.Fatal(err)
	}
	screen, after, ok := strings.Cut(stdout.String(), screenOff)
	if !ok || !strings.HasPrefix(screen, screenOn) {
		t.Errorf("wrote %q", stdout.String())
	}
	if lines := strings.Split(after, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "  KEY") || !strings.HasSuffix(lines[1], "  last") {
		t.Errorf("at the end %q", after)
	}
	frames := strings.Split(screen, fmt.Sprintf(lineAt+screenEnd, 4))[1:]
	f := func(i int, key, old string) {
		t.Helper()
		if i >= len(frames) || !strings.Contains(frames[i], key+lineEnd) || !strings.Contains(frames[i], url) ||
			strings.Contains(frames[i], "OLD: ") != (old != "") || !strings.Contains(frames[i], old) {
			t.Errorf("frame %d of %q: want %s %s", i, frames, key, old)
		}
	}
	f(0, "first", "")
	f(1, "second", "")
	f(2, "second", "OLD: the server replied 503")
	f(3, "last", "")
}

// A q ends it, and no other key.
func TestHotQuits(t *testing.T) {
	f := func(keys string, want bool) {
		t.Helper()
		ended := false
		quitAt(strings.NewReader(keys), func() { ended = true })
		if ended != want {
			t.Errorf("keys %q: ended %t", keys, ended)
		}
	}
	f("x\x1b[Aq", true)
	f("xyz", false)
}

// More lines than a terminal has are those that it has no room for.
func TestHotScreen(t *testing.T) {
	var b bytes.Buffer
	if err := drawScreen(&b, "head", []string{"one", "two"}); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[4;1H\x1b[J" + "\x1b[3;1Htwo\x1b[K" + "\x1b[2;1Hone\x1b[K" + "\x1b[1;1Hhead\x1b[K"
	if b.String() != want {
		t.Errorf("drew %q, want %q", b.String(), want)
	}
}

func TestHotRefused(t *testing.T) {
	refused(t, 2, "--limit: want 1 to 500", "hot", "--limit", "501")
	refused(t, 2, "--limit: want 1 to 500", "hot", "--limit", "0")
	refused(t, 2, "--every: want more than 0", "hot", "--every", "0s")
	refused(t, 3, "503", "hot", "--addr", serveHot(t, func(int) {}, ""))
	refused(t, 1, "decode the reply", "hot", "--addr", serveHot(t, func(int) {}, `{"counters":[{"rate":"x"}]}`))
	refused(t, 1, "unauthorized", "hot", "--addr", serve(t, "--api-key", "k").url)
}
