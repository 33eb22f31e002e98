package main

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/quipudb/quipu/internal/serving"
)

// A quipuServer is a quipu process that serves.
type quipuServer struct {
	process *serving.Process
	doors   map[string]string // their addresses
}

// serveQuipu serves the store in a directory, which may be new; "" if the flags name
// another store. The command is built once, as the product's own module pins what it
// is made of.
func (s *session) serveQuipu(data string, flags ...string) (*quipuServer, error) {
	if err := s.build(); err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--log-level", "warn"}, flags...)
	if data != "" {
		args = append(args, "--data", data)
	}
	cmd := exec.CommandContext(context.WithoutCancel(s.ctx), s.binary, args...)
	cmd.Stderr = os.Stderr
	p, err := serving.Start(cmd)
	if err != nil {
		return nil, err
	}
	doors, err := p.Ready(s.ctx)
	if err != nil {
		return nil, errors.Join(err, p.Drain())
	}
	return &quipuServer{p, doors}, nil
}

// build builds the command, if that was not done yet.
func (s *session) build() (err error) {
	if s.binary == "" {
		s.binary, err = serving.Build(s.ctx, "..", s.dir)
	}
	return err
}

func (s *quipuServer) pid() int { return s.process.Cmd.Process.Pid }

func (s *quipuServer) stop() error { return s.process.Drain() }
