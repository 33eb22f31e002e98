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
	"path/filepath"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

const limitAbout = "Decisions of a rate limit over RESP for 100,000 clients, chosen uniformly: `CL.THROTTLE` on an embedded Quipu whose policy for it is `memory`, against GCRA as a Lua script in " +
	"Redis without persistence, called by `EVALSHA`; 50 connections at depth 16. Beside it 50,000 decisions a second are due at fixed times, on 50 connections at depth 1: how long from when one is due " +
	"to its reply; and the same of `INCR`, with durability `memory` and in Redis, which says what the loop itself takes. CPU time is the server's; the clients share the machine."

const (
	limitClients     = 100_000
	limitConnections = 50
	limitDepth       = 16

	dueRate = 50_000

	limitPolicies = `policies: [{pattern: cl.throttle, durability: memory}, {pattern: "key:*", durability: memory}]`

	gcraRedis = "GCRA in Redis"
	dueQuipu  = "quipu at 50,000/s"
)

// gcra is what people run in Redis: it has the theoretical arrival time of each client.
const gcra = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local burst, rate, period = tonumber(ARGV[1]) + 1, tonumber(ARGV[2]), tonumber(ARGV[3]) * 1000000
local interval = period / rate
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local new = tat + interval
local at = new - interval * burst
if at > now then
  return {1, burst, 0, math.ceil((at - now) / 1000000), math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%d', new), 'PX', math.ceil((new - now) / 1000))
return {0, burst, math.floor((now - at) / interval), -1, math.ceil((new - now) / 1000000)}
`

func limitFigure(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	config := filepath.Join(s.dir, "limit.yaml")
	if err := os.WriteFile(config, []byte(limitPolicies+"\n"), 0o600); err != nil {
		return err
	}
	server, err := s.serveQuipu(filepath.Join(s.dir, "quipu-data"), "--http", "off", "--resp", "127.0.0.1:0", "--rpc", "off", "--config", config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "no")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	sha, err := redis.Command(s.ctx, "SCRIPT", "LOAD", gcra)
	if err != nil {
		return err
	}
	s.note("`redis-server --save '' --appendonly no`; %s. Quipu: `%s`.", redis.Version, limitPolicies)
	quipu := asker{addr: server.doors["resp"], command: func(key string) []string { return []string{"CL.THROTTLE", key, "15", "30", "60"} }}
	script := asker{addr: redis.Addr, command: func(key string) []string { return []string{"EVALSHA", sha, "1", key, "15", "30", "60"} }}
	for _, a := range []asker{quipu, script} { // every client is known before anything is measured
		if err := a.fill(s.ctx); err != nil {
			return err
		}
	}
	err = s.alternate(
		func() error { return s.decisions("quipu", quipu, server.pid(), d) },
		func() error { return s.decisions(gcraRedis, script, redis.PID(), d) },
		func() error { return s.due(dueQuipu, server.doors["resp"], load.Throttle, server.pid(), d) },
		func() error {
			return s.due("INCR of quipu at 50,000/s", server.doors["resp"], load.Incr, server.pid(), d)
		},
		func() error { return s.due("INCR of Redis at 50,000/s", redis.Addr, load.Incr, redis.PID(), d) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of "+gcraRedis, s.over("quipu", gcraRedis, rate), 2)
	s.over(gcraRedis, "quipu", cpuNS)
	s.atMost("p99 ms at 50,000/s, depth 1", s.find(dueQuipu, p99MS).median(), 2)
	return nil
}

// An asker asks for decisions at a server.
type asker struct {
	addr    string
	command func(key string) []string
}

// A pipe is a connection with requests for clients that are chosen beforehand.
type pipe struct {
	net.Conn
	in       *bufio.Reader
	requests [][]byte
	out      []byte
	next     int
}

func (a asker) dial(ctx context.Context, requests int) (*pipe, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.addr)
	if err != nil {
		return nil, err
	}
	p := &pipe{Conn: c, in: bufio.NewReader(c)}
	for range requests {
		p.requests = append(p.requests, a.request(rand.IntN(limitClients)))
	}
	return p, nil
}

// request returns what asks for a client.
func (a asker) request(client int) []byte {
	var b bytes.Buffer
	words := a.command(fmt.Sprintf("client:%012d", client))
	_, _ = fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		_, _ = fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.Bytes()
}

// fill asks once for each client.
func (a asker) fill(ctx context.Context) error {
	p, err := a.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	for i := range limitClients {
		p.requests = append(p.requests, a.request(i))
	}
	for done := 0; done < limitClients; done += 100 {
		if _, err := p.ask(100); err != nil {
			return err
		}
	}
	return nil
}

// ask sends some requests, and reads their replies.
func (p *pipe) ask(n int) (int, error) {
	p.out = p.out[:0]
	for range n {
		p.out = append(p.out, p.requests[p.next]...)
		if p.next++; p.next == len(p.requests) {
			p.next = 0
		}
	}
	if _, err := p.Write(p.out); err != nil {
		return 0, err
	}
	for range n {
		for line := range 6 { // a head and five integers
			reply, err := p.in.ReadSlice('\n')
			if err != nil {
				return 0, err
			}
			if line == 0 && string(reply) != "*5\r\n" {
				return 0, fmt.Errorf("a decision is %q", reply)
			}
		}
	}
	return n, nil
}

// decisions asks as fast as it goes.
func (s *session) decisions(side string, a asker, pid int, d time.Duration) (err error) {
	pipes := make([]*pipe, limitConnections)
	for i := range pipes {
		if pipes[i], err = a.dial(s.ctx, 4096); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pipes[i].Close()) }()
	}
	op := func(c int) (int, error) { return pipes[c].ask(limitDepth) }
	if _, _, err := repeat(limitConnections, d/10, op); err != nil {
		return err
	}
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	n, took, err := repeat(limitConnections, d, op)
	if err != nil {
		return err
	}
	after, err := cpuTime(pid)
	s.record(side, rate, float64(n)/took.Seconds())
	s.record(side, cpuNS, float64(after-before)/float64(n))
	return err
}

// due has decisions, or what they are compared with, be due at fixed times, and records how
// long the slowest in a hundred took from then on.
func (s *session) due(side, addr string, op load.Op, pid int, d time.Duration) error {
	r, err := generate(s.ctx, load.Config{
		Target: "redis://" + addr, Op: op, Dist: load.Uniform, Keys: limitClients,
		Connections: limitConnections, Depth: 1, Rate: dueRate, Duration: d, Warmup: d / 10, ServerPID: pid,
	})
	if err != nil {
		return err
	}
	s.record(side, p99MS, float64(r.Latency.P99)/float64(time.Millisecond))
	return nil
}
