package resp_test

import (
	"fmt"
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
