package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/quipudb/quipu/internal/load"
)

const beforeAbout = "What plain counters cost the server that is built here, against a server of an earlier version (`-before FILE`; without one it is the same): " +
	"`INCR` over RESP at depth 16 on 50 connections, embedded, durable, on counters that exist: one hot key, and 100,000 uniform ones. CPU time is the server's."

// Sides of the figure before.
const (
	sideNow    = "now"
	sideBefore = "before"
)

// before measures what has become of plain counters.
func before(s *session) (err error) {
	d := pick(s, 4*time.Second, 300*time.Millisecond)
	many := pick(s, 100_000, 1000)
	cases := []spreadCase{
		{"one hot key", load.Config{Dist: load.Hot}, 0.97, 1.03},
		{number(float64(many)) + " uniform keys", uniformKeys(many), 0.97, 1.03},
	}
	var turns []func() error
	for _, side := range []string{sideNow, sideBefore} {
		of := *s
		if side == sideBefore && s.beforeBinary != "" {
			of.binary = s.beforeBinary
		}
		server, err := of.serveQuipu(filepath.Join(s.dir, side), "--http", "off", "--rpc", "off", "--resp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		if err := fillKeys(s.ctx, server.doors["resp"], 0, many); err != nil {
			return err
		}
		cpu := func() (time.Duration, error) { return cpuTime(server.pid()) }
		for _, c := range cases {
			l := c.keysOf(0, peersConnections, d)
			l.Target, l.ServerPID = "redis://"+server.doors["resp"], server.pid()
			turns = append(turns, func() error {
				_, err := s.driveStore(side+", "+c.name, cpu, func() ([]*load.Report, error) {
					r, err := generate(s.ctx, l)
					return []*load.Report{r}, err
				})
				return err
			})
		}
	}
	if err := s.alternate(turns...); err != nil {
		return err
	}
	for _, c := range cases {
		now, was := sideNow+", "+c.name, sideBefore+", "+c.name
		s.atLeast(c.name+": rate over that of before", s.over(now, was, rate), c.rate)
		s.atMost(c.name+": CPU time over that of before", s.over(now, was, cpuNS), c.cost)
	}
	return nil
}
