package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	boundedAbout = "Stock that never falls below 0: `DECR` of one hot counter whose definition has a floor, over RESP at depth 16 on 50 connections, embedded, durable, " +
		"against `INCR` of one hot counter without a definition, likewise. There is always enough of it; what a server does that is asked for stock that is gone is there for scale. " +
		"CPU time is the server's."
	postgresBoundedAbout = "One hot item in PostgreSQL, sold one by one, acknowledged after the commit with synchronous_commit on: three Quipu nodes, `DECR` of a counter whose definition has " +
		"a floor, over RESP at depth 16 on 64 connections in all, against pgbench with 64 clients that make `UPDATE … SET n = n - 1 WHERE id = 1 AND n >= 1`. The same at depth 1, where each " +
		"caller waits for its reply, without tokens and with a token for each unit, is there for scale. Afterwards what is left is what was there, less what was sold. CPU time is PostgreSQL's."
)

// Sides of the figures of bounds.
const (
	plainIncr   = "INCR"
	boundedDecr = "DECR with a floor"
	soldOut     = "DECR, sold out"
	byRow       = "UPDATE of one row"
	atDepthOne  = "quipu, depth 1"
	withTokens  = "quipu, depth 1, with tokens"

	stockKey      = "stock:lamp"
	goneKey       = "stock:gone"
	stockAtFirst  = int64(1_000_000_000_000)
	boundedConfig = "definitions:\n- {pattern: \"stock:*\", floor: 0}\n"

	boundedServers = 3
	boundedCallers = 64
)

// boundedConfigFile writes the configuration of the servers.
func (s *session) boundedConfigFile() (string, error) {
	file := filepath.Join(s.dir, "bounded.yaml")
	return file, os.WriteFile(file, []byte(boundedConfig), 0o600)
}

// bounded measures what a floor costs an embedded server.
func bounded(s *session) (err error) {
	d := pick(s, 5*time.Second, 300*time.Millisecond)
	config, err := s.boundedConfigFile()
	if err != nil {
		return err
	}
	server, err := s.serveQuipu(filepath.Join(s.dir, "data"), "--config", config, "--http", "off", "--rpc", "off", "--resp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	c := &seller{session: s, servers: nodes{server}, cpu: func() (time.Duration, error) { return cpuTime(server.pid()) }}
	if err := c.once(fmt.Sprintf("SET %s %d", stockKey, stockAtFirst), "+OK"); err != nil {
		return err
	}
	err = s.alternate(
		func() error { return c.drive(plainIncr, peersConnections, storeDepth, "INCR plain", ':', d) },
		func() error { return c.drive(boundedDecr, peersConnections, storeDepth, "DECR "+stockKey, ':', d) },
		func() error { return c.drive(soldOut, peersConnections, storeDepth, "DECR "+goneKey, '-', d) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of INCR", s.over(boundedDecr, plainIncr, rate), 0.7)
	s.over(boundedDecr, plainIncr, cpuNS)
	s.over(soldOut, plainIncr, rate)
	return c.left()
}

// postgresBounded measures one hot item over PostgreSQL.
func postgresBounded(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	config, err := s.boundedConfigFile()
	if err != nil {
		return err
	}
	var servers nodes
	defer func() { err = errors.Join(err, servers.stop()) }()
	for range boundedServers {
		server, err := s.serveQuipu("", "--store", pg.URL(), "--config", config, "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "off")
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	s.note("%s, default settings, over a Unix socket.", pg.Version)
	const script = "UPDATE counters SET n = n - 1 WHERE id = 1 AND n >= 1;\n"
	if _, err := pg.Run(s.ctx, "psql", "-v", "ON_ERROR_STOP=1", "-c", fmt.Sprintf("UPDATE counters SET n = %d WHERE id = 1", stockAtFirst), pg.URL()); err != nil {
		return err
	}
	if err := os.WriteFile(pg.Path("script"), []byte(script), 0o644); err != nil {
		return err
	}
	c := &seller{session: s, servers: servers, cpu: func() (time.Duration, error) { return cpuTimeOfAll(pg.PID) }}
	if err := c.once(fmt.Sprintf("SET %s %d", stockKey, stockAtFirst), "+OK"); err != nil {
		return err
	}
	err = s.alternate(
		func() error { return c.drive("quipu", boundedCallers, storeDepth, "DECR "+stockKey, ':', d) },
		func() error { return s.drivePostgres(byRow, pg, pgLoad{rows: 1, connections: boundedCallers}, d) },
		func() error {
			return c.drive(withTokens, boundedCallers, 1, "Q.ADD "+stockKey+" -1 ID TOKEN", ':', d)
		},
		func() error { return c.drive(atDepthOne, boundedCallers, 1, "DECR "+stockKey, ':', d) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of one row", s.over("quipu", byRow, rate), 10)
	s.over("quipu", byRow, cpuNS)
	s.over(atDepthOne, byRow, rate)
	s.over(withTokens, byRow, rate)
	return c.left()
}

// A seller takes from a counter, and knows how often it has.
type seller struct {
	*session
	servers nodes
	cpu     func() (time.Duration, error)
	sold    int64
	token   int64
}

// drive lets callers send a command over and over, at a depth, and checks what each reply
// begins with. TOKEN in a command is another one each time.
func (c *seller) drive(side string, callers, depth int, command string, want byte, d time.Duration) error {
	before, after, tokened := strings.Cut(command, "TOKEN")
	c.token++
	run, sent := c.token, make([]int, callers)
	n, err := c.pipelined(side, pipelines{
		servers: c.servers.resp(), callers: callers, depth: depth, want: want, cpu: c.cpu, time: d,
		next: func(dst []byte, caller int) []byte {
			dst = append(dst, before...)
			if tokened {
				sent[caller]++
				dst = append(fmt.Appendf(dst, "%d-%d-%d", run, caller, sent[caller]), after...)
			}
			return append(dst, "\r\n"...)
		},
	})
	if strings.Contains(command, stockKey) {
		c.sold += int64(n)
	}
	return err
}

// left returns an error if what is left is not what was there, less what was sold.
func (c *seller) left() error {
	return c.once("INCRBY "+stockKey+" 0", fmt.Sprintf(":%d", stockAtFirst-c.sold))
}

// once sends one command to the first server.
func (c *seller) once(command, want string) error {
	reply, err := ask(c.ctx, c.servers[0].doors["resp"], command)
	if err == nil && reply != want {
		err = fmt.Errorf("%s: %q, want %q", command, reply, want)
	}
	return err
}
