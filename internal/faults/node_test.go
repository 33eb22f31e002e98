package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/serving"
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
	binary, err := serving.Build(context.Background(), filepath.Join("..", ".."), dir) // the module it is of
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return binary, nil
})

// A node is a server that shares its store with others. It lives more than once,
// always at the same addresses.
type node struct {
	name            string
	http, resp, rpc string   // addresses
	ways            []*proxy // to its store
	args            []string
	process         *serving.Process
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
			log := n.process.Log.Bytes()
			t.Logf("the log of node %s ends with:\n%s", n.name, log[max(0, len(log)-4000):])
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
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, n.args...)
	cmd.Env = serving.Environment()
	p, err := serving.Start(cmd)
	if err != nil {
		return err
	}
	n.process = p
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := n.process.Ready(ctx); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
}

// kill ends the node with SIGKILL, if it still runs.
func (n *node) kill() { n.process.Kill() }

// alive returns an error if the node ended by itself.
func (n *node) alive() error {
	if err := n.process.Died(); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
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
