package main

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/quipudb/quipu/internal/serving"
)

// buildQuipu builds the command in dir, as the module of the product pins what it is
// made of, and returns its path.
func buildQuipu(ctx context.Context, dir string) (string, error) {
	return serving.Build(ctx, "..", dir)
}

// A quipuServer is a quipu process that serves.
type quipuServer struct {
	process *serving.Process
	doors   map[string]string // their addresses
}

// serveQuipu serves the store in a directory, which may be new; "" if the flags name
// another store.
func serveQuipu(ctx context.Context, command, data string, flags ...string) (*quipuServer, error) {
	args := append([]string{"serve", "--log-level", "warn"}, flags...)
	if data != "" {
		args = append(args, "--data", data)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command, args...)
	cmd.Stderr = os.Stderr
	p, err := serving.Start(cmd)
	if err != nil {
		return nil, err
	}
	doors, err := p.Ready(ctx)
	if err != nil {
		return nil, errors.Join(err, p.Drain())
	}
	return &quipuServer{p, doors}, nil
}

func (s *quipuServer) pid() int { return s.process.Cmd.Process.Pid }

func (s *quipuServer) stop() error { return s.process.Drain() }
