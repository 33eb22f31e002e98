package load

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

// ask sends a command, and returns the reply: its first line, or the string.
func ask(t *testing.T, addr string, words ...string) string {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write(append(command(words...), command("QUIT")...)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(bufio.NewReader(c))
	if err != nil {
		t.Fatal(err)
	}
	line, rest, _ := strings.Cut(string(all), "\r\n")
	if strings.HasPrefix(line, "$") {
		line, _, _ = strings.Cut(rest, "\r\n")
	}
	return line
}

// Everything that is sent is counted, by both sides.
func TestRedis(t *testing.T) {
	s := redisproc.For(t)
	run := func(c Config) *Report {
		t.Helper()
		c.Target, c.Connections = s.Addr, 5
		if c.Depth == 0 {
			c.Depth = 16
		}
		r, err := Run(t.Context(), c, nil)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if r.Operations != c.Requests || r.Errors != 0 || r.Latency.Min <= 0 || r.Latency.Max < r.Latency.P50 {
			t.Errorf("%+v: %+v", c, r)
		}
		if r.Server == nil || r.Server.PID != s.PID() {
			t.Errorf("%+v: server %+v, want process %d", c, r.Server, s.PID())
		}
		return r
	}
	f := func(want string, words ...string) {
		t.Helper()
		if got := ask(t, s.Addr, words...); got != want {
			t.Errorf("%v: got %s, want %s", words, got, want)
		}
	}
	run(Config{Op: Incr, Dist: Hot, Requests: 10_001})
	f("10001", "GET", KeyZero)
	run(Config{Op: Incr, Dist: Hot, Requests: 500, Depth: 1})
	f("10501", "GET", KeyZero)
	run(Config{Op: Get, Dist: Uniform, Keys: 1000, Requests: 5000})
	f(":1", "DBSIZE")
	run(Config{Op: Incr, Dist: Uniform, Keys: 100, Requests: 10_000})
	f(":100", "DBSIZE")
	run(Config{Op: Set, Dist: Uniform, Keys: 100, Requests: 10_000})
	f("1", "GET", KeyZero)
	run(Config{Op: Mixed, ReadShare: 0.5, Dist: Zipf, Keys: 100, Requests: 10_000})
	r := run(Config{Op: Incr, Dist: Hot, Requests: 500, Rate: 5000})
	if r.Seconds < 0.09 {
		t.Errorf("500 requests at 5000 a second took %v s", r.Seconds)
	}
}

// Errors are counted, and the first is kept; a server that denies access is asked no
// further.
func TestRedisErrors(t *testing.T) {
	s := redisproc.For(t, "--requirepass", "secret")
	c := Config{Target: s.Addr, Op: Incr, Dist: Hot, Connections: 2, Depth: 3, Requests: 100}
	r, err := Run(t.Context(), c, nil)
	if denied, ok := errors.AsType[*DeniedError](err); !ok || !strings.HasPrefix(denied.Reply, "NOAUTH ") || r != nil {
		t.Errorf("no password: %v, %+v", err, r)
	}
	c.APIKey = "wrong"
	if _, err := Run(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("wrong password: %v", err)
	}
	c.APIKey = "secret"
	if r, err := Run(t.Context(), c, nil); err != nil || r.Errors != 0 || r.Server == nil {
		t.Errorf("%v, %+v", err, r)
	}
	c.Op = Add // which Redis does not have
	if r, err := Run(t.Context(), c, nil); err != nil || r.Operations != 100 || r.Errors != 100 || !strings.HasPrefix(r.FirstError, "ERR unknown command") {
		t.Errorf("%v, %+v", err, r)
	}
}

// A server that goes away ends the run, with what was measured.
func TestRedisGone(t *testing.T) {
	s := redisproc.For(t)
	c := Config{Target: "redis://" + s.Addr, Op: Incr, Dist: Hot, Connections: 2, Depth: 3, Duration: time.Minute}
	stopped := false
	r, err := Run(t.Context(), c, func(Sample) {
		if !stopped {
			stopped = true
			_ = s.Stop()
		}
	})
	if err == nil || r == nil || r.Operations == 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if _, err := Run(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "connect to "+c.Target) {
		t.Errorf("no server: %v", err)
	}
}

func TestRedisInterrupted(t *testing.T) {
	s := redisproc.For(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := Config{Target: s.Addr, Op: Incr, Dist: Hot, Connections: 2, Depth: 3, Duration: time.Minute, Warmup: time.Millisecond}
	r, err := Run(ctx, c, func(Sample) { cancel() })
	if err != nil || r == nil || !r.Interrupted || r.Operations == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}
