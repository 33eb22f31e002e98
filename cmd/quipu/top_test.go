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

// serveTop serves a reply to each look at a top list, one after the other and the last for ever.
func serveTop(t *testing.T, asked func(n int, path string), replies ...string) string {
	t.Helper()
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		asked(n, r.URL.String())
		_, _ = io.WriteString(w, replies[min(n, len(replies))-1])
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

const topExact = `{"name":"t","items":[{"item":"post:1","count":9,"lower":9,"upper":9},{"item":"a\nb","count":2,"lower":2,"upper":2}],"exact":true,"rest":0,"total":11,"aligned":true,"complete":true}`

// What is printed once has items, numbers and, where they differ, bounds.
func TestTop(t *testing.T) {
	f := func(reply, wantPath, want, hint string, args ...string) {
		t.Helper()
		url := serveTop(t, func(_ int, path string) {
			if path != wantPath {
				t.Errorf("asked %s, want %s", path, wantPath)
			}
		}, reply)
		r := command(t, append([]string{"top", "--addr", url}, args...)...)
		if r.code != 0 || r.stdout != want || hint == "" && r.stderr != "" || !strings.Contains(r.stderr, hint) {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	f(topExact, "/api/v1/namespaces/default/tops/t", "post:1\t9\n\"a\\nb\"\t2\n", "", "t")
	f(topExact, "/api/v1/namespaces/default/counters/a%2Fb/top/t?k=5", "post:1\t9\n\"a\\nb\"\t2\n", "", "t", "a/b", "-k", "5", "--once")
	f(topExact, "/api/v1/namespaces/default/tops/t", topExact+"\n", "", "t", "--json")
	f(`{"items":[{"item":"x","lower":5,"upper":9}],"rest":4,"total":100,"from":"2026-01-01T00:00:00Z","to":"2026-01-01T01:00:00Z","aligned":true,"complete":true}`,
		"/api/v1/namespaces/default/tops/t?from=1", "x\t9\t5 to 9\n", "an item that is not listed came at most 4 times; 100 were added in all", "t", "--from", "1")
	f(`{"items":[{"item":"x","lower":5,"upper":5,"rise":{"count":3,"lower":1,"upper":5}},{"item":"y","lower":1,"upper":1,"rise":{"count":-2,"lower":-2,"upper":-2}}],"exact":false}`,
		"/api/v1/namespaces/default/tops/t?trend=true", "x\t+3\t1 to 5\ny\t-2\n", "", "t", "--trend")
	for _, args := range [][]string{{"t", "--limit", "1001"}, {"t", "--limit", "-1"}, {"t", "--every", "0s"}, {}} {
		if r := command(t, append([]string{"top"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// A terminal is redrawn until the end, and then has the last list.
func TestTopWatch(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	url := serveTop(t, func(n int, _ string) {
		if n == 3 {
			end()
		}
	}, topExact, strings.ReplaceAll(topExact, "9", "10"))
	var stdout bytes.Buffer
	c := topCmd{Name: "t", Every: time.Millisecond}
	c.Addr = address(url)
	if err := c.Run(ctx, &output{stdout: &stdout, stderr: io.Discard, stdoutTerminal: true}); err != nil {
		t.Fatal(err)
	}
	screen, after, ok := strings.Cut(stdout.String(), screenOff)
	if !ok || !strings.HasPrefix(screen, screenOn) || after != "post:1\t10\n\"a\\nb\"\t2\n" {
		t.Errorf("wrote %q", stdout.String())
	}
	frames := strings.Split(screen, fmt.Sprintf(lineAt+screenEnd, 4))[1:]
	if len(frames) < 2 || !strings.Contains(frames[0], "post:1\t9"+lineEnd) || !strings.Contains(frames[1], "post:1\t10"+lineEnd) || !strings.Contains(frames[0], "  t  every 1ms, q ends") {
		t.Errorf("frames %q", frames)
	}
}
