// Package redisproc starts Redis servers, for tests and figures that need a
// real one beside ours.
package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// A Server is a redis-server of our own, on the loopback.
type Server struct {
	Addr    string // HOST:PORT
	Port    string
	Version string
	path    string
	args    []string
	cmd     *exec.Cmd
	read    chan struct{} // closed when its output has ended
}

// Start starts a server that keeps its files in dir, and returns when it
// serves. It saves no snapshots; more settings are given as on its command
// line. It must be stopped.
func Start(ctx context.Context, dir string, settings ...string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, dir, port, settings...)
}

// start starts a server on a port.
func start(ctx context.Context, dir, port string, settings ...string) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("find redis-server: %w: install it, on Debian the package redis-server", err)
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("run redis-server: %w", err)
	}
	s := &Server{
		Addr: net.JoinHostPort("127.0.0.1", port), Port: port, Version: strings.TrimSpace(string(version)), path: path,
		args: append([]string{
			"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--daemonize", "no", "--logfile", "",
		}, settings...),
	}
	return s, s.Restart(ctx)
}

// Restart starts a server that was stopped or killed again, where it was, and
// returns when it serves.
func (s *Server) Restart(ctx context.Context) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.path, s.args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.cmd, s.read = cmd, make(chan struct{})
	in := bufio.NewReader(out)
	var log strings.Builder
	for !strings.Contains(log.String(), "Ready to accept connections") {
		line, err := in.ReadString('\n')
		log.WriteString(line)
		if err != nil {
			return errors.Join(fmt.Errorf("start redis-server: it said:\n%s", log.String()), cmd.Wait())
		}
	}
	go func() {
		defer close(s.read)
		_, _ = io.Copy(io.Discard, in)
	}()
	return nil
}

// freePort returns a port that was free a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return strconv.Itoa(port), l.Close()
}

// PID returns the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop ends the server.
func (s *Server) Stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.read
	return errors.Join(err, s.cmd.Wait())
}

// Kill ends the server at once: it can write nothing more.
func (s *Server) Kill() error {
	err := s.cmd.Process.Kill()
	<-s.read
	_ = s.cmd.Wait() // it tells that it was killed
	return err
}

// Command sends a command by redis-cli, and returns what it prints.
func (s *Server) Command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-e", "-p", s.Port}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("redis-cli %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Fields returns the fields of all hashes whose names match a pattern, those that
// this server has.
func (s *Server) Fields(ctx context.Context, pattern string) (map[string]bool, error) {
	names, err := s.Command(ctx, "keys", pattern)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]bool)
	for name := range strings.FieldsSeq(names) {
		some, err := s.Command(ctx, "hkeys", name)
		if err != nil {
			return nil, err
		}
		for field := range strings.Lines(some) {
			fields[strings.TrimSpace(field)] = true
		}
	}
	return fields, nil
}
