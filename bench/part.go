package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

const partAbout = "One of three masters of a Redis Cluster without replicas hangs (SIGSTOP), or dies (SIGKILL), while a Quipu server is used. In each round a load " +
	"on counters of the other two masters is measured twice: while all is well, and with the fault, which happens as the load begins. " +
	"It is `INCR` over RESP, 16 connections at depth 16, and increments over REST, 8 connections, at the same time. " +
	"Beside it others write to counters of the master that goes, 200 times a second. The ratio is the rate with the fault over that before."

// The faults of the figure part, and its doors.
const (
	hung, dead       = "one master hung", "one master dead"
	overRESP, byREST = "RESP", "REST"
)

// partCounters is how many counters each door and the others write to.
const partCounters = 4

// parts measures what the counters of two masters lose by a fault of the third.
func parts(s *session) (err error) {
	cluster, err := redisproc.StartMasters(s.ctx, s.dir, "--appendonly", "yes")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	nodes, err := s.serveUnder(1, "redis://"+cluster.Nodes[0].Addr)
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s, appendfsync everysec.", cluster.Nodes[0].Version)
	p := &partition{session: s, cluster: cluster, node: nodes[0], master: cluster.Nodes[1]}
	if err := p.divide(); err != nil {
		return err
	}
	if err := s.alternate(
		func() error {
			return p.round(hung, func() error { return syscall.Kill(p.master.PID(), syscall.SIGSTOP) },
				func() error { return syscall.Kill(p.master.PID(), syscall.SIGCONT) })
		},
		func() error {
			return p.round(dead, p.master.Kill, func() error { return p.master.Restart(s.ctx) })
		},
	); err != nil {
		return err
	}
	for _, fault := range []string{hung, dead} {
		for _, door := range []string{overRESP, byREST} {
			with := fault + ", " + door
			s.atLeast("rate over "+door+" with "+fault+", over that before", s.over(with, "before "+with, rate), 0.9)
			s.atMost("errors over "+door+" with "+fault, slices.Max(s.find(with, failures).Values), 0)
		}
	}
	return nil
}

// A partition is a master that goes and comes back.
type partition struct {
	*session
	cluster    *redisproc.Cluster
	node       *quipuServer
	master     *redisproc.Server
	live, gone []string // counters that other masters have, and that this one has
}

// divide finds counters of the master, and of others.
func (p *partition) divide() error {
	if _, err := (nodes{p.node}).generate(p.ctx, load.Config{
		Op: load.Incr, Dist: load.Uniform, Keys: 64, Connections: 1, Depth: 16, Requests: 1024,
	}); err != nil {
		return err
	}
	for _, master := range p.cluster.Nodes {
		has, err := master.Fields(p.ctx, "*v:default")
		if err != nil {
			return err
		}
		keys := slices.Sorted(maps.Keys(has))
		if len(keys) < partCounters {
			return fmt.Errorf("a master has no more than %d counters", len(keys))
		}
		if master == p.master {
			p.gone = keys[:partCounters]
		} else {
			p.live = append(p.live, keys[:partCounters/2]...)
		}
	}
	return nil
}

// round measures the load before and with a fault.
func (p *partition) round(fault string, leave, back func() error) error {
	if err := p.measure("before "+fault, func() error { return nil }); err != nil {
		return err
	}
	if err := p.measure(fault, leave); err != nil {
		return errors.Join(err, back())
	}
	if err := back(); err != nil {
		return err
	}
	return p.well()
}

// measure runs the load, and has something happen soon after it begins.
func (p *partition) measure(side string, happen func() error) error {
	d := pick(p.session, 4*time.Second, time.Second)
	var group sync.WaitGroup
	var mu sync.Mutex // guards the two below
	var errs []error
	reports := make(map[string][]*load.Report)
	run := func(name, target string, keys []string, c load.Config) {
		c.Target, c.ServerPID, c.Op, c.Dist = target, p.node.pid(), load.Incr, load.Hot
		for _, c.Key = range keys {
			group.Go(func() {
				r, err := load.Run(p.ctx, c, nil)
				mu.Lock()
				defer mu.Unlock()
				errs, reports[name] = append(errs, err), append(reports[name], r)
			})
		}
	}
	resp, http := "redis://"+p.node.doors["resp"], "http://"+p.node.doors["http"]
	run(overRESP, resp, p.live, load.Config{Connections: 16 / partCounters, Depth: 16, Duration: d})
	run(byREST, http, p.live, load.Config{Connections: 8 / partCounters, Depth: 1, Duration: d})
	run("gone", resp, p.gone, load.Config{Connections: 4, Depth: 1, Duration: d, Rate: 200 / partCounters})
	err := wait(p.ctx, d/20)
	if err == nil {
		err = happen()
	}
	group.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("%s: %w", side, err)
	}
	for _, door := range []string{overRESP, byREST} {
		failed, first := refusals(reports[door])
		if failed > 0 {
			_, _ = fmt.Fprintf(p.out, "%s: %s, %s: %d errors, the first: %s\n", p.Figure, side, door, failed, first)
		}
		p.record(side+", "+door, rate, float64(operations(reports[door]))/d.Seconds())
		p.record(side+", "+door, failures, float64(failed))
	}
	return nil
}

// well waits until all masters take writes again.
func (p *partition) well() error {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := p.cluster.AwaitHealthy(ctx); err != nil {
		return err
	}
	for {
		text, err := p.node.ready(ctx)
		if err != nil || !strings.Contains(text, "degraded") {
			return err
		}
		if err := wait(ctx, watchEvery); err != nil {
			return err
		}
	}
}

// ready returns what a server says of its readiness.
func (s *quipuServer) ready(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.doors["http"]+"/readyz", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
