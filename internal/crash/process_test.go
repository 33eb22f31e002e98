package crash

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/serving"
)

// patience is how long anything may take that is not meant to be killed.
const patience = time.Minute

// build builds the command under test, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	binary, err := serving.Build(t.Context(), ".", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// environment closes the doors that a test does not name.
func environment() []string { return serving.Environment("QUIPU_RESP=off", "QUIPU_RPC=off") }

// command runs a command to its end; it must succeed.
func command(t *testing.T, binary string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Env = environment()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("quipu %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// launch starts a server, and does not wait until it is ready. The end of the
// test kills it.
func launch(t *testing.T, binary string, args ...string) *serving.Process {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"serve"}, args...)...)
	cmd.Env = environment()
	p, err := serving.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// ready waits until a server is ready, and returns the address of its only door.
func ready(ctx context.Context, p *serving.Process) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	doors, err := p.Ready(ctx)
	if err != nil {
		return "", err
	}
	for _, addr := range doors {
		if len(doors) == 1 {
			return addr, nil
		}
	}
	return "", fmt.Errorf("doors %v: want one", doors)
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
