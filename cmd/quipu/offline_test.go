package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// serveData starts a server over the embedded store of a directory.
func serveData(t *testing.T, dir string) *process {
	t.Helper()
	return start(t, nil, "--data", dir, "--http", "127.0.0.1:0")
}

// What was counted is there after a drain, and after a kill.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := serveData(t, dir)
	if got := p.client()("add", "a", "5", "--id", "t"); got != "5" {
		t.Errorf("add: %s", got)
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	p = serveData(t, dir)
	client := p.client()
	if got := client("get", "a"); got != "5" {
		t.Errorf("after a drain: %s", got)
	}
	client("add", "a")
	p.signal(syscall.SIGKILL)
	p = serveData(t, dir)
	client = p.client()
	if got := client("add", "a", "5", "--id", "t"); got != "5" {
		t.Errorf("a repeat after a kill: %s", got)
	}
	if got := client("get", "a"); got != "6" {
		t.Errorf("after a kill: %s", got)
	}
	if got := client("get", "a", "--json"); !strings.Contains(got, `"exact":true`) {
		t.Errorf("after a kill: %s", got)
	}
	if got := client("add", "a", "--json"); !strings.Contains(got, `"durability":"synced"`) {
		t.Errorf("durability: %s", got)
	}
}

// The default directory is below the one it is run in.
func TestDefaultData(t *testing.T) {
	p := start(t, nil, "--http", "127.0.0.1:0")
	if _, err := os.Stat(filepath.Join(p.c.Dir, "quipu-data")); err != nil {
		t.Error(err)
	}
}

func TestPolicies(t *testing.T) {
	file := writeFile(t, "http: 127.0.0.1:0\npolicies:\n  - {namespace: ads, pattern: 'view.*', durability: written}\n  - {pattern: 'tmp.*', durability: memory}\n")
	p := start(t, nil, "--config", file)
	f := func(want string, args ...string) {
		t.Helper()
		if got := p.client()(append(args, "--json")...); !strings.Contains(got, `"durability":"`+want+`"`) {
			t.Errorf("quipu %q: %s, want %s", args, got, want)
		}
	}
	f("synced", "add", "view.1")
	f("written", "add", "view.1", "--namespace", "ads")
	f("synced", "add", "other", "--namespace", "ads")
	f("memory", "add", "tmp.1")
}

func TestOffline(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := serveData(t, dir)
	client := p.client()
	client("add", "a", "7", "--id", "t")
	client("add", "b", "-2")
	backup := filepath.Join(t.TempDir(), "online.tar")
	client("backup", "--out", backup)
	if got := client("verify"); got != "ok: 2 cells, 2 tokens, 2 changes" {
		t.Errorf("verify: %s", got)
	}
	// The log of a running server can be read.
	if r := command(t, "wal", "dump", "--data", dir); r.code != 0 || !strings.Contains(r.stdout, `add "a" in "default" +7`) {
		t.Errorf("wal dump: %+v", r)
	}
	refused(t, 3, "another process, pid "+strconv.Itoa(p.c.Process.Pid)+", has it open; stop it first, or use another directory (--data)", "verify", "--data", dir)
	refused(t, 3, "ask it with --addr URL instead of --data", "backup", "--data", dir, "--out", filepath.Join(t.TempDir(), "x"))
	if r := command(t, "verify", "--data", dir); strings.Count(r.stderr, "quipu: ") != 1 {
		t.Errorf("the name is said twice: %s", r.stderr)
	}
	refused(t, 2, "one of them", "verify", "--data", dir, "--addr", p.url)
	// A flag goes before the environment that names the other.
	if r := command(t, "QUIPU_DATA="+dir, "verify", "--addr", p.url); r.code != 0 {
		t.Errorf("verify --addr: %+v", r)
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}

	ok := func(want string, args ...string) {
		t.Helper()
		if r := command(t, args...); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("quipu %q: %+v; want %q", args, r, want)
		}
	}
	ok("ok: 2 cells, 2 tokens, 2 changes\n", "verify", "--data", dir)
	ok("ok: 2 cells", "QUIPU_DATA="+dir, "verify")
	ok("ok: 2 cells", "QUIPU_ADDR=http://127.0.0.1:1", "verify", "--data", dir)
	ok(`{"ok":true,"cells":2,"tokens":2,"deltas":2,"drift":[],"unproved":[]}`, "verify", "--data", dir, "--json")
	offline := filepath.Join(t.TempDir(), "offline.tar")
	ok("", "backup", "--data", dir, "--out", offline)

	for _, file := range []string{backup, offline} {
		copied := filepath.Join(t.TempDir(), "copied")
		ok("", "restore", file, "--data", copied)
		ok("ok: 2 cells, 2 tokens, 2 changes\n", "verify", "--data", copied)
		p := serveData(t, copied)
		client := p.client()
		if got := client("get", "a", "b"); got != "a\t7\nb\t-2" {
			t.Errorf("restored from %s: %q", file, got)
		}
		if got := client("add", "a", "7", "--id", "t"); got != "7" {
			t.Errorf("the restored store forgot a token: %s", got)
		}
		refused(t, 1, "not empty", "restore", file, "--data", copied)
	}
	empty := t.TempDir()
	ok("", "restore", backup, "--data", empty)
	ok("ok: 2 cells", "verify", "--data", empty)
}

func TestOfflineRefusals(t *testing.T) {
	empty := t.TempDir()
	missing := filepath.Join(empty, "missing")
	refused(t, 1, "no such file", "verify", "--data", missing)
	refused(t, 1, "no such file", "backup", "--data", missing, "--out", filepath.Join(empty, "x"))
	refused(t, 1, "no such file", "wal", "dump", "--data", missing)
	refused(t, 1, "is empty", "verify", "--data", t.TempDir())
	refused(t, 1, "no such file", "restore", missing, "--data", filepath.Join(empty, "new"))
	refused(t, 2, "--data", "restore", "x")
	torn := writeFile(t, "this is no backup")
	refused(t, 1, "this is no backup of Quipu, or it is cut off", "restore", writeFile(t, ""), "--data", filepath.Join(empty, "new"))
	refused(t, 1, "this is no backup of Quipu, or it is cut off", "restore", torn, "--data", filepath.Join(empty, "new"))
	if entries, err := os.ReadDir(empty); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
