package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/proc"
)

const peersAbout = "INCR and GET over RESP on 50 connections, at several depths of pipelining, by redis-benchmark: Quipu, which replies when the change is synced, or with a policy `written`; " +
	"`bare`, a loop that has nothing but a table, a log and a shared sync, to show what the machine allows; and Redis with its three ways to persist. " +
	"Beside it the same by `quipu bench`, and PostgreSQL's `UPDATE … SET n = n + 1` by pgbench on as many connections. " +
	"Servers and clients share the machine; a server whose turn it is not is stopped, and first does what it has put off when it comes."

const (
	peersConnections = 50

	p99MS       = "p99 ms"
	clientCores = "cores that the client keeps busy"
	clientNS    = "CPU ns/operation of the client"

	// A client with one thread that keeps a core as busy as this is what
	// limits the rate.
	clientBound = 0.9
)

// A choice is what of the figure to measure.
type choice struct{ cases, depths, sides string }

// peers are the servers of a run, and what it measures on them.
type peers struct {
	*session
	cases  []peerCase
	depths []int
	sides  []*peer
	pg     *postgres

	requests map[string]int // for a measurement of the right length, by cell
	filled   map[string]int // the keys that a side has
}

func measurePeers(s *session) (err error) {
	p := &peers{session: s, requests: map[string]int{}, filled: map[string]int{}}
	names, err := p.choose(s.choice)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		return fmt.Errorf("find redis-benchmark: %w: install it, on Debian the package redis-tools", err)
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.start(names); err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.alternate(p.turns()...); err != nil {
		return err
	}
	p.judge()
	p.tabulate()
	return nil
}

// choose reads what is wanted, and returns the names of the sides.
func (p *peers) choose(c choice) ([]string, error) {
	cases := p.peerCases()
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	chosen, err := pickNames("-cases", c.cases, names)
	if err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(cmp.Or(c.depths, "1,16,64,256"), ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > load.DepthMax {
			return nil, fmt.Errorf("-depths: %q: want a number from 1 to %d", text, load.DepthMax)
		}
		p.depths = append(p.depths, n)
	}
	for _, c := range cases {
		if slices.Contains(chosen, c.name) && len(p.depthsOf(c)) > 0 {
			p.cases = append(p.cases, c)
		}
	}
	return pickNames("-sides", c.sides, []string{bareLoop, redisOff, redisEverysec, redisAlways, quipuSynced, quipuWritten, postgreSQL})
}

// pickNames returns those of all that a list names; an empty one names all.
func pickNames(flag, list string, all []string) ([]string, error) {
	if list == "" {
		return all, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s: %q: want some of %s", flag, name, strings.Join(all, ","))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(names, name) }), nil
}

// prepare gives every server the keys.
func (p *peers) prepare() error {
	for _, c := range p.cases {
		for _, to := range p.asked(c) {
			if n := int(max(c.load.Keys, 1)); !c.created && n > p.filled[to.name] {
				p.filled[to.name] = n
				if err := to.awake(p.ctx, func() error { return fillKeys(p.ctx, to.addr(), 0, n) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// turns returns a round.
func (p *peers) turns() []func() error {
	var turns []func() error
	turn := func(to *peer, f func() error) {
		turns = append(turns, func() error { return to.awake(p.ctx, f) })
	}
	for _, c := range p.cases {
		for _, depth := range p.depthsOf(c) {
			for _, to := range p.asked(c) {
				switch {
				case c.created:
					turns = append(turns, func() error { return p.create(c, depth, to) })
				case c.args == nil:
					turn(to, func() error { return p.own(cellOf(to.name, c, depth), c, depth, to) })
				default:
					turn(to, func() error { return p.neutral(c, depth, to) })
				}
			}
			for _, to := range p.asked(c) {
				if p.besides(c, depth, to) {
					turn(to, func() error { return p.own(ownCellOf(to.name, c, depth), c, depth, to) })
				}
			}
		}
	}
	if p.pg != nil {
		for _, rows := range pgRows {
			turns = append(turns, func() error {
				l := pgLoad{rows: rows, connections: peersConnections}
				return p.drivePostgres(pgSide(rows), p.pg, l, pick(p.session, 3*time.Second, time.Second))
			})
		}
	}
	return turns
}

// pgRows are how many rows PostgreSQL updates.
var pgRows = []int{1, pgRowsMax}

func pgSide(rows int) string { return fmt.Sprintf("%s, rows: %d", postgreSQL, rows) }

// cellOf names a side in the series.
func cellOf(side string, c peerCase, depth int) string {
	return fmt.Sprintf("%s, %s, depth %d", side, c.name, depth)
}

// ownCellOf names the same as our client sees it.
func ownCellOf(side string, c peerCase, depth int) string {
	return cellOf(side, c, depth) + ", quipu bench"
}

// neutral measures with redis-benchmark for some time.
func (p *peers) neutral(c peerCase, depth int, to *peer) error {
	cell := cellOf(to.name, c, depth)
	d := pick(p.session, 3*time.Second, 300*time.Millisecond)
	n := p.requests[cell]
	if n == 0 { // a short run says how long a long one must be
		r, err := p.count(c, depth, to, max(20_000, 20*peersConnections*depth))
		if err != nil {
			return err
		}
		n = r.lasting(d, depth)
	}
	r, err := p.measure(c, depth, to, n)
	p.requests[cell] = r.lasting(d, depth)
	return err
}

// create measures on a new server that has no keys.
func (p *peers) create(c peerCase, depth int, to *peer) error {
	return p.inTemp(func(dir string) error {
		fresh, err := to.launch(dir)
		if err != nil {
			return err
		}
		_, err = p.measure(c, depth, fresh, int(c.load.Keys))
		return errors.Join(err, fresh.end())
	})
}

// measure measures n requests of redis-benchmark.
func (p *peers) measure(c peerCase, depth int, to *peer, n int) (benchmark, error) {
	server := proc.NewMeter(to.pid)
	r, err := p.count(c, depth, to, n)
	if err != nil {
		return r, err
	}
	cpu, err := server.Read()
	if err != nil {
		return r, err
	}
	cell := cellOf(to.name, c, depth)
	p.record(cell, rate, r.rate)
	p.record(cell, cpuNS, float64(cpu)/float64(n))
	p.record(cell, p99MS, r.p99MS)
	p.record(cell, clientCores, r.cpu.Seconds()*r.rate/float64(n))
	p.record(cell, clientNS, float64(r.cpu)/float64(n))
	_, err = fmt.Fprintf(p.out, "  %s: %s/s, %s ns\n", cell, number(r.rate), number(float64(cpu)/float64(n)))
	return r, err
}

// count runs redis-benchmark, and checks that a server that replied counted.
func (p *peers) count(c peerCase, depth int, to *peer, n int) (benchmark, error) {
	n = n / depth * depth
	if c.name != hotCase {
		return redisBenchmark(p.ctx, to, depth, n, c.args)
	}
	before, err := to.get(p.ctx, load.KeyZero)
	if err != nil {
		return benchmark{}, err
	}
	r, err := redisBenchmark(p.ctx, to, depth, n, c.args)
	if err != nil {
		return benchmark{}, err
	}
	after, err := to.get(p.ctx, load.KeyZero)
	if err == nil && after != before+n {
		err = fmt.Errorf("%s had counted %d, was sent %d, and has counted %d", to.name, before, n, after)
	}
	return r, err
}

// own measures with our client.
func (p *peers) own(cell string, c peerCase, depth int, to *peer) error {
	l := c.load
	l.Target, l.Connections, l.Depth, l.ServerPID = to.addr(), peersConnections, depth, to.pid
	l.Duration = pick(p.session, 3*time.Second, 300*time.Millisecond)
	l.Warmup = l.Duration / 10
	r, err := generate(p.ctx, l)
	if err != nil {
		return err
	}
	p.record(cell, rate, r.Rate)
	p.record(cell, cpuNS, r.Server.CPUNSPerOp)
	p.record(cell, p99MS, float64(r.Latency.P99)/float64(time.Millisecond))
	p.record(cell, clientNS, r.Client.CPUNSPerOp)
	_, err = fmt.Fprintf(p.out, "  %s: %s/s, %s ns\n", cell, number(r.Rate), number(r.Server.CPUNSPerOp))
	return err
}

// A benchmark is what redis-benchmark measured.
type benchmark struct {
	rate  float64
	p99MS float64
	cpu   time.Duration // its own
}

// lasting returns how many requests take so long.
func (b benchmark) lasting(d time.Duration, depth int) int {
	return max(int(b.rate*d.Seconds()), peersConnections*depth)
}

// benchmarkArgs are what redis-benchmark is given, for n requests.
func benchmarkArgs(port string, depth, n int, args []string) []string {
	return append([]string{
		"-p", port, "-c", strconv.Itoa(peersConnections), "-P", strconv.Itoa(depth), "-n", strconv.Itoa(n), "--csv",
	}, args...)
}

// redisBenchmark sends n requests, a multiple of the depth.
func redisBenchmark(ctx context.Context, to *peer, depth, n int, args []string) (benchmark, error) {
	// Where nobody listens, it tries for ever.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "redis-benchmark", benchmarkArgs(to.port, depth, n, args)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return benchmark{}, fmt.Errorf("run %s: %w: %s", cmd, err, said.String())
	}
	b, err := parseBenchmark(string(out))
	if err != nil {
		return benchmark{}, fmt.Errorf("run %s: %w: %s", cmd, err, said.String())
	}
	b.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return b, nil
}

// parseBenchmark reads the CSV of redis-benchmark: a line of names, and one of
// values.
func parseBenchmark(out string) (b benchmark, err error) {
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 2 {
		return b, fmt.Errorf("no result in what it printed: %q", out)
	}
	field := func(name string) (v float64) {
		i := slices.Index(lines[0], name)
		if i < 0 {
			err = fmt.Errorf("no %s in what it printed: %q", name, out)
			return 0
		}
		v, parseErr := strconv.ParseFloat(lines[1][i], 64)
		err = errors.Join(err, parseErr)
		return v
	}
	b.rate, b.p99MS = field("rps"), field("p99_latency_ms")
	if err == nil && b.rate <= 0 {
		err = fmt.Errorf("no rate in what it printed: %q", out)
	}
	return b, err
}
