package load

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeys(t *testing.T) {
	const keys, draws = 100, 100_000
	count := func(c Config) []int {
		c.Keys = keys
		next := c.keys(newRand())
		n := make([]int, keys)
		for range draws {
			n[next()]++
		}
		return n
	}
	if n := count(Config{Dist: Hot}); n[0] != draws {
		t.Errorf("hot: %v", n)
	}
	for k, n := range count(Config{Dist: Uniform}) {
		if n < draws/keys/2 || n > draws/keys*2 {
			t.Errorf("uniform: key %d was drawn %d times of %d", k, n, draws)
		}
	}
	// By a power law key 9 comes 10^1.1 times as seldom as key 0.
	n := count(Config{Dist: Zipf})
	if ratio := float64(n[0]) / float64(n[9]); slices.Max(n) != n[0] || ratio < 10 || ratio > 16 {
		t.Errorf("zipf: %v", n)
	}
	n = count(Config{Dist: Zipf, Exponent: 2})
	if ratio := float64(n[0]) / float64(n[9]); slices.Max(n) != n[0] || ratio < 80 || ratio > 125 {
		t.Errorf("zipf with exponent 2: %v", n)
	}
	for _, d := range []Dist{Hot, Uniform, Zipf} {
		if k := (Config{Dist: d, Keys: 5, First: 1000}).keys(newRand())(); k < 1000 || k >= 1005 {
			t.Errorf("%s: key %d of five from 1000 on", d, k)
		}
	}
	if one := (Config{Dist: Zipf, Keys: 1}).keys(newRand())(); one != 0 {
		t.Errorf("zipf of one key: %d", one)
	}
}

func TestOps(t *testing.T) {
	f := func(c Config, want float64) {
		t.Helper()
		next := c.ops(newRand())
		reads := 0.0
		for range 10_000 {
			if next() == Get {
				reads++
			}
		}
		if share := reads / 10_000; share < want-0.02 || share > want+0.02 {
			t.Errorf("%+v: %v of the operations are reads, want %v", c, share, want)
		}
	}
	f(Config{Op: Get}, 1)
	f(Config{Op: Incr}, 0)
	f(Config{Op: Mixed, ReadShare: 0.9}, 0.9)
	f(Config{Op: Mixed, ReadShare: 0}, 0)
	f(Config{Op: Mixed, ReadShare: 1}, 1)
}

// However many take from it, a budget gives what it has.
func TestBudget(t *testing.T) {
	b := budget{limited: true}
	b.left.Store(1000)
	var sum atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				n := b.take(7)
				if n == 0 {
					return
				}
				sum.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if sum.Load() != 1000 {
		t.Errorf("took %d of 1000", sum.Load())
	}
	if n := (&budget{}).take(7); n != 7 {
		t.Errorf("took %d of a budget without limit", n)
	}
}

// The requests of all connections are due at an even rate, each once.
func TestSchedule(t *testing.T) {
	const connections = 7
	for _, rate := range []float64{0.3, 1, 333, 1e6} {
		var all []time.Duration
		for first := range connections {
			s := Config{Rate: rate}.schedule(first, connections)
			for n := range int64(100) {
				at := s.at(n)
				if s.until(at) != n+1 || s.until(at-1) != n && at > 0 {
					t.Fatalf("%+v: request %d is due at %v; %d are due then, and %d before", s, n, at, s.until(at), s.until(at-1))
				}
				all = append(all, at)
			}
		}
		slices.Sort(all)
		for i, at := range all {
			if want := float64(i) / rate; at.Seconds() < want-1e-8 || at.Seconds() > want+1e-8 {
				t.Fatalf("rate %v: request %d is due at %v s, want %v", rate, i, at.Seconds(), want)
			}
		}
	}
}

// The rate changes when a step ends, and what is due before and after is due once.
func TestSteps(t *testing.T) {
	const connections = 7
	c := Config{Steps: []Step{{100, time.Second}, {0.5, 3 * time.Second}, {333, 2 * time.Second}, {1e4, time.Second}, {10, 10 * time.Second}}}
	end := 17 * time.Second
	due := []int{100, 2, 666, 10_000, 100} // half a request of the second step is due in the third
	var all []time.Duration
	for first := range connections {
		s := c.schedule(first, connections)
		for n := int64(0); s.at(n) < end; n++ {
			at := s.at(n)
			if s.until(at) != n+1 || s.until(at-1) != n && at > 0 {
				t.Fatalf("%d: request %d is due at %v; %d are due then, and %d before", first, n, at, s.until(at), s.until(at-1))
			}
			all = append(all, at)
		}
	}
	slices.Sort(all)
	from := time.Duration(0)
	for i, step := range c.Steps {
		to := from + step.Duration
		n := 0
		for _, at := range all {
			if at >= from && at < to {
				n++
			}
		}
		if n < due[i]-1 || n > due[i]+1 {
			t.Errorf("step %d: %d requests are due, want some %d", i, n, due[i])
		}
		from = to
	}
	if want := 10_868; len(all) < want-1 || len(all) > want+1 {
		t.Errorf("%d requests are due, want some %d", len(all), want)
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := stalling(Config{Depth: 100, Steps: []Step{{10, 2 * time.Second}, {1000, 2 * time.Second}}}).measure(t.Context(), nil)
		if err != nil || r.Operations < 2018 || r.Operations > 2022 || r.Seconds < 4 || r.Seconds > 4.1 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// A slowConn answers each batch after a time.
type slowConn struct {
	queued int
	most   int // that were sent at once
	delay  func() time.Duration
	closed chan struct{}
	once   sync.Once
}

func (c *slowConn) add(Op, uint64) { c.queued++ }
func (c *slowConn) close() error   { c.once.Do(func() { close(c.closed) }); return nil }

func (c *slowConn) exchange(got func(replies)) error {
	n := c.queued
	c.queued, c.most = 0, max(c.most, n)
	select {
	case <-time.After(c.delay()):
		got(replies{n: n})
		return nil
	case <-c.closed:
		return errors.New("closed")
	}
}

// stalling returns a run on one connection that answers in a millisecond, but
// for one call, which takes a second.
func stalling(c Config) *runner {
	calls := 0
	c.Connections, c.Depth = 1, max(c.Depth, 1)
	return &runner{Config: c, conns: []conn{&slowConn{
		closed: make(chan struct{}),
		delay: func() time.Duration {
			if calls++; calls == 10 {
				return time.Second
			}
			return time.Millisecond
		},
	}}}
}

// What was due while the server stalled waited too, and that shows.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := stalling(Config{Rate: 100, Depth: 1000, Duration: 2005 * time.Millisecond}).measure(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// 100 requests were due in the stall: one waited 1 s, the next 0.99 s …
		late := 0
		for _, p := range r.Curve {
			if p.NS > int64(500*time.Millisecond) {
				late++
			}
		}
		if r.Operations != 201 || r.Latency.Max < int64(time.Second) || late == 0 ||
			r.Latency.P50 > int64(11*time.Millisecond) || r.Latency.P90 < int64(700*time.Millisecond) {
			t.Errorf("%+v", r)
		}
		if r.Unsent != 0 {
			t.Errorf("%d unsent", r.Unsent)
		}
	})
}

// A closed loop waits with the server, and sees one slow call.
func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ticks []Sample
		r, err := stalling(Config{Duration: 2005 * time.Millisecond}).measure(t.Context(), func(s Sample) { ticks = append(ticks, s) })
		if err != nil {
			t.Fatal(err)
		}
		if r.Operations < 1000 || r.Operations > 1010 || r.Latency.Max < int64(time.Second) || r.Latency.P99 > int64(2*time.Millisecond) {
			t.Errorf("%+v", r)
		}
		if len(r.Series) != 2 || len(ticks) != 2 || r.Series[0].Rate > 20 || r.Series[1].Rate < 950 {
			t.Errorf("series %+v, ticks %+v", r.Series, ticks)
		}
	})
}

// A rate that the server can't take leaves requests unsent.
func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := stalling(Config{Rate: 10_000, Depth: 3, Duration: time.Second})
		r, err := run.measure(t.Context(), nil)
		if err != nil || r.Unsent+r.Operations < 10_000 || r.Unsent < 9000 {
			t.Errorf("%v, %+v", err, r)
		}
		if most := run.conns[0].(*slowConn).most; most != 3 {
			t.Errorf("%d were sent at once, of at most 3", most)
		}
	})
}

func TestFirstError(t *testing.T) {
	rec := newRecorder()
	for _, r := range []replies{{n: 1}, {n: 2, failed: 1, first: "a"}, {n: 1}, {n: 1, failed: 1, first: "b"}} {
		rec.refused(r)
	}
	if r := rec.report(); r.Errors != 2 || r.FirstError != "a" {
		t.Errorf("%+v", r)
	}
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := stalling(Config{Requests: 1003, Depth: 10}).measure(t.Context(), nil)
		if err != nil || r.Operations != 1003 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// A server that never replies ends the run, with what was measured.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		run := &runner{Config: Config{Depth: 1, Duration: time.Second}, conns: []conn{&slowConn{
			closed: make(chan struct{}),
			delay: func() time.Duration {
				if calls++; calls > 10 {
					return time.Hour
				}
				return time.Millisecond
			},
		}}}
		r, err := run.measure(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "no reply for 10s") || r.Operations != 10 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// An interruption does not wait for replies, and is no error.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r, err := stalling(Config{Duration: time.Hour}).measure(ctx, nil)
		if err != nil || !r.Interrupted || r.Operations != 9 || r.Seconds != 0.5 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

func TestValidate(t *testing.T) {
	good := Config{Target: "localhost", Op: Incr, Dist: Hot, Connections: 1, Depth: 1, Requests: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	f := func(text string, change func(c *Config)) {
		t.Helper()
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	for _, target := range []string{"", "ftp://x", "redis://", "redis://x/1", "http://x/path", "http://x?y", "redis://[", "x:y:z"} {
		f("want redis://", func(c *Config) { c.Target = target })
	}
	f("API key", func(c *Config) { c.Target = "redis://:secret@localhost" })
	f("operation", func(c *Config) { c.Op = "lpush" })
	f("distribution", func(c *Config) { c.Dist = "normal" })
	f("share of reads", func(c *Config) { c.Op, c.ReadShare = Mixed, 1.1 })
	f("keys", func(c *Config) { c.Dist = Uniform })
	f("keys", func(c *Config) { c.Dist, c.Keys = Zipf, 1e12+1 })
	f("connections", func(c *Config) { c.Connections = 0 })
	f("connections", func(c *Config) { c.Connections = ConnectionsMax + 1 })
	f("depth", func(c *Config) { c.Depth = 0 })
	f("depth", func(c *Config) { c.Depth = DepthMax + 1 })
	f("duration", func(c *Config) { c.Requests = 0 })
	f("duration", func(c *Config) { c.Duration = -1 })
	f("rate", func(c *Config) { c.Rate = -1 })
	f("exponent", func(c *Config) { c.Dist, c.Keys, c.Exponent = Zipf, 2, 1 })
	f("exponent", func(c *Config) { c.Exponent = 2 })
	f("first key", func(c *Config) { c.First = -1 })
	f("first key", func(c *Config) { c.First = KeysMax })
	f("first key", func(c *Config) { c.First = math.MaxInt64 })
	f("first key", func(c *Config) { c.Dist, c.Keys, c.First = Uniform, 2, KeysMax-1 })
	f("with steps", func(c *Config) { c.Steps = []Step{{1, time.Second}} })
	f("step 1", func(c *Config) { c.Requests, c.Steps = 0, []Step{{1, time.Second}, {0, time.Second}} })
	f("step 0", func(c *Config) { c.Requests, c.Steps = 0, []Step{{1, 0}} })
}

// The names in the JSON are what scripts use.
func TestReportJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := stalling(Config{Requests: 100, Op: Incr, Dist: Hot}).measure(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"config", "began", "seconds", "operations", "operations_per_second", "errors", "latency_ns", "curve", "series"} {
			if _, ok := got[name]; !ok {
				t.Errorf("no %s in %s", name, raw)
			}
		}
		latency, _ := got["latency_ns"].(map[string]any)
		for _, name := range []string{"min", "mean", "p50", "p90", "p99", "p999", "max"} {
			if v, ok := latency[name].(float64); !ok || v <= 0 {
				t.Errorf("no %s in %s", name, raw)
			}
		}
	})
}

func TestPlot(t *testing.T) {
	f := func(r *Report, texts ...string) {
		t.Helper()
		var b strings.Builder
		if err := r.Plot(&b); err != nil {
			t.Fatal(err)
		}
		got := wellFormed(t, b.String())
		for _, text := range append(texts, "Latency", "milliseconds", "percentile", "Throughput", "operations a second", "seconds") {
			if !strings.Contains(got, text) {
				t.Errorf("no %q in %s", text, b.String())
			}
		}
	}
	f(&Report{}) // nothing was measured
	f(&Report{
		Config: Config{Target: "<&>", Op: Mixed, ReadShare: 0.5, Dist: Uniform, Keys: 10, Rate: 100, Connections: 3, Depth: 4},
		Curve:  []Point{{0, 1000}, {50, 2000}, {90, 3e6}, {99, 1e9}},
		Series: []Sample{{At: 1, Rate: 1000, P99: 1000}, {At: 2, Rate: 2000, P99: 2000}},
	}, "<&>: 50% get, else incr, 10 uniform keys, 3 connections, depth 4, open loop, 100/s", "0%", "50%", "90%", "99%")
}

// wellFormed returns the text of an XML document.
func wellFormed(t *testing.T, document string) string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(document))
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if chars, ok := token.(xml.CharData); ok {
			text.Write(chars)
		}
	}
}
