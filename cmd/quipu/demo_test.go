package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The demo prints where to look, counts, and leaves nothing behind: on Ctrl-C, and when
// its time is over.
func TestDemo(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	c := exec.Command(binary, "demo", "--rate", "100")
	c.Env = environment()
	c.Stdout, c.Stderr = w, w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()
	_ = w.Close()
	said, err := readUntil(r, "is removed")
	if err != nil {
		t.Fatalf("it said %s: %v", said, err)
	}
	base := regexp.MustCompile(`http://[0-9.:]+`).FindString(said)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if code, body := httpGet(ctx, t, base+"/"); code != http.StatusOK || !strings.Contains(body, "<title>Quipu") {
		t.Errorf("the dashboard: %d %s", code, body)
	}
	for _, p := range []struct{ path, want string }{
		{"/api/v1/counters/views:home/range?from=-24h", `"value":[1-9]`},
		{"/api/v1/counters/views:home/by/country", `"value":"US"`},
		{"/api/v1/uniques/views:home", `"count":[1-9]`},
		{"/api/v1/reactions/post:42", `"like":[1-9]`},
		{"/api/v1/reservations?key=stock:sneakers", `"reserved":[1-9]`},
		{"/api/v1/counters/viral:cat-video", `"value":[1-9]`},
		{"/api/v1/overview", `"limits_allowed":[0-9.]*[1-9]`},
	} {
		for {
			_, body := httpGet(ctx, t, base+p.path)
			if regexp.MustCompile(p.want).MatchString(body) {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s has no %s in %s", p.path, p.want, body)
			}
		}
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(r)
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, rest)
	}
	left := func() {
		t.Helper()
		if found, err := filepath.Glob(filepath.Join(temp, "*")); err != nil || len(found) > 0 {
			t.Errorf("it left %v, %v", found, err)
		}
	}
	left()
	if got := command(t, "demo", "--for", "1s"); got.code != 0 || !strings.Contains(got.stdout, "/#/decided") {
		t.Errorf("for a second: %+v", got)
	}
	left()
	for _, args := range [][]string{{"--rate", "0"}, {"--rate", "100000"}, {"--for", "-1s"}, {"--http", "0.0.0.0:0"}, {"--http", "off"}} {
		if got := command(t, append([]string{"demo"}, args...)...); got.code != exitUsage || got.stderr == "" || got.stdout != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	left()
}

// readUntil reads until something was said.
func readUntil(r io.Reader, words string) (string, error) {
	var said strings.Builder
	for b := make([]byte, 4096); !strings.Contains(said.String(), words); {
		n, err := r.Read(b)
		said.Write(b[:n])
		if err != nil {
			return said.String(), err
		}
	}
	return said.String(), nil
}
