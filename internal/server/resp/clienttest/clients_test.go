package clienttest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// addr is where the server under test listens.
var addr string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the server, starts it, and runs the tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quipu-clients-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "quipu")
	build := exec.Command("go", "build", "-o", binary, "./cmd/quipu")
	build.Dir = filepath.Join("..", "..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	server := exec.Command(binary, "serve", "--data", filepath.Join(dir, "data"), "--http", "off", "--resp", "127.0.0.1:0", "--rpc", "off")
	var log bytes.Buffer
	server.Stderr = &log
	stdout, err := server.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	found := regexp.MustCompile(`resp=(\S+)`).FindStringSubmatch(line)
	if err != nil || found == nil {
		panic(fmt.Sprintf("ready line %q, %v\n%s", line, err, log.String()))
	}
	addr = found[1]
	return m.Run()
}

// program runs a program that must succeed, and returns its output.
func program(t *testing.T, debian, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%s is missing: on Debian, apt-get install %s", name, debian)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v (on Debian, apt-get install %s)\n%s", name, args, err, debian, out)
	}
	return string(out)
}

func TestPython(t *testing.T) {
	program(t, "python3-redis", "/usr/bin/python3", "testdata/client.py", addr)
}

func TestHiredis(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "client")
	program(t, "gcc libhiredis-dev", "gcc", "-o", binary, "testdata/client.c", "-lhiredis")
	program(t, "libhiredis-dev", binary, addr)
}

func TestNode(t *testing.T) {
	if _, err := os.Stat(filepath.Join("testdata", "node", "node_modules")); err != nil {
		t.Fatal("the packages are missing: make setup")
	}
	for _, script := range []string{"ioredis.mjs", "noderedis.mjs", "nodecache.mjs", "bloom.mjs"} {
		program(t, "nodejs npm", "node", filepath.Join("testdata", "node", script), addr)
	}
}

func TestRedisCLI(t *testing.T) {
	host, port, _ := strings.Cut(addr, ":")
	cli := func(stdin string, args ...string) string {
		t.Helper()
		if _, err := exec.LookPath("redis-cli"); err != nil {
			t.Fatal("redis-cli is missing: on Debian, apt-get install redis-tools")
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, args...)...)
		c.Stdin = strings.NewReader(stdin)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	f := func(want, stdin string, args ...string) {
		t.Helper()
		if got := cli(stdin, args...); got != want {
			t.Errorf("redis-cli %q: %q, want %q", args, got, want)
		}
	}
	f("OK\n", "", "FLUSHALL")
	f("1\n", "", "INCR", "cli")
	f("2\n3\n\n", "INCR cli\nINCR cli\nGET none\n")
	f("4\n", "", "-3", "INCR", "cli")
	f("OK\nQUEUED\n5\n", "MULTI\nINCR cli\nEXEC\n")
	f("cli\n", "", "--scan", "--pattern", "cl*")
	if got := cli(strings.Repeat("*2\r\n$4\r\nINCR\r\n$4\r\npipe\r\n", 1000), "--pipe"); !strings.Contains(got, "errors: 0, replies: 1000") {
		t.Errorf("--pipe: %s", got)
	}
	f("1000\n", "", "GET", "pipe")
	// Interactive: script gives it a terminal, and it asks for COMMAND DOCS.
	if _, err := exec.LookPath("script"); err != nil {
		t.Fatal("script is missing: on Debian, apt-get install bsdutils")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "script", "-qec", fmt.Sprintf("redis-cli -h %s -p %s", host, port), "/dev/null")
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "TERM=dumb") // it keeps a history, and asks where the cursor is
	c.Stdin = strings.NewReader("incr cli\nquit\n")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "(integer) 6") {
		t.Errorf("in a terminal: %v, %q", err, out)
	}
}

func TestRedisBenchmark(t *testing.T) {
	host, port, _ := strings.Cut(addr, ":")
	for _, depth := range []string{"1", "16"} {
		bench := func(args ...string) string {
			t.Helper()
			return program(t, "redis-tools", "redis-benchmark",
				append([]string{"-h", host, "-p", port, "-n", "2000", "-c", "10", "-P", depth, "-r", "100", "-q"}, args...)...)
		}
		out := bench("-t", "ping,get,incr") + bench("set", "bench:__rand_int__", "5")
		for _, name := range []string{"PING_INLINE", "PING_MBULK", "GET", "INCR", "set bench"} {
			if !regexp.MustCompile(name + `.*requests per second`).MatchString(out) {
				t.Errorf("depth %s: no result of %s in %s", depth, name, out)
			}
		}
	}
}

func TestGoRedis(t *testing.T) {
	ctx := t.Context()
	for _, protocol := range []int{2, 3} {
		c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: protocol})
		defer func() { _ = c.Close() }()
		if err := c.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := c.IncrBy(ctx, "a", 42).Result(); err != nil || n != 42 {
			t.Errorf("IncrBy: %d, %v", n, err)
		}
		if err := c.Get(ctx, "none").Err(); !errors.Is(err, goredis.Nil) {
			t.Errorf("Get of none: %v", err)
		}
		if ok, err := c.SetNX(ctx, "b", 7, time.Hour).Result(); err != nil || !ok {
			t.Errorf("SetNX: %v, %v", ok, err)
		}
		if d, err := c.TTL(ctx, "b").Result(); err != nil || d != time.Hour {
			t.Errorf("TTL: %v, %v", d, err)
		}
		var sum *goredis.IntCmd
		if _, err := c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.Incr(ctx, "a")
			sum = p.Incr(ctx, "a")
			return nil
		}); err != nil || sum.Val() != 44 {
			t.Errorf("TxPipelined: %v, %v", sum, err)
		}
		err := c.Watch(ctx, func(tx *goredis.Tx) error {
			c.Incr(ctx, "a")
			_, err := tx.TxPipelined(ctx, func(p goredis.Pipeliner) error { p.Incr(ctx, "a"); return nil })
			return err
		}, "a")
		if !errors.Is(err, goredis.TxFailedErr) {
			t.Errorf("Watch: %v", err)
		}
		var found []string
		for it := c.Scan(ctx, 0, "", 1).Iterator(); it.Next(ctx); {
			found = append(found, it.Val())
		}
		if slices.Sort(found); !slices.Equal(found, []string{"a", "b"}) {
			t.Errorf("Scan: %v", found)
		}
		for range 2 {
			if n, err := c.Do(ctx, "Q.ADD", "a", 1, "ID", fmt.Sprint("go", protocol)).Int(); err != nil || n != 46 {
				t.Errorf("Q.ADD: %d, %v", n, err)
			}
		}
		other := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: protocol, DB: 3})
		defer func() { _ = other.Close() }()
		if n, err := other.Incr(ctx, "a").Result(); err != nil || n != 1 {
			t.Errorf("Incr in database 3: %d, %v", n, err)
		}
		if n, err := other.DBSize(ctx).Result(); err != nil || n != 1 {
			t.Errorf("DBSize of database 3: %d, %v", n, err)
		}
		if info, err := c.Command(ctx).Result(); err != nil || info["mset"].StepCount != 2 || info["object"] == nil {
			t.Errorf("Command: %v, %v", info["mset"], err)
		}
		if _, err := c.SlowLogGet(ctx, -1).Result(); err != nil {
			t.Errorf("SlowLogGet: %v", err)
		}
		if n, err := c.MemoryUsage(ctx, "a").Result(); err != nil || n < 1 {
			t.Errorf("MemoryUsage: %d, %v", n, err)
		}
	}
}

func TestRueidis(t *testing.T) {
	ctx := t.Context()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(ctx, c.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	// It sends what many goroutines ask as one pipeline.
	values := make(chan int64, 200)
	for range 200 {
		go func() {
			n, err := c.Do(ctx, c.B().Incr().Key("a").Build()).AsInt64()
			if err != nil {
				t.Errorf("Incr: %v", err)
			}
			values <- n
		}()
	}
	seen := map[int64]bool{}
	for range 200 {
		seen[<-values] = true
	}
	if len(seen) != 200 || !seen[1] || !seen[200] {
		t.Errorf("%d different values", len(seen))
	}
	if err := c.Do(ctx, c.B().Get().Key("none").Build()).Error(); !rueidis.IsRedisNil(err) {
		t.Errorf("Get of none: %v", err)
	}
	m, err := c.Do(ctx, c.B().Arbitrary("Q.GET").Keys("a").Build()).AsMap()
	if err != nil {
		t.Fatal(err)
	}
	if v := m["value"]; v.String() == "" {
		t.Errorf("Q.GET: %v", m)
	}
}

// With its defaults it keeps what it reads by DoCache, and is told when that changes.
func TestRueidisCache(t *testing.T) {
	ctx := t.Context()
	open := func(o rueidis.ClientOption) rueidis.Client {
		o.InitAddress = []string{addr}
		c, err := rueidis.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	for name, o := range map[string]rueidis.ClientOption{
		"defaults":  {},
		"prefixes":  {ClientTrackingOptions: []string{"BCAST", "PREFIX", "cached:"}},
		"pipelines": {AlwaysPipelining: true},
	} {
		t.Run(name, func(t *testing.T) {
			reader, writer := open(o), open(rueidis.ClientOption{DisableCache: true})
			key := "cached:" + name
			read := func(want string) (hit bool) {
				t.Helper()
				for began := time.Now(); ; {
					r := reader.DoCache(ctx, reader.B().Get().Key(key).Cache(), time.Minute)
					if got, err := r.ToString(); err == nil && got == want {
						return r.IsCacheHit()
					} else if time.Since(began) > patience {
						t.Fatalf("%q, %v, want %q", got, err, want)
					}
				}
			}
			for i := range 20 {
				n := fmt.Sprint(i)
				if err := writer.Do(ctx, writer.B().Set().Key(key).Value(n).Build()).Error(); err != nil {
					t.Fatal(err)
				}
				read(n)
				if !read(n) {
					t.Errorf("%d: not kept", i)
				}
			}
			if err := writer.Do(ctx, writer.B().Pexpire().Key(key).Milliseconds(300).Build()).Error(); err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); ; {
				if err := reader.DoCache(ctx, reader.B().Get().Key(key).Cache(), time.Minute).Error(); rueidis.IsRedisNil(err) {
					break
				} else if time.Since(began) > patience {
					t.Fatalf("it has not expired: %v", err)
				}
			}
			several := reader.DoMultiCache(ctx, rueidis.CT(reader.B().Get().Key(key+"1").Cache(), time.Minute), rueidis.CT(reader.B().Get().Key(key+"2").Cache(), time.Minute))
			for _, r := range several {
				if err := r.Error(); !rueidis.IsRedisNil(err) {
					t.Error(err)
				}
			}
			mget, err := rueidis.MGetCache(reader, ctx, time.Minute, []string{key + "1", key + "3"})
			if err != nil || len(mget) != 2 {
				t.Errorf("MGetCache: %v, %v", mget, err)
			}
		})
	}
}

func TestRedigo(t *testing.T) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Send("INCR", "a"); err != nil {
			t.Fatal(err)
		}
	}
	replies, err := redis.Ints(c.Do(""))
	if err != nil || !slices.Equal(replies, []int{1, 2, 3}) {
		t.Errorf("pipeline: %v, %v", replies, err)
	}
	if _, err := redis.Int(c.Do("GET", "none")); !errors.Is(err, redis.ErrNil) {
		t.Errorf("GET of none: %v", err)
	}
	if ok, err := redis.String(c.Do("SET", "t", "text")); err != nil || ok != "OK" {
		t.Errorf("SET of text: %v, %v", ok, err)
	}
	if _, err := c.Do("INCR", "t"); err == nil || !strings.Contains(err.Error(), "not an integer") {
		t.Errorf("INCR of text: %v", err)
	}
}
