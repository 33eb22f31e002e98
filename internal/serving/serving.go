// Package serving runs the command as a process that serves, for tests that kill
// it and benchmarks that measure it. It promises that a process that was started
// can be waited for, and killed more than once.
package serving

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// drainMax is how long a process may take that was asked to end.
const drainMax = time.Minute

// Build builds the command in dir, as the module that has a folder pins what it
// is made of, and returns its path.
func Build(ctx context.Context, folder, dir string) (string, error) {
	binary := filepath.Join(dir, "quipu")
	c := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/quipudb/quipu/cmd/quipu")
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build quipu: %w\n%s", err, out)
	}
	return binary, nil
}

// Environment returns the environment of this process, without what would change
// the flags of the command, and with more.
func Environment(more ...string) (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "QUIPU_") {
			env = append(env, v)
		}
	}
	return append(env, more...)
}

// A Process is a server that was started.
type Process struct {
	Cmd    *exec.Cmd
	Began  time.Time
	Log    bytes.Buffer  // what it wrote to standard error, if Cmd says nothing else; may be read when Exited is closed
	Exited chan struct{} // closed when it was waited for

	stdout firstLine
}

// Start starts a server, and does not wait until it is ready. The process must be
// killed or drained.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Began: time.Now(), Exited: make(chan struct{}), stdout: firstLine{line: make(chan string, 1)}}
	cmd.Stdout = &p.stdout
	if cmd.Stderr == nil {
		cmd.Stderr = &p.Log
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // ProcessState has it
		close(p.Exited)
	}()
	return p, nil
}

// Ready waits for the ready line, and returns the addresses of the doors by their
// names.
func (p *Process) Ready(ctx context.Context) (doors map[string]string, err error) {
	select {
	case line := <-p.stdout.line:
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "ready" {
			return nil, fmt.Errorf("ready line %q", line)
		}
		doors = map[string]string{}
		for _, word := range words[1:] {
			door, addr, _ := strings.Cut(word, "=")
			doors[door] = addr
		}
		return doors, nil
	case <-p.Exited:
		return nil, fmt.Errorf("the server ended before it was ready: %v\n%s", p.Cmd.ProcessState, &p.Log)
	case <-ctx.Done():
		return nil, fmt.Errorf("the server is not ready: %w", ctx.Err())
	}
}

// Kill ends the process with SIGKILL, if it still runs.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // or it has ended
	<-p.Exited
}

// Terminate asks the process to drain.
func (p *Process) Terminate() {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // or it has ended
}

// Drain asks the process to drain, and returns an error if it does not end in
// peace.
func (p *Process) Drain() error {
	p.Terminate()
	timeout := time.NewTimer(drainMax)
	defer timeout.Stop()
	select {
	case <-p.Exited:
	case <-timeout.C:
	}
	p.Kill()
	if !p.Cmd.ProcessState.Success() {
		return fmt.Errorf("SIGTERM: %v\n%s", p.Cmd.ProcessState, &p.Log)
	}
	return nil
}

// Died returns an error if the process has ended.
func (p *Process) Died() error {
	select {
	case <-p.Exited:
		return fmt.Errorf("the server ended by itself: %v\n%s", p.Cmd.ProcessState, &p.Log)
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
