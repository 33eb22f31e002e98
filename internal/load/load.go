// Package load benchmarks a server of counters: it sends requests and measures
// the replies.
//
// All protocols of Quipu, and a Redis server, can be measured by the same
// client. The client costs little, because it often runs on the server's
// machine. Each connection is one goroutine that sends a prepared batch of
// requests and counts the replies without parsing them. It allocates nothing on
// the way.
//
// In a closed loop, a connection sends again when it has its replies. In an
// open loop, requests are due at fixed times, whatever the server does, and
// latency is measured from the time a request was due. So the latency includes
// the waits behind a server that stalls.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/load/proc"
)

// Limits of a Config.
const (
	ConnectionsMax = 10_000
	DepthMax       = 10_000 // more could fill the sockets both ways, and stick
	KeysMax        = 1e12   // what the digits of a key hold
)

// drainMax is how long replies may be late at the end of a run.
const drainMax = 10 * time.Second

// An Op is what is done to a counter.
type Op string

// The operations. Mixed is Get or Incr, by the share of reads; Add is an increment
// that asks for nothing back, which Redis does not have. Throttle asks a rate limit, over RESP,
// as the module redis-cell has it.
const (
	Incr  Op = "incr"
	Add   Op = "add"
	Get   Op = "get"
	Set   Op = "set"
	Mixed Op = "mixed"

	Throttle Op = "throttle"
)

// A Dist says how often each key is used.
type Dist string

// The distributions. Zipf has the first key as the hottest.
const (
	Hot     Dist = "hot" // one key
	Uniform Dist = "uniform"
	Zipf    Dist = "zipf"
)

// zipfExponent is that of Zipf if the Config has none.
const zipfExponent = 1.1

// A Config is what to do.
type Config struct {
	Target string `json:"target"` // redis://HOST:PORT, or HOST:PORT; http://HOST:PORT; rediss and https with TLS
	APIKey string `json:"-"`      // or a password

	Op        Op      `json:"op"`
	ReadShare float64 `json:"read_share,omitempty"` // of Mixed
	Dist      Dist    `json:"dist"`
	Key       string  `json:"key,omitempty"`      // of Hot, if it is to have a name of its own
	Keys      int64   `json:"keys,omitempty"`     // unless Hot
	Exponent  float64 `json:"exponent,omitempty"` // of Zipf, above 1; 0 is 1.1
	First     int64   `json:"first,omitempty"`    // the number of the first key, which is that of Hot

	Connections int `json:"connections"`
	Depth       int `json:"depth"` // requests that a connection sends at once, at most

	// Duration or Requests ends the run: the one that is not 0, or the first.
	Duration time.Duration `json:"duration_ns,omitempty"`
	Requests int64         `json:"requests,omitempty"`
	Warmup   time.Duration `json:"warmup_ns,omitempty"` // goes before, and does not count

	// Rate makes the loop open: so many requests a second are due, over all
	// connections. 0 is a closed loop.
	Rate float64 `json:"rate,omitempty"`

	// Steps make the loop open with a rate that changes, and stand in for Rate,
	// Duration and Requests.
	Steps []Step `json:"steps,omitempty"`

	// ServerPID is the server's process if it runs here. 0 is unknown: a RESP
	// server on the loopback is then asked.
	ServerPID int `json:"-"`
}

// A Step is a rate for some time.
type Step struct {
	Rate     float64       `json:"rate"`
	Duration time.Duration `json:"duration_ns"`
}

const rateMax = 1e9

// Validate returns what is wrong with a Config.
func (c Config) Validate() error {
	_, err := c.driver()
	switch {
	case err != nil:
		return err
	case c.Op != Incr && c.Op != Add && c.Op != Get && c.Op != Set && c.Op != Mixed && c.Op != Throttle:
		return fmt.Errorf("operation %q: want incr, add, get, set, throttle or mixed", c.Op)
	case c.Op == Throttle && strings.HasPrefix(c.Target, "http"):
		return fmt.Errorf("operation %q is for RESP alone", c.Op)
	case c.Dist != Hot && c.Dist != Uniform && c.Dist != Zipf:
		return fmt.Errorf("distribution %q: want hot, uniform or zipf", c.Dist)
	case c.Op == Mixed && !(c.ReadShare >= 0 && c.ReadShare <= 1):
		return fmt.Errorf("share of reads %v: want a number from 0 to 1", c.ReadShare)
	case c.Dist != Hot && (c.Keys < 1 || c.Keys > KeysMax):
		return fmt.Errorf("%d keys: want 1 to %d", c.Keys, int64(KeysMax))
	case c.Exponent != 0 && (c.Dist != Zipf || !(c.Exponent > 1)):
		return fmt.Errorf("exponent %v: want one above 1, with distribution zipf", c.Exponent)
	case c.Key != "" && (c.Dist != Hot || c.First != 0):
		return fmt.Errorf("key %q: one key goes with distribution hot", c.Key)
	case c.First < 0 || c.First > KeysMax-max(c.Keys, 1):
		return fmt.Errorf("first key %d: want keys from 0 to %d", c.First, int64(KeysMax)-1)
	case c.Connections < 1 || c.Connections > ConnectionsMax:
		return fmt.Errorf("%d connections: want 1 to %d", c.Connections, ConnectionsMax)
	case c.Depth < 1 || c.Depth > DepthMax:
		return fmt.Errorf("depth %d: want 1 to %d", c.Depth, DepthMax)
	case !(c.Rate >= 0 && c.Rate <= rateMax):
		return fmt.Errorf("rate %v: want 0, which is a closed loop, to %v", c.Rate, rateMax)
	case len(c.Steps) > 0:
		return c.validateSteps()
	case c.Duration < 0 || c.Requests < 0 || c.Warmup < 0 || c.Duration == 0 && c.Requests == 0:
		return errors.New("want a duration or a number of requests")
	}
	return nil
}

func (c Config) validateSteps() error {
	if c.Rate != 0 || c.Duration != 0 || c.Requests != 0 || c.Warmup != 0 {
		return errors.New("with steps, want neither a rate nor a duration, a number of requests or a warm-up")
	}
	for i, s := range c.Steps {
		if !(s.Rate > 0 && s.Rate <= rateMax) || s.Duration <= 0 {
			return fmt.Errorf("step %d: %v a second for %v: want a rate above 0 to %v, and a duration", i, s.Rate, s.Duration, rateMax)
		}
	}
	return nil
}

// keys returns a source of numbers of keys.
func (c Config) keys(r *rand.Rand) func() uint64 {
	first := uint64(c.First)
	switch c.Dist {
	case Uniform:
		return func() uint64 { return first + r.Uint64N(uint64(c.Keys)) }
	case Zipf:
		zipf := rand.NewZipf(r, cmp.Or(c.Exponent, zipfExponent), 1, uint64(c.Keys-1))
		return func() uint64 { return first + zipf.Uint64() }
	default:
		return func() uint64 { return first }
	}
}

// ops returns a source of operations, of which none is Mixed.
func (c Config) ops(r *rand.Rand) func() Op {
	if c.Op != Mixed {
		return func() Op { return c.Op }
	}
	return func() Op {
		if r.Float64() < c.ReadShare {
			return Get
		}
		return Incr
	}
}

// Run loads a server, and returns what it measured. A Report comes with an
// error too if there was something to measure before. The end of ctx ends the
// run early, which is no error; a server that denies access ends it with a
// DeniedError. Tick, if not nil, is called each second.
func Run(ctx context.Context, c Config, tick func(Sample)) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	d, err := c.driver()
	if err != nil {
		return nil, err
	}
	r := &runner{Config: c}
	defer r.close()
	for range c.Connections {
		conn, err := d.dial(ctx)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", c.Target, err)
		}
		r.conns = append(r.conns, conn)
	}
	if c.ServerPID == 0 {
		r.ServerPID = d.pid(ctx)
	}
	if c.Warmup > 0 {
		if err := r.phase(ctx, newRecorder(), c.Warmup, 0); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	return r.measure(ctx, tick)
}

// A runner has the connections of a run.
type runner struct {
	Config
	conns   []conn
	stalled atomic.Bool
}

// close closes the connections. It may be called while they are used, and
// again: what waits for a reply then returns an error.
func (r *runner) close() {
	for _, c := range r.conns {
		_ = c.close()
	}
}

// measure runs the phase that counts.
func (r *runner) measure(ctx context.Context, tick func(Sample)) (*Report, error) {
	rec := newRecorder()
	client, server := proc.NewMeter(proc.Self), proc.NewMeter(r.ServerPID)
	end := rec.sample(tick)
	began := time.Now()
	d := r.Duration
	for _, s := range r.Steps {
		d += s.Duration
	}
	err := r.phase(ctx, rec, d, r.Requests)
	took := time.Since(began)
	series := end()
	report := rec.report()
	if _, denied := errors.AsType[*DeniedError](err); denied && report.Errors == report.Operations {
		return nil, err
	}
	report.Config, report.Began, report.Seconds, report.Series = r.Config, began, took.Seconds(), series
	report.Interrupted = ctx.Err() != nil
	report.Rate = float64(report.Operations) / took.Seconds()
	report.Client = usage(client, proc.Self, report.Operations, took)
	report.Server = usage(server, r.ServerPID, report.Operations, took)
	return report, err
}

// phase loads the server until the time is over, the requests are sent, ctx
// ends, or a connection fails.
func (r *runner) phase(ctx context.Context, rec *recorder, d time.Duration, requests int64) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, r.close)() // who interrupts does not wait for replies
	if d > 0 {
		timer := time.AfterFunc(d, cancel)
		defer timer.Stop()
		grace := time.AfterFunc(d+drainMax, func() { r.stalled.Store(true); r.close() })
		defer grace.Stop()
	}
	budget := &budget{limited: requests > 0}
	budget.left.Store(requests)
	errs := make([]error, len(r.conns))
	began := time.Now()
	var wg sync.WaitGroup
	for i, c := range r.conns {
		// The same seeds in every run: two runs use the same keys.
		random := rand.New(rand.NewPCG(1, uint64(i)))
		w := &worker{
			conn: c, rec: rec, budget: budget, depth: r.Depth, began: began, keys: r.keys(random), ops: r.ops(random),
			due: r.schedule(i, len(r.conns)),
		}
		wg.Go(func() {
			if errs[i] = w.run(run); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	switch err := errors.Join(errs...); {
	case err == nil || ctx.Err() != nil:
		return nil
	case r.stalled.Load():
		return fmt.Errorf("no reply for %v", drainMax)
	default:
		return first(errs)
	}
}

// first returns the first error: the connections of one server fail alike.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A budget is what is left to send.
type budget struct {
	limited bool
	left    atomic.Int64
}

// take returns how many of n requests may be sent.
func (b *budget) take(n int) int {
	if !b.limited {
		return n
	}
	left := b.left.Add(-int64(n))
	return int(max(0, min(int64(n), int64(n)+left)))
}
