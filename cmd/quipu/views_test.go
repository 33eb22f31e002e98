package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	visits     = "definitions:\n  - {pattern: 'v*', windows: [{every: 1d, keep: 50y}], dimensions: [{by: country, limit: 5}], ledger: all}\n"
	moreVisits = "definitions:\n  - {pattern: 'v*', windows: [{every: 1d, keep: 50y}, {every: 1h, keep: 30d}], dimensions: [{by: country, limit: 5}], ledger: all}\n"
)

// A server publishes what its file defines if the store has nothing. Later, only those who
// mean it do.
func TestDefinitionsOfFiles(t *testing.T) {
	data := t.TempDir()
	file := writeFile(t, visits)
	run := func(config string) *process {
		return start(t, nil, "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--data", data, "--config", config)
	}
	f := func(p *process, code int, stdout, stderr string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
			t.Errorf("quipu %q: %+v; want exit %d, %q, %q", args, r, code, stdout, stderr)
		}
	}
	p := run(file)
	f(p, 0, "v1 is counted by book 1", "", "policy", "explain", "v1")
	f(p, 0, "  windows of 1d: complete since 20", "", "policy", "explain", "v1")
	f(p, 0, "w has the defaults", "", "policy", "explain", "w")
	f(p, 0, "definition: {pattern: \"v*\"", "", "policy", "show", "v1")
	f(p, 0, "default: nothing changes", "", "policy", "apply", file)
	f(p, 0, "default: nothing changes", "QUIPU_NAMESPACE is set and was ignored", "QUIPU_NAMESPACE=shop", "policy", "apply", file)
	p.signal(syscall.SIGTERM)

	more := writeFile(t, moreVisits)
	p = run(more)
	f(p, 0, "book 1", "", "policy", "explain", "v1")
	if log := p.stderr.String(); !strings.Contains(log, "the definitions in the store differ from those in the configuration file") || !strings.Contains(log, "windows of 1h begin now") {
		t.Errorf("no warning: %s", log)
	}
	f(p, 0, "default: v*: windows of 1h begin now", "", "policy", "apply", more, "--dry-run")
	f(p, 1, "default: v*: windows of 1h begin now", "nothing was changed", "policy", "apply", more)
	f(p, 0, "book 1", "", "policy", "explain", "v1")
	if err := p.c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		r := command(t, "QUIPU_ADDR="+p.url, "policy", "explain", "v1")
		if strings.Contains(r.stdout, "book 2") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not published: %+v", r)
		}
	}
	f(p, 0, "default: book 3 is in force", "", "policy", "apply", file, "--yes")
	f(p, 1, "", "has no definitions", "policy", "apply", writeFile(t, "http: 127.0.0.1:0\n"))
	f(p, 0, "default: v*: ends", "", "policy", "apply", writeFile(t, "definitions: []\n"), "--yes")
	p.signal(syscall.SIGTERM)
}

// Users are told of all time, of a range, and by a dimension.
func TestUniqueCommand(t *testing.T) {
	file := writeFile(t, "definitions:\n  - pattern: \"u*\"\n    windows: [{every: 1d, keep: 5y}]\n    dimensions: [country]\n    unique: who\n")
	p := start(t, nil, "--store", "memory:", "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--config", file)
	f := func(stdout, hint string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != 0 || r.stdout != stdout || !strings.Contains(r.stderr, hint) {
			t.Errorf("quipu %q: %+v; want %q, and the hint %q", args, r, stdout, hint)
		}
	}
	f("1\n", "", "add", "u1", "--who", "eve", "--dim", "country=DE")
	f("2\n", "", "add", "u1", "--who", "bob", "--dim", "country=DE")
	f("3\n", "", "add", "u1", "--who", "eve")
	f("1\n", "", "add", "u2", "--who", "eve")
	f("2\n", "", "unique", "u1")
	f("DE\t2\n(none)\t1\nall\t2\n", "", "unique", "u1", "--by", "country")
	f("DE\t2\n(other)\t1\nall\t2\n", "", "unique", "u1", "--by", "country", "--top", "1")
	f("only here\t1\nonly there\t0\nboth\t1\nall\t2\n", "", "unique", "u1", "--with", "u2")
	f("0\n", "not complete: earlier windows", "unique", "u1", "--from", "2025-10-01", "--to", "2025-10-04")
	f("0\n", "not complete: no window begins in this range", "unique", "u1", "--from", "2025-10-01T07:00:00Z", "--to", "2025-10-01T09:00:00Z")
	refused(t, 1, "no definition counts the users", "QUIPU_ADDR="+p.url, "unique", "v1")
	p.signal(syscall.SIGTERM)
}

// What a counter has besides its total is shown, and corrected.
func TestViewCommands(t *testing.T) {
	p := start(t, nil, "--store", "memory:", "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--config", writeFile(t, visits))
	f := func(stdout string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != 0 || r.stdout != stdout {
			t.Errorf("quipu %q: %+v; want %q", args, r, stdout)
		}
	}
	f("4\n", "add", "v1", "4", "--at", "2025-10-01T08:00:00Z", "--dim", "country=DE", "--who", "u1", "--id", "t")
	f("6\n", "add", "v1", "2", "--at", "2025-10-03", "--dim", "country=")
	f("2025-10-01  4~ "+strings.Repeat("█", 65)+"\n2025-10-02  0~\n2025-10-03  2~ "+strings.Repeat("█", 32)+"▌\nsum\t6\n",
		"range", "v1", "--from", "2025-10-01", "--to", "2025-10-04")
	f("2025-10-01  0.0000463/s  4~ "+strings.Repeat("█", 52)+"\n2025-10-02          0/s  0~\n2025-10-03  0.0000231/s  2~ "+strings.Repeat("█", 26)+"\nsum\t6\nrate\t0.0000231/s\n",
		"range", "v1", "--from", "2025-10-01", "--to", "2025-10-04", "--rate")
	f("from,to,value,exact,complete,rate\n2025-10-02T00:00:00Z,2025-10-03T00:00:00Z,0,true,false,0\n2025-10-03T00:00:00Z,2025-10-04T00:00:00Z,2,true,false,0.000023148148148148147\n",
		"range", "v1", "--from", "2025-10-02", "--to", "2025-10-04", "--rate", "--csv")
	f("DE      4  "+strings.Repeat("█", 69)+"\n(none)  2  "+strings.Repeat("█", 34)+"▌\nsum\t6\n", "by", "v1", "country")
	f("country,count\nDE,4\n(other),2\n", "by", "v1", "country", "--top", "1", "--csv")
	f("5\n", "adjust", "v1", "-1", "--reason", "bots", "--actor", "ana", "--at", "2025-10-03")
	for range 2 { // The second changes nothing.
		f("-4\n", "undo", "t", "--key", "v1", "--reason", "a test", "--actor", "ana")
	}
	hint := func(text string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != 0 || !strings.Contains(r.stderr, "quipu: "+text) {
			t.Errorf("quipu %q: %+v; want the hint %q", args, r, text)
		}
	}
	hint("the event is late: windows that no longer keep its time leave it out", "add", "v9", "--at", "1971-01-01")
	hint("the write was undone before: nothing changed\n", "undo", "t", "--key", "v1", "--reason", "a test")
	hint("a prefix takes no *\n", "range", "v*", "--prefix")
	hint("no entries\n", "ledger", "v2")
	hint("v1 is not exact: as of 2025-10-02T00:00:00Z, by its windows, which lack events since\n", "get", "v1", "--at", "2025-10-02")
	hint("not complete: earlier windows are not kept", "by", "v1", "country", "--from", "2025-10-01", "--to", "2025-10-04")
	for _, args := range [][]string{{"range", "v1"}, {"range", "v", "--prefix"}, {"by", "v1", "country"}} {
		hint("not complete: no window begins in this range", append(args, "--from", "2025-10-01T07:00:00Z", "--to", "2025-10-01T09:00:00Z")...)
		hint("not complete: no window begins in this range", append(args, "--to", "1971-02-01")...)
		hint("not exact: the range begins or ends within a window; the windows from 2025-10-02T00:00:00Z to 2025-10-04T00:00:00Z are counted\n",
			append(args, "--from", "2025-10-01T07:00:00Z", "--to", "2025-10-04")...)
	}
	f("2025-10-02  0~\n2025-10-03  1~ "+strings.Repeat("█", 65)+"\nsum\t1\n", "range", "v1", "--from", "2025-10-01T07:00:00Z", "--to", "2025-10-04")
	hint("the range is in the future: only events that were sent ahead are counted\n", "range", "v1", "--from", "2099-10-01", "--to", "2099-10-02")
	f("from,to,value,exact,complete\n2025-10-01T00:00:00Z,2025-10-02T00:00:00Z,0,true,false\n", "range", "v1", "--from", "2025-10-01", "--to", "2025-10-02", "--csv")
	f("all adds up to 1\n", "recount", "v1", "--reason", "to be sure")
	r := command(t, "QUIPU_ADDR="+p.url, "ledger", "v1")
	for _, want := range []string{"RECORDED", "undo", "a test", "adjust", "bots", "add (undone)", "u1"} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("ledger: %+v; want %q", r, want)
		}
	}
	if r := command(t, "QUIPU_ADDR="+p.url, "ledger", "v1", "--all", "--limit", "1", "--json"); r.code != 0 || strings.Count(r.stdout, "\n") != 4 || strings.Count(r.stdout, `{"position":`) != 4 {
		t.Errorf("ledger as JSON: %+v", r)
	}
	if r := command(t, "QUIPU_ADDR="+p.url, "ledger", "v1", "--csv", "--actor", "ana"); r.code != 0 || strings.Count(r.stdout, "\n") != 3 || !strings.HasPrefix(r.stdout, "recorded,kind,delta,value,actor,") || strings.Count(r.stdout, ",cli,") != 2 {
		t.Errorf("ledger as CSV: %+v", r)
	}
	f("erased from 1 entries of 1 counters; looked at 6 entries\n", "erase", "u1", "--yes")
	f("9\n", "set", "v8", "9", "--actor", "ana", "--reason", "stocktaking")
	f("9\n", "reset", "v8", "--actor", "bob")
	f("0\n", "delete", "v8", "--reason", "gone & over")
	if r := command(t, "QUIPU_ADDR="+p.url, "ledger", "v8", "--csv"); !strings.Contains(r.stdout, ",ana,stocktaking,") || !strings.Contains(r.stdout, "reset,-9,0,bob,,") || !strings.Contains(r.stdout, ",,gone & over,") {
		t.Errorf("assignments in the ledger: %+v", r)
	}
	addr := "QUIPU_ADDR=" + p.url
	refused(t, 1, "nothing was changed", addr, "erase", "u1")
	refused(t, 2, "want NAME=VALUE", addr, "add", "v1", "--dim", "country")
	refused(t, 2, "want a time such as", addr, "add", "v1", "--at", "soon")
	refused(t, 2, "missing flags: --reason", addr, "adjust", "v1", "1")
	refused(t, 1, "country", addr, "add", "v1", "--dim", "colour=red")
	refused(t, 1, "", addr, "undo", "none", "--key", "v1", "--reason", "again")
	p.signal(syscall.SIGTERM)
}

// The worked example is run by TestDocs; its files are beside the page.
func copyExample(t *testing.T, page, dir string) {
	t.Helper()
	for _, name := range []string{"reviews.csv", "definitions.yaml"} {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(page), "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
