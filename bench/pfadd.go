package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

const (
	pfaddAbout = "A million people visit 100 pages, one after the other: `PFADD page visitor` over RESP on 50 connections, acknowledged when durable, embedded, against `PFADD` of Redis with `appendfsync always`, likewise. " +
		"Afterwards `PFCOUNT` of a page is within 5% of its visitors. CPU time is the server's."
	pfcountAbout = "`PFCOUNT` of ten sketches together, which have 100,000 items each of 500,000, over RESP on 50 connections, embedded, against Redis likewise. " +
		"The sketches stay as they are, so that a server that remembers counts may do so; for scale also with every tenth command a `PFADD` of a new visitor to one of them. Both are within 3% of the truth. CPU time is the server's."

	visitedPages = 100
	visitors     = 1_000_000
	unionKeys    = 10
)

// appendVisit appends the n-th visit.
func appendVisit(dst []byte, n int64) []byte {
	dst = appendDigits(append(dst, "*3\r\n$5\r\nPFADD\r\n$7\r\npage:"...), n%visitedPages, 2)
	return append(appendUser(append(dst, "\r\n$16\r\n"...), n/visitedPages%visitors), "\r\n"...)
}

// pfadds has a server and Redis take visitors into sketches.
func pfadds(s *session) error {
	d := pick(s, 4*time.Second, 300*time.Millisecond)
	return s.besideRedis(func(quipu, redis sketching) error {
		var turns []func() error
		for _, depth := range []int{16, 64} {
			for _, of := range []sketching{quipu, redis} {
				turns = append(turns, func() error {
					_, err := s.pipelined(fmt.Sprintf("%s, depth %d", of.side, depth), pipelines{
						servers: []string{of.addr}, callers: peersConnections, depth: depth, want: ':', time: d, cpu: of.cpu,
						next: func(dst []byte, _ int) []byte { return appendVisit(dst, of.done.Add(1)-1) },
					})
					return err
				})
			}
		}
		if err := s.alternate(turns...); err != nil {
			return err
		}
		for _, of := range []struct {
			depth int
			least float64
		}{{16, 1.5}, {64, 3}} {
			at := fmt.Sprintf(", depth %d", of.depth)
			s.atLeast("rate over that of Redis"+at, s.over("quipu"+at, "redis"+at, rate), of.least)
		}
		for _, of := range []sketching{quipu, redis} {
			want := min((of.done.Load()+visitedPages-1)/visitedPages, visitors)
			if err := of.counts(s.ctx, "PFCOUNT page:00", float64(want), 0.05); err != nil {
				return err
			}
		}
		return nil
	})
}

// pfcounts has a server and Redis count the items of some sketches together.
func pfcounts(s *session) error {
	d := pick(s, 3*time.Second, 200*time.Millisecond)
	items := pick(s, 100_000, 2_000)
	command := []string{"PFCOUNT"}
	for i := range unionKeys {
		command = append(command, fmt.Sprintf("page:%02d", i))
	}
	union := strings.Join(command, " ")
	return s.besideRedis(func(quipu, redis sketching) error {
		var turns []func() error
		for _, of := range []sketching{quipu, redis} {
			if err := of.fill(s.ctx, items); err != nil {
				return err
			}
			if err := of.counts(s.ctx, union, float64(items+(unionKeys-1)*items*4/9), 0.03); err != nil {
				return err
			}
			for _, changing := range []bool{false, true} {
				side := of.side
				if changing {
					side += ", changing"
				}
				turns = append(turns, func() error {
					_, err := s.pipelined(side, pipelines{
						servers: []string{of.addr}, callers: peersConnections, depth: 4, want: ':', time: d, cpu: of.cpu,
						next: func(dst []byte, _ int) []byte {
							if n := of.done.Add(1); changing && n%10 == 0 {
								return append(appendUser(fmt.Appendf(dst, "PFADD page:%02d ", n/10%unionKeys), visitors+n), "\r\n"...)
							}
							return append(append(dst, union...), "\r\n"...)
						},
					})
					return err
				})
			}
		}
		if err := s.alternate(turns...); err != nil {
			return err
		}
		s.atMost("CPU time over that of Redis", s.over("quipu", "redis", cpuNS), 0.2)
		s.note("With a PFADD now and then, the CPU time is %.2f of that of Redis.", s.over("quipu, changing", "redis, changing", cpuNS))
		return nil
	})
}

// A sketching is a server that keeps sketches.
type sketching struct {
	side, addr string
	cpu        func() (time.Duration, error)
	done       *atomic.Int64
}

// besideRedis starts a server, embedded, and a Redis that is as durable.
func (s *session) besideRedis(do func(quipu, redis sketching) error) (err error) {
	server, err := s.serveQuipu(filepath.Join(s.dir, "data"), "--http", "off", "--rpc", "off", "--resp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	of := func(side, addr string, pid int) sketching {
		return sketching{side, addr, func() (time.Duration, error) { return cpuTime(pid) }, new(atomic.Int64)}
	}
	if err := do(of("quipu", server.doors["resp"], server.pid()), of("redis", redis.Addr, redis.PID())); err != nil {
		return err
	}
	s.note("%s, appendfsync always.", redis.Version)
	return nil
}

// fill gives each of ten sketches so many items, of which the next has four ninths that the
// one before has not.
func (of *sketching) fill(ctx context.Context, items int) (err error) {
	p, err := dialPipeline(ctx, of.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for key := range unionKeys {
		for from := 0; from < items; from += 100 {
			if err := p.send(1, ':', func(dst []byte) []byte {
				dst = fmt.Appendf(dst, "PFADD page:%02d", key)
				for i := from; i < min(from+100, items); i++ {
					dst = appendUser(append(dst, ' '), int64(key*items*4/9+i))
				}
				return append(dst, "\r\n"...)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts returns an error if a count is further from what there was than a share.
func (of *sketching) counts(ctx context.Context, command string, want, share float64) error {
	reply, err := ask(ctx, of.addr, command)
	if err != nil {
		return err
	}
	n, err := strconv.ParseFloat(strings.TrimPrefix(reply, ":"), 64)
	if err == nil && math.Abs(n-want) > share*want {
		err = fmt.Errorf("%s: %s is %s, and there were %.0f", of.side, command, reply, want)
	}
	return err
}
