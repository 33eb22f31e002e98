package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/load"
)

type benchCmd struct {
	Target string `help:"Server to benchmark: redis://HOST:PORT or HOST:PORT for --resp or a Redis server, http://HOST:PORT for --http; rediss:// and https:// for TLS." default:"redis://127.0.0.1:6380"`
	APIKey string `name:"api-key" help:"API key of the server, or its password." placeholder:"KEY"`

	Op        load.Op   `help:"Operation: incr, add (an increment that does not ask for the value), get, set, throttle (CL.THROTTLE, over RESP), or mixed." enum:"incr,add,get,set,throttle,mixed" default:"incr"`
	ReadShare float64   `help:"Share of get in a mixed load, from 0 to 1; the rest is incr." default:"0.9"`
	Dist      load.Dist `help:"Distribution of keys: hot is a single key; uniform and zipf choose from --keys keys." enum:"hot,uniform,zipf" default:"hot"`
	Keys      int64     `help:"Number of keys." default:"1000000"`
	Key       word      `help:"The hot key instead of key:000000000000, such as one with a policy." placeholder:"KEY"`

	Connections int           `help:"Number of connections." short:"c" default:"50"`
	Depth       int           `help:"Requests that a connection sends before it waits (pipelining)." default:"1"`
	Duration    time.Duration `help:"How long to measure." default:"10s"`
	Requests    *int64        `help:"Number of requests to send, instead of a --duration." placeholder:"N"`
	Warmup      time.Duration `help:"How long to run before measuring." default:"1s"`
	Rate        float64       `help:"Send this many requests a second, however fast the server answers (open loop). Latency is measured from the time a request was due. Without this flag, each connection waits for its replies." placeholder:"R"`

	ServerPID int    `name:"server-pid" help:"Process id of the server, to measure its CPU time. A local RESP server reports it by itself." placeholder:"PID"`
	JSON      bool   `name:"json" help:"Print the result as JSON."`
	Plot      string `help:"Draw a chart of the result into a file." placeholder:"FILE.svg"`
}

// Help is shown by --help.
func (*benchCmd) Help() string {
	return `It writes to keys named key:000000000000 and up, or to --key. Ctrl-C ends it early and prints what was measured so far.

Examples:

  quipu bench                                          one hot key over RESP, for 10 s
  quipu bench --target redis://127.0.0.1:6379          a Redis server
  quipu bench --target http://127.0.0.1:8080           over REST
  quipu bench --depth 64 --dist zipf --op mixed
  quipu bench --op add --key likes:42                  writes to your own key that ask for no value
  quipu bench --rate 20000 --plot latency.svg          open loop, with a chart`
}

// config returns what package load is told.
func (c *benchCmd) config() load.Config {
	l := load.Config{
		Target: c.Target, APIKey: c.APIKey, Op: c.Op, Dist: c.Dist, Key: string(c.Key),
		Connections: c.Connections, Depth: c.Depth, Duration: c.Duration, Warmup: c.Warmup,
		Rate: c.Rate, ServerPID: c.ServerPID,
	}
	if c.Op == load.Mixed {
		l.ReadShare = c.ReadShare
	}
	if c.Dist != load.Hot {
		l.Keys = c.Keys
	}
	if c.Requests != nil {
		l.Duration, l.Requests = 0, *c.Requests
	}
	return l
}

// Validate is called after the flags are parsed.
func (c *benchCmd) Validate() error {
	if c.Requests != nil && *c.Requests < 1 {
		return fmt.Errorf("--requests %d: want a number from 1", *c.Requests)
	}
	return c.config().Validate()
}

// Run measures, and prints.
func (c *benchCmd) Run(ctx context.Context, out *output) error {
	plot, err := c.openPlot()
	if err != nil {
		return err
	}
	r, runErr := load.Run(ctx, c.config(), out.samples())
	if out.live {
		_, _ = io.WriteString(out.stderr, eraseLine)
	}
	if _, ok := errors.AsType[*load.DeniedError](runErr); ok {
		runErr = fmt.Errorf("%w: give its API key, or its password, with --api-key", runErr)
	}
	if runErr != nil && strings.Contains(runErr.Error(), `unexpected reply "HTTP/`) {
		runErr = fmt.Errorf("%s speaks HTTP: want --target http://HOST:PORT, or the address of the server's --resp", c.Target)
	}
	if r == nil {
		if op, ok := errors.AsType[*net.OpError](runErr); ok && op.Op == "dial" {
			runErr = &exitError{exitUnavailable, runErr}
		}
		return errors.Join(runErr, plot.discard())
	}
	err = errors.Join(c.print(out, r), plot.write(r), runErr)
	if err == nil && r.Errors > 0 {
		err = fmt.Errorf("the server replied %s errors, the first: %s", thousands(r.Errors), r.FirstError)
	}
	return err
}

// eraseLine begins a line of a terminal anew.
const eraseLine = "\r\x1b[K"

// samples shows how a run is going, while someone watches.
func (o *output) samples() func(load.Sample) {
	if !o.live {
		return nil
	}
	return func(s load.Sample) {
		_, _ = fmt.Fprintf(o.stderr, eraseLine+"%.0f s: %s/s, p99 %s, %s errors",
			s.At, thousands(int64(s.Rate)), elapsed(s.P99), thousands(s.Errors))
	}
}

// print writes the result.
func (c *benchCmd) print(out *output, r *load.Report) error {
	if c.JSON {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		return out.print("%s", raw)
	}
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", r.Config.Summary())
	early := ""
	if r.Interrupted {
		early = ", interrupted"
	}
	line("%s operations in %.1f s, %s/s, %s errors%s", thousands(r.Operations), r.Seconds, thousands(int64(r.Rate)), thousands(r.Errors), early)
	if r.Unsent > int64(c.Connections)*int64(c.Depth) { // more than wait for the replies before them
		line("%s requests were due and not sent before the end: the rate was too high", thousands(r.Unsent))
	}
	l := r.Latency
	line("latency: p50 %s, p90 %s, p99 %s, p99.9 %s, max %s", elapsed(l.P50), elapsed(l.P90), elapsed(l.P99), elapsed(l.P999), elapsed(l.Max))
	if r.Server != nil {
		line("server:  %s ns of CPU an operation, %.2f cores busy (process %d)", thousands(int64(r.Server.CPUNSPerOp)), r.Server.Cores, r.Server.PID)
	}
	if r.Client != nil {
		line("client:  %s ns of CPU an operation, %.2f cores busy", thousands(int64(r.Client.CPUNSPerOp)), r.Client.Cores)
	}
	return out.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

// A plotFile is where a chart goes. It is opened before the run, so that a name
// that can't be written costs no time.
type plotFile struct{ f *os.File }

func (c *benchCmd) openPlot() (plotFile, error) {
	if c.Plot == "" {
		return plotFile{}, nil
	}
	f, err := os.Create(c.Plot)
	if err != nil {
		return plotFile{}, fmt.Errorf("--plot: %w", err)
	}
	return plotFile{f}, nil
}

func (p plotFile) write(r *load.Report) error {
	if p.f == nil {
		return nil
	}
	if err := errors.Join(r.Plot(p.f), p.f.Close()); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

// discard removes the file: there is nothing to draw.
func (p plotFile) discard() error {
	if p.f == nil {
		return nil
	}
	return errors.Join(p.f.Close(), os.Remove(p.f.Name()))
}

// elapsed writes nanoseconds for people, to three digits.
func elapsed(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	case d >= 100*time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 0, 64) + " ms"
	default:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 3, 64) + " ms"
	}
}

// thousands writes a number in groups of three digits.
func thousands(n int64) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(n, 10), "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if negative {
		return "-" + digits
	}
	return digits
}
