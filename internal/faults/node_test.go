package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// requestTimeout is how long a node may take for a call.
	requestTimeout = 2 * time.Second
	// callMax is when a call that was not answered hangs: far beyond what the
	// node was told.
	callMax = requestTimeout + 10*time.Second
	// patience is how long anything may take that must happen.
	patience = time.Minute
)

// build builds the command under test, and returns its path.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "quipu-faults")
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-o", dir, "./cmd/quipu")
	c.Dir = filepath.Join("..", "..") // the module it is of
	if out, err := c.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return filepath.Join(dir, "quipu"), nil
})

// A node is a server that shares its store with others. It lives more than once,
// always at the same addresses.
type node struct {
	name            string
	http, resp, rpc string   // addresses
	ways            []*proxy // to its store
	args            []string

	cmd    *exec.Cmd
	log    *bytes.Buffer // may be read when exited is closed
	exited chan struct{} // closed when it was waited for
}

// newNode starts a node over the store of a URL, to which some ways lead. The end of the test kills it.
func newNode(t *testing.T, name, store string, ways []*proxy, more ...string) *node {
	t.Helper()
	n := &node{name: name, http: freeAddr(t), resp: freeAddr(t), rpc: freeAddr(t), ways: ways}
	n.args = append([]string{
		"serve", "--store", store, "--http", n.http, "--resp", n.resp, "--rpc", n.rpc,
		"--request-timeout", requestTimeout.String(),
	}, more...)
	if err := n.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("the log of node %s ends with:\n%s", n.name, n.log.Bytes()[max(0, n.log.Len()-4000):])
		}
	})
	return n
}

// freeAddr returns an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start starts the node, and returns when it is ready.
func (n *node) start(ctx context.Context) error {
	binary, err := build()
	if err != nil {
		return err
	}
	n.cmd = exec.CommandContext(context.WithoutCancel(ctx), binary, n.args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "QUIPU_") { // would change its flags
			n.cmd.Env = append(n.cmd.Env, v)
		}
	}
	ready := &firstLine{line: make(chan string, 1)}
	log := new(bytes.Buffer)
	n.log, n.cmd.Stdout, n.cmd.Stderr = log, ready, log
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait() // ProcessState has it
	}(n.cmd, n.exited)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case line := <-ready.line:
		if !strings.HasPrefix(line, "ready ") {
			return fmt.Errorf("node %s: ready line %q", n.name, line)
		}
		return nil
	case <-n.exited:
		return fmt.Errorf("node %s ended before it was ready: %v\n%s", n.name, n.cmd.ProcessState, log)
	case <-timeout.C:
		return fmt.Errorf("node %s is not ready after %v", n.name, patience)
	}
}

// kill ends the node with SIGKILL, if it still runs.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // or it has ended
	<-n.exited
}

// alive returns an error if the node ended by itself.
func (n *node) alive() error {
	select {
	case <-n.exited:
		return fmt.Errorf("node %s ended by itself: %v", n.name, n.cmd.ProcessState)
	default:
		return nil
	}
}

// firstLine is a writer that passes on the first line written to it.
type firstLine struct {
	line chan string // has room for it
	text []byte
}

// Write takes text up to the end of the first line.
func (f *firstLine) Write(b []byte) (int, error) {
	if !bytes.Contains(f.text, []byte("\n")) {
		f.text = append(f.text, b...)
		if line, _, ok := bytes.Cut(f.text, []byte("\n")); ok {
			f.line <- string(line)
		}
	}
	return len(b), nil
}

// pause waits for d, or until done is closed.
func pause(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

// await asks until the answer is yes. What it waits for must come.
func await(ctx context.Context, what string, ask func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !ask() {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: not within %v", what, patience)
		}
		pause(5*time.Millisecond, ctx.Done())
	}
	return nil
}
