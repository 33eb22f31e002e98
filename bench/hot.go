package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/load"
)

// Metrics of the figures of hot counters.
const (
	shardsAtEnd = "shards at the end"
	splitAfter  = "s from the first write to the split"
	foldedAfter = "s from the last write to one shard"
)

const (
	// watchEvery is how often a counter is looked at, to see when it is split.
	watchEvery = 20 * time.Millisecond

	// foldMax is how long a counter is waited for that should be folded.
	foldMax = time.Minute
)

// serveUnder starts servers over one store, with policies as a configuration file
// has them, each in braces.
func (s *session) serveUnder(n int, store string, policies ...string) (started nodes, err error) {
	file := filepath.Join(s.dir, "quipu.yaml")
	if err := os.WriteFile(file, []byte("policies: ["+strings.Join(policies, ", ")+"]\n"), 0o600); err != nil {
		return nil, err
	}
	data := "" // another store would refuse the flag
	if store == "embedded:" {
		data = filepath.Join(s.dir, "data")
	}
	for range n {
		server, err := s.serveQuipu(data,
			"--store", store, "--config", file, "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "off")
		if err != nil {
			return started, err
		}
		started = append(started, server)
	}
	return started, nil
}

// keyOf returns the key that a load calls by a number.
func keyOf(number int64) string { return fmt.Sprintf("key:%012d", number) }

// load runs a load on all nodes, which share its connections and its rate.
func (n nodes) load(ctx context.Context, c load.Config) ([]*load.Report, error) {
	reports, errs := make([]*load.Report, len(n)), make([]error, len(n))
	parts := float64(len(n))
	var group sync.WaitGroup
	for i, server := range n {
		one := c
		one.Target, one.ServerPID = "redis://"+server.doors["resp"], server.pid()
		one.Connections = (c.Connections + i) / len(n)
		one.Rate = c.Rate / parts
		one.Steps = nil
		for _, step := range c.Steps {
			one.Steps = append(one.Steps, load.Step{Rate: step.Rate / parts, Duration: step.Duration})
		}
		group.Go(func() { reports[i], errs[i] = load.Run(ctx, one, nil) })
	}
	group.Wait()
	return reports, errors.Join(append(errs, ctx.Err())...)
}

// generate is load that must not fail.
func (n nodes) generate(ctx context.Context, c load.Config) ([]*load.Report, error) {
	reports, err := n.load(ctx, c)
	if err == nil {
		if failed, first := refusals(reports); failed > 0 {
			err = fmt.Errorf("the nodes replied %d errors, the first: %s", failed, first)
		}
	}
	return reports, err
}

// refusals returns how many errors there were in all, and one of them.
func refusals(reports []*load.Report) (n int64, first string) {
	for _, r := range reports {
		n += r.Errors
		first = cmp.Or(first, r.FirstError)
	}
	return n, first
}

// operations returns how many succeeded in all.
func operations(reports []*load.Report) (total int64) {
	for _, r := range reports {
		total += r.Operations - r.Errors
	}
	return total
}

// A sight is what a server said of a counter.
type sight struct {
	at time.Time

	Value       int64   `json:"value"`
	Shards      int     `json:"shards"`
	StalenessMS float64 `json:"staleness_ms"`
}

// The ways to look at a counter.
const (
	exactly  = "?read=exact"
	byPolicy = ""
)

// see asks a server for a counter.
func (s *quipuServer) see(ctx context.Context, key, how string) (seen sight, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.doors["http"]+"/api/v1/counters/"+key+how, nil)
	if err != nil {
		return seen, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return seen, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", key, resp.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &seen)
	}
	seen.at = time.Now()
	return seen, err
}

// watch looks at a counter every so often, until the function that it returns is
// called, which returns what was seen.
func (s *quipuServer) watch(ctx context.Context, key, how string, every time.Duration) (end func() ([]sight, error)) {
	var seen []sight
	var failed error
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for failed == nil {
			var one sight
			if one, failed = s.see(ctx, key, how); failed == nil {
				seen = append(seen, one)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	return func() ([]sight, error) {
		close(stop)
		<-stopped
		return seen, failed
	}
}

// await looks at a counter until it has so many shards, and returns when it was
// seen with them; ok is false if it is still otherwise after some time.
func (s *quipuServer) await(ctx context.Context, key string, shards int, limit time.Duration) (at time.Time, ok bool, err error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for began := time.Now(); ; {
		seen, err := s.see(ctx, key, exactly)
		if err != nil || seen.Shards == shards || seen.at.Sub(began) > limit {
			return seen.at, seen.Shards == shards, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return at, false, ctx.Err()
		}
	}
}

// counted checks that a counter has what was acknowledged, neither more nor less.
func (s *quipuServer) counted(ctx context.Context, key string, want int64) error {
	seen, err := s.see(ctx, key, exactly)
	if err == nil && seen.Value != want {
		err = fmt.Errorf("%d writes to %s were acknowledged, and %d are counted", want, key, seen.Value)
	}
	return err
}

// recordFold waits until a counter that was last written to at some time is one
// cell again, and records when.
func (s *session) recordFold(side string, server *quipuServer, key string, last time.Time) error {
	at, ok, err := server.await(s.ctx, key, 1, foldMax)
	if err != nil {
		return err
	}
	if !ok {
		s.note("%s: still split %v after the last write.", side, foldMax)
	}
	s.record(side, foldedAfter, at.Sub(last).Seconds())
	return nil
}
