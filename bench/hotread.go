package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/proc"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

const hotReadAbout = "Reading a counter of 64 shards in PostgreSQL whose total is kept for a second: `GET` over RESP, against Redis without persistence " +
	"with a counter split by hand into 64 keys, which `MGET` reads. Both by redis-benchmark, 50 connections, depth 16. CPU time is the server's."

const (
	hotReadShards = 64
	hotReadDepth  = 16

	lookups = "lookups of the kept total/1,000 reads"
)

// hotReads are the two servers.
type hotReads struct {
	*session
	server   *quipuServer
	requests map[string]int // for a measurement of the right length, by side
}

func hotRead(s *session) (err error) {
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		return fmt.Errorf("find redis-benchmark: %w: install it, on Debian the package redis-tools", err)
	}
	const policy = `{pattern: "*", shards: 64, timing: rollup, interval: 1s}`
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	nodes, err := s.serveUnder(1, pg.URL(), policy)
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "redis")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	redis, err := redisproc.Start(s.ctx, dir, "--appendonly", "no")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	s.note("%s; %s. Quipu: policy `%s`.", redis.Version, pg.Version, policy)
	s.note("Equal reads that follow each other in a pipeline share a lookup.")
	h := &hotReads{session: s, server: nodes[0], requests: map[string]int{}}
	if err := h.split(nodes); err != nil {
		return err
	}
	set, mget := []string{"MSET"}, []string{"MGET"}
	for i := range hotReadShards {
		key := fmt.Sprintf("%s:%02d", load.KeyZero, i)
		set, mget = append(set, key, "15625"), append(mget, key)
	}
	if _, err := redis.Command(s.ctx, set...); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(h.server.doors["resp"])
	if err != nil {
		return err
	}
	err = s.alternate(
		func() error { return h.quipu(&peer{name: "quipu", port: port, pid: h.server.pid()}) },
		func() error { return h.drive(&peer{name: "redis", port: redis.Port, pid: redis.PID()}, mget) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of MGET of 64 keys", s.over("quipu", "redis", rate), 8)
	s.over("quipu", "redis", cpuNS)
	for _, side := range []string{"quipu", "redis"} {
		if s.median(side, clientCores) >= clientBound {
			s.note("redis-benchmark, which has one thread, limits the rate of %s.", side)
		}
	}
	return nil
}

// split writes to the counter until it has all its shards.
func (h *hotReads) split(n nodes) error {
	total := int64(0)
	for began := time.Now(); time.Since(began) < foldMax; {
		r, err := n.generate(h.ctx, load.Config{Op: load.Add, Dist: load.Hot, Connections: 10, Depth: hotReadDepth, Duration: 200 * time.Millisecond})
		if err != nil {
			return err
		}
		total += operations(r)
		if seen, err := h.server.see(h.ctx, load.KeyZero, exactly); err != nil || seen.Shards == hotReadShards {
			return errors.Join(err, h.server.counted(h.ctx, load.KeyZero, total))
		}
	}
	return fmt.Errorf("the counter has not %d shards after %v", hotReadShards, foldMax)
}

// quipu reads the counter, and checks that it is the one that is wanted.
func (h *hotReads) quipu(to *peer) error {
	url := "http://" + h.server.doors["http"]
	before, err := meterOf(h.ctx, url, "quipu_reads_rollup_total")
	if err != nil {
		return err
	}
	if err := h.drive(to, []string{"GET", load.KeyZero}); err != nil {
		return err
	}
	after, err := meterOf(h.ctx, url, "quipu_reads_rollup_total")
	if err != nil {
		return err
	}
	if after == before {
		return errors.New("no read was served from the kept total")
	}
	h.record(to.name, lookups, 1000*(after-before)/float64(h.requests[to.name]))
	seen, err := h.server.see(h.ctx, load.KeyZero, exactly)
	if err == nil && seen.Shards != hotReadShards {
		err = fmt.Errorf("the counter has %d shards, not %d", seen.Shards, hotReadShards)
	}
	return err
}

// drive reads for some time with redis-benchmark.
func (h *hotReads) drive(to *peer, args []string) error {
	if h.requests[to.name] == 0 { // a short run says how long a long one must be
		r, err := redisBenchmark(h.ctx, to, hotReadDepth, 20*peersConnections*hotReadDepth, args)
		if err != nil {
			return err
		}
		n := r.lasting(pick(h.session, 3*time.Second, 300*time.Millisecond), hotReadDepth)
		h.requests[to.name] = n / hotReadDepth * hotReadDepth
	}
	n := h.requests[to.name]
	server := proc.NewMeter(to.pid)
	r, err := redisBenchmark(h.ctx, to, hotReadDepth, n, args)
	if err != nil {
		return err
	}
	cpu, err := server.Read()
	h.record(to.name, rate, r.rate)
	h.record(to.name, cpuNS, float64(cpu)/float64(n))
	h.record(to.name, p99MS, r.p99MS)
	h.record(to.name, clientCores, r.cpu.Seconds()*r.rate/float64(n))
	return err
}
