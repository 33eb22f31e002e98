package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the command under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quipu-test-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "quipu")
	build := exec.Command("go", "build", "-ldflags", "-s -w -X main.version=v0.0.0-test", "-o", binary, ".") // stripped as make build does
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	return m.Run()
}

// A result is what a command did.
type result struct {
	code           int
	stdout, stderr string
}

// environment returns the tests' own, without what would change the command's
// flags, and with free ports for the doors that a test does not name.
func environment(extra ...string) []string {
	env := []string{"QUIPU_RESP=127.0.0.1:0", "QUIPU_RPC=127.0.0.1:0"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "QUIPU_") {
			env = append(env, v)
		}
	}
	return append(env, extra...)
}

// command runs a command to its end. Arguments that begin with QUIPU_ are put
// into its environment.
func command(t *testing.T, args ...string) result {
	t.Helper()
	env := environment()
	for len(args) > 0 && strings.HasPrefix(args[0], "QUIPU_") {
		env, args = append(env, args[0]), args[1:]
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Env = env
	c.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("quipu %q: %v", args, err)
	}
	return result{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// A process is a server that runs.
type process struct {
	t     *testing.T
	c     *exec.Cmd
	ready string // the ready line
	url   string
	// respPort is that of the RESP door.
	respPort string
	stdout   *bufio.Reader
	stderr   *bytes.Buffer
	ended    chan error
}

// serve starts a server over a memory store on a free port, and waits until it
// is ready. It is killed at the end of the test, if it still runs.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, nil, append([]string{"--store", "memory:", "--http", "127.0.0.1:0"}, args...)...)
}

// start starts a server with exactly these flags.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	c := exec.Command(binary, append([]string{"serve"}, args...)...)
	c.Env = environment(env...)
	c.Dir = t.TempDir()
	p := &process{t: t, c: c, stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = w, p.stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(r)
	go func() { p.ended <- c.Wait() }()
	t.Cleanup(func() {
		if c.Process.Kill() == nil { // it runs: nobody waited
			<-p.ended
		}
		_ = r.Close()
	})
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v\n%s", err, p.stderr)
	}
	p.ready = strings.TrimSuffix(line, "\n")
	if m := regexp.MustCompile(`http=(\S+)`).FindStringSubmatch(p.ready); m != nil {
		p.url = "http://" + m[1]
	}
	if m := regexp.MustCompile(`resp=\S+:(\d+)`).FindStringSubmatch(p.ready); m != nil {
		p.respPort = m[1]
	}
	return p
}

// signal sends a signal, and returns the exit code and the rest of the output.
func (p *process) signal(s syscall.Signal) (code int, rest string) {
	p.t.Helper()
	if err := p.c.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	raw, err := io.ReadAll(p.stdout)
	if err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
	return p.c.ProcessState.ExitCode(), string(raw)
}

// client returns a function that runs a client command on the server and
// returns its trimmed output; the command must succeed.
func (p *process) client() func(args ...string) string {
	return func(args ...string) string {
		p.t.Helper()
		r := command(p.t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != 0 {
			p.t.Fatalf("quipu %q: exit %d: %s", args, r.code, r.stderr)
		}
		return strings.TrimSuffix(r.stdout, "\n")
	}
}

// refused runs a command that must fail with a code, and a text on stderr.
func refused(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	r := command(t, args...)
	if r.code != code || !strings.Contains(r.stderr, text) || r.stdout != "" {
		t.Errorf("quipu %q: exit %d, stdout %q, stderr %q; want exit %d and %q on stderr", args, r.code, r.stdout, r.stderr, code, text)
	}
}

func TestVersion(t *testing.T) {
	want := regexp.MustCompile(`^quipu v0\.0\.0-test, commit .+, go1\..+, \w+/\w+\n$`)
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if r := command(t, args...); r.code != 0 || !want.MatchString(r.stdout) {
			t.Errorf("quipu %q: %+v", args, r)
		}
	}
}

func TestHelp(t *testing.T) {
	commands := []string{"serve", "add", "get", "set", "list", "reset", "delete", "range", "by", "ledger", "adjust", "undo", "recount", "react", "unreact", "reaction", "members", "erase", "lookup", "allow", "settle", "hot", "verify", "backup", "restore", "migrate", "copy", "mirror", "bench", "wal dump", "config check", "policy list", "policy show", "policy explain", "policy set", "policy rm", "policy load", "policy apply", "policy presets", "policy check", "advise", "health", "version", "completion", "man"}
	all := command(t, "--help")
	if all.code != 0 || !strings.Contains(all.stdout, "Exit codes:") {
		t.Errorf("help: %+v", all)
	}
	for _, c := range commands {
		if !strings.Contains(all.stdout, "\n  "+c+" ") {
			t.Errorf("help does not list %s", c)
		}
		r := command(t, append(strings.Fields(c), "--help")...)
		if r.code != 0 || !strings.Contains(r.stdout, "quipu "+c) || c != "version" && !strings.Contains(r.stdout, "Example") {
			t.Errorf("help of %s: %+v", c, r)
		}
	}
}

func TestUsage(t *testing.T) {
	f := func(text string, args ...string) {
		t.Helper()
		refused(t, 2, text, args...)
	}
	f("expected one of")
	f(`"quipu add --help"`, "add")
	f("unexpected argument", "nothing")
	f("unknown flag --nothing", "add", "k", "--nothing")
	f("want an integer", "add", "k", "x")
	f("want an integer", "add", "k", "1.5")
	f("want an integer", "add", "k", "9223372036854775808")
	f("unexpected argument", "add", "k", "1", "2")
	f("usage: quipu undo --reason=STRING --key=KEY <token> [flags]; run", "undo", "k", "t")
	f("--at can't be combined with --exact", "get", "k", "--at", "-1h", "--exact")
	f("expected", "set", "k")
	f("not UTF-8", "get", "\xff")
	f("--key", "lookup", "t")
	f("--out", "backup")
	f(`--addr: "nonsense": want HOST:PORT or a URL`, "get", "k", "--addr", "nonsense")
	f("want HOST:PORT or a URL", "get", "k", "--addr", "ftp://127.0.0.1")
	f("want HOST:PORT or a URL", "get", "k", "--addr", "127.0.0.1:")
	f("want HOST:PORT or a URL", "get", "k", "--addr", "http://")
	f("want HOST:PORT or a URL", "policy", "list", "--addr", "nonsense")
	f("want HOST:PORT or a URL", "QUIPU_ADDR=nonsense", "hot")
	f("want a size", "serve", "--memory", "lots")
	f("error: no command incr: did you mean \"quipu add KEY\"?\n", "incr", "k")
	f("error: no command del: did you mean \"quipu delete KEY\"?\n", "del", "k")
	f("unexpected argument incr", "release", "k", "incr")
	f("--log-level", "serve", "--log-level", "loud")
	f("error: serve: --max-connections: want at least 1\n", "serve", "--store", "memory:", "--max-connections", "0")
	f("error: serve: --max-connections: want at least 1\n", "serve", "--max-connections", "-1")
	f("error: serve: --token-quota: want at least 1\n", "serve", "--token-quota", "0")
	f("error: serve: --redis-replicas: want 0 or more\n", "serve", "--redis-replicas", "-1")
	f("error: serve: --store-connections: want at least 2\n", "serve", "--store-connections", "1")
	f("error: serve: --tls-key: want the private key of --tls-cert\n", "serve", "--tls-cert", "cert.pem")
	f("error: serve: --tls-cert: want the certificate of --tls-key\n", "serve", "--tls-key", "key.pem")
	f(`error: --max-connections: "many": want an integer`, "serve", "--max-connections", "many")
	f("--token-window", "serve", "--store", "memory:", "--token-window", "999us")
	f("without a port", "serve", "--store", "memory:", "--allow-host", "quipu.lan:80")
	f("load TLS certificate", "serve", "--store", "memory:", "--tls-cert", "missing.pem", "--tls-key", "missing.pem")
	f("listen on", "serve", "--store", "memory:", "--http", "nonsense")
	f("--id is empty", "add", "k", "--id", "")
	f("--id is empty", "delete", "k", "--id=")
	f("USER is empty", "react", "k", "", "like")
	f("USER is empty", "unreact", "k", "")
	f("without control characters", "add", "k", "--id", "a\nb")
	f("error: list: --limit: want 1 to 10000\n", "list", "--limit", "-1")
	f("error: list: --limit: want 1 to 10000\n", "list", "--limit", "10001")
	f("API key 1 is empty", "serve", "--store", "memory:", "--api-key", "")
	f("API key 2 is empty", "serve", "--store", "memory:", "--api-key", "a,")
	f("without spaces", "serve", "--store", "memory:", "--api-key", "a b")
	f("QUIPU_API_KEY", "QUIPU_API_KEY=", "serve", "--store", "memory:")
	f("nothing to serve", "serve", "--store", "memory:", "--http", "off", "--resp", "off", "--rpc", "off")
	f("want embedded:, memory:, postgres://", "serve", "--store", "mysql://localhost")
	f("want embedded:, memory:, postgres://", "serve", "--store", "memory")
	f("its directory from --data", "serve", "--store", "embedded:dir")
	f("--store-connections", "serve", "--store", "memory:", "--store-connections", "1")
	f("QUIPU_MEMORY", "QUIPU_MEMORY=lots", "serve")
	f("--memory: want at least 16MiB", "serve", "--memory", "16777215")
}

// A variable that is nearly that of a flag is a mistake, and others are not ours.
func TestMistypedEnvironment(t *testing.T) {
	const text = "quipu: QUIPU_HTTTP is not a setting and was ignored: did you mean QUIPU_HTTP?\n"
	r := command(t, "QUIPU_HTTTP=x", "QUIPU_PORT=tcp://10.0.0.1:8080", "QUIPU_SERVICE_HOST=10.0.0.1", "QUIPU_PORT_8080_TCP_ADDR=10.0.0.1", "version")
	if r.code != 0 || r.stderr != text {
		t.Errorf("version: %+v, want %q", r, text)
	}
}
