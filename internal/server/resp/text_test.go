package resp_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server/resp"
)

func TestText(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("SET lock me NX PX 100000", ok)
		f("SET lock you NX PX 100000", null)
		f("TYPE lock", "+string\r\n")
		f("OBJECT ENCODING lock", bulk("embstr"))
		f("STRLEN lock", ":2\r\n")
		f("EXISTS lock", one)
		f("INCR lock", notInteger)
		f("GET lock", bulk("me"))
		f("MGET lock none", "*2\r\n"+bulk("me")+null)
		f("EXPIRE lock 5000", one)
		f("TTL lock", ":5000\r\n")
		f("PERSIST lock", one)
		f("TTL lock", ":-1\r\n")
		f("DBSIZE", one)
		f("RANDOMKEY", bulk("lock"))
		f("KEYS l*", "*1\r\n"+bulk("lock"))
		f("SET lock 5", ok)
		f("INCR lock", ":6\r\n")
		f("OBJECT ENCODING lock", bulk("int"))
		f("APPEND lock x", ":2\r\n")
		f("GETDEL lock", bulk("6x"))
		f("EXISTS lock", zero)
		f("SET big "+strings.Repeat("x", 65536), "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n")
		f("SET big "+strings.Repeat("x", 65535), ok)
		f("STRLEN big", ":65535\r\n")
		f("SET big 1", ok)
		f("Q.ADD big 1", ":2\r\n")
		f("SET big text", ok)
		f("Q.ADD big 1", notInteger)

		// Compare and delete, as locks are given back.
		f("SET lock me", ok)
		f("WATCH lock", ok)
		f("GET lock", bulk("me"))
		f("MULTI", ok)
		f("DEL lock", "+QUEUED\r\n")
		f("SET other text", "+QUEUED\r\n")
		f("EXEC", "*2\r\n"+one+ok)
		f("EXISTS lock", zero)
	})
}

// TestTextBesideSteps has an addition to text come together with a transaction: it is refused alone, and the
// transaction and what follows are carried out.
func TestTextBesideSteps(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		send := func(commands ...string) {
			t.Helper()
			var raw strings.Builder
			for _, command := range commands {
				raw.WriteString(command + "\r\n")
			}
			c.send(raw.String())
		}
		f := func(want string) {
			t.Helper()
			if got := c.reply(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		send("MSET t text a 1 b 2")
		f(ok)
		send("INCR t", "MULTI", "INCR a", "GET b", "EXEC", "INCR t", "INCR b", "DEL t", "INCR t", "INCR t")
		for _, want := range []string{
			notInteger, ok, "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:2\r\n" + bulk("2"), notInteger, ":3\r\n", one, one, ":2\r\n",
		} {
			f(want)
		}
	})
}

// Whoever has set a lock that was not there has it alone, until it is given back.
func TestLocks(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		inside := make(chan struct{}, 1)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				c, me := dial(t, addr), fmt.Sprintf("client-%d", i)
				for range 10 {
					for c.line("SET lock "+me+" NX PX 100000") != ok {
						time.Sleep(time.Millisecond) //nolint:forbidigo // a client that polls, as clients do
					}
					select {
					case inside <- struct{}{}:
					default:
						t.Error("two have the lock")
						return
					}
					<-inside
					c.line("WATCH lock")
					if got := c.line("GET lock"); got != bulk(me) {
						t.Errorf("%s has the lock, and it holds %q", me, got)
					}
					c.line("MULTI")
					c.line("DEL lock")
					if got := c.line("EXEC"); got != "*1\r\n"+one {
						t.Errorf("%s gives it back: %q", me, got)
					}
				}
			})
		}
		all.Wait()
	})
}

// A transaction is refused if a text that is watched was changed.
func TestTextWatched(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		a, b := dial(t, addr), dial(t, addr)
		a.expect("SET k one", ok)
		for _, change := range []string{"SET k two", "SET k 5", "DEL k", "APPEND k x"} {
			a.expect("SET k one", ok)
			a.expect("WATCH k", ok)
			b.line(change)
			a.expect("MULTI", ok)
			a.expect("SET k three", "+QUEUED\r\n")
			a.expect("EXEC", "*-1\r\n")
		}
		a.expect("SET k one", ok)
		a.expect("WATCH k", ok)
		a.expect("MULTI", ok)
		a.expect("APPEND k 1", "+QUEUED\r\n")
		a.expect("INCR k", "+QUEUED\r\n")
		a.expect("INCR n", "+QUEUED\r\n")
		a.expect("EXEC", "*3\r\n:4\r\n"+notInteger+one)
	})
}

// A pipeline of commands on text gets the replies that they get one after the other, and a key that
// can't be one, or that counts by its definition, is refused alone.
func TestTextPipelines(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	transports(t, func(t *testing.T, o resp.Options) {
		r := rand.New(rand.NewPCG(seed, 0))
		together, apart := dial(t, open(t, o).addr), dial(t, open(t, o).addr)
		for range 20 {
			var commands []string
			for range 1 + r.IntN(300) {
				key, value := fmt.Sprintf("key:%d", r.IntN(5)), []string{"text", "5", "more-text", "-1", "007"}[r.IntN(5)]
				commands = append(commands, []string{
					"SET " + key + " " + value, "GET " + key, "APPEND " + key + " x", "INCR " + key, "DEL " + key, "GETSET " + key + " " + value, "STRLEN " + key, "SETNX " + key + " " + value,
					"MSET " + key + " " + value + " other text", "MGET " + key + " other none", "EXISTS " + key, "PING", "SET " + strings.Repeat("k", 600) + " text", "RENAME " + key + " renamed", "SET " + key + " text BAD", "NONSENSE", "SET " + key, "TYPE " + key,
					"EVAL return(ARGV[1]) 0 x", "COPY " + key + " copied DB 3", "COPY " + key + " copied REPLACE", "GETRANGE " + key + " 0 1", "SETRANGE " + key + " 2 y", "PTTL " + key,
				}[r.IntN(24)])
			}
			together.send(strings.Join(commands, "\r\n") + "\r\n")
			for i, command := range commands {
				if got, want := together.reply(), apart.line(command); got != want {
					t.Fatalf("%d of %d, %s: %q, want %q", i, len(commands), command, got, want)
				}
			}
		}
	})
}

// COPY reaches other databases, and keys may be watched in several.
func TestDatabasesTogether(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("SET a text PX 100000", ok)
		f("COPY a b DB 3", one)
		f("COPY a b DB 3", zero)
		f("SET a other", ok)
		f("COPY a b DB 3 REPLACE", one)
		f("COPY a a DB 0", "-ERR source and destination objects are the same\r\n")
		f("COPY a b DB x", notInteger)
		f("COPY a b DB 16", "-ERR DB index is out of range\r\n")
		f("COPY none b DB 3 REPLACE", zero)
		f("COPY a b DB", "-ERR syntax error\r\n")
		f("EXISTS b", zero)
		f("SELECT 3", ok)
		f("GET b", bulk("other"))
		f("TTL b", ":-1\r\n")

		f("WATCH b", ok)
		f("SELECT 0", ok)
		f("WATCH b", ok)
		f("SET b 1", ok) // of this database
		f("MULTI", ok)
		f("PING", "+QUEUED\r\n")
		f("EXEC", "*-1\r\n")
		f("WATCH a", ok)
		f("SELECT 3", ok)
		f("WATCH b", ok)
		f("SET a 1", ok) // of another database than the one that is watched
		f("MULTI", ok)
		f("APPEND b x", "+QUEUED\r\n")
		f("EXEC", "*1\r\n:6\r\n")
	})
}

// While the process uses more than CONFIG SET maxmemory, nothing is added.
func TestMaxMemory(t *testing.T) {
	const full = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
	story(t, func(c *client) {
		f := c.expect
		f("SET a text", ok)
		f("MULTI", ok)
		f("SET b 1", "+QUEUED\r\n")
		f("CONFIG SET maxmemory 1kb", "+QUEUED\r\n")
		f("EXEC", "*2\r\n"+ok+ok)
		f("CONFIG GET maxmemory", "*2\r\n"+bulk("maxmemory")+bulk("1024"))
		for _, command := range []string{"SET c 1", "INCR a", "APPEND a x", "EVAL return(1) 0"} {
			f(command, full)
		}
		f("GET a", bulk("text"))
		f("EVAL_RO return(1) 0", one)
		f("DEL b", one)
		f("MULTI", ok)
		f("SET b 1", full)
		f("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		f("CONFIG SET maxmemory 0", ok)
		f("MULTI", ok)
		f("SET b 1", "+QUEUED\r\n")
		other := dial(c.t, c.RemoteAddr().String())
		other.expect("CONFIG SET maxmemory 1", ok)
		f("EXEC", "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.\r\n")
		f("EXISTS b", zero)
		f("CONFIG SET maxmemory -1", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be between 0 and 9223372036854775807 inclusive\r\n")
		f("CONFIG SET maxmemory much", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value\r\n")
		f("CONFIG SET maxmemory 100gb", ok)
		f("SET b 1", ok)
	})
}
