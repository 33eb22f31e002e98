package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Pipelines are callers that send commands over RESP, as many at once as the depth says,
// and then wait for all replies.
type pipelines struct {
	servers []string // addresses, which take turns
	callers int
	depth   int
	time    time.Duration
	cpu     func() (time.Duration, error)

	next func(dst []byte, caller int) []byte // appends a command
	want byte                                // what each reply begins with, which is one line
}

// pipelined runs pipelines after a short time that is not counted, records their rate and
// the CPU time, and returns how many commands were sent in all.
func (s *session) pipelined(side string, p pipelines) (sent int, err error) {
	all := make([]*pipeline, p.callers)
	for i := range all {
		if all[i], err = dialPipeline(s.ctx, p.servers[i%len(p.servers)]); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, all[i].Close()) }()
	}
	op := func(i int) (int, error) {
		return p.depth, all[i].send(p.depth, p.want, func(dst []byte) []byte { return p.next(dst, i) })
	}
	warm, _, err := repeat(p.callers, p.time/10, op)
	if err != nil {
		return warm, err
	}
	before, err := p.cpu()
	if err != nil {
		return warm, err
	}
	n, took, err := repeat(p.callers, p.time, op)
	if err != nil {
		return warm + n, err
	}
	after, err := p.cpu()
	s.record(side, rate, float64(n)/took.Seconds())
	s.record(side, cpuNS, float64(after-before)/float64(n))
	return warm + n, err
}

// A pipeline is a connection to a server that speaks RESP, with as little around it as can
// be.
type pipeline struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func dialPipeline(ctx context.Context, addr string) (*pipeline, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &pipeline{Conn: c, in: bufio.NewReader(c)}, nil
}

// send sends some commands at once, and reads the replies.
func (p *pipeline) send(depth int, want byte, next func(dst []byte) []byte) error {
	p.out = p.out[:0]
	for range depth {
		p.out = next(p.out)
	}
	if _, err := p.Write(p.out); err != nil {
		return err
	}
	for range depth {
		reply, err := p.in.ReadSlice('\n')
		if err == nil && reply[0] != want {
			err = fmt.Errorf("%.200q: %q", p.out, reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendDigits appends the last digits of a number. Callers share the processors with the servers, and package
// fmt would take longer than those do for a command.
func appendDigits(dst []byte, n int64, digits int) []byte {
	for range digits {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; digits > 0; i, digits, n = i-1, digits-1, n/10 {
		dst[i] += byte(n % 10)
	}
	return dst
}

// ask sends a command, and returns its reply, which is one line.
func ask(ctx context.Context, addr, command string) (reply string, err error) {
	p, err := dialPipeline(ctx, addr)
	if err != nil {
		return "", err
	}
	if _, err = fmt.Fprintf(p, "%s\r\n", command); err == nil {
		reply, err = p.in.ReadString('\n')
	}
	return strings.TrimSpace(reply), errors.Join(err, p.Close())
}
