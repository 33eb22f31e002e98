package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

// A server whose store has lost what it acknowledged says so when it is asked to
// verify, in words, in JSON and by its exit code, whoever was told before.
func TestVerifyFindsLoss(t *testing.T) {
	r := redisproc.For(t)
	p := start(t, nil, "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--store", "redis://"+r.Addr)
	for range 3 {
		p.client()("add", "a")
	}
	if got := p.client()("verify"); !strings.HasPrefix(got, "ok: ") || !strings.Contains(got, "not proved: ") {
		t.Errorf("before: %s", got)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := func() {
		t.Helper()
		if c := command(t, "verify", "--addr", p.url); c.code != 1 || !strings.Contains(c.stdout, "drift: ") {
			t.Errorf("%+v", c)
		}
		if c := command(t, "verify", "--json", "--addr", p.url); c.code != 1 || !strings.Contains(c.stdout, `"ok":false`) {
			t.Errorf("%+v", c)
		}
	}
	lost()
	for range 3 { // the first is told, the others are not
		command(t, "add", "a", "--addr", p.url)
	}
	lost()
}

// A log that somebody cut while nobody looked was not closed: verify says up to where
// it goes, and that it can't know more.
func TestVerifyAfterAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := serveData(t, dir)
	p.client()("add", "a")
	p.signal(syscall.SIGKILL)
	copied := filepath.Join(t.TempDir(), "copied")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if c := command(t, "verify", "--data", dir); c.code != 0 || !strings.Contains(c.stdout, "not proved: the log had not been closed") {
		t.Errorf("%+v", c)
	}
	if c := command(t, "verify", "--json", "--data", copied); c.code != 0 || !strings.Contains(c.stdout, `"ok":true`) || !strings.Contains(c.stdout, `"unproved":["the log`) {
		t.Errorf("%+v", c)
	}
}
