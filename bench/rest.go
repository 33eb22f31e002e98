package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/quipudb/quipu/internal/load"
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
	server, err := s.serveQuipu(filepath.Join(s.dir, "quipu-data"),
		"--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	updates := pgLoad{rows: restCounters, connections: restConnections}
	if _, err := pg.bench(s.ctx, updates, time.Second); err != nil { // not counted
		return err
	}
	s.note("%s, default settings, over a Unix socket; Quipu over TCP on the loopback, default settings.", pg.Version)
	err = s.alternate(
		func() error {
			r, err := generate(s.ctx, load.Config{
				Target: "http://" + server.doors["http"], Op: load.Incr, Dist: load.Uniform, Keys: restCounters,
				Connections: restConnections, Depth: 1, Duration: d, Warmup: d / 10, ServerPID: server.pid(),
			})
			if err != nil {
				return err
			}
			s.record("quipu", rate, r.Rate)
			s.record("quipu", cpuNS, r.Server.CPUNSPerOp)
			return nil
		},
		func() error { return s.drivePostgres("postgresql", pg, updates, d) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of PostgreSQL", s.over("quipu", "postgresql", rate), 2.5)
	return nil
}

// generate runs a load that must not fail.
func generate(ctx context.Context, c load.Config) (*load.Report, error) {
	r, err := load.Run(ctx, c, nil)
	switch {
	case err != nil:
		return nil, err
	case r.Errors > 0:
		return nil, fmt.Errorf("%s replied %d errors, the first: %s", c.Target, r.Errors, r.FirstError)
	case r.Server == nil || r.Client == nil:
		return nil, errors.New("no CPU time of the client, or of process " + strconv.Itoa(c.ServerPID))
	}
	return r, ctx.Err()
}
