package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
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

// damage adds 1 to the first part of some kind that a counter has in a data directory.
func damage(t *testing.T, dir, key string, kind store.PartKind) {
	t.Helper()
	db, err := quipu.Open(dir, quipu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows := store.Rows{Namespace: "default", From: string([]byte{byte(kind)}), To: string([]byte{byte(kind) + 1})}
	parts, err := db.Port().Store().ScanParts(t.Context(), rows, store.ScanMax)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if p.Cell.Key != key {
			continue
		}
		b := store.Batch{Books: []store.Book{{Namespace: "default", ID: 1}}, Deltas: []store.Delta{
			{Cell: p.Cell, Op: store.OpAdd, N: 1, Event: &store.Event{Part: p.Part}},
		}}
		var r [1]store.Reply
		if err := db.Port().Store().Apply(t.Context(), []store.Batch{b}, r[:]); err != nil || r[0].Err != nil {
			t.Fatal(err, r[0].Err)
		}
		return
	}
	t.Fatalf("%s has no part of kind %02x", key, byte(kind))
}

// Views that do not add up are found in a directory and in a server that serves it, and
// are repaired, or it is said that they can't be.
func TestViewDrift(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	conf := writeFile(t, "definitions:\n  - {pattern: 'v*', windows: [{every: 1h, keep: 30d}, {every: 1d, keep: 50y}], dimensions: [{by: country, windows: []}], ledger: all}\n")
	serve := func() *process {
		return start(t, nil, "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--data", dir, "--config", conf)
	}
	f := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		r := command(t, args...)
		if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
			t.Errorf("quipu %q: %+v; want exit %d, %q, %q", args, r, code, stdout, stderr)
		}
	}
	p := serve()
	for _, key := range []string{"v1", "v2"} {
		p.client()("add", key, "5", "--dim", "country=DE")
	}
	f(0, "ok: ", "", "verify", "--addr", p.url)
	p.signal(syscall.SIGTERM)
	f(0, "ok: ", "", "verify", "--data", dir)

	damage(t, dir, "v1", store.PartDim)
	const drift = `drift: counter "v1" of namespace "default": dimension country, and what is outside of it: the total: have 6, want 5` + "\n"
	f(1, drift, "", "verify", "--data", dir)
	p = serve()
	f(1, drift, "", "verify", "--addr", p.url)
	f(1, `"drift":[{"what":"counter \"v1\" of`, "", "verify", "--addr", p.url, "--json")
	if _, body := httpGet(t.Context(), t, p.url+"/metrics"); !strings.Contains(body, "\nquipu_verify_drift 1\n") {
		t.Errorf("the metrics do not tell: %s", body)
	}
	f(0, "dimension country: -1 more are outside of it\n5, was 5\n", "", "recount", "v1", "--reason", "a flipped bit", "--addr", p.url)
	f(0, "recount: a flipped bit", "", "ledger", "v1", "--addr", p.url)
	f(0, "all adds up to 5\n", "", "recount", "v1", "--reason", "again", "--addr", p.url)
	f(0, "ok: ", "", "verify", "--addr", p.url)
	if _, body := httpGet(t.Context(), t, p.url+"/metrics"); !strings.Contains(body, "\nquipu_verify_drift 0\n") {
		t.Errorf("the metrics still tell: %s", body)
	}
	p.signal(syscall.SIGTERM)
	if log := p.stderr.String(); !strings.Contains(log, "verify found differences") {
		t.Errorf("the log does not tell: %s", log)
	}

	damage(t, dir, "v2", store.PartWindow)
	const differ = `counter "v2" of namespace "default": windows of 1h in the window from `
	f(1, differ, "", "verify", "--data", dir)
	p = serve()
	for range 2 { // The first puts aside what differs from the total. What differs from each other stays.
		f(1, "", "quipu: left unchanged: windows of 1h in the window from ", "recount", "v2", "--reason", "a flipped bit", "--addr", p.url)
	}
	f(1, `"left":["windows of 1h`, "the counter does not add up", "recount", "v2", "--reason", "a flipped bit", "--addr", p.url, "--json")
	f(1, differ, "", "verify", "--addr", p.url)
	p.signal(syscall.SIGTERM)
}

// What SQL adds is outside of all views. Rows that somebody has changed by hand differ from
// the record of what was applied until they are changed back; a recount is one change more.
func TestChangesBySQL(t *testing.T) {
	pg := startPostgres(t)
	p := start(t, nil, "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--store", pg.URL(), "--config", writeFile(t, visits))
	f := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
			t.Errorf("quipu %q: %+v; want exit %d, %q, %q", args, r, code, stdout, stderr)
		}
	}
	change := func(n string) {
		t.Helper()
		if got := sql(t, pg, "update quipu.cells set value = value + "+n+" where key = 'v1' returning 'done'"); !strings.Contains(got, "done") {
			t.Fatalf("changed %q", got)
		}
	}
	f(0, "5\n", "", "add", "v1", "5", "--dim", "country=DE")
	sql(t, pg, "select quipu.add('v1', 3)::text")
	f(0, "8\n", "", "get", "v1", "--exact")
	f(0, "sum\t5\n", "the counter has 3 more, which no value counts: it was set, counted before the dimension was defined, or added by SQL\n", "by", "v1", "country")
	f(0, "sum\t5\n", "", "range", "v1")
	f(0, "ok: ", "", "verify")

	const differs = `counter "v1" of namespace "default": windows of 1d, and what is outside of it: the total: have 8, want 15`
	change("7")
	f(1, differs, "", "verify")
	change("-7")
	f(0, "ok: ", "", "verify")
	change("7")
	f(0, "the total was 15, and is 8\n", "", "recount", "v1", "--reason", "a test")
	if r := command(t, "verify", "--addr", p.url); r.code != 1 || strings.Contains(r.stdout, "counter") {
		t.Errorf("after the recount: %+v", r)
	}
	p.signal(syscall.SIGTERM)
}
