package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const restAbout = "Durable increments over REST on 64 keep-alive connections, each replied to with the value, against PostgreSQL: " +
	"`UPDATE … SET n = n + 1` by pgbench with prepared statements on 64 connections, synchronous_commit on. Both uniform over 100 counters. " +
	"CPU time is the server's, with PostgreSQL's that of making the connections included; the clients share the machine."

const (
	restConnections = 64
	restCounters    = 100
)

func rest(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	server, err := serveQuipu(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	clients, err := dialAll(s.ctx, server.addr)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range clients {
			_ = c.conn.Close()
		}
	}()
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.stop()) }()
	if _, err := pg.bench(s.ctx, time.Second); err != nil { // not counted
		return err
	}
	s.note("%s, default settings, over a Unix socket; Quipu over TCP on the loopback, default settings.", pg.version)

	requests := make([][]byte, restCounters)
	for i := range requests {
		requests[i] = fmt.Appendf(nil, "POST /api/v1/counters/"+keyFormat+"/increment HTTP/1.1\r\nHost: q\r\nContent-Length: 0\r\n\r\n", i)
	}
	err = s.alternate(
		func() error {
			return s.drive("quipu", workload{
				callers: restConnections, time: d, pid: server.cmd.Process.Pid,
				op: func(c int) (int, error) { return 1, clients[c].call(requests[rand.IntN(restCounters)]) },
			})
		},
		func() error {
			before, err := cpuTimeOfAll(pg.pid)
			if err != nil {
				return err
			}
			r, err := pg.bench(s.ctx, d)
			if err != nil {
				return err
			}
			after, err := cpuTimeOfAll(pg.pid)
			s.record("postgresql", rate, r.rate)
			s.record("postgresql", cpuNS, float64(after-before)/float64(r.transactions))
			return err
		},
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of PostgreSQL", s.over("quipu", "postgresql"), 2.5)
	return nil
}

// A quipuServer is a quipu process that serves.
type quipuServer struct {
	cmd  *exec.Cmd
	addr string
}

// serveQuipu builds the command and serves an empty store with it.
func serveQuipu(ctx context.Context, dir string) (*quipuServer, error) {
	command := filepath.Join(dir, "quipu")
	build := exec.CommandContext(ctx, "go", "build", "-o", command, "github.com/quipudb/quipu/cmd/quipu")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build quipu: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command, "serve", "--data", filepath.Join(dir, "quipu-data"),
		"--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--log-level", "warn")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	s := &quipuServer{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	for field := range strings.FieldsSeq(line) {
		if addr, ok := strings.CutPrefix(field, "http="); ok {
			s.addr = addr
		}
	}
	if s.addr == "" {
		return nil, errors.Join(fmt.Errorf("serve: no address in %q", line), err, s.stop())
	}
	return s, nil
}

func (s *quipuServer) stop() error {
	return errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait())
}

// A restClient is one connection. It knows as much of HTTP as it needs.
type restClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialAll(ctx context.Context, addr string) ([]restClient, error) {
	clients := make([]restClient, restConnections)
	for i := range clients {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		clients[i] = restClient{conn, bufio.NewReader(conn)}
	}
	return clients, nil
}

// call sends a request, and returns an error unless the reply is a success.
func (c *restClient) call(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	status, length, err := c.head()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status[:], []byte("HTTP/1.1 200")) {
		return fmt.Errorf("got %q", status)
	}
	_, err = c.in.Discard(length)
	return err
}

// head reads the head of a reply: the beginning of its first line, and the
// length of the body.
func (c *restClient) head() (status [12]byte, length int, err error) {
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return status, 0, err
		}
		if first {
			copy(status[:], line)
		} else if len(line) <= len("\r\n") {
			return status, length, nil
		} else if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return status, 0, err
			}
		}
	}
}
