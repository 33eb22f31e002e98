package crash

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/serving"
)

const scripters = 6

// step counts for one client and for all, and writes down in words what it has counted.
const step = `local n = redis.call('incr', KEYS[1]) redis.call('set', KEYS[2], 'n' .. n) redis.call('incr', KEYS[3]) return n`

// lone is the same with one key for each client, for stores whose keys are in several partitions: text that
// all of it is in.
const lone = `local n = tonumber((redis.call('get', KEYS[1]) or 'n0'):sub(2)) + 1 redis.call('set', KEYS[1], 'n' .. n) return n`

// A troupe is servers of one store that are killed while clients send them commands.
type troupe struct {
	t       *testing.T
	args    []string
	binary  string
	dir     string // of the store, if it is embedded
	servers []*serving.Process
	addrs   []atomic.Pointer[string]
	over    atomic.Bool

	mu       sync.Mutex
	problems []error
}

// newTroupe starts servers over a store, or, if that is empty, one with a directory of its own.
func newTroupe(t *testing.T, binary, store string, servers int) *troupe {
	t.Helper()
	s := &troupe{t: t, binary: binary, args: []string{"--http", "off", "--resp", "127.0.0.1:0"}, servers: make([]*serving.Process, servers), addrs: make([]atomic.Pointer[string], servers)}
	if store == "" {
		s.dir = filepath.Join(t.TempDir(), "data")
		s.args = append(s.args, "--data", s.dir)
	} else {
		s.args = append(s.args, "--store", store)
	}
	for i := range servers {
		s.start(i)
	}
	return s
}

// kill kills servers under load, one at a time.
func (s *troupe) kill(rng *rand.Rand) {
	s.t.Helper()
	for range *cycles {
		pause(100*time.Millisecond+time.Duration(rng.IntN(300))*time.Millisecond, nil)
		i := rng.IntN(len(s.servers))
		if err := s.servers[i].Died(); err != nil {
			s.t.Fatalf("server %d: %v\n%s", i, err, &s.servers[i].Log)
		}
		s.servers[i].Kill()
		s.start(i)
	}
	pause(200*time.Millisecond, nil)
	s.over.Store(true)
}

func (s *troupe) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Errorf(format, args...))
}

// A scripter is what one client has sent, and was told: by a script with so many keys.
type scripter struct {
	step       string
	keys       int
	sent, told int64
}

// scripted has clients send scripts while servers are killed. Afterwards each has counted what it
// was told at least, and no more than it has sent; and each script was one step.
func scripted(t *testing.T, binary string, rng *rand.Rand, store string, servers, keys int) {
	s, source := newTroupe(t, binary, store, servers), step
	check := `local n = tonumber(redis.call('get', KEYS[1]) or 0) if n > 0 and redis.call('get', KEYS[2]) ~= 'n' .. n then return -1 end return n`
	if keys == 1 {
		source, check = lone, `return tonumber((redis.call('get', KEYS[1]) or 'n0'):sub(2))`
	}
	clients := make([]scripter, scripters)
	var all sync.WaitGroup
	for i := range clients {
		clients[i].step, clients[i].keys = source, keys
		all.Go(func() { s.play(i, &clients[i]) })
	}
	s.kill(rng)
	all.Wait()
	sum, told := int64(0), int64(0)
	c := s.dial(0)
	defer func() { _ = c.Close() }()
	for i, is := range clients {
		n, err := c.eval(check, min(keys, 2), i)
		switch {
		case err != nil:
			t.Fatal(err)
		case n < 0:
			t.Errorf("client %d: a script has counted, and not written it down", i)
		case n < is.told || n > is.sent:
			t.Errorf("client %d has counted to %d; it has sent %d, and %d were acknowledged", i, n, is.sent, is.told)
		}
		sum, told = sum+n, told+is.told
	}
	if keys == 3 {
		if all, err := c.eval(`return tonumber(redis.call('get', KEYS[3]) or 0)`, 3, 0); err != nil || all != sum {
			t.Errorf("all have counted to %d (%v), and each to %d together", all, err, sum)
		}
	}
	if told == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("%d kills: %d scripts were acknowledged, %d have counted", *cycles, told, sum)
	if err := errors.Join(s.problems...); err != nil {
		t.Error(err)
	}
}

func (s *troupe) start(i int) {
	s.t.Helper()
	s.servers[i] = launch(s.t, s.binary, s.args...)
	addr, err := ready(s.t.Context(), s.servers[i])
	if err != nil {
		s.t.Fatalf("server %d: %v\n%s", i, err, &s.servers[i].Log)
	}
	s.addrs[i].Store(&addr)
}

type stage struct {
	net.Conn
	r *bufio.Reader
}

// dial returns a connection to a server, when it is there.
func (s *troupe) dial(i int) *stage {
	for !s.over.Load() {
		c, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", *s.addrs[i].Load())
		if err == nil {
			return &stage{c, bufio.NewReader(c)}
		}
		pause(5*time.Millisecond, nil)
	}
	c, err := net.Dial("tcp", *s.addrs[i].Load())
	if err != nil {
		s.t.Error(err)
		return &stage{Conn: closed{}, r: bufio.NewReader(strings.NewReader(""))}
	}
	return &stage{c, bufio.NewReader(c)}
}

// closed is a connection to nobody.
type closed struct{ net.Conn }

func (closed) Write([]byte) (int, error) { return 0, net.ErrClosed }
func (closed) Close() error              { return nil }

// do sends a command, and returns its reply: of an array the first. Only what nobody answered is an error.
func (c *stage) do(args ...string) (string, error) {
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	if err == nil && line[0] == '*' {
		line, err = c.r.ReadString('\n')
	}
	return strings.TrimSpace(line), err
}

// number returns the number that a command replies.
func (c *stage) number(args ...string) (int64, error) {
	line, err := c.do(args...)
	if err != nil {
		return 0, err
	}
	if n, is := strings.CutPrefix(line, ":"); is {
		return number(n)
	}
	return 0, errors.New(line)
}

// eval runs a script on a client's keys, and returns the number that it replies.
func (c *stage) eval(source string, keys, client int) (int64, error) {
	return c.number([]string{"EVAL", source, fmt.Sprint(keys), fmt.Sprintf("count:%d", client), fmt.Sprintf("word:%d", client), "count:all"}[:3+keys]...)
}

// play sends scripts until it is over.
func (s *troupe) play(i int, is *scripter) {
	c := s.dial(i % len(s.servers))
	defer func() { _ = c.Close() }()
	for last := int64(0); !s.over.Load(); {
		is.sent++
		n, err := c.eval(is.step, is.keys, i)
		switch {
		case err == nil && n <= last:
			s.problem("client %d: %d after %d", i, n, last)
			return
		case err == nil:
			last, is.told = n, is.told+1
		default: // It may have counted.
			_ = c.Close()
			c = s.dial(i % len(s.servers))
		}
	}
}
