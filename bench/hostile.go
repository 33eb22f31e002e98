package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/quipudb/quipu/internal/hostile"
)

const hostileAbout = "What a server holds, and how long a well-behaved client waits, while others attack it. The client increments a counter over RESP " +
	"every 5 ms. Each attack meets a new server with the embedded store, an API key and `--memory-total 1GiB`. Memory is what the " +
	"process has resident: before the attack, at most during it, and some seconds after it. All else runs on the same machine as the server, so the waits are upper bounds."

// What an attack is judged by.
const (
	beforeMiB = "MiB before"
	peakMiB   = "MiB at most"
	afterMiB  = "MiB after"
	waitP99   = "ms that the client waits, p99"
	waitMost  = "ms that the client waits, at most"
)

func underAttack(s *session) error {
	command, err := buildQuipu(s.ctx, s.dir)
	if err != nil {
		return err
	}
	attacks := slices.Concat(hostile.RESP(), hostile.RPC(), hostile.REST())
	var sides []func() error
	for _, a := range attacks {
		sides = append(sides, func() error {
			return s.inTemp(func(dir string) error {
				_, _ = fmt.Fprintf(s.out, "%s: %s\n", s.Figure, a.Name)
				return s.besiege(command, dir, a)
			})
		})
	}
	if err := s.alternate(sides...); err != nil {
		return err
	}
	t := table{Title: "Attacks"}
	t.head("attack", beforeMiB, peakMiB, afterMiB, waitP99, waitMost, "what it does")
	var worstPeak, worstWait float64
	for _, a := range attacks {
		row := []string{a.Name}
		for _, metric := range t.columns[1:6] {
			row = append(row, number(s.median(a.Name, metric)))
		}
		t.rows = append(t.rows, append(row, a.About))
		worstPeak = max(worstPeak, s.median(a.Name, peakMiB))
		worstWait = max(worstWait, s.median(a.Name, waitP99))
	}
	s.Tables = append(s.Tables, t)
	s.atMost(waitP99+", under the worst attack", worstWait, 50)
	s.atMost(peakMiB+", under the worst attack", worstPeak, 1024)
	for _, target := range s.Targets {
		s.note("%s: %s, want %s.", target.What, number(target.Measured), number(target.Want))
	}
	return nil
}

// besiege attacks a new server, and records what came of it.
func (s *session) besiege(command, dir string, a hostile.Attack) (err error) {
	const key, free = "hostile-figure", "127.0.0.1:0"
	server, err := serveQuipu(s.ctx, command, dir, "--http", free, "--resp", free, "--rpc", free, "--api-key", key, "--memory-total", "1GiB", "--log-level", "error")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	resident := func(metric, name string) {
		bytes, e := memoryOf(strconv.Itoa(server.pid()), name)
		err = errors.Join(err, e)
		s.record(a.Name, metric, bytes/mib)
	}
	resident(beforeMiB, "VmRSS")
	target := hostile.Target{HTTP: server.doors["http"], RESP: server.doors["resp"], RPC: server.doors["rpc"], Key: key}
	waited, e := hostile.Besiege(s.ctx, a, target, pick(s, 5*time.Second, 500*time.Millisecond))
	if e != nil {
		return errors.Join(err, e)
	}
	settle(s.ctx, pick(s, 3*time.Second, 0))
	resident(peakMiB, "VmHWM")
	resident(afterMiB, "VmRSS")
	s.record(a.Name, waitP99, float64(waited.Quantile(0.99).Microseconds())/1000)
	s.record(a.Name, waitMost, float64(waited.Quantile(1).Microseconds())/1000)
	return err
}

// settle waits for a while, or until ctx ends.
func settle(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
