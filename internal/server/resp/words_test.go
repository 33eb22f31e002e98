package resp_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/server/resp"
)

// Redis and the door get the same stories, each on connections of its own, and must
// give the same replies, byte for byte. A story is commands separated by semicolons.
func TestSameStoriesAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	transports(t, func(t *testing.T, o resp.Options) { sameStories(t, redis, open(t, o).addr) })
	t.Run("embedded", func(t *testing.T) { sameStories(t, redis, openEmbedded(t).addr) })
}

func sameStories(t *testing.T, redis, addr string) {
	for _, story := range stories {
		t.Run(story, func(t *testing.T) {
			p := newPair(t, addr, redis)
			p.both("FLUSHALL")
			for line := range strings.SplitSeq(story, ";") {
				if got, want := p.both(line); got != want {
					t.Errorf("%s: %q, Redis %q", line, got, want)
				}
			}
		})
	}
}

// A client that turns replies off and on again gets those that Redis sends, and no
// others.
func TestSameSilenceAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		for _, story := range []string{
			"CLIENT REPLY SKIP; CLIENT REPLY ON; PING",
			"CLIENT REPLY SKIP; PING; PING",
			"CLIENT REPLY SKIP; CLIENT REPLY SKIP; INCR k; GET k",
			"CLIENT REPLY SKIP; NOSUCH; GET k",
			"CLIENT REPLY SKIP; CLIENT REPLY nosuch; GET k",
			"CLIENT REPLY SKIP; MULTI; INCR k; EXEC",
			"CLIENT REPLY SKIP; CLIENT REPLY OFF; PING; CLIENT REPLY ON; PING",
			"CLIENT REPLY OFF; PING; CLIENT REPLY SKIP; PING; CLIENT REPLY ON; PING",
			"CLIENT REPLY OFF; INCR k; CLIENT REPLY SKIP; CLIENT REPLY ON; GET k",
			"CLIENT REPLY OFF; CLIENT REPLY OFF; CLIENT REPLY ON; CLIENT REPLY ON",
			"SET k 1; CLIENT REPLY SKIP; KEYS *; INCR k; DBSIZE",
		} {
			t.Run(story, func(t *testing.T) {
				p := newPair(t, addr, redis)
				p.both("FLUSHALL")
				var raw strings.Builder
				for line := range strings.SplitSeq(story, ";") {
					raw.WriteString(array(strings.Fields(line)...))
				}
				if got, want := p.ours.all(raw.String()), p.redis.all(raw.String()); got != want {
					t.Errorf("%q, Redis %q", got, want)
				}
			})
		}
	})
}

// all sends commands, and returns all their replies, however many they are.
func (c *client) all(raw string) (replies string) {
	c.t.Helper()
	c.send(raw + array("ECHO", "the end"))
	for !strings.HasSuffix(replies, bulk("the end")) {
		replies += c.reply()
	}
	return strings.TrimSuffix(replies, bulk("the end"))
}

// CLIENT LIST tells the last command of a connection, and what it has selected and
// queued, as Redis does.
func TestSameClientListAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		for _, story := range []string{
			"PING", "NOSUCH", "SET k", "SET k 1; NOSUCH x", "CLIENT ID", "CLIENT nosuch", "CLIENT SETNAME me; GET k", "CONFIG GET save",
			"MULTI", "MULTI; SET k 1; INCR k", "MULTI; SET k", "MULTI; INCR k; DISCARD", "MULTI; INCR k; EXEC", "HELLO 3", "HELLO 3; RESET",
			"SELECT 5", "SELECT 5; GET k", "SELECT 5; RESET", "SELECT 5; SELECT 99", "INCR k; INCR k; GET k; GET k", "KEYS *", "DBSIZE", "CLIENT NO-EVICT ON",
		} {
			t.Run(story, func(t *testing.T) {
				p, other := newPair(t, addr, redis), newPair(t, addr, redis)
				a, b := p.both("CLIENT ID")
				for line := range strings.SplitSeq(story, ";") {
					p.both(line)
				}
				ours := other.ours.line("CLIENT LIST ID " + strings.Trim(a, ":\r\n"))
				redis := other.redis.line("CLIENT LIST ID " + strings.Trim(b, ":\r\n"))
				for _, field := range []string{"name", "flags", "db", "multi", "cmd", "user"} {
					got, want := listed(ours, field), listed(redis, field)
					if got != want {
						t.Errorf("%s=%s, Redis %s", field, got, want)
					}
				}
			})
		}
		p := newPair(t, addr, redis)
		ours, redis := p.both("CLIENT INFO")
		if got, want := listed(ours, "cmd"), listed(redis, "cmd"); got != want {
			t.Errorf("CLIENT INFO: cmd=%s, Redis %s", got, want)
		}
	})
}

// COMMAND INFO says the same of a command, but for flags and tips that mean nothing
// here, and notes for people. HELP begins and ends the same.
func TestSameCommandsAsRedis(t *testing.T) {
	p := newPair(t, open(t, resp.Options{}).addr, redisproc.For(t).Addr)
	names, _ := p.both("COMMAND LIST")
	compared := 0
	f := func(ours, redis any) {
		t.Helper()
		if redis == nil {
			return // Redis 7.0 does not have it
		}
		compared++
		if got, want := described(ours), described(redis); got != want {
			t.Errorf("\n%s, Redis\n%s", got, want)
		}
	}
	for _, name := range tree(names).([]any) {
		ours, redis := p.both("COMMAND INFO " + name.(string))
		a, b := tree(ours).([]any)[0].([]any), tree(redis).([]any)[0]
		f(a, b)
		if len(a[9].([]any)) == 0 {
			continue
		}
		for _, sub := range a[9].([]any) {
			name := sub.([]any)[0].(string)
			ours, redis := p.both("COMMAND INFO " + name)
			f(tree(ours).([]any)[0], tree(redis).([]any)[0])
		}
		ours, redis = p.both(name.(string) + " HELP")
		x, y := tree(ours).([]any), tree(redis).([]any)
		if x[0] != y[0] || x[len(x)-2] != y[len(y)-2] || x[len(x)-1] != y[len(y)-1] {
			t.Errorf("%s HELP: %q, Redis %q", name, x, y)
		}
		for _, line := range x {
			if line == "" {
				t.Errorf("%s HELP has an empty line: %q", name, x)
			}
		}
	}
	if compared < 95 {
		t.Errorf("%d commands compared", compared)
	}
}

// described returns what both servers should say of a command.
func described(info any) string {
	c := info.([]any)
	flags := slices.DeleteFunc(c[2].([]any), func(f any) bool {
		return !slices.Contains([]any{"write", "readonly", "denyoom", "admin", "fast", "no_auth"}, f)
	})
	var specs []string
	for _, spec := range c[8].([]any) {
		fields := spec.([]any)
		if fields[0] == "notes" {
			fields = fields[2:]
		}
		specs = append(specs, fmt.Sprint(fields))
	}
	return fmt.Sprint(c[0], c[1], flags, c[3:7], specs)
}

// tree returns a reply in RESP2 as strings, numbers, slices and nil.
func tree(reply string) any {
	node, _ := subtree(reply)
	return node
}

func subtree(reply string) (node any, rest string) {
	line, rest, _ := strings.Cut(reply, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch {
	case line[0] == ':':
		return n, rest
	case line[0] == '$' && n >= 0:
		return rest[:n], rest[n+2:]
	case line[0] == '*' && n >= 0:
		list := make([]any, n)
		for i := range list {
			list[i], rest = subtree(rest)
		}
		return list, rest
	case line[0] == '$' || line[0] == '*':
		return nil, rest
	}
	return line[1:], rest
}

// listed returns a field of a line of CLIENT LIST.
func listed(line, field string) string {
	_, rest, _ := strings.Cut(line, " "+field+"=")
	value, _, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(value)
}

// both sends a command of words without spaces to both servers.
func (p pair) both(words string) (ours, redis string) { return p.ours.line(words), p.redis.line(words) }

var stories = []string{
	// Options that are repeated, and options that exclude each other.
	"SET k 1 EX 100 EX 200; TTL k",
	"SET k 1 PX 100000 PX 300000; TTL k",
	"SET k 1 EX 100 PX 100; GET k",
	"SET k 1 EX 100 EXAT 9999999999; GET k",
	"SET k 1 KEEPTTL KEEPTTL; GET k",
	"SET k 1 KEEPTTL EX 1; GET k",
	"SET k 1 EX 1 KEEPTTL; GET k",
	"SET k 1 NX NX; SET k 2 XX XX; GET k",
	"SET k 1 NX XX; SET k 1 XX NX; GET k",
	"SET k 1 GET GET; SET k 2 GET NX; GET k",
	"SET k 1 EX x EX 100; TTL k",
	"SET k 1 EX 100 EX x; TTL k",
	"SET k 1 EX",
	"SET k 1 PERSIST; SET k 1 NX PERSIST",
	"SET k 1; GETEX k EX 100 EX 200; TTL k; GETEX k PERSIST PERSIST; TTL k",
	"SET k 1 EX 100; GETEX k EX 200 PERSIST; GETEX k PERSIST EX 1; TTL k",
	"SET k 1; GETEX k NX; GETEX k GET; GETEX k KEEPTTL; GETEX k EX; GETEX k EX x; GETEX k PXAT 9999999999999; EXPIRETIME k",
	"GETEX none EX x; GETEX none EX 0; GETEX none EX; GETEX none EX 1 PX 1",
	"SET k 1; EXPIRE k 100 NX NX; EXPIRE k 200 XX XX; EXPIRE k 300 GT GT; EXPIRE k 200 LT LT; TTL k",
	"SET k 1; EXPIRE k 100 XX GT; EXPIRE k 100 XX LT; EXPIRE k 100 NX GT; EXPIRE k 100 GT LT; TTL k",
	"SCAN 0 COUNT 10 COUNT 20; SCAN 0 MATCH x MATCH y; SCAN 0 COUNT 0; SCAN 0 COUNT x; SCAN 0 COUNT; SCAN x; SCAN 0 TYPE list",

	// The largest time.
	"SET k 1; PEXPIREAT k 9223372036854775807 LT; PEXPIRETIME k",
	"SET k 1; PEXPIREAT k 9223372036854775807 GT; PEXPIRETIME k",
	"SET k 1; PEXPIREAT k 9223372036854775807; PEXPIREAT k 9223372036854775807 LT; PEXPIREAT k 9223372036854775806 LT; PEXPIREAT k 9223372036854775807 GT; PEXPIRETIME k",
	"SET k 1; EXPIREAT k 9223372036854775 LT; EXPIRETIME k; EXPIREAT k 9223372036854776",
	"SET k 1; PEXPIRE k 9223372036854775807 LT; EXPIRE k -9223372036854775808; EXPIRE k 9223372036854775807",

	// Connections.
	"CLIENT KILL ID x", "CLIENT KILL ID 0", "CLIENT KILL ID -1", "CLIENT KILL ID 1 ID", "CLIENT KILL ID",
	"CLIENT KILL ID x ID", "CLIENT KILL TYPE nosuch ID", "CLIENT KILL TYPE nosuch", "CLIENT KILL TYPE", "CLIENT KILL SKIPME maybe", "CLIENT KILL SKIPME", "CLIENT KILL nosuch x",
	"CLIENT KILL ADDR", "CLIENT KILL ADDR 1.2.3.4:5", "CLIENT KILL 1.2.3.4:5", "CLIENT KILL x", "CLIENT KILL", "CLIENT KILL LADDR 1.2.3.4:5",
	"CLIENT KILL USER nobody", "CLIENT KILL USER default ID 99999999",
	"CLIENT KILL USER //", "CLIENT KILL ID 99999999 TYPE replica", "CLIENT KILL ID 99999999 SKIPME no", "CLIENT KILL TYPE master", "CLIENT KILL TYPE pubsub SKIPME no",
	"CLIENT KILL ID 9223372036854775808", "CLIENT KILL ID x TYPE nosuch", "CLIENT KILL TYPE nosuch ID x",
	"CLIENT LIST TYPE nosuch", "CLIENT LIST TYPE", "CLIENT LIST ID", "CLIENT LIST ID x", "CLIENT LIST ID 0", "CLIENT LIST nosuch", "CLIENT LIST ID 99999999", "CLIENT LIST TYPE pubsub", "CLIENT LIST TYPE slave",
	"CLIENT REPLY nosuch", "CLIENT REPLY", "CLIENT REPLY ON", "CLIENT REPLY ON x", "CLIENT NO-EVICT x", "CLIENT NO-EVICT on", "CLIENT",
	"CLIENT SETNAME a; CLIENT GETNAME; CLIENT SETNAME; CLIENT GETNAME x; CLIENT ID x; CLIENT INFO x", "CLIENT nosuch", "CLIENT nosuch x",

	// Databases.
	"SELECT 1; SET k 7; SELECT 0; GET k; SELECT 1; GET k; DBSIZE; FLUSHDB; DBSIZE",
	"SELECT 15; INCR k; FLUSHALL; GET k",
	"SELECT 16; SELECT -1; SELECT x; SELECT; SELECT 0 0; SELECT 99999999999; SELECT 9223372036854775808; SELECT 01",
	"SET a 1; SELECT 2; SET a 2; KEYS *; SELECT 0; KEYS *; SELECT 2; DEL a; SELECT 0; GET a",
	"SELECT 3; SET k 1; RESET; GET k; SELECT 3; GET k",
	"SELECT 4; SET k 1; HELLO x; GET k; AUTH x; GET k",

	// What COMMAND tells.
	"COMMAND INFO nosuch", "COMMAND INFO nosuch nosuch2", "COMMAND INFO client|nosuch", "COMMAND COUNT x", "COMMAND nosuch", "COMMAND LIST x", "COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY PATTERN", "COMMAND LIST FILTERBY nosuch x",
	"COMMAND LIST FILTERBY PATTERN nosuch*", "COMMAND LIST FILTERBY MODULE x", "COMMAND LIST FILTERBY ACLCAT nosuch", "COMMAND DOCS nosuch",

	"COMMAND GETKEYS", "COMMAND GETKEYS nosuch", "COMMAND GETKEYS nosuch a", "COMMAND GETKEYS get", "COMMAND GETKEYS get a", "COMMAND GETKEYS get a b", "COMMAND GETKEYS mset a 1 b 2", "COMMAND GETKEYS ping", "COMMAND GETKEYS ping x",
	"COMMAND GETKEYS client list", "COMMAND GETKEYS client nosuch", "COMMAND GETKEYS client",
	"COMMAND GETKEYSANDFLAGS set a 1", "COMMAND GETKEYSANDFLAGS set a 1 GET", "COMMAND GETKEYSANDFLAGS mget a b", "COMMAND GETKEYSANDFLAGS del a b", "COMMAND GETKEYSANDFLAGS rename a b", "COMMAND GETKEYSANDFLAGS ping", "COMMAND GETKEYSANDFLAGS ping x",

	// What tools ask.
	"OBJECT ENCODING none; OBJECT IDLETIME none; OBJECT FREQ none; OBJECT REFCOUNT none; OBJECT ENCODING; OBJECT nosuch; OBJECT ENCODING a b",
	"SET k 123456; OBJECT ENCODING k; object freq k; OBJECT IDLETIME k; OBJECT REFCOUNT k", "INCRBY k -9223372036854775808; OBJECT ENCODING k",
	"SET k 123456; MULTI; OBJECT ENCODING k; EXEC",
	"MEMORY USAGE none; MEMORY USAGE; MEMORY nosuch; MEMORY USAGE none SAMPLES; MEMORY USAGE none SAMPLES -1; MEMORY USAGE none SAMPLES x; MEMORY USAGE none x 1; MEMORY USAGE none SAMPLES 0; MEMORY STATS x; MEMORY DOCTOR x",
	"ROLE; ROLE x", "ACL WHOAMI; ACL USERS; ACL LIST; ACL WHOAMI x; ACL nosuch; ACL CAT nosuch; ACL CAT nosuch x", "ACL CAT transaction x",
	"CONFIG SET slowlog-log-slower-than -1; SLOWLOG RESET; SLOWLOG GET; SLOWLOG GET 0; SLOWLOG GET -1; SLOWLOG GET -2; SLOWLOG GET x; SLOWLOG GET 1 2; SLOWLOG LEN; SLOWLOG LEN x; SLOWLOG nosuch; SLOWLOG; CONFIG SET slowlog-log-slower-than 10000",
	"LATENCY LATEST; LATENCY HISTORY x; LATENCY HISTORY; LATENCY RESET; LATENCY RESET x; LATENCY HISTOGRAM nosuch; LATENCY nosuch; LATENCY",
	"CONFIG SET slowlog-log-slower-than x; CONFIG SET slowlog-log-slower-than -2; CONFIG GET slowlog-log-slower-than; CONFIG GET slowlog-max-len; CONFIG SET slowlog-max-len x",
	"CONFIG SET latency-monitor-threshold -1; CONFIG GET latency-monitor-threshold",
	"COMMAND GETKEYS object encoding a", "COMMAND GETKEYS memory usage a", "COMMAND GETKEYSANDFLAGS memory usage a",

	// Settings.
	"CONFIG SET timeout -1", "CONFIG SET timeout x", "CONFIG SET timeout 2147483648", "CONFIG SET timeout 2147483647; CONFIG GET timeout; CONFIG SET timeout 0",
	"CONFIG SET TIMEOUT 5; CONFIG GET timeout; CONFIG GET TIMEOUT; CONFIG GET TimeO*; CONFIG SET Timeout 0", "CONFIG SET TIMEOUT x", "CONFIG SET timeout 1 timeout 2", "CONFIG SET timeout 1 TIMEOUT 2; CONFIG GET timeout; CONFIG SET timeout 0",
	"CONFIG SET timeout 7 nosuch 1; CONFIG GET timeout", "CONFIG SET timeout 7 timeout; CONFIG SET timeout", "CONFIG SET timeout 7 databases 1; CONFIG GET timeout", "CONFIG SET databases 3", "CONFIG SET NoSuch 1",
	"CONFIG GET nosuch", "CONFIG GET", "CONFIG nosuch", "CONFIG RESETSTAT x", "CONFIG RESETSTAT", "CONFIG GET timeout timeout", "CONFIG GET databases", "CONFIG GET maxmemory-policy",
	"CONFIG SET maxmemory 0; CONFIG SET maxmemory 0 timeout 0", "CONFIG SET maxmemory 0 maxmemory 0", "CONFIG SET save x save x", "CONFIG SET daemonize yes", "CONFIG GET replicaof", "CONFIG GET slaveof", "CONFIG GET daemonize",
	"CONFIG SET timeout 1.5", "CONFIG SET timeout +1", "CONFIG SET timeout 1kb",
}
