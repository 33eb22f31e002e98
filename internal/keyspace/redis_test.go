package keyspace_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/sketch"
)

var seed = flag.Uint64("seed", 0, "the seed; 0 takes a new one")

// A redis is a connection to a real Redis.
type redis struct {
	conn net.Conn
	r    *bufio.Reader
}

func (c *redis) do(t *testing.T, args ...string) keyspace.Reply {
	t.Helper()
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		t.Fatal(err)
	}
	r, err := c.reply()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return r
}

func (c *redis) reply() (r keyspace.Reply, err error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return r, err
	}
	rest := strings.TrimSuffix(line[1:], "\r\n")
	n, _ := strconv.ParseInt(rest, 10, 64)
	switch line[0] {
	case '+':
		return keyspace.Reply{Kind: keyspace.Status, Text: rest}, nil
	case '-':
		return keyspace.Reply{Kind: keyspace.Error, Text: rest}, nil
	case ':':
		return keyspace.Reply{Kind: keyspace.Number, N: n}, nil
	case '$':
		if n < 0 {
			return r, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.r, b)
		return keyspace.Reply{Kind: keyspace.Bulk, Text: string(b[:n])}, err
	case '*':
		r = keyspace.Reply{Kind: keyspace.Array, All: []keyspace.Reply{}}
		for range n {
			one, err := c.reply()
			if err != nil {
				return r, err
			}
			r.All = append(r.All, one)
		}
		return r, nil
	}
	return r, fmt.Errorf("reply %q", line)
}

// A world is what is written, and how commands are executed on it: some at a time are one
// Space, whose changes are applied by what they say alone.
type world struct {
	now    int64
	keys   map[string]keyspace.Value
	pieces map[string]string // by key, name and index
	seed   uint64
}

func (w *world) space() *keyspace.Space {
	s := keyspace.New(w.now, func(key string) (keyspace.Value, error) { return w.keys[key], nil })
	w.seed += 1 << 32
	s.Seed = w.seed
	s.Pieces = func(key, name string, indexes []int) (states []string, err error) {
		for _, i := range indexes {
			states = append(states, w.pieces[pieceOf(key, name, i)])
		}
		return states, nil
	}
	return s
}

func pieceOf(key, name string, i int) string { return fmt.Sprintf("%s/%s/%d", key, name, i) }

// merged returns what is asked of a state, which must come to what the change says.
func merged(t *testing.T, was string, asks []byte, want string) string {
	t.Helper()
	next, changed, _, ok := sketch.Decide(nil, was, asks)
	if !ok || !changed || string(next) != want {
		t.Fatalf("request %x of %d bytes comes to %d bytes (%v, %v), want %d", asks, len(was), len(next), changed, ok, len(want))
	}
	return want
}

func (w *world) apply(t *testing.T, s *keyspace.Space) {
	t.Helper()
	for _, c := range s.Changes() {
		v := w.keys[c.Key]
		if v.DeadlineMS != 0 && v.DeadlineMS <= w.now {
			v = keyspace.Value{}
		}
		if c.WasObject != (v.IsText || v.Held != "") {
			t.Fatalf("%+v of %+v", c, v)
		}
		ms := c.DeadlineMS
		if c.LivesMS != 0 && c.Op != keyspace.OpDelete {
			ms = w.now + c.LivesMS
		}
		switch c.Op {
		case keyspace.OpDelete:
			v = keyspace.Value{}
		case keyspace.OpAdd:
			if c.WasObject {
				t.Fatalf("%+v adds to %+v", c, v)
			}
			v.Exists, v.N = true, v.N+c.N
		case keyspace.OpSet:
			v = keyspace.Value{Exists: true, N: c.N}
		case keyspace.OpPut:
			v = keyspace.Value{Exists: true, IsText: true, Text: c.Text}
		case keyspace.OpMerge:
			v.Exists, v.Held = true, merged(t, v.Held, c.Asks, s.Is(c.Key).Held)
		case keyspace.OpHold:
			if v = (keyspace.Value{Exists: true, Held: c.Held, DeadlineMS: v.DeadlineMS}); len(c.Pieces) > 0 {
				w.put(t, &c)
			}
		case keyspace.OpExpire:
			if !v.Exists {
				t.Fatalf("%+v of an absent key", c)
			}
		}
		if c.Ages {
			v.DeadlineMS = ms
		}
		w.keys[c.Key] = v
	}
}

// put takes over the pieces of a change.
func (w *world) put(t *testing.T, c *keyspace.Change) {
	t.Helper()
	name, _, ok := keyspace.PiecesOf(c.Held)
	if !ok {
		t.Fatalf("pieces of %x", c.Held)
	}
	for _, p := range c.Pieces {
		at := pieceOf(c.Key, name, p.Index)
		if p.Asks != nil {
			merged(t, w.pieces[at], p.Asks, p.State)
		}
		w.pieces[at] = p.State
	}
}

// draws returns a random command.
func draws(r *rand.Rand) []string {
	of := func(from ...string) string { return from[r.IntN(len(from))] }
	key := func() string { return of("a", "b", "c", "dd") }
	value := func() string {
		return of("", "0", "-0", "1", "-1", "007", "+5", " 1", "1 ", "x", "hello world", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
			"1.5", "-3.0e3", "0.1", "1e400", "5.0e3", ".5", "5.", "1e-5", "inf", "-inf", "nan", "\x00\xff", strings.Repeat("z", 300))
	}
	number := func() string {
		return of("0", "1", "-1", "2", "5", "-5", "100", "9223372036854775807", "-9223372036854775808", "x", "1.5", "")
	}
	name := func(name string) string { return of(name, strings.ToLower(name)) }
	life := func() []string {
		return [][]string{
			{"EX", "1000"},
			{"PX", "5000000"},
			{"EXAT", "33177117420"},
			{"PXAT", "33177117420000"},
			{"EX", "0"},
			{"PX", "-1"},
			{"EX", "x"},
			{"EX"},
			{"EX", "9223372036854775807"},
			{"PX", "9223372036854775807"},
			{"EXAT", "1"},
			{"PXAT", "1"},
			{"ex", "1000", "EX", "2000"},
			{"EX", "1000", "PX", "1000"},
		}[r.IntN(14)]
	}
	flags := func(from ...string) (some []string) {
		for range r.IntN(3) {
			some = append(some, of(from...))
		}
		return some
	}
	switch r.IntN(30) {
	case 0, 1:
		return []string{name("GET"), key()}
	case 2, 3, 4:
		args := []string{name("SET"), key(), value()}
		for range r.IntN(4) {
			if r.IntN(2) == 0 {
				args = append(args, life()...)
			} else {
				args = append(args, of("NX", "xx", "GET", "KEEPTTL", "BAD"))
			}
		}
		return args
	case 5:
		return []string{of("SETNX", "GETSET", "APPEND", "append"), key(), value()}
	case 6:
		return []string{of("SETEX", "PSETEX"), key(), of("1000000", "0", "-1", "x", "9223372036854775807"), value()}
	case 7:
		return []string{of("GETDEL", "STRLEN", "TYPE", "PERSIST"), key()}
	case 8:
		return append([]string{"GETEX", key()}, [][]string{{}, {"PERSIST"}, life(), append(life(), "PERSIST")}[r.IntN(4)]...)
	case 9:
		return []string{of("MSET", "MSETNX"), key(), value(), key(), value()}
	case 10:
		return []string{of("MSET", "MSETNX"), key(), value(), key()}
	case 11:
		return []string{"MGET", key(), key(), key()}
	case 12, 13:
		return []string{of("GETRANGE", "SUBSTR"), key(), number(), number()}
	case 14:
		return []string{"SETRANGE", key(), of("0", "1", "5", "300", "-1", "x", "9223372036854775807"), value()}
	case 15, 16:
		return []string{name(of("INCR", "DECR")), key()}
	case 17, 18:
		return []string{of("INCRBY", "DECRBY"), key(), number()}
	case 19, 20, 21:
		return []string{"INCRBYFLOAT", key(), value()}
	case 22:
		return []string{of("DEL", "UNLINK", "EXISTS", "TOUCH"), key(), key()}
	case 23:
		return []string{of("RENAME", "RENAMENX"), key(), key()}
	case 24:
		return append([]string{"COPY", key(), key()}, flags("REPLACE", "replace", "BAD")...)
	case 25:
		return append([]string{of("EXPIRE", "PEXPIRE"), key(), of("1000000", "2000000", "0", "-1", "x", "9223372036854775807", "-9223372036854775808")}, flags("NX", "XX", "GT", "lt", "BAD")...)
	case 26:
		return append([]string{of("EXPIREAT", "PEXPIREAT"), key(), of("33177117420", "33177117421", "1", "-1", "x", "-9223372036854775808")}, flags("NX", "XX", "gt", "LT")...)
	case 27:
		return []string{of("TTL", "EXPIRETIME"), key()}
	case 28:
		return []string{of("GET", "SET", "MGET", "DEL", "EXPIRE", "SETRANGE", "COPY", "GETEX", "TTL")}
	default:
		return []string{of("GET", "STRLEN", "INCR", "TTL"), key(), "more"}
	}
}

// TestRedis executes random commands side by side with a real Redis.
func TestRedis(t *testing.T) { beside(t, []string{"a", "b", "c", "dd"}, nil, draws) }

// TestRedisUniques does so with sketches of uniques.
func TestRedisUniques(t *testing.T) {
	var items []string
	choose := func(c *redis) { // No two of them share a register of Redis, which then counts them exactly.
		for i := 0; len(items) < 12; i++ {
			if item := fmt.Sprint("item", i); c.do(t, "PFADD", "all", item).N == 1 {
				items = append(items, item)
			}
		}
	}
	beside(t, []string{"a", "b", "c", "dd"}, choose, func(r *rand.Rand) []string {
		of := func(from ...string) string { return from[r.IntN(len(from))] }
		key := func() string { return of("a", "b", "c", "dd") }
		some := func(args ...string) []string {
			for range r.IntN(4) {
				args = append(args, of(items...))
			}
			return args
		}
		switch r.IntN(16) {
		case 0, 1, 2, 3, 4:
			return some("PFADD", key())
		case 5:
			return []string{"PFCOUNT", key()}
		case 6:
			return []string{"pfcount", key(), key(), key()}
		case 7:
			return []string{"PFMERGE", key(), key()}
		case 8:
			return []string{"PFMERGE", key(), key(), key()}
		case 9:
			return []string{"PFMERGE", key()}
		case 10:
			return []string{of("PFADD", "PFCOUNT", "PFMERGE")}
		case 11:
			return []string{of("DEL", "EXISTS", "TYPE", "TTL", "PERSIST"), key()}
		case 12:
			return []string{of("EXPIRE", "PEXPIRE"), key(), of("1000000", "0")}
		case 13:
			return []string{of("RENAME", "COPY", "RENAMENX"), key(), key()}
		case 14:
			return []string{"SET", key(), of("text", "5", "")}
		default:
			return []string{"DEL", key(), key()}
		}
	})
}

// TestRedisCollections does so with hashes and sorted sets.
func TestRedisCollections(t *testing.T) {
	beside(t, []string{"a", "b", "c", "dd"}, nil, func(r *rand.Rand) []string {
		of := func(from ...string) string { return from[r.IntN(len(from))] }
		key := func() string { return of("a", "a", "b", "c", "dd") }
		name := func() string { return of("f", "g", "h", "", "7", "\x00\xff") }
		value := func() string {
			return of("", "1", "-3", "9223372036854775807", "1.5", "-0.25e1", "x", "12x", "inf", "text of some length")
		}
		score := func() string {
			return of("0", "1", "1", "2", "-1", "1.5", "0.1", "-0", "1e3", "3.0e-7", "+inf", "-inf", "inf", "Infinity", "nan", "x", "", " 1", "1 ", "0x10", "1e400", "1e-400", "1_0", "12345678901234567890", "9007199254740993")
		}
		bound := func() string {
			return of("(", "", "", "") + of("-inf", "+inf", "0", "1", "1.5", "2", "-1", "x", "", "nan", "1e400", " 1")
		}
		rank := func() string { return of("0", "1", "2", "-1", "-2", "-9", "9", "x", "1.5") }
		some := func(most int, f func() []string, args ...string) []string {
			for range r.IntN(most) {
				args = append(args, f()...)
			}
			return args
		}
		switch r.IntN(42) {
		case 0, 1, 2, 3:
			return some(4, func() []string { return []string{name(), value()} }, of("HSET", "HSET", "hmset"), key())
		case 4:
			return []string{"HSET", key(), name(), value(), name()}
		case 5:
			return []string{of("HSETNX", "hsetnx"), key(), name(), value()}
		case 6, 7:
			return []string{of("HGET", "HEXISTS", "HSTRLEN"), key(), name()}
		case 8:
			return some(4, func() []string { return []string{name()} }, of("HMGET", "HDEL"), key(), name())
		case 9, 10:
			return []string{of("HGETALL", "HKEYS", "HVALS", "HLEN", "ZCARD"), key()}
		case 11, 12:
			return []string{"HINCRBY", key(), name(), of("1", "-5", "9223372036854775807", "-9223372036854775808", "x", "1.5")}
		case 13, 14:
			return []string{"HINCRBYFLOAT", key(), name(), value()}
		case 15:
			return some(3, func() []string { return []string{name()} }, "HDEL", key())
		case 16, 17, 18, 19, 20:
			args := some(3, func() []string { return []string{of("NX", "XX", "GT", "LT", "CH", "INCR", "ch", "bad")} }, "ZADD", key())
			return some(4, func() []string { return []string{score(), name()} }, args...)
		case 21, 22:
			return []string{"ZADD", key(), score(), name(), of("1", "2", "3"), name()}
		case 23:
			return []string{"ZADD", key(), score(), name(), score()}
		case 24:
			return []string{"ZINCRBY", key(), score(), name()}
		case 25:
			return []string{of("ZSCORE", "ZRANK", "ZREVRANK"), key(), name()}
		case 26:
			return []string{of("ZMSCORE", "ZREM"), key(), name(), name()}
		case 27, 28:
			return some(3, func() []string { return []string{of("WITHSCORES", "REV", "LIMIT", "bad")} }, of("ZRANGE", "ZREVRANGE"), key(), rank(), rank())
		case 29, 30:
			args := some(3, func() []string { return []string{of("WITHSCORES", "REV", "BYSCORE", "LIMIT")} }, "ZRANGE", key(), bound(), bound(), "BYSCORE")
			return some(2, func() []string { return []string{"LIMIT", rank(), rank()} }, args...)
		case 31, 32:
			args := some(2, func() []string { return []string{of("withscores", "REV")} }, of("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), key(), bound(), bound())
			return some(2, func() []string { return []string{"LIMIT", rank(), rank()} }, args...)
		case 33:
			return []string{of("ZCOUNT", "ZREMRANGEBYSCORE"), key(), bound(), bound()}
		case 34:
			return []string{"ZREMRANGEBYRANK", key(), rank(), rank()}
		case 35:
			return some(3, func() []string { return []string{of("0", "1", "2", "-1", "x", "99")} }, of("ZPOPMIN", "ZPOPMAX"), key())
		case 36:
			return []string{of("DEL", "EXISTS", "TYPE", "TTL", "PERSIST", "GET", "INCR", "STRLEN", "GETDEL", "GETEX"), key()}
		case 37:
			return append([]string{of("INCRBY", "APPEND", "GETSET", "INCRBYFLOAT", "SETNX", "GETEX", "GETRANGE", "SETRANGE"), key()}, []string{of("1", "x", ""), of("1", "x", "EX")}[:1+r.IntN(2)]...)
		case 38:
			return []string{of("EXPIRE", "PEXPIRE"), key(), of("1000000", "0")}
		case 39:
			return []string{of("RENAME", "COPY", "RENAMENX"), key(), key()}
		case 40:
			return []string{"SET", key(), of("text", "5", "")}
		default:
			return []string{of("DEL", "MGET", "PFCOUNT"), key(), key()}
		}
	})
}

// beside executes random commands side by side with a real Redis.
func beside(t *testing.T, keys []string, prepare func(*redis), draws func(*rand.Rand) []string) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	defer func() {
		if t.Failed() {
			t.Logf("again: go test ./internal/keyspace -run '^%s$' -seed %d", t.Name(), *seed)
		}
	}()
	server, err := redisproc.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := &redis{conn, bufio.NewReader(conn)}
	if prepare != nil {
		prepare(c)
	}
	r := rand.New(rand.NewPCG(*seed, 0))
	for range 200 {
		w := &world{keys: map[string]keyspace.Value{}, pieces: map[string]string{}}
		c.do(t, "FLUSHALL")
		var history []string
		for range 20 {
			w.now = time.Now().UnixMilli()
			s := w.space()
			for range 1 + r.IntN(4) {
				args := draws(r)
				history = append(history, fmt.Sprintf("%q", args))
				got, want := s.Do(bytesOf(args)), c.do(t, args...)
				if !same(args[0], got, want) {
					t.Fatalf("%s:\n%+v, want %+v", strings.Join(history, "\n"), got, want)
				}
			}
			w.apply(t, s)
			for _, key := range keys {
				got, want := keyspace.Reply{}, c.do(t, "GET", key)
				v := w.keys[key]
				if v.Exists {
					got = keyspace.Reply{Kind: keyspace.Bulk, Text: v.String()}
				}
				if v.Held != "" {
					look := looks(v.Type(), key)
					got, want = w.space().Do(bytesOf(look)), c.do(t, look...)
				}
				if !same("GET", got, want) {
					t.Fatalf("%s:\n%s is %+v, want %+v", strings.Join(history, "\n"), key, got, want)
				}
				if ends := c.do(t, "PEXPIRETIME", key).N; v.Exists && (ends > 0) != (v.DeadlineMS > 0) {
					t.Fatalf("%s:\n%s ends at %d, want %d", strings.Join(history, "\n"), key, v.DeadlineMS, ends)
				}
			}
		}
	}
}

// looks returns the command that tells what a key holds.
func looks(kind, key string) []string {
	switch kind {
	case "hash":
		return []string{"HGETALL", key}
	case "zset":
		return []string{"ZRANGE", key, "0", "-1", "WITHSCORES"}
	default:
		return []string{"PFCOUNT", key}
	}
}

func bytesOf(args []string) [][]byte {
	bytes := make([][]byte, len(args))
	for i, a := range args {
		bytes[i] = []byte(a)
	}
	return bytes
}

// same reports whether a reply is Redis's. Its clock is another.
func same(name string, got, want keyspace.Reply) bool {
	if name == "TTL" || name == "EXPIRETIME" {
		if d := got.N - want.N; d == 1 || d == -1 {
			got.N = want.N
		}
	}
	switch got.Kind { // RESP2 has no words for these.
	case keyspace.Double:
		got = keyspace.Reply{Kind: keyspace.Bulk, Text: got.Text}
	case keyspace.Map, keyspace.Pairs:
		got.Kind = keyspace.Array
	default:
	}
	return got.Kind == want.Kind && got.N == want.N && got.Text == want.Text &&
		slices.EqualFunc(got.All, want.All, func(a, b keyspace.Reply) bool { return same("", a, b) })
}
