package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/transfer"
	"github.com/quipudb/quipu/store"
)

func TestCopyUsage(t *testing.T) {
	f := func(text string, args ...string) {
		t.Helper()
		refused(t, 2, text, append([]string{"copy"}, args...)...)
	}
	f("--from", "--to", "embedded:x")
	f("--to", "--from", "embedded:x")
	f("want embedded:", "--from", "mysql://x", "--to", "embedded:x")
	f("want embedded:DIR", "--from", "embedded:x", "--to", "embedded:")
	f("a memory store", "--from", "memory:", "--to", "embedded:x")
	f("a memory store", "--from", "embedded:x", "--to", "memory:")
	f("are the same", "--from", "embedded:x", "--to", "embedded:x")
	f("--namespace is empty", "--from", "embedded:x", "--to", "embedded:y", "--namespace", "")
	f("--redis-replicas", "--from", "embedded:x", "--to", "embedded:y", "--redis-replicas=-1")
}

// Counters go from each store to each, and are all there.
func TestCopy(t *testing.T) {
	first := filepath.Join(t.TempDir(), "first")
	p := serveData(t, first)
	client := p.client()
	client("set", "a", "5")
	client("set", "low", "-9223372036854775808")
	client("set", "high,\x01", "9223372036854775807")
	client("set", "a", "-7", "--namespace", "shop")
	const deadline = "32503680000000"
	resp := func(p *process, want string, args ...string) {
		t.Helper()
		got, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-p", p.respPort}, args...)...).CombinedOutput()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("redis-cli %q: %q, %v; want %q", args, got, err, want)
		}
	}
	resp(p, "OK", "set", "timed", "3", "pxat", deadline)
	pg, redis := startPostgres(t), redisproc.For(t, "--appendonly", "yes")
	postgres := pg.URL()
	last := filepath.Join(t.TempDir(), "last")

	copyOK := func(want string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"copy"}, args...)...)
		if r.code != 0 || !strings.HasPrefix(r.stdout, want) || r.stderr != "" {
			t.Errorf("quipu copy %q: %+v, want %q", args, r, want)
		}
	}
	refused(t, 3, "stop the server first", "copy", "--from", "embedded:"+first, "--to", postgres)
	refused(t, 1, "no such file", "copy", "--from", "embedded:"+last, "--to", postgres)
	refused(t, 1, "is empty", "copy", "--from", "embedded:"+t.TempDir(), "--to", postgres)
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	copyOK("would copy 5 of 5 counters in 2 namespaces, and delete 0\n", "--from", "embedded:"+first, "--to", postgres, "--dry-run")
	copyOK("copied 1, deleted 0: both stores have the same 1 counters in 1 namespaces\ntokens and marks were not copied: ",
		"--from", "embedded:"+first, "--to", postgres, "--namespace", "shop")
	copyOK("copied 4, deleted 0: both stores have the same 5 counters in 2 namespaces\n", "--from", "embedded:"+first, "--to", postgres)
	copyOK(`{"ok":true,"dry_run":false,"namespaces":2,"counters":5,"differ":0,"extra":0,"copied":0,"deleted":0,"tokens_copied":false}`+"\n",
		"--from", "embedded:"+first, "--to", postgres, "--json")
	copyOK("copied 5, ", "--from", postgres, "--to", "redis://"+redis.Addr)
	copyOK("copied 5, ", "--from", "redis://"+redis.Addr, "--to", postgres, "--to-name", "other")
	copyOK("copied 0, ", "--from", postgres, "--to", postgres, "--from-name", "other")
	copyOK("copied 5, ", "--from", "redis://"+redis.Addr, "--to", "embedded:"+last)

	p = serveData(t, last)
	client = p.client()
	if got := client("list"); got != "a\t5\n"+`"high,\x01"`+"\t9223372036854775807\nlow\t-9223372036854775808\ntimed\t3" {
		t.Errorf("copied three times: %q", got)
	}
	if got := client("list", "--namespace", "shop"); got != "a\t-7" {
		t.Errorf("copied three times: %q", got)
	}
	resp(p, deadline, "pexpiretime", "timed")
	client("add", "mine", "2")
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	refused(t, 1, `1 counters that the source has not, the first is "mine" in namespace "default": nothing was copied; --overwrite`,
		"copy", "--from", postgres, "--to", "embedded:"+last)
	r := command(t, "copy", "--from", postgres, "--to", "embedded:"+last, "--json")
	if r.code != 1 || !strings.HasPrefix(r.stdout, `{"ok":false,`) || !strings.Contains(r.stdout, `"extra":1`) {
		t.Errorf("refused: %+v", r)
	}
	copyOK("copied 0, deleted 1: both stores have the same 5 counters", "--from", postgres, "--to", "embedded:"+last, "--overwrite")
	if r := command(t, "verify", "--data", last); r.code != 0 || !strings.HasPrefix(r.stdout, "ok: 5 cells") {
		t.Errorf("verify: %+v", r)
	}
	refused(t, 3, "connection refused", "copy", "--from", postgres, "--to", "redis://127.0.0.1:1")
}

// What went wrong says what to do, and by its code whether anything was done.
func TestExplain(t *testing.T) {
	f := func(walk transfer.Walk, err error, code int, text string) {
		t.Helper()
		got := explain(transfer.Report{Walk: walk, Copied: 1234}, err)
		if exitCode(got) != code || !strings.Contains(got.Error(), text) {
			t.Errorf("%v is explained by %v with code %d, want code %d and %q", err, got, exitCode(got), code, text)
		}
	}
	f(transfer.Compare, &transfer.ExtraError{Extra: 1}, 1, "nothing was copied; --overwrite")
	f(transfer.Compare, &transfer.DefinedError{Namespace: "n", Store: "embedded"}, 1, `namespace "n" of the embedded store has definitions`)
	f(transfer.Check, &transfer.ChangedError{AtLeast: 3}, 1, "at least 3 counters changed while they were copied (1,234 copied, 0 deleted): stop what writes")
	f(transfer.Compare, store.ErrUnavailable, 3, "nothing was copied")
	f(transfer.Copy, store.ErrUnavailable, 1, "1,234 copied, 0 deleted; run it again to go on")
	f(transfer.Copy, store.ErrUnknown, 1, "run it again to go on")
	f(transfer.Copy, fmt.Errorf("read: %w", context.Canceled), 1, "interrupted: 1,234 copied")
	f(transfer.Check, errors.New("x"), 1, "run it again")
}
