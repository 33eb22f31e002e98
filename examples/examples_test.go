// Package examples runs the programs in its folders as README.md shows them.
package examples

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/rpc"
	"github.com/quipudb/quipu/store/memstore"
)

// names are the folders with a program.
var names = []string{"api", "flashsale", "leaderboard", "likes", "llmquota", "views"}

// build builds all programs, stripped to be linked sooner, and returns where they are.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", dir, "./...")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return dir
}

// A step is a command that the page shows, and what it shows as its output.
type step struct {
	line          int
	command, want string
}

func steps(t *testing.T) (all []step) {
	t.Helper()
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for i, line := range strings.Split(string(raw), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			all = append(all, step{line: i + 1, command: line[2:]})
		default:
			all[len(all)-1].want += line + "\n"
		}
	}
	return all
}

// matches reports whether got is what is shown, where … stands for anything.
func (s step) matches(got string) bool {
	parts := strings.Split(s.want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`^(?s:` + strings.Join(parts, ".*") + `)$`).MatchString(got)
}

// start starts a service on a free port, and returns its address when it listens.
func start(t *testing.T, program string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, program, "-http", "127.0.0.1:0")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it removes its directory
	c.WaitDelay = 10 * time.Second
	c.Stderr = os.Stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("%s says %q, %v", program, line, err)
	}
	t.Cleanup(func() {
		cancel()
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ends with %d", program, code)
		}
	})
	return address
}

// Every program does what the page shows.
func TestExamples(t *testing.T) {
	dir, seen, ports := build(t), map[string]bool{}, map[string]string{}
	for _, s := range steps(t) {
		if name, ok := strings.CutPrefix(s.command, "go run ./examples/"); ok {
			name, service := strings.CutSuffix(name, " &")
			seen[name] = true
			if service {
				shown := strings.TrimSpace(strings.TrimPrefix(s.want, "listening on "))
				ports[shown] = start(t, filepath.Join(dir, name))
				continue
			}
		}
		command := strings.ReplaceAll(s.command, "go run ./examples/", dir+"/")
		for shown, address := range ports {
			command = strings.ReplaceAll(command, shown, address)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
		cancel()
		if err != nil || !s.matches(string(got)) {
			t.Errorf("README.md:%d: $ %s\ngot  %swant %s(%v)", s.line, s.command, got, s.want, err)
		}
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("README.md does not show %s", name)
		}
	}
	if found, err := filepath.Glob("*/main.go"); err != nil || len(found) != len(names) {
		t.Errorf("programs %q, %v, want %q", found, err, names)
	}
	remote(t, filepath.Join(dir, "flashsale"))
}

// remote has the sale take place in a server.
func remote(t *testing.T, program string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	door := rpc.New(db, rpc.Options{Logger: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	out, err := exec.CommandContext(t.Context(), program, "-rpc", l.Addr().String()).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "100 sold, ") {
		t.Errorf("over the client: %s, %v", out, err)
	}
	_ = door.Close()
	<-served
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
