package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

const (
	serversAbout = "The same callers through one Quipu node and through four, over one PostgreSQL with synchronous_commit on: `INCR` over RESP at depth 16 on 96 connections in " +
		"all, on counters that exist. CPU time is PostgreSQL's. More nodes are for more callers; this says what they cost the store when there are none more."
	redisKeysAbout = "Many counters in one Redis with appendfsync always: a Quipu node, `INCR` over RESP at depth 16 on 50 connections, against `INCR` at Redis itself, likewise. " +
		"The counters exist. CPU time is that of Redis."
	hopAbout = "What a node adds to an increment that nobody else waits for: one caller who waits for each reply, `INCR` over RESP through a Quipu node, against the store itself: " +
		"`UPDATE … SET n = n + 1` of one row in PostgreSQL, prepared, with synchronous_commit on, and `INCR` at a Redis with appendfsync always."
)

// A spreadCase is which keys are incremented.
type spreadCase struct {
	name       string
	load       load.Config
	rate, cost float64 // the least rate, and the most CPU time of the store, over those of the other side
}

// keysOf returns a load for some time on the keys of a case, from a number on.
func (c spreadCase) keysOf(first, connections int, d time.Duration) load.Config {
	l := c.load
	l.Op, l.First, l.Connections, l.Depth, l.Duration = load.Incr, int64(first), connections, storeDepth, d
	return l
}

func uniformKeys(n int) load.Config { return load.Config{Dist: load.Uniform, Keys: int64(n)} }

func zipfKeys(n int) load.Config {
	return load.Config{Dist: load.Zipf, Exponent: zipfOne, Keys: int64(n)}
}

// Sides of the figure of servers.
const (
	oneServer   = "1 node"
	fourServers = "4 nodes"

	serversConnections = 96
)

// postgresServers measures what more nodes cost.
func postgresServers(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	many := pick(s, 100_000, 1000)
	cases := []spreadCase{
		{"one hot key", load.Config{Dist: load.Hot}, 0.8, 1.5},
		{number(float64(many)) + " uniform keys", uniformKeys(many), 0.9, 1.5},
		{"3,000 keys, Zipf with exponent 1", zipfKeys(3000), 0.8, 1.5},
	}
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	nodes, err := s.serveUnder(4, pg.URL())
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s, default settings, over a Unix socket. Each side has counters of its own.", pg.Version)
	cpu := func() (time.Duration, error) { return cpuTimeOfAll(pg.PID) }
	var turns []func() error
	first := 0
	for _, c := range cases {
		for _, n := range []int{1, 4} {
			side, l := serverSide(n, c), c.keysOf(first, serversConnections, d)
			keys := int(max(l.Keys, 1))
			if err := fillKeys(s.ctx, nodes[0].doors["resp"], first, keys); err != nil {
				return err
			}
			first += keys
			turns = append(turns, func() error {
				_, err := s.driveStore(side, cpu, func() ([]*load.Report, error) { return nodes[:n].generate(s.ctx, l) })
				return err
			})
		}
	}
	if err := s.alternate(turns...); err != nil {
		return err
	}
	for _, c := range cases {
		one, four := serverSide(1, c), serverSide(4, c)
		s.atLeast(c.name+": rate of "+fourServers+" over that of "+oneServer, s.over(four, one, rate), c.rate)
		s.atMost(c.name+": CPU time of the store", s.over(four, one, cpuNS), c.cost)
	}
	return nil
}

func serverSide(n int, c spreadCase) string {
	if n == 1 {
		return oneServer + ", " + c.name
	}
	return fourServers + ", " + c.name
}

// redisKeys measures many counters over one Redis.
func redisKeys(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	many := pick(s, 100_000, 1000)
	cases := []spreadCase{
		{number(float64(many)) + " uniform keys", uniformKeys(many), 1.2, 0.5},
		{number(float64(many)) + " keys, Zipf with exponent 1", zipfKeys(many), 1.2, 0.5},
	}
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	nodes, err := s.serveUnder(1, "redis://"+redis.Addr)
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s.", redis.Version)
	if err := errors.Join(fillKeys(s.ctx, redis.Addr, 0, many), fillKeys(s.ctx, nodes[0].doors["resp"], 0, many)); err != nil {
		return err
	}
	cpu := func() (time.Duration, error) { return cpuTime(redis.PID()) }
	var turns []func() error
	for _, c := range cases {
		l := c.keysOf(0, peersConnections, d)
		turns = append(turns, func() error {
			_, err := s.driveStore("quipu, "+c.name, cpu, func() ([]*load.Report, error) { return nodes.generate(s.ctx, l) })
			return err
		}, func() error {
			_, err := s.driveStore("redis, "+c.name, cpu, func() ([]*load.Report, error) { return direct(s.ctx, redis, l) })
			return err
		})
	}
	if err := s.alternate(turns...); err != nil {
		return err
	}
	for _, c := range cases {
		s.atLeast(c.name+": rate over that of INCR", s.over("quipu, "+c.name, "redis, "+c.name, rate), c.rate)
		s.atMost(c.name+": CPU time of Redis over that of INCR", s.over("quipu, "+c.name, "redis, "+c.name, cpuNS), c.cost)
	}
	return nil
}

// hop measures one caller's wait.
func hop(s *session) (err error) {
	d := pick(s, 3*time.Second, 500*time.Millisecond)
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	overPG, err := s.serveUnder(1, pg.URL())
	defer func() { err = errors.Join(err, overPG.stop()) }()
	if err != nil {
		return err
	}
	overRedis, err := s.serveUnder(1, "redis://"+redis.Addr)
	defer func() { err = errors.Join(err, overRedis.stop()) }()
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(s.ctx, pg.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	s.note("%s, default settings, over a Unix socket, by pgx; %s.", pg.Version, redis.Version)
	one := load.Config{Op: load.Incr, Dist: load.Hot, Connections: 1, Depth: 1, Duration: d, Warmup: d / 5}
	through := func(side string, run func() ([]*load.Report, error)) func() error {
		return func() error {
			reports, err := run()
			if err == nil {
				s.record(side, medianMS, float64(reports[0].Latency.P50)/float64(time.Millisecond))
			}
			return err
		}
	}
	err = s.alternate(
		through("quipu over PostgreSQL", func() ([]*load.Report, error) { return overPG.generate(s.ctx, one) }),
		func() error { return s.update("PostgreSQL", pool, d) },
		through("quipu over Redis", func() ([]*load.Report, error) { return overRedis.generate(s.ctx, one) }),
		through("Redis", func() ([]*load.Report, error) { return direct(s.ctx, redis, one) }),
	)
	if err != nil {
		return err
	}
	s.atMost("median over that of PostgreSQL", s.over("quipu over PostgreSQL", "PostgreSQL", medianMS), 1.85)
	s.atMost("median over that of Redis", s.over("quipu over Redis", "Redis", medianMS), 1.8)
	return nil
}

const medianMS = "ms, median"

// update updates a row for some time, and records the median of what it took.
func (s *session) update(side string, pool *pgxpool.Pool, d time.Duration) error {
	var took []time.Duration
	_, _, err := repeat(1, d, func(int) (int, error) {
		began := time.Now()
		tag, err := pool.Exec(s.ctx, "UPDATE counters SET n = n + 1 WHERE id = 1")
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("updated %d rows", tag.RowsAffected())
		}
		took = append(took, time.Since(began))
		return 1, err
	})
	slices.Sort(took)
	s.record(side, medianMS, float64(took[len(took)/2])/float64(time.Millisecond))
	return err
}
