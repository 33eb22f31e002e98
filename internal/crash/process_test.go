package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that is not meant to be killed.
const patience = time.Minute

// build builds the command under test, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quipu")
	c := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/quipudb/quipu/cmd/quipu")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// environment returns the test's own, without what would change the command's
// flags.
func environment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "QUIPU_") {
			env = append(env, v)
		}
	}
	return append(env, "QUIPU_RESP=off", "QUIPU_RPC=off")
}

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

// A process is a server that was started.
type process struct {
	cmd    *exec.Cmd
	began  time.Time
	stdout firstLine
	stderr bytes.Buffer  // may be read when exited is closed
	exited chan struct{} // closed when it was waited for
}

// launch starts a server, and does not wait until it is ready. The end of the
// test kills it.
func launch(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{
		cmd: exec.Command(binary, append([]string{"serve"}, args...)...), began: time.Now(),
		stdout: firstLine{line: make(chan string, 1)}, exited: make(chan struct{}),
	}
	p.cmd.Env = environment()
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has it
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// ready waits for the ready line, and returns the address of the only door.
func (p *process) ready() (string, error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case line := <-p.stdout.line:
		door, addr, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(door, "ready ") || strings.Contains(addr, "=") {
			return "", fmt.Errorf("ready line %q", line)
		}
		return addr, nil
	case <-p.exited:
		return "", fmt.Errorf("the server ended before it was ready: %v\n%s", p.cmd.ProcessState, &p.stderr)
	case <-timeout.C:
		return "", errors.New("the server is not ready after a minute")
	}
}

// kill ends the process with SIGKILL, if it still runs.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // or it has ended
	<-p.exited
}

// terminate asks the process to drain.
func (p *process) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // or it has ended
}

// drain asks the process to drain, and returns an error if it does not end in
// peace.
func (p *process) drain() error {
	p.terminate()
	pause(patience, p.exited)
	p.kill()
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("SIGTERM: %v\n%s", p.cmd.ProcessState, &p.stderr)
	}
	return nil
}

// died returns an error if the process ended by itself.
func (p *process) died() error {
	select {
	case <-p.exited:
		return fmt.Errorf("the server ended by itself: %v\n%s", p.cmd.ProcessState, &p.stderr)
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
