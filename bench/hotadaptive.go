package main

import (
	"errors"
	"time"

	"github.com/quipudb/quipu/internal/load"
)

const hotAdaptiveAbout = "One hot counter in PostgreSQL, acknowledged after its commit with synchronous_commit on, written to through four Quipu nodes: adds that ask " +
	"for nothing back (`Q.ADD key 1 NOVALUE`) over RESP at depth 16 on 50 connections in all. The counter is one cell by policy, or 16 shards by policy, " +
	"or has none: then it begins as one cell, and is split and folded by itself. Each has a new counter in every round, from whose first write on is counted. CPU time is PostgreSQL's."

// The sides, and the larger rate of the first two in each round.
const (
	single   = "policy single"
	sixteen  = "policy shards: 16"
	adaptive = "no policy"
	better   = "the better of the two"
)

const adaptiveConnections = 50

// adaptiveFirst are the numbers of the sides' first keys, which begin with
// different digits for the policies' sake.
var adaptiveFirst = map[string]int64{single: 100_000_000_000, sixteen: 200_000_000_000, adaptive: 300_000_000_000}

func hotAdaptive(s *session) (err error) {
	coolDown := pick(s, 5*time.Second, time.Second)
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	nodes, err := s.serveUnder(4, pg.URL(),
		`{pattern: "key:1*", single: true}`, `{pattern: "key:2*", shards: 16}`, `{pattern: "key:3*", cool-down: `+coolDown.String()+`}`)
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s, default settings, over a Unix socket. `%s` has a cool-down of %v, so that a round is short.", pg.Version, adaptive, coolDown)
	a := &layouts{session: s, pg: pg, nodes: nodes, time: pick(s, 10*time.Second, time.Second)}
	if err := s.alternate(a.side(single), a.side(sixteen), a.side(adaptive)); err != nil {
		return err
	}
	for i, one := range s.find(single, rate).Values {
		s.record(better, rate, max(one, s.find(sixteen, rate).Values[i]))
	}
	s.atLeast("rate over "+better, s.over(adaptive, better, rate), 0.9)
	if !s.has(adaptive, splitAfter) {
		s.note("`%s` was never split: too little of the time was waiting for other nodes.", adaptive)
		return nil
	}
	s.atMost(splitAfter, s.median(adaptive, splitAfter), 1)
	s.atMost(foldedAfter+", cool-down included", s.median(adaptive, foldedAfter), (coolDown + 2*time.Second).Seconds())
	return nil
}

// layouts are nodes whose policies lay counters out in several ways.
type layouts struct {
	*session
	pg    *postgres
	nodes nodes
	time  time.Duration
}

// side returns a turn of a side.
func (a *layouts) side(name string) func() error {
	return func() error {
		number := adaptiveFirst[name] + int64(len(a.find(name, rate).Values))
		return a.drive(name, number)
	}
}

// drive writes to a new counter for some time.
func (a *layouts) drive(side string, number int64) error {
	key, server := keyOf(number), a.nodes[0]
	var reports []*load.Report
	var seen []sight
	var last time.Time
	n, err := a.driveStore(side, func() (time.Duration, error) { return cpuTimeOfAll(a.pg.PID) }, func() (_ []*load.Report, err error) {
		end := server.watch(a.ctx, key, exactly, watchEvery) // of all sides: it takes a little of the machine
		reports, err = a.nodes.generate(a.ctx, load.Config{
			Op: load.Add, Dist: load.Hot, First: number, Connections: adaptiveConnections, Depth: storeDepth, Duration: a.time,
		})
		last = time.Now()
		var watchErr error
		seen, watchErr = end()
		return reports, errors.Join(err, watchErr)
	})
	if err != nil {
		return err
	}
	a.record(side, shardsAtEnd, float64(seen[len(seen)-1].Shards))
	if side == adaptive {
		if err := a.course(server, key, reports[0].Began, last, seen); err != nil {
			return err
		}
	}
	return server.counted(a.ctx, key, n)
}

// course records when a counter was split, if it was, and when it was folded.
func (a *layouts) course(server *quipuServer, key string, first, last time.Time, seen []sight) error {
	for _, one := range seen {
		if one.Shards > 1 {
			a.record(adaptive, splitAfter, one.at.Sub(first).Seconds())
			return a.recordFold(adaptive, server, key, last)
		}
	}
	return nil
}
