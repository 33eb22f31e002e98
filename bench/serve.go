package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// buildQuipu builds the command in dir, and returns its path.
func buildQuipu(ctx context.Context, dir string) (string, error) {
	command := filepath.Join(dir, "quipu")
	build := exec.CommandContext(ctx, "go", "build", "-o", command, "github.com/quipudb/quipu/cmd/quipu")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build quipu: %w", err)
	}
	return command, nil
}

// A quipuServer is a quipu process that serves.
type quipuServer struct {
	cmd   *exec.Cmd
	doors map[string]string // their addresses
}

// serveQuipu serves the store in a directory, which may be new.
func serveQuipu(ctx context.Context, command, data string, flags ...string) (*quipuServer, error) {
	args := append([]string{"serve", "--data", data, "--log-level", "warn"}, flags...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	s := &quipuServer{cmd: cmd, doors: map[string]string{}}
	line, err := bufio.NewReader(out).ReadString('\n')
	for field := range strings.FieldsSeq(line) {
		if door, addr, ok := strings.Cut(field, "="); ok {
			s.doors[door] = addr
		}
	}
	if len(s.doors) == 0 {
		return nil, errors.Join(fmt.Errorf("serve: no address in %q", line), err, s.stop())
	}
	return s, nil
}

func (s *quipuServer) pid() int { return s.cmd.Process.Pid }

func (s *quipuServer) stop() error {
	return errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait())
}
