package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// A Bouncer is a pgbouncer before a server, in transaction mode: a connection to
// the server is a client's for one transaction only.
type Bouncer struct {
	server  *Server
	process process
}

const bouncerPort = "6432"

// Bounce starts a pgbouncer that has some connections to the server.
func (s *Server) Bounce(ctx context.Context, connections int) (*Bouncer, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		return nil, fmt.Errorf("find pgbouncer: %w: is it installed?", err)
	}
	config := fmt.Sprintf(`[databases]
postgres = host=%[1]s port=%[2]s dbname=postgres user=%[3]s
[pgbouncer]
listen_addr =
listen_port = %[4]s
unix_socket_dir = %[1]s
auth_type = any
pool_mode = transaction
default_pool_size = %[5]d
server_round_robin = 1
`, s.dir, port, User, bouncerPort, connections)
	if err := os.WriteFile(s.Path("bouncer.ini"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, bouncerPort, path, s.Path("bouncer.ini"))
	return &Bouncer{server: s, process: p}, err
}

// URL returns where clients find it.
func (b *Bouncer) URL() string { return b.server.socket(bouncerPort) }

// Stop ends it, and waits until it has ended.
func (b *Bouncer) Stop() error { return b.process.stop(syscall.SIGKILL) }
