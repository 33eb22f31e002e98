package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An example is a command that the documentation shows, and what it shows as
// its output.
type example struct {
	line    int
	command string
	want    string
}

// examples returns what stands between the console fences of a page.
func examples(t *testing.T, page string) []example {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	inside := false
	for i, line := range strings.Split(string(raw), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			all = append(all, example{line: i + 1, command: line[2:]})
		case len(all) == 0:
			t.Fatalf("%s:%d: output without a command", page, i+1)
		default:
			all[len(all)-1].want += line + "\n"
		}
	}
	return all
}

// matches reports whether got is what is shown, where … stands for anything.
func (e example) matches(got string) bool {
	parts := strings.Split(e.want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`^(?s:` + strings.Join(parts, ".*") + `)$`).MatchString(got)
}

// Every command that the documentation shows does what is shown.
func TestDocs(t *testing.T) {
	pg := startPostgres(t)
	f := func(page string, least int) {
		t.Helper()
		p := start(t, nil, "--http", "127.0.0.1:0", "--statsd", "127.0.0.1:0")
		_, statsdPort, _ := strings.Cut(p.addrOf("statsd"), ":")
		dir := t.TempDir()
		copyExample(t, filepath.Join("..", "..", "docs", "views.md"), dir)
		all := examples(t, filepath.Join("..", "..", page))
		if len(all) < least {
			t.Errorf("%s: %d examples", page, len(all))
		}
		for _, e := range all {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			command := strings.ReplaceAll(e.command, "http://127.0.0.1:8080", p.url)
			command = strings.ReplaceAll(command, "redis-cli -p 6380", "redis-cli -p "+p.respPort)
			command = strings.ReplaceAll(command, "/dev/udp/127.0.0.1/8125", "/dev/udp/127.0.0.1/"+statsdPort)
			command = strings.ReplaceAll(command, "postgres://app@db/app", pg.URL())
			c := exec.CommandContext(ctx, "sh", "-c", command)
			c.Env = environment("QUIPU_ADDR="+p.url, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
			c.Dir = dir
			got, err := c.CombinedOutput()
			cancel()
			if err != nil || !e.matches(string(got)) {
				t.Errorf("%s:%d: $ %s\ngot  %swant %s(%v)", page, e.line, e.command, got, e.want, err)
			}
		}
	}
	f("README.md", 3)
	f("docs/api.md", 30)
	f("docs/cli.md", 20)
	f("docs/redis.md", 10)
	f("docs/hot.md", 3)
	f("docs/policies.md", 15)
	f("docs/views.md", 12)
	f("docs/decided.md", 5)
	f("docs/tutorial.md", 15)
	f("docs/integrations.md", 8)
	f("docs/security.md", 9)
	f("docs/sketches.md", 12)
	tasks, err := filepath.Glob("../../docs/howto/*.md")
	if err != nil || len(tasks) < 10 {
		t.Errorf("%d pages in docs/howto, %v", len(tasks), err)
	}
	for _, p := range tasks {
		f(filepath.Join("docs", "howto", filepath.Base(p)), 1)
	}
}
