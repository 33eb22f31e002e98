// Package pgtest starts PostgreSQL servers for tests and benchmarks: real ones,
// on files of their own, that listen on a Unix socket only.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Server is a PostgreSQL server. It is not safe for concurrent use.
type Server struct {
	Version string
	PID     int

	bin      string // where its commands are
	dir      string // where its files are
	settings []string
	runner   *syscall.Credential // who runs the server; nil is who runs us
	process  process
}

// User is the superuser, and who runs the server: it refuses to be run by root.
const User = "postgres"

// Start starts a server on new files below dir, with default settings but for
// those given, such as "fsync=off".
func Start(ctx context.Context, dir string, settings ...string) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: filepath.Join(dir, "pg"), settings: settings}
	if err := s.makeDir(dir); err != nil {
		return nil, err
	}
	if s.Version, err = s.Run(ctx, "postgres", "--version"); err != nil {
		return nil, err
	}
	if _, err := s.Run(ctx, "initdb", "-D", s.Path("data"), "-A", "trust", "-U", User, "-N", "--locale=C", "-E", "UTF8"); err != nil {
		return nil, err
	}
	return s, s.Restart(ctx)
}

// Standby starts a server that follows this one, on new files below dir, with the
// settings given.
func (s *Server) Standby(ctx context.Context, dir string, settings ...string) (*Server, error) {
	f := &Server{Version: s.Version, bin: s.bin, dir: filepath.Join(dir, "pg"), settings: settings}
	if err := f.makeDir(dir); err != nil {
		return nil, err
	}
	if _, err := f.Run(ctx, "pg_basebackup", "-D", f.Path("data"), "-h", s.dir, "-p", port, "-U", User, "-R", "--checkpoint=fast"); err != nil {
		return nil, err
	}
	return f, f.Restart(ctx)
}

// Promote makes a standby a primary, and waits until it is one.
func (s *Server) Promote(ctx context.Context) error {
	_, err := s.Run(ctx, "pg_ctl", "promote", "-w", "-D", s.Path("data"))
	return err
}

// find returns the directory of PostgreSQL's commands. Debian keeps those of
// each version in a directory of its own, and few of them in the path.
func find() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("find PostgreSQL: %w: is it installed?", err)
	}
	return filepath.Dir(path), nil
}

// Path returns the path of a file beside the server's own.
func (s *Server) Path(name string) string { return filepath.Join(s.dir, name) }

// Dir returns the directory of the server's socket.
func (s *Server) Dir() string { return s.dir }

// port names the server's socket.
const port = "5432"

// URL returns where clients find the server.
func (s *Server) URL() string { return s.socket(port) }

func (s *Server) socket(port string) string {
	return "postgres:///postgres?" + url.Values{"host": {s.dir}, "port": {port}, "user": {User}}.Encode()
}

// makeDir makes the directory, and gives it to who runs the server.
func (s *Server) makeDir(parent string) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil || os.Geteuid() != 0 {
		return err
	}
	u, err := user.Lookup(User)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	s.runner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(os.Chmod(parent, 0o755), os.Chown(s.dir, int(uid), int(gid)))
}

// Run runs a command of PostgreSQL and returns what it printed.
func (s *Server) Run(ctx context.Context, name string, args ...string) (string, error) {
	return s.command(ctx, filepath.Join(s.bin, name), args...)
}

func (s *Server) command(ctx context.Context, path string, args ...string) (string, error) {
	out, err := s.cmd(ctx, path, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", filepath.Base(path), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// cmd returns a command that is run by who runs the server.
func (s *Server) cmd(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.runner}
	return cmd
}

// Restart starts the server on its files, after Stop or after Kill, and waits
// until it answers.
func (s *Server) Restart(ctx context.Context) error {
	args := []string{"-D", s.Path("data"), "-k", s.dir, "-c", "listen_addresses="}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	p, err := s.launch(ctx, port, filepath.Join(s.bin, "postgres"), args...)
	s.process, s.PID = p, p.pid
	return err
}

// A process is one that we have started.
type process struct {
	pid   int
	ended chan struct{} // closed when it has
}

// launch starts a server, and waits until it answers on a port.
func (s *Server) launch(ctx context.Context, port, path string, args ...string) (p process, err error) {
	name := s.Path(filepath.Base(path) + ".log")
	log, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return p, err
	}
	defer func() { _ = log.Close() }()
	// It outlives the context of its start.
	cmd := s.cmd(context.WithoutCancel(ctx), path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Setpgid = true // what stops it must not stop us
	if err := cmd.Start(); err != nil {
		return p, err
	}
	p = process{cmd.Process.Pid, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // it says in its log how it ended
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = s.Run(ctx, "pg_isready", "-q", "-h", s.dir, "-p", port); err == nil {
			return p, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return p, errors.Join(err, p.stop(syscall.SIGINT))
		case <-p.ended:
			text, _ := os.ReadFile(name)
			return p, fmt.Errorf("start %s:\n%s", path, text[max(0, len(text)-2000):])
		}
	}
}

// stop sends a signal to the process, and waits until it has ended.
func (p process) stop(signal syscall.Signal) error {
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	<-p.ended
	return nil
}

// Stop stops the server, and waits until it has ended.
func (s *Server) Stop() error { return s.process.stop(syscall.SIGINT) }

// Kill ends all processes of the server at once, as a crash would, and waits
// until they are gone.
func (s *Server) Kill(ctx context.Context) error {
	if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil { // so that it starts no more
		return err
	}
	all := children(s.PID)
	for _, pid := range all {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	if err := s.process.stop(syscall.SIGKILL); err != nil {
		return err
	}
	for _, pid := range all {
		if err := gone(ctx, pid); err != nil {
			return err
		}
	}
	return nil
}

// Suspend makes all processes of the server hang, until Resume.
func (s *Server) Suspend() error { return s.signal(syscall.SIGSTOP) }

// Resume lets them go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// signal sends a signal to all processes of the server, first to the one that starts
// the others.
func (s *Server) signal(signal syscall.Signal) error {
	if err := syscall.Kill(s.PID, signal); err != nil {
		return err
	}
	for _, pid := range children(s.PID) {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// children returns the processes that a process has started.
func children(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// gone waits until a process has ended. It need not be a child of ours, so there
// is nothing to wait on but its name.
func gone(ctx context.Context, pid int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil
		}
		if fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])); fields[0] == "Z" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d: %w", pid, ctx.Err())
		}
	}
}
