package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
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
		"a floor, over RESP by 64 callers, each of whom waits for its reply, against pgbench with 64 clients that make `UPDATE … SET n = n - 1 WHERE id = 1 AND n >= 1`. The same callers with a token for " +
		"each unit are there for scale, and at depth 16. Afterwards what is left is what was there, less what was sold. CPU time is PostgreSQL's."
)

// Sides of the figures of bounds.
const (
	plainIncr   = "INCR"
	boundedDecr = "DECR with a floor"
	soldOut     = "DECR, sold out"
	byRow       = "UPDATE of one row"
	withTokens  = "quipu, with tokens"
	atDepth     = "quipu, depth 16"

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
		func() error { return c.drive("quipu", boundedCallers, 1, "DECR "+stockKey, ':', d) },
		func() error { return s.drivePostgres(byRow, pg, pgLoad{rows: 1, connections: boundedCallers}, d) },
		func() error {
			return c.drive(withTokens, boundedCallers, 1, "Q.ADD "+stockKey+" -1 ID TOKEN", ':', d)
		},
		func() error { return c.drive(atDepth, boundedCallers, storeDepth, "DECR "+stockKey, ':', d) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of one row", s.over("quipu", byRow, rate), 10)
	s.over("quipu", byRow, cpuNS)
	s.over(withTokens, byRow, rate)
	s.over(atDepth, byRow, rate)
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
func (c *seller) drive(side string, callers, depth int, command string, want byte, d time.Duration) (err error) {
	all := make([]*sellerCaller, callers)
	for i := range all {
		if all[i], err = dialSeller(c.ctx, c.servers[i%len(c.servers)].doors["resp"]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, all[i].Close()) }()
	}
	c.token++
	run := c.token
	op := func(i int) (int, error) {
		return depth, all[i].send(command, depth, want, fmt.Sprintf("%d-%d", run, i))
	}
	warm, _, err := repeat(callers, d/10, op)
	if err != nil {
		return err
	}
	before, err := c.cpu()
	if err != nil {
		return err
	}
	n, took, err := repeat(callers, d, op)
	if err != nil {
		return err
	}
	after, err := c.cpu()
	c.record(side, rate, float64(n)/took.Seconds())
	c.record(side, cpuNS, float64(after-before)/float64(n))
	if strings.Contains(command, stockKey) {
		c.sold += int64(warm + n)
	}
	return err
}

// left returns an error if what is left is not what was there, less what was sold.
func (c *seller) left() error {
	return c.once("INCRBY "+stockKey+" 0", fmt.Sprintf(":%d", stockAtFirst-c.sold))
}

// once sends one command to the first server.
func (c *seller) once(command, want string) error {
	caller, err := dialSeller(c.ctx, c.servers[0].doors["resp"])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(caller, "%s\r\n", command)
	reply := ""
	if err == nil {
		reply, err = caller.in.ReadString('\n')
	}
	if reply = strings.TrimSpace(reply); err == nil && reply != want {
		err = fmt.Errorf("%s: %q, want %q", command, reply, want)
	}
	return errors.Join(err, caller.Close())
}

// A sellerCaller is a connection to the RESP door, with as little around it as can be.
type sellerCaller struct {
	net.Conn
	in   *bufio.Reader
	out  []byte
	sent int
}

func dialSeller(ctx context.Context, addr string) (*sellerCaller, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &sellerCaller{Conn: c, in: bufio.NewReader(c)}, nil
}

// send sends a command some times at once, and reads the replies.
func (c *sellerCaller) send(command string, depth int, want byte, who string) error {
	c.out = c.out[:0]
	before, after, tokened := strings.Cut(command, "TOKEN")
	for range depth {
		c.out = append(c.out, before...)
		if tokened {
			c.sent++
			c.out = append(fmt.Appendf(c.out, "%s-%d", who, c.sent), after...)
		}
		c.out = append(c.out, "\r\n"...)
	}
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	for range depth {
		reply, err := c.in.ReadSlice('\n')
		if err == nil && reply[0] != want {
			err = fmt.Errorf("%s: %q", command, reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
