package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/load/proc"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

// A peer is a server that speaks RESP. Out of its turn it does not run.
type peer struct {
	name    string
	program string // of which there may be several
	port    string
	pid     int
	end     func() error
	launch  func(dir string) (*peer, error) // starts another one, with files of its own
}

func (p *peer) addr() string { return net.JoinHostPort("127.0.0.1", p.port) }

// awake lets the server run while f does, once it has done what it put off.
func (p *peer) awake(ctx context.Context, f func() error) error {
	if err := syscall.Kill(p.pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("wake %s: %w", p.name, err)
	}
	err := p.settle(ctx)
	if err == nil {
		err = f()
	}
	return errors.Join(err, syscall.Kill(p.pid, syscall.SIGSTOP))
}

// settle waits until the server hardly uses the CPU, for at most 3 s.
func (p *peer) settle(ctx context.Context) error {
	for range 30 {
		m := proc.NewMeter(p.pid)
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if used, err := m.Read(); err != nil || used <= 10*time.Millisecond {
			return err
		}
	}
	return nil
}

// get returns the value of a counter.
func (p *peer) get(ctx context.Context, key string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr())
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := fmt.Fprintf(c, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key); err != nil {
		return 0, err
	}
	in := bufio.NewReader(c)
	length, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(length, "$") {
		return 0, fmt.Errorf("get %s of %s: %q, %w", key, p.name, length, err)
	}
	value, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(value))
}

// start starts the sides.
func (p *peers) start(names []string) error {
	for _, name := range names {
		var launch func(dir string) (*peer, error)
		switch name {
		case bareLoop:
			p.note("`%s`: [bare](../bare).", name)
			launch = p.launchBare
		case redisOff:
			launch = p.launchRedis(name, "--appendonly", "no")
		case redisEverysec:
			launch = p.launchRedis(name, "--appendonly", "yes", "--appendfsync", "everysec")
		case redisAlways:
			launch = p.launchRedis(name, "--appendonly", "yes", "--appendfsync", "always")
		case quipuSynced:
			launch = p.launchQuipu(name, "")
		case quipuWritten:
			launch = p.launchQuipu(name, `policies: [{pattern: "*", durability: written}]`)
		case postgreSQL:
			var err error
			if p.pg, err = startPostgres(p.ctx, p.dir); err != nil {
				return err
			}
			p.note("`%s`: %s, default settings, over a Unix socket.", postgreSQL, p.pg.Version)
			continue
		}
		if err := p.add(name, launch); err != nil {
			return err
		}
	}
	return nil
}

// add starts a server, and stops it until its turn.
func (p *peers) add(name string, launch func(dir string) (*peer, error)) error {
	dir := filepath.Join(p.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	to, err := launch(dir)
	if err != nil {
		return err
	}
	to.launch = launch
	p.sides = append(p.sides, to)
	return syscall.Kill(to.pid, syscall.SIGSTOP)
}

func (p *peers) launchBare(dir string) (*peer, error) {
	c, serves, err := startChild[bareServes](context.WithoutCancel(p.ctx), "bare", bareArgs{dir})
	if err != nil {
		return nil, err
	}
	return &peer{
		name: bareLoop, program: "bare", port: strconv.Itoa(serves.Port), pid: c.cmd.Process.Pid,
		end: func() error { return c.stop(ended) },
	}, nil
}

func (p *peers) launchRedis(name string, settings ...string) func(dir string) (*peer, error) {
	return func(dir string) (*peer, error) {
		s, err := redisproc.Start(p.ctx, dir, settings...)
		if err != nil {
			return nil, err
		}
		p.note("`%s`: `redis-server --save '' %s`; %s.", name, strings.Join(settings, " "), s.Version)
		return &peer{name: name, program: "redis-server", port: s.Port, pid: s.PID(), end: s.Stop}, nil
	}
}

func (p *peers) launchQuipu(name, policy string) func(dir string) (*peer, error) {
	return func(dir string) (*peer, error) {
		flags := []string{"--http", "off", "--resp", "127.0.0.1:0", "--rpc", "off"}
		shown := strings.Join(flags, " ")
		if policy != "" {
			file := filepath.Join(dir, "quipu.yaml")
			if err := os.WriteFile(file, []byte(policy+"\n"), 0o600); err != nil {
				return nil, err
			}
			flags = append(flags, "--config", file)
			shown += " --config FILE` with `" + policy
		}
		s, err := p.serveQuipu(filepath.Join(dir, "data"), flags...)
		if err != nil {
			return nil, err
		}
		p.note("`%s`: `quipu serve %s`.", name, shown)
		_, port, err := net.SplitHostPort(s.doors["resp"])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s has no RESP door: %w", name, err), s.stop())
		}
		return &peer{name: name, program: "quipu", port: port, pid: s.pid(), end: s.stop}, nil
	}
}

// stop ends all servers.
func (p *peers) stop() (err error) {
	for _, to := range p.sides {
		err = errors.Join(err, syscall.Kill(to.pid, syscall.SIGCONT), to.end())
	}
	if p.pg != nil {
		err = errors.Join(err, p.pg.Stop())
	}
	return err
}
